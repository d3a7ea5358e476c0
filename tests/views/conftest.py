"""Snapshots: exact text in tests/snapshots, written anew with ROOST_UPDATE_SNAPSHOTS=1."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path

import pytest

SNAPSHOTS = Path(__file__).parents[1] / "snapshots"


@pytest.fixture
def same_as_before() -> Callable[[str | Path, str], None]:
    def compare(name: str | Path, text: str) -> None:
        path = name if isinstance(name, Path) else SNAPSHOTS / (name if "." in name else f"{name}.txt")
        if os.environ.get("ROOST_UPDATE_SNAPSHOTS") == "1":
            path.write_text(text, "utf-8")
        assert text == path.read_text("utf-8")

    return compare
