"""Spans of time: joining them, and cutting holes into them."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

Span = tuple[float, float]  # seconds since the epoch


def merged(spans: Iterable[Span], gap: float = 0.0) -> list[Span]:
    """The spans in order; those that overlap, or lie closer than the gap, become one."""
    found: list[Span] = []
    for start, end in sorted(spans):
        if found and start <= found[-1][1] + gap:
            found[-1] = found[-1][0], max(found[-1][1], end)
        else:
            found.append((start, end))
    return found


def without(spans: Sequence[Span], holes: Sequence[Span]) -> list[Span]:
    """The spans without the holes. Both must be merged."""
    left: list[Span] = []
    holes, place = list(holes), 0
    for start, end in spans:
        while place < len(holes) and holes[place][1] <= start:
            place += 1
        at = place
        while at < len(holes) and holes[at][0] < end:
            if holes[at][0] > start:
                left.append((start, holes[at][0]))
            start = max(start, holes[at][1])
            at += 1
        if start < end:
            left.append((start, end))
    return left


def cut(spans: Iterable[Span], window: Span) -> list[Span]:
    """The parts of the spans that are in the window."""
    return [
        (max(start, window[0]), min(end, window[1]))
        for start, end in spans
        if end > window[0] and start < window[1]
    ]
