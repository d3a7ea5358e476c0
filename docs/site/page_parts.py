"""What the reference pages have in common."""

from __future__ import annotations

WRITTEN = "<!-- generated: edit the code, then run the tests with ROOST_UPDATE_SNAPSHOTS=1 -->\n"
WIDTH = 96


def cell(text: str) -> str:
    return text.replace("|", "\\|").replace("\n", " ")
