"""The map of a plan as a picture: a row for each node, a cell for each accelerator, a box for each engine over its cells."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass

from roost.config.ranks import ranges
from roost.planning.plan import Plan
from roost.planning.preflight import Unused
from roost.views.components import MAX_NAMES, listed
from roost.views.drawing import (
    BAND,
    CHARACTER,
    GAP,
    LINE,
    MARGIN,
    UNUSED,
    Look,
    Picture,
    band,
    column,
    text,
    wide,
    words,
    wrapped,
)
from roost.views.rows import NodeRows, Row, bounded, engine_joins, map_note
from roost.views.style import Fragments, Style

FEW_NODES = 32  # up to here cells show process ranks
MAX_ROWS = 256
MAX_BANDS = 12  # components drawn in one cell
_CELLS_IN_LINE = 16
_LABEL = 9  # characters that may widen a cell; longer labels become their letter
_BETWEEN = 3  # cells
_HATCH = (
    '<defs><pattern id="roost-held" width="5" height="5" patternUnits="userSpaceOnUse" patternTransform="rotate(45)">'
    f'<rect width="2" height="5" fill="{UNUSED}"/></pattern></defs>\n'
)


@dataclass(frozen=True, slots=True, kw_only=True)
class MapStates:
    """The states of a running job, to be drawn on its map."""

    processes: Mapping[tuple[str, int], str]  # by component and rank
    beside: Mapping[tuple[int, str], str]  # of processes without accelerators, by node and component
    nodes: Mapping[int, str]  # of nodes that are not up
    apart: frozenset[int]  # nodes that should have a row of their own
    order: Sequence[str]  # of states, from good to bad

    def worst(self, component: str, ranks: Iterable[int]) -> str:
        """The worst state among these processes."""
        states = {self.processes.get((component, rank), "") for rank in ranks} - {""}
        return max(states, key=self.order.index, default="")


NO_STATES = MapStates(processes={}, beside={}, nodes={}, apart=frozenset(), order=())


def map_picture(
    plan: Plan,
    style: Style,
    unused: Mapping[int, Unused],
    notes: Sequence[str],
    show_all: bool = False,
    states: MapStates = NO_STATES,
) -> Picture:
    """The map, with the notes below it."""
    found = NodeRows(plan, style, FEW_NODES, unused, show_all, engine_joins(plan), states.apart)
    rows, left_out = bounded(found.drawn(with_ranks=bool(found.ranks)), None if show_all else MAX_ROWS)
    drawn = [row for row in rows if row is not None]
    drawing = _Map(plan, style, drawn, unused, states)
    note = map_note(rows, left_out)
    if states is not NO_STATES:
        note = note.partition(";")[0]  # a page that changes has no --all
    y, body = float(MARGIN + LINE), [_HATCH * bool(unused), drawing.header()]
    for row in rows:
        if row is None:
            body.append(words(MARGIN, y, f"... {note}", "dim"))
            y += LINE + 6
        else:
            body.append(drawing.row(row, y))
            y += drawing.height(row) + 6
    if note and not left_out:
        body.append(words(MARGIN, y, note, "dim"))
        y += LINE
    lines = [line for sentence in notes for line in wrapped(sentence)]
    for line in lines:
        body.append(words(MARGIN, y, line))
        y += LINE
    width = max([drawing.width, *(2 * MARGIN + wide(line) for line in (*lines, note))])
    return Picture(width, y, "".join(body))


class _Map:
    """Draws the columns and rows of the map."""

    def __init__(
        self,
        plan: Plan,
        style: Style,
        rows: Sequence[Row],
        unused: Mapping[int, Unused],
        states: MapStates,
    ) -> None:
        self.unused, self.style, self.plan, self.states = unused, style, plan, states
        self.looks = looks(style)
        labels = [label for row in rows for cell in set(row.cells) for label, _ in _bands(cell)]
        longest = max((len(label) for label in labels if len(label) <= _LABEL), default=1)
        self.cell = max(30.0, longest * CHARACTER + 10)
        self.host = MARGIN + column("node", [row.nodes for row in rows])
        self.model = self.host + column("host", [row.host for row in rows], when_empty=False)
        self.cells = self.model + column("model", [row.model for row in rows if row.cells], when_empty=False)
        most = min(_CELLS_IN_LINE, max((len(row.cells) for row in rows), default=0))
        self.beside = self.cells + most * (self.cell + _BETWEEN) + (GAP if most else 0)
        also = column("also here", [_plain(one) for row in rows for one in row.beside], when_empty=False)
        self.width = self.beside + also + MARGIN
        self.columns = most

    def header(self) -> str:
        heads = [("node", MARGIN), ("host", self.host), ("model", self.model), ("also here", self.beside)]
        ends = [self.host, self.model, self.cells, self.width - MARGIN]
        shown = [(head, x) for (head, x), end in zip(heads, ends, strict=True) if end > x]
        numbers = [(str(n), self._x(n) + self.cell / 2) for n in range(self.columns)]
        return "".join(
            [words(x, MARGIN - 4, head, "dim") for head, x in shown]
            + [words(x, MARGIN - 4, head, "dim", middle=True) for head, x in numbers]
        )

    def height(self, row: Row) -> float:
        lines = -(-len(row.cells) // _CELLS_IN_LINE)
        return max(lines * (self._depth(row) + _BETWEEN), len(row.beside) * LINE, LINE)

    def row(self, row: Row, y: float) -> str:
        """The row as one SVG group. The search of a page finds it by its nodes."""
        parts = [words(MARGIN, y, row.nodes), words(self.host, y, row.host)]
        if row.cells:
            parts.append(words(self.model, y, row.model))
        depth = self._depth(row)
        for numbers in _blocks(row):
            top = y + numbers[0] // _CELLS_IN_LINE * (depth + _BETWEEN)
            parts.append(
                self._block(row, numbers, top, depth)
                if len(numbers) > 1
                else self._cell(row, numbers[0], top, depth)
            )
        for index, beside in enumerate(row.beside):
            parts.append(self._beside(row, beside, y + index * LINE))
        state = self.states.nodes.get(row.first.node.rank, "")
        kind = f" is-{state}" if state else ""
        return f'<g class="row{kind}" data-nodes="{ranges(row.node_ranks)}">\n{"".join(parts)}</g>\n'

    def _x(self, number: int) -> float:
        return self.cells + number % _CELLS_IN_LINE * (self.cell + _BETWEEN)

    def _beside(self, row: Row, fragments: Fragments, y: float) -> str:
        x, behind = self.beside, []
        for piece, name in fragments:
            if name:
                state = self.states.beside.get((row.first.node.rank, name), "")
                place = x - 3, y + 1, wide(piece) + 6, LINE - 2
                behind.append(band(self.looks[name], piece, *place, state=state))
            else:
                behind.append(words(x, y, piece))
            x += wide(piece)
        return "".join(behind)

    def _depth(self, row: Row) -> float:
        most = max((len(self._names(row, numbers)) for numbers in _blocks(row)), default=1)
        return BAND * min(max(most, 1), MAX_BANDS)

    def _names(self, row: Row, numbers: Sequence[int]) -> list[str]:
        """The components in a block of cells, in the order of the plan."""
        there = {name for number in numbers for _, name in _bands(row.cells[number])}
        return [name for name in self.looks if name in there] if len(there) > 1 else list(there)

    def _cell(self, row: Row, number: int, y: float, depth: float) -> str:
        if not self._names(row, (number,)):
            return self._unused_cell(row, number, self._x(number), y, depth)
        return f"<g><title>{self._title(row, number)}</title>{self._lanes(row, (number,), y, depth)}</g>\n"

    def _block(self, row: Row, numbers: Sequence[int], y: float, depth: float) -> str:
        """A block: cells that an engine, or a process, holds together. A tooltip tells what is on it."""
        covers = [
            f'<rect x="{self._x(number):g}" y="{y:g}" width="{self.cell:g}" height="{depth:g}" fill="#ffffff" '
            f'fill-opacity="0"><title>{self._title(row, number)}</title></rect>\n'
            for number in numbers
        ]
        return f"<g>{self._lanes(row, numbers, y, depth)}{''.join(covers)}</g>\n"

    def _lanes(self, row: Row, numbers: Sequence[int], y: float, depth: float) -> str:
        """A lane for each component of the block, with a box for each of its engines or processes."""
        names = self._names(row, numbers)
        shown = names if len(names) <= MAX_BANDS else names[: MAX_BANDS - 1]
        each = depth / (len(shown) + (len(shown) < len(names)))
        parts = []
        for index, name in enumerate(shown):
            for held in _boxes(row, name, numbers):
                width = self._x(held[-1]) - self._x(held[0]) + self.cell
                ranks = _ranks(row, name, held)
                label = self.style.letters[name] + ranges(ranks)
                if len(label) > _LABEL and wide(label) > width - 4:
                    label = self.style.letters[name]
                state = self.states.worst(name, ranks)
                place = self._x(held[0]), y + index * each, width, each
                parts.append(band(self.looks[name], label, *place, ranges(ranks), state))
        if len(shown) < len(names):
            middle = (self._x(numbers[0]) + self._x(numbers[-1]) + self.cell) / 2
            parts.append(words(middle, y + depth - each, f"+{len(names) - len(shown)}", "dim", middle=True))
        return "".join(parts)

    def _title(self, row: Row, number: int) -> str:
        who = []
        for _, name in _bands(row.cells[number]):
            ranks = _ranks(row, name, (number,))
            engines = self.plan.components[name].engines
            part = ""
            if ranks and engines is not None and engines.processes > 1:
                part = f" of engine {ranges({rank // engines.processes for rank in ranks})}"
            state = self.states.worst(name, ranks)
            who.append(f"{name} {ranges(ranks)}".strip() + part + (f" ({state})" if state else ""))
        return text(f"node {row.nodes}, accelerator {number}: {', '.join(who)}")

    def _unused_cell(self, row: Row, number: int, x: float, y: float, depth: float) -> str:
        where = f"node {row.nodes}, accelerator {number}"
        found = self.unused.get(row.first.node.rank)
        state = (found and found.state_of(number)) or "idle"
        fill = "url(#roost-held)" if state == "held" else "none"
        line = f'stroke="{UNUSED}"' + ' stroke-dasharray="2 2"' * (state != "held")
        place = f'x="{x + 0.5:g}" y="{y + 0.5:g}" width="{self.cell - 1:g}" height="{depth - 1:g}"'
        who = f" by {', '.join(self._holders(row, number))}" if state == "held" else ""
        cell = f'<rect rx="3" {place} fill="{fill}" {line}><title>{text(f"{where}: {state}{who}")}</title></rect>\n'
        if state != "perhaps held":
            return cell
        mark = self.style.unused[state]
        return cell + words(x + self.cell / 2, y + depth / 2 - 9, mark, "dim", middle=True)

    def _holders(self, row: Row, number: int) -> list[str]:
        """The holders of this accelerator on the nodes of a row."""
        names = dict.fromkeys(name for rank in row.node_ranks for name in self.unused[rank].held[number])
        return listed(list(names), MAX_NAMES, False, "{} more")


def looks(style: Style) -> dict[str, Look]:
    return {name: Look(bit=bit, hue=style.hues[name]) for bit, name in enumerate(style.letters)}


def _ranks(row: Row, name: str, numbers: Sequence[int]) -> set[int]:
    """The processes of a component on these cells, if the row shows process ranks."""
    return {rank for number in numbers if row.ranks for rank in row.ranks[number][name]}


def _blocks(row: Row) -> Iterator[list[int]]:
    """The cells of a row, in blocks that engines or processes hold together. A line ends a block."""
    block: list[int] = []
    for number in range(len(row.cells)):
        if block and not (number % _CELLS_IN_LINE and row.joins and row.joins[number - 1]):
            yield block
            block = []
        block.append(number)
    if block:
        yield block


def _boxes(row: Row, name: str, numbers: Sequence[int]) -> Iterator[list[int]]:
    """The cells of a block where a component sits, in runs that one engine or process holds."""
    run: list[int] = []
    for number in numbers:
        there = any(other == name for _, other in _bands(row.cells[number]))
        if run and not (there and name in row.joins[number - 1]):
            yield run
            run = []
        if there:
            run.append(number)
    if run:
        yield run


def _bands(cell: Fragments) -> Iterator[tuple[str, str]]:
    return ((piece, name) for piece, name in cell if name)


def _plain(fragments: Fragments) -> str:
    return "".join(piece for piece, _ in fragments)
