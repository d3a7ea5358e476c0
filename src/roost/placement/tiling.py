"""Tiles nodes with engines: each engine is on one node, or fills whole nodes of equal size."""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import accumulate

from roost.config.ranks import Ranks, Segment
from roost.inventory.resources import Resources, Slot


@dataclass(frozen=True, slots=True)
class Piece:
    """Consecutive accelerators of one node."""

    slot: Slot
    first: int  # resource rank
    count: int

    @property
    def local(self) -> Ranks:
        """The numbers of the accelerators on their node."""
        first = self.first - self.slot.first
        return Ranks(first, first + self.count - 1)


@dataclass(frozen=True, slots=True)
class Misfit:
    """An engine that would lie on several nodes without filling them, or on more or fewer nodes than engine 0."""

    engine: int
    pieces: tuple[Piece, ...]
    first: tuple[Piece, ...] = ()  # of engine 0, if that one has another number of nodes


class PoolRanks:
    """The resource ranks behind the positions 0, 1, ... of a pool."""

    def __init__(self, resources: Resources, runs: Sequence[Ranks]) -> None:
        self.resources = resources
        self.runs = _joined(runs)
        self.size = sum(map(len, self.runs))
        self._starts = [0, *accumulate(map(len, self.runs))]

    def ranks(self, positions: range) -> Iterator[Ranks]:
        """The ranks of consecutive positions, in runs of consecutive ranks."""
        at = positions.start
        while at < positions.stop:
            index = bisect_right(self._starts, at) - 1
            offset = at - self._starts[index]
            count = min(len(self.runs[index]) - offset, positions.stop - at)
            first = self.runs[index].first + offset
            yield Ranks(first, first + count - 1)
            at += count

    def pieces(self, positions: range) -> list[Piece]:
        found = []
        for run in self.ranks(positions):
            at = run.first
            while at <= run.last:
                slot = self.resources.slot_of(at)
                count = min(slot.first + slot.count, run.last + 1) - at
                found.append(Piece(slot, at, count))
                at += count
        return found

    def tile(self, positions: range, width: int) -> tuple[Segment, ...] | Misfit:
        """Tile these positions, a multiple of `width`, with engines that have a process on each of their nodes.

        All engines have the same number of processes, so that the ranks of an engine follow from its number. The
        cost is linear in the nodes, not in the engines.
        """
        pieces = self.pieces(positions)
        runs: list[tuple[int, int, int]] = []  # first rank, count, accelerators of a process
        index = used = engine = 0
        first: tuple[Piece, ...] = ()
        while index < len(pieces):
            piece = pieces[index]
            room = piece.count - used
            whole = room // width
            held = [Piece(piece.slot, piece.first + used, min(room, width))]
            if whole:
                if len(first) > 1:
                    return Misfit(engine, tuple(held), first)
                first = first or tuple(held)
                runs.append((piece.first + used, whole * width, width))
                used, engine = used + whole * width, engine + whole
            else:
                missing = width - room
                while missing:
                    index += 1
                    piece = pieces[index]
                    used = min(piece.count, missing)
                    held.append(Piece(piece.slot, piece.first, used))
                    missing -= used
                size = held[0].count
                if any(part.count != part.slot.count or part.count != size for part in held):
                    return Misfit(engine, tuple(held))
                first = first or tuple(held)
                if len(first) != len(held):
                    return Misfit(engine, tuple(held), first)
                runs += [(part.first, size, size) for part in held]
                engine += 1
            if used == piece.count:
                index, used = index + 1, 0
        return segments(runs)


def segments(runs: Sequence[tuple[int, int, int]]) -> tuple[Segment, ...]:
    """Runs of (first rank, count, count per process) as the fewest segments of the rank language."""
    joined: list[tuple[int, int, int]] = []
    for first, count, width in runs:
        if joined and joined[-1][0] + joined[-1][1] == first and joined[-1][2] == width:
            first, count = joined[-1][0], joined.pop()[1] + count
        joined.append((first, count, width))
    found, process = [], 0
    for first, count, width in joined:
        last = process + count // width - 1
        processes = None if width == 1 else Ranks(process, last)
        found.append(Segment(Ranks(first, first + count - 1), processes))
        process = last + 1
    return tuple(found)


def _joined(runs: Sequence[Ranks]) -> list[Ranks]:
    joined: list[Ranks] = []
    for run in runs:
        if joined and joined[-1].last + 1 == run.first:
            run = Ranks(joined.pop().first, run.last)
        joined.append(run)
    return joined
