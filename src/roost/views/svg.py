"""A plan as a picture: the map and the components as one SVG, with no script and nothing to load.

Plain attributes give every colour, so that renderers that know little CSS draw it too. CSS adds a dark mode.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import date
from html import escape
from textwrap import wrap

from rich.cells import cell_len

from roost.planning.held import Unused, unused_by_node
from roost.planning.plan import Plan
from roost.planning.preflight import Holder
from roost.views.captions import heading, held_lines, in_short
from roost.views.components import MAX_NAMES, ComponentRow, any_charged, columns, component_rows, listed
from roost.views.occupancy_masks import OccupancyMasks, occupancy_masks
from roost.views.rows import NodeRows, Row, bounded, left_out_note
from roost.views.style import KEEP, Fragments, Style, printable

FEW_NODES = 32  # up to here cells show process ranks
MAX_ROWS = 256
MAX_BANDS = 12  # components drawn in one cell
_CELLS_IN_LINE = 16
_LINE_WIDTH = 120  # characters; longer sentences are wrapped
_LABEL = 9  # characters that may widen a cell; longer labels become their letter

# The font is fixed-width, so the width of a text is known without asking a browser.
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
_INK, _DIM, _UNUSED = "#1b1f24", "#6b7280", "#9aa1ab"
_FONT = "ui-monospace, 'DejaVu Sans Mono', Menlo, Consolas, monospace"
_STYLE = f"""
.roost text {{ white-space: pre; }}
@media (prefers-color-scheme: dark) {{
  .roost .page {{ fill: #16191d; }}
  .roost text {{ fill: #e6e8eb; }}
  .roost .dim {{ fill: {_UNUSED}; }}
  .roost .band text {{ fill: {_INK}; }}
}}
"""
_HATCH = (
    '<defs><pattern id="roost-held" width="5" height="5" patternUnits="userSpaceOnUse" patternTransform="rotate(45)">'
    f'<rect width="2" height="5" fill="{_UNUSED}"/></pattern></defs>\n'
)


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
        words = [
            _words(_MARGIN, _MARGIN - 4 + index * _LINE, line, bold=True) for index, line in enumerate(lines)
        ]
        shift = (len(lines) + 1) * _LINE
        width = max(self.width, *(2 * _MARGIN + _wide(line) for line in lines))
        body = f'{"".join(words)}<g transform="translate(0 {shift})">\n{self.body}</g>\n'
        return Picture(width, self.height + shift, body)


def text(raw: str) -> str:
    """The words escaped for SVG and HTML: names come from files and may hold any character."""
    return escape(printable(raw.replace(KEEP, " ")))


def fill_of(index: int) -> str:
    return _FILLS[index % len(_FILLS)]


def render_svg(
    plan: Plan,
    *,
    show_all: bool = False,
    job: str = "",
    day: date | None = None,
    held: Sequence[Holder] = (),
) -> str:
    """The map, the components, a line that sums up, and the findings.

    `job` (the name of its file) and `day` make a heading. `held` is what others hold of the cluster.
    """
    masks, style = occupancy_masks(plan), Style.of(plan.components)
    unused = unused_by_node(plan, held) if held else {}
    nodes = map_picture(plan, masks, style, unused, held_lines(plan, held, show_all), show_all)
    table = _table_picture(component_rows(plan, masks, show_all), style, nodes.height + _GAP)
    lines = [f"{in_short(masks, unused)}  plan {plan.short_digest}"]
    for one in plan.findings:
        lines += _wrapped(f"{one.severity}[{one.code}]: {one.what}")
    top = table.height + _GAP
    words = "".join(_words(_MARGIN, top + index * _LINE, line) for index, line in enumerate(lines))
    width = max(nodes.width, table.width, 2 * _MARGIN + _wide(max(lines, key=cell_len)))
    drawn = Picture(width, top + len(lines) * _LINE + _MARGIN, nodes.body + table.body + words)
    title = heading(plan, job, day)
    drawn = drawn.with_heading(_wrapped(title)) if title else drawn
    page = f'<rect class="page" width="{drawn.width:g}" height="{drawn.height:g}" fill="#ffffff"/>\n'
    return Picture(drawn.width, drawn.height, page + drawn.body).as_svg(title or title_of(plan))


def title_of(plan: Plan) -> str:
    return f"roost plan {plan.short_digest}"


# -- the map ---------------------------------------------------------------------------------------------


def map_picture(
    plan: Plan,
    masks: OccupancyMasks,
    style: Style,
    unused: Mapping[int, Unused],
    notes: Sequence[str],
    show_all: bool = False,
) -> Picture:
    """The map, with the notes below it."""
    found = NodeRows(plan, masks, style, FEW_NODES, unused)
    rows, left_out = bounded(found.drawn(with_ranks=bool(found.ranks)), None if show_all else MAX_ROWS)
    drawn = [row for row in rows if row is not None]
    drawing = _Map(style, drawn, unused)
    y, body = float(_MARGIN + _LINE), [_HATCH * bool(unused), drawing.header()]
    for row in rows:
        if row is None:
            body.append(_words(_MARGIN, y, f"... {left_out_note(left_out)}", "dim"))
            y += _LINE + 6
        else:
            body.append(drawing.row(row, y))
            y += drawing.height(row) + 6
    lines = [line for note in notes for line in _wrapped(note)]
    for line in lines:
        body.append(_words(_MARGIN, y, line))
        y += _LINE
    width = max([drawing.width, *(2 * _MARGIN + _wide(line) for line in lines)])
    return Picture(width, y, "".join(body))


class _Map:
    """The columns of the map and what is drawn in them."""

    def __init__(self, style: Style, rows: Sequence[Row], unused: Mapping[int, Unused]) -> None:
        self.unused = unused
        self.bit = {name: index for index, name in enumerate(style.letters)}
        self.style = style
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
            parts.append(self._cell(row, index, cell, x, top, depth))
        for index, beside in enumerate(row.beside):
            parts.append(self._beside(beside, y + index * _LINE))
        return "".join(parts)

    def _beside(self, fragments: Fragments, y: float) -> str:
        x, behind = self.beside, []
        for piece, name in fragments:
            if name:
                bit, width = self.bit[name], _wide(piece) + 6
                behind.append(_band(bit, piece, x - 3, y + 1, width, _LINE - 2))
            else:
                behind.append(_words(x, y, piece))
            x += _wide(piece)
        return "".join(behind)

    def _depth(self, row: Row) -> float:
        return (
            _BAND * max((min(len(list(_bands(cell))), MAX_BANDS) for cell in row.cells), default=1) or _BAND
        )

    def _cell(self, row: Row, number: int, cell: Fragments, x: float, y: float, depth: float) -> str:
        where, bands = f"node {row.nodes}, accelerator {number}", list(_bands(cell))
        if not bands:
            return self._unused_cell(where, row, number, x, y, depth)
        who = ", ".join(
            f"{name} {label.removeprefix(self.style.letters[name])}".strip() for label, name in bands
        )
        parts = [f"<g><title>{text(f'{where}: {who}')}</title>"]
        shown = bands if len(bands) <= MAX_BANDS else bands[: MAX_BANDS - 1]
        each = depth / (len(shown) + (len(shown) < len(bands)))
        for index, (label, name) in enumerate(shown):
            label = label if len(label) <= _LABEL else self.style.letters[name]
            parts.append(_band(self.bit[name], label, x, y + index * each, self.cell, each))
        if len(shown) < len(bands):
            more = f"+{len(bands) - len(shown)}"
            parts.append(_words(x + self.cell / 2, y + depth - each, more, "dim", middle=True))
        return "".join(parts) + "</g>\n"

    def _unused_cell(self, where: str, row: Row, number: int, x: float, y: float, depth: float) -> str:
        found = self.unused.get(row.first.node.rank)
        state = (found and found.state_of(number)) or "idle"
        fill = "url(#roost-held)" if state == "held" else "none"
        line = f'stroke="{_UNUSED}"' + ' stroke-dasharray="2 2"' * (state != "held")
        place = f'x="{x + 0.5:g}" y="{y + 0.5:g}" width="{self.cell - 1:g}" height="{depth - 1:g}"'
        who = f" by {', '.join(self._holders(row, number))}" if state == "held" else ""
        cell = f'<rect rx="3" {place} fill="{fill}" {line}><title>{text(f"{where}: {state}{who}")}</title></rect>\n'
        if state != "perhaps held":
            return cell
        return cell + _words(
            x + self.cell / 2, y + depth / 2 - 9, self.style.unused[state], "dim", middle=True
        )

    def _holders(self, row: Row, number: int) -> list[str]:
        """Who holds this accelerator on the nodes of a row."""
        nodes = (rank for first, last in row.runs for rank in range(first.node.rank, last.node.rank + 1))
        names = dict.fromkeys(name for rank in nodes for name in self.unused[rank].held[number])
        return listed(list(names), MAX_NAMES, False, "{} more")


def _band(bit: int, label: str, x: float, y: float, width: float, height: float) -> str:
    """A rectangle in a component's colour."""
    return (
        f'<g class="band c{bit}"><rect x="{x:g}" y="{y:g}" width="{width:g}" height="{height:g}" rx="2" '
        f'fill="{fill_of(bit)}"/><text x="{x + width / 2:g}" y="{y + height / 2 + 4:g}" text-anchor="middle" '
        f'fill="{_INK}">{text(label)}</text></g>\n'
    )


def _bands(cell: Fragments) -> Iterator[tuple[str, str]]:
    return ((piece, name) for piece, name in cell if name)


def _plain(fragments: Fragments) -> str:
    return "".join(piece for piece, _ in fragments)


# -- the components --------------------------------------------------------------------------------------


def _table_picture(rows: Sequence[ComponentRow], style: Style, y: float) -> Picture:
    if not rows:
        return Picture(0, y + _LINE, _words(_MARGIN, y, "no component runs here"))
    x, parts = _MARGIN + 34.0, []
    tops = [y + _LINE + 4]
    for row in rows:
        tops.append(tops[-1] + len(row.places) * (_LINE + 2))
    for bit, (row, top) in enumerate(zip(rows, tops, strict=False)):
        parts.append(_band(bit, style.letters[row.name], _MARGIN, top, 24, _BAND))
    for head, field in columns(rows, any_charged(rows)):
        lines = [row.lines(field) for row in rows]
        parts.append(_words(x, y, head, "dim"))
        for cell, top in zip(lines, tops, strict=False):
            parts += [_words(x, top + index * (_LINE + 2), line) for index, line in enumerate(cell)]
        x += _column(head, [line for cell in lines for line in cell])
    return Picture(x, tops[-1], "".join(parts))


# -- words -----------------------------------------------------------------------------------------------


def _wide(words: str) -> float:
    return cell_len(words) * _CHARACTER


def _column(heading: str, cells: Sequence[str], when_empty: bool = True) -> float:
    if not when_empty and not any(cells):
        return 0
    return _wide(max([heading, *cells], key=cell_len)) + _GAP


def _wrapped(words: str) -> list[str]:
    return wrap(words, _LINE_WIDTH, subsequent_indent="    ")


def _words(x: float, y: float, words: str, kind: str = "", middle: bool = False, bold: bool = False) -> str:
    """A line of text, its top at y."""
    if not words:
        return ""
    style = f' class="{kind}"' * bool(kind) + f' fill="{_DIM if kind == "dim" else _INK}"'
    style += ' text-anchor="middle"' * middle + ' font-weight="bold"' * bold
    return f'<text{style} x="{x:g}" y="{y + 13:g}">{text(words)}</text>\n'
