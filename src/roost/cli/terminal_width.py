"""The width of the terminal that a verb writes to."""

from __future__ import annotations

import os
from typing import TextIO

from roost.views.terminal import DEFAULT_WIDTH

_UNKNOWN_WIDTH = 80  # columns of a terminal that reports 0, as serial lines and some CI systems do


def width_of(stream: TextIO) -> int:
    """`COLUMNS` if it is set, else the terminal's width, else the default width of text in files and pipes."""
    columns = os.environ.get("COLUMNS", "")
    if columns.isdecimal() and int(columns) > 0:
        return max(20, int(columns[:6]))
    try:
        return max(20, os.get_terminal_size(stream.fileno()).columns or _UNKNOWN_WIDTH)
    except (OSError, ValueError):
        return DEFAULT_WIDTH
