"""Findings as text for a terminal, and the usual width of text. Every verb loads this, so it does without Rich."""

from __future__ import annotations

import re
from collections.abc import Sequence

from roost.errors import Finding, render

DEFAULT_WIDTH = 100  # of text that does not go to a terminal
# A part of the text of `roost.errors.render`, and the parameters of its ANSI escape sequence.
_COLOURS = (
    (r"^error\[\w+\]", "1;31"),  # bold red
    (r"^warning\[\w+\]", "1;33"),  # bold yellow
    # The carets; before the gutter, whose escape sequence would come between | and them.
    (r"(?<=\| ) *\^+$", "1;31"),
    (r"^ +\d* \|", "34"),  # blue
    (r"^  --> .*$", "2"),  # dim
    (r"^  = \w+:", "1"),  # bold
)


def render_findings(findings: Sequence[Finding], *, colour: bool = False) -> str:
    """The text of `roost.errors.render`, in colour if wanted."""
    text = render(findings)
    for pattern, parameters in _COLOURS if colour else ():
        text = re.sub(pattern, rf"\033[{parameters}m\g<0>\033[0m", text, flags=re.MULTILINE)
    return text + "\n"
