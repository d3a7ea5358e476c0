"""The reference pages are those of the code. ROOST_UPDATE_SNAPSHOTS=1 rewrites them."""

from __future__ import annotations

import difflib
import os

import pytest
from reference_pages import pages

from roost.config.job_schema import job_schema

pytestmark = pytest.mark.installed


def test_the_reference_is_that_of_the_code() -> None:
    written = pages()
    if os.environ.get("ROOST_UPDATE_SNAPSHOTS") == "1":
        for path, text in written.items():
            path.write_text(text, "utf-8")
    differences = [
        line
        for path, text in written.items()
        for line in difflib.unified_diff(
            path.read_text("utf-8").splitlines(),
            text.splitlines(),
            f"docs: {path.name}",
            "code",
            lineterm="",
            n=0,
        )
    ]
    assert not differences, "\n".join(differences)


def test_every_key_of_a_job_says_what_it_is() -> None:
    schema = job_schema()
    [cluster] = [one for one in schema["properties"]["cluster"]["anyOf"] if "properties" in one]
    sections = {"cluster": cluster, **schema["$defs"]}
    lacking = [
        f"{name}.{key}"
        for name, section in sections.items()
        for key, part in section.get("properties", {}).items()
        if "description" not in part and name != "RestartLimits"  # its keys are the causes
    ]
    assert lacking == []
