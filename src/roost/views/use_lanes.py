"""How much components worked, over time: a lane for each accelerator, in columns as high as the share of the time."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from roost.views.drawing import DIM, INK, UNUSED, Picture, fill_of, text

LEFT, WIDTH, SIDE = 190, 760, 20  # of lanes, and of the margin around them
_LEAST = 0.004  # of a column: less is not drawn


@dataclass(frozen=True, slots=True, kw_only=True)
class UseLane:
    label: str
    shares: Mapping[str, Sequence[float]]  # by component, of each column


def lanes_picture(
    lanes: Sequence[UseLane], hues: Mapping[str, int], ticks: Sequence[str], row: float = 34
) -> Picture:
    high = row - 8 if row > 16 else row - 2
    parts = []
    for number, lane in enumerate(lanes):
        y = SIDE + number * row
        parts.append(
            f'<text x="{SIDE}" y="{y + high / 2 + 4:g}" fill="{INK}">{text(lane.label)}</text>\n'
            f'<rect x="{LEFT}" y="{y:g}" width="{WIDTH}" height="{high:g}" fill="none" stroke="{UNUSED}" stroke-opacity="0.4"/>\n'
        )
        floor: list[float] = []
        for name, shares in lane.shares.items():
            floor = floor or [0.0] * len(shares)
            path = _columns(shares, floor, y, high)
            parts.append(
                f'<g class="band"><title>{text(f"{lane.label}: {name}")}</title>'
                f'<path d="{path}" fill="{fill_of(hues[name])}"/></g>\n'
            )
    bottom = SIDE + len(lanes) * row + 12
    return with_ticks(parts, ticks, bottom)


def with_ticks(parts: Sequence[str], ticks: Sequence[str], bottom: float) -> Picture:
    """The picture of lanes, with ticks below them at equal distances."""
    drawn = []
    for number, tick in enumerate(ticks):
        anchor = "start" if number == 0 else "end" if number == len(ticks) - 1 else "middle"
        drawn.append(
            f'<text class="dim" x="{LEFT + WIDTH * number / (len(ticks) - 1):.1f}" y="{bottom:g}" '
            f'text-anchor="{anchor}" fill="{DIM}">{text(tick)}</text>\n'
        )
    return Picture(LEFT + WIDTH + SIDE, bottom + 16, "".join([*parts, *drawn]))


def _columns(shares: Sequence[float], floor: list[float], y: float, high: float) -> str:
    """The path of a component's columns, on top of those drawn before. Columns of equal height are one."""
    wide, path = WIDTH / len(shares), []
    column = 0
    while column < len(shares):
        tall, base, first = min(shares[column], 1.0 - floor[column]), floor[column], column
        while column < len(shares) and (min(shares[column], 1.0 - floor[column]), floor[column]) == (
            tall,
            base,
        ):
            column += 1
        if tall > _LEAST:
            top, width = y + high * (1 - base - tall), wide * (column - first)
            path.append(f"M{LEFT + first * wide:.1f} {top:.1f}h{width:.1f}v{high * tall:.1f}h-{width:.1f}z")
            floor[first:column] = [base + tall] * (column - first)
    return "".join(path)
