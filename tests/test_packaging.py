"""What is promised about installing roost: the versions it runs with, and what the source archive holds."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
from packaging.requirements import Requirement

import versions

ROOT = Path(__file__).parents[1]


@pytest.mark.parametrize("interpreter", versions.INTERPRETERS)
def test_every_dependency_has_one_lowest_version(interpreter: str) -> None:
    lowest = [Requirement(one) for one in versions.requirements(interpreter, "lowest")]
    newest = [Requirement(one) for one in versions.requirements(interpreter, "newest")]
    extras = versions.project()["optional-dependencies"]
    promised = [*versions.project()["dependencies"], *extras["web"], *extras["hydra"]]
    names = {Requirement(one).name for one in promised} - {"ray"}
    for wanted in (lowest, newest):
        assert sorted(one.name for one in wanted) == sorted({*names, *versions.TOOLS})
    for low, new in zip(lowest, newest, strict=True):
        next_release = new.name == "hydra-core"
        assert (
            low.name in versions.TOOLS
            or next_release
            or all(new.specifier.contains(pin.version) for pin in low.specifier if pin.operator == "==")
        )


def test_choosing_versions(capsys: pytest.CaptureFixture[str]) -> None:
    assert versions.main(["3.10-lowest", "2.7-newest"]) == 2
    assert "there is no 2.7-newest; there are 3.10-lowest, 3.10-newest" in capsys.readouterr().err


def test_an_interpreter_that_does_not_run_is_not_at_hand(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    stub = tmp_path / "python3.10"
    stub.write_text("#!/bin/sh\necho 'no such version' >&2\nexit 127\n")
    stub.chmod(0o755)
    monkeypatch.setenv("PATH", str(tmp_path))
    monkeypatch.setenv("PYENV_ROOT", str(tmp_path))
    monkeypatch.setattr(versions.sys, "executable", str(stub))
    assert versions.interpreter_at_hand("3.10") is None
    assert versions.main(["3.10-lowest"]) == 1
    assert "no Python 3.10 at hand" in capsys.readouterr().err


def test_the_source_archive_holds_what_the_readme_and_the_makefile_name() -> None:
    text = (ROOT / "pyproject.toml").read_text("utf-8")
    included = re.search(r"^\[tool\.hatch\.build\.targets\.sdist\]\ninclude = \[(.*?)\]", text, re.M | re.S)
    assert included is not None
    packed = set(re.findall(r'"([^"]+)"', included[1])) | {"pyproject.toml"}  # which is always packed
    named = {"Makefile"} if re.search(r"^make ", (ROOT / "README.md").read_text("utf-8"), re.M) else set()
    for page in ("README.md", "CONTRIBUTING.md", "Makefile"):
        named |= set(re.findall(r"[\w./-]+", (ROOT / page).read_text("utf-8")))
    tops = {
        Path(name).parts[0]
        for name in named
        if not name.startswith((".", "/", "build")) and (ROOT / name).exists()
    }
    assert {"Makefile", "constraints.txt", "CONTRIBUTING.md", "docs", "examples", "tests"} <= tops
    assert tops <= packed
    assert all((ROOT / name).exists() for name in packed)
