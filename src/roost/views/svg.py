"""A plan as a picture: the map and the components as one SVG, with no script and nothing to load."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from html import escape
from textwrap import wrap

from rich.cells import cell_len

from roost.planning.plan import Plan
from roost.views.components import ComponentRow, any_charged, columns, component_rows
from roost.views.look import KEEP, Fragments, Look, printable
from roost.views.rows import NodeRows, Row, bounded, left_out_note
from roost.views.seats import Seats, seats

FEW_NODES = 32  # up to here process ranks are worth showing
MAX_ROWS = 256
MAX_BANDS = 12  # components drawn in one cell
_CELLS_IN_LINE = 16
_LINE_WIDTH = 120  # characters of a finding in one line
_LABEL = 9  # characters that may widen a cell; longer labels become their letter

# The font is fixed-width, so what a text takes can be said without asking a browser.
_CHARACTER, _LINE, _BAND, _MARGIN, _GAP = 7.25, 18, 18, 20, 20
_FILLS = (
    "#9ec9ee",
    "#f6b26b",
    "#a9d8a3",
    "#cdb2e6",
    "#f4d35e",
    "#f2a6a0",
    "#86d5c8",
    "#eeb4dc",
    "#c2c48a",
    "#bdbdbd",
)
STYLE = """
.roost { font: 12px ui-monospace, "DejaVu Sans Mono", Menlo, Consolas, monospace; }
.roost text { fill: var(--ink, #1b1f24); white-space: pre; }
.roost .dim { fill: var(--dim, #6b7280); }
.roost .band text { fill: #1b1f24; text-anchor: middle; }
.roost .idle { fill: none; stroke: var(--dim, #9aa1ab); stroke-dasharray: 2 2; }
"""
_PAGE = """
:root { --page: #ffffff; --ink: #1b1f24; --dim: #6b7280; }
@media (prefers-color-scheme: dark) { :root { --page: #16191d; --ink: #e6e8eb; --dim: #9aa1ab; } }
.page { fill: var(--page, #ffffff); }
"""


@dataclass(frozen=True, slots=True)
class Picture:
    width: float
    height: float
    body: str

    def standing_alone(self, title: str, style: str) -> str:
        size = f'width="{self.width:g}" height="{self.height:g}" viewBox="0 0 {self.width:g} {self.height:g}"'
        return (
            f'<svg xmlns="http://www.w3.org/2000/svg" class="roost" role="img" {size}>\n'
            f"<title>{text(title)}</title>\n<style>{style}</style>\n{self.body}</svg>\n"
        )


def text(raw: str) -> str:
    """Words for a page: names come from files and may hold anything."""
    return escape(printable(raw.replace(KEEP, " ")))


def fill_of(index: int) -> str:
    return _FILLS[index % len(_FILLS)]


def render_svg(plan: Plan, *, show_all: bool = False) -> str:
    """The map, the components, a line that sums up, and what should be known about it."""
    seated, look = seats(plan), Look.of(plan.components)
    nodes = map_picture(plan, seated, look, show_all)
    table = _table_picture(component_rows(plan, seated, show_all), look, nodes.height + _GAP)
    lines = [f"{seated.in_short}  plan {plan.short_digest}"]
    for one in plan.findings:
        lines += wrap(f"{one.severity}[{one.code}]: {one.what}", _LINE_WIDTH, subsequent_indent="    ")
    top = table.height + _GAP
    words = "".join(_words(_MARGIN, top + index * _LINE, line) for index, line in enumerate(lines))
    width = max(nodes.width, table.width, 2 * _MARGIN + _wide(max(lines, key=cell_len)))
    height = top + len(lines) * _LINE + _MARGIN
    page = f'<rect class="page" width="{width:g}" height="{height:g}"/>\n'
    body = page + nodes.body + table.body + words
    return Picture(width, height, body).standing_alone(title_of(plan), _PAGE + STYLE)


def title_of(plan: Plan) -> str:
    return f"roost plan {plan.short_digest}"


# -- the map ---------------------------------------------------------------------------------------------


def map_picture(plan: Plan, seated: Seats, look: Look, show_all: bool = False) -> Picture:
    found = NodeRows(plan, seated, look, FEW_NODES)
    rows, left_out = bounded(found.drawn(with_ranks=bool(found.ranks)), None if show_all else MAX_ROWS)
    drawn = [row for row in rows if row is not None]
    drawing = _Map(look, drawn)
    y, body = float(_MARGIN + _LINE), [drawing.header()]
    for row in rows:
        if row is None:
            body.append(_words(_MARGIN, y, f"... {left_out_note(left_out)}", "dim"))
            y += _LINE + 6
        else:
            body.append(drawing.row(row, y))
            y += drawing.height(row) + 6
    return Picture(drawing.width, y, "".join(body))


class _Map:
    """Where the columns are, and what is drawn in them."""

    def __init__(self, look: Look, rows: Sequence[Row]) -> None:
        self.bit = {name: index for index, name in enumerate(look.letters)}
        self.look = look
        labels = [label for row in rows for cell in set(row.cells) for label, _ in _bands(cell)]
        longest = max((len(label) for label in labels if len(label) <= _LABEL), default=1)
        self.cell = max(30.0, longest * _CHARACTER + 10)
        self.host = _MARGIN + _column("node", [row.nodes for row in rows])
        self.model = self.host + _column("host", [row.host for row in rows], when_empty=False)
        self.cells = self.model + _column("model", [row.model for row in rows if row.cells], when_empty=False)
        most = min(_CELLS_IN_LINE, max((len(row.cells) for row in rows), default=0))
        self.beside = self.cells + most * (self.cell + 3) + (_GAP if most else 0)
        also = _column("also here", [_plain(one) for row in rows for one in row.beside], when_empty=False)
        self.width = self.beside + also + _MARGIN
        self.columns = most

    def header(self) -> str:
        heads = [("node", _MARGIN), ("host", self.host), ("model", self.model), ("also here", self.beside)]
        ends = [self.host, self.model, self.cells, self.width - _MARGIN]
        shown = [(head, x) for (head, x), end in zip(heads, ends, strict=True) if end > x]
        numbers = [(str(n), self.cells + n * (self.cell + 3) + self.cell / 2) for n in range(self.columns)]
        return "".join(
            [_words(x, _MARGIN - 4, head, "dim") for head, x in shown]
            + [_words(x, _MARGIN - 4, head, "dim", middle=True) for head, x in numbers]
        )

    def height(self, row: Row) -> float:
        lines = -(-len(row.cells) // _CELLS_IN_LINE)
        return max(lines * (self._depth(row) + 3), len(row.beside) * _LINE, _LINE)

    def row(self, row: Row, y: float) -> str:
        parts = [_words(_MARGIN, y, row.nodes), _words(self.host, y, row.host)]
        if row.cells:
            parts.append(_words(self.model, y, row.model))
        depth = self._depth(row)
        for index, cell in enumerate(row.cells):
            line, column = divmod(index, _CELLS_IN_LINE)
            x, top = self.cells + column * (self.cell + 3), y + line * (depth + 3)
            parts.append(self._cell(f"node {row.nodes}, accelerator {index}", cell, x, top, depth))
        for index, beside in enumerate(row.beside):
            parts.append(self._beside(beside, y + index * _LINE))
        return "".join(parts)

    def _beside(self, fragments: Fragments, y: float) -> str:
        x, behind = self.beside, []
        for piece, name in fragments:
            if name:
                bit, width = self.bit[name], _wide(piece) + 6
                behind.append(
                    f'<g class="band c{bit}"><rect x="{x - 3:g}" y="{y + 1:g}" width="{width:g}" '
                    f'height="{_LINE - 2}" rx="2" fill="{fill_of(bit)}"/>'
                    f'<text x="{x - 3 + width / 2:g}" y="{y + 13:g}">{text(piece)}</text></g>'
                )
            else:
                behind.append(_words(x, y, piece))
            x += _wide(piece)
        return "".join(behind)

    def _depth(self, row: Row) -> float:
        return (
            _BAND * max((min(len(list(_bands(cell))), MAX_BANDS) for cell in row.cells), default=1) or _BAND
        )

    def _cell(self, where: str, cell: Fragments, x: float, y: float, depth: float) -> str:
        bands = list(_bands(cell))
        if not bands:
            place = f'x="{x + 0.5:g}" y="{y + 0.5:g}" width="{self.cell - 1:g}" height="{depth - 1:g}"'
            return f'<rect class="idle" rx="3" {place}><title>{text(where)}: idle</title></rect>\n'
        who = ", ".join(
            f"{name} {label.removeprefix(self.look.letters[name])}".strip() for label, name in bands
        )
        parts = [f"<g><title>{text(f'{where}: {who}')}</title>"]
        shown = bands if len(bands) <= MAX_BANDS else bands[: MAX_BANDS - 1]
        each = depth / (len(shown) + (len(shown) < len(bands)))
        for index, (label, name) in enumerate(shown):
            label = label if len(label) <= _LABEL else self.look.letters[name]
            parts.append(self._band(self.bit[name], label, x, y + index * each, each))
        if len(shown) < len(bands):
            more = f"+{len(bands) - len(shown)}"
            parts.append(_words(x + self.cell / 2, y + depth - each, more, "dim", middle=True))
        return "".join(parts) + "</g>\n"

    def _band(self, bit: int, label: str, x: float, y: float, height: float) -> str:
        return (
            f'<g class="band c{bit}"><rect x="{x:g}" y="{y:g}" width="{self.cell:g}" height="{height:g}" rx="2" '
            f'fill="{fill_of(bit)}"/><text x="{x + self.cell / 2:g}" y="{y + height / 2 + 4:g}">'
            f"{text(label)}</text></g>"
        )


def _bands(cell: Fragments) -> Iterator[tuple[str, str]]:
    return ((piece, name) for piece, name in cell if name)


def _plain(fragments: Fragments) -> str:
    return "".join(piece for piece, _ in fragments)


# -- the components --------------------------------------------------------------------------------------


def _table_picture(rows: Sequence[ComponentRow], look: Look, y: float) -> Picture:
    if not rows:
        return Picture(0, y + _LINE, _words(_MARGIN, y, "no component runs here"))
    x, parts = _MARGIN + 34.0, []
    tops = [y + _LINE + 4]
    for row in rows:
        tops.append(tops[-1] + len(row.places) * (_LINE + 2))
    for bit, (row, top) in enumerate(zip(rows, tops, strict=False)):
        parts.append(
            f'<g class="band c{bit}"><rect x="{_MARGIN}" y="{top:g}" width="24" height="{_BAND}" rx="2" '
            f'fill="{fill_of(bit)}"/><text x="{_MARGIN + 12}" y="{top + 13:g}">{text(look.letters[row.name])}</text></g>\n'
        )
    for heading, field in columns(rows, any_charged(rows)):
        lines = [row.lines(field) for row in rows]
        parts.append(_words(x, y, heading, "dim"))
        for cell, top in zip(lines, tops, strict=False):
            parts += [_words(x, top + index * (_LINE + 2), line) for index, line in enumerate(cell)]
        x += _column(heading, [line for cell in lines for line in cell])
    return Picture(x, tops[-1], "".join(parts))


# -- words -----------------------------------------------------------------------------------------------


def _wide(words: str) -> float:
    return cell_len(words) * _CHARACTER


def _column(heading: str, cells: Sequence[str], when_empty: bool = True) -> float:
    if not when_empty and not any(cells):
        return 0
    return _wide(max([heading, *cells], key=cell_len)) + _GAP


def _words(x: float, y: float, words: str, kind: str = "", middle: bool = False) -> str:
    """A line of text, its top at y."""
    if not words:
        return ""
    style = f' class="{kind}"' * bool(kind) + ' text-anchor="middle"' * middle
    return f'<text{style} x="{x:g}" y="{y + 13:g}">{text(words)}</text>\n'
