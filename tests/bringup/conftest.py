"""A snapshot fixture like that of the tests of views."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path

import pytest

SNAPSHOTS = Path(__file__).parents[1] / "snapshots" / "up"


@pytest.fixture
def same_as_before() -> Callable[[str, str], None]:
    """Snapshots: exact text in tests/snapshots/up, written anew with ROOST_UPDATE_SNAPSHOTS=1."""

    def compare(name: str, text: str) -> None:
        path = SNAPSHOTS / name
        if os.environ.get("ROOST_UPDATE_SNAPSHOTS") == "1":
            path.write_text(text, "utf-8")
        assert text == path.read_text("utf-8")

    return compare
