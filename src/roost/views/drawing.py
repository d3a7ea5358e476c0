"""Pictures: SVG made of bands in the colours of components, and of words.

Plain attributes give every colour, so that renderers that know little CSS draw it too. CSS adds a dark mode.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from html import escape
from textwrap import wrap

from rich.cells import cell_len

from roost.views.style import HUES, KEEP, printable

_LINE_WIDTH = 120  # characters; longer sentences are wrapped
# The font is fixed-width, so the width of a text is known without asking a browser.
CHARACTER, LINE, BAND, MARGIN, GAP = 7.25, 18, 18, 20, 20
_FILLS = (
    *("#9ec9ee", "#f6b26b", "#a9d8a3", "#cdb2e6", "#f4d35e"),
    *("#f2a6a0", "#86d5c8", "#eeb4dc", "#c2c48a", "#d8bba0"),
)
INK, DIM, UNUSED = "#1b1f24", "#6b7280", "#9aa1ab"
_FONT = "ui-monospace, 'DejaVu Sans Mono', Menlo, Consolas, monospace"
_STYLE = f"""
.roost text {{ white-space: pre; }}
@media (prefers-color-scheme: dark) {{
  .roost .page {{ fill: #16191d; }}
  .roost text {{ fill: #e6e8eb; }}
  .roost .dim {{ fill: {UNUSED}; }}
  .roost .band text {{ fill: {INK}; }}
}}
"""


@dataclass(frozen=True, slots=True)
class Picture:
    width: float
    height: float
    body: str

    def as_svg(self, title: str) -> str:
        size = f'width="{self.width:g}" height="{self.height:g}" viewBox="0 0 {self.width:g} {self.height:g}"'
        return (
            f'<svg xmlns="http://www.w3.org/2000/svg" class="roost" role="img" {size} '
            f'font-family="{_FONT}" font-size="12" xml:space="preserve">\n'
            f"<title>{text(title)}</title>\n<style>{_STYLE}</style>\n{self.body}</svg>\n"
        )

    def with_heading(self, lines: Sequence[str]) -> Picture:
        """The picture with a heading above it."""
        drawn = [
            words(MARGIN, MARGIN - 4 + index * LINE, line, bold=True) for index, line in enumerate(lines)
        ]
        shift = (len(lines) + 1) * LINE
        width = max(self.width, *(2 * MARGIN + wide(line) for line in lines))
        body = f'{"".join(drawn)}<g transform="translate(0 {shift})">\n{self.body}</g>\n'
        return Picture(width, self.height + shift, body)


def text(raw: str) -> str:
    """The words escaped for SVG and HTML: names come from files and may hold any character."""
    return escape(printable(raw.replace(KEEP, " ")))


def fill_of(hue: int) -> str:
    return _FILLS[hue % HUES]


@dataclass(frozen=True, slots=True, kw_only=True)
class Look:
    """How a component looks: its place in the plan, which is its class, and its colour."""

    bit: int
    hue: int


def band(
    look: Look, label: str, x: float, y: float, width: float, height: float, ranks: str = "", state: str = ""
) -> str:
    """A rectangle in a component's colour. A page finds it by its class and its process ranks, and styles its state."""
    found_by = f' data-ranks="{ranks}"' * bool(ranks)
    kind = f" is-{state.replace(' ', '-')}" if state else ""
    return (
        f'<g class="band c{look.bit}{kind}"{found_by}><rect x="{x:g}" y="{y:g}" width="{width:g}" height="{height:g}" '
        f'rx="2" fill="{fill_of(look.hue)}"/><text x="{x + width / 2:g}" y="{y + height / 2 + 4:g}" '
        f'text-anchor="middle" fill="{INK}">{text(label)}</text></g>\n'
    )


def wide(line: str) -> float:
    return cell_len(line) * CHARACTER


def column(heading: str, cells: Sequence[str], when_empty: bool = True) -> float:
    if not when_empty and not any(cells):
        return 0
    return wide(max([heading, *cells], key=cell_len)) + GAP


def wrapped(sentence: str) -> list[str]:
    return wrap(sentence, _LINE_WIDTH, subsequent_indent="    ")


def words(x: float, y: float, line: str, kind: str = "", middle: bool = False, bold: bool = False) -> str:
    """A line of text, its top at y."""
    if not line:
        return ""
    style = f' class="{kind}"' * bool(kind) + f' fill="{DIM if kind == "dim" else INK}"'
    style += ' text-anchor="middle"' * middle + ' font-weight="bold"' * bold
    return f'<text{style} x="{x:g}" y="{y + 13:g}">{text(line)}</text>\n'
