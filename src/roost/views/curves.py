"""Curves of numbers over steps: as an SVG, and as one line of a terminal for each."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence

from roost.views.drawing import DIM, INK, UNUSED, Picture, fill_of, text

Curves = Mapping[str, Sequence[float]]

_LEFT, _WIDTH, _HEIGHT, _MARGIN = 60, 700, 240, 20
_BLOCKS, _ASCII = " ▁▂▃▄▅▆▇█", " .:-=+*#@"


def curve_lines(curves: Curves, width: int = 60, ascii_only: bool = False) -> list[str]:
    """`seed 1  ▁▂▄▆█  0.09 to 0.86`, on one scale for all."""
    levels = _ASCII if ascii_only else _BLOCKS
    low, high = _range(curves)
    room = max(map(len, curves), default=0)
    lines = []
    for name, values in curves.items():
        if not values:
            continue
        cells = min(width, len(values))
        parts = [values[len(values) * at // cells : len(values) * (at + 1) // cells] for at in range(cells)]
        heights = [(sum(part) / len(part) - low) / (high - low) for part in parts]
        drawn = "".join(
            levels[1 + min(7, int(height * 8))] if math.isfinite(height) else "?" for height in heights
        )
        lines.append(f"{name:{room}}  {drawn}  {values[0]:.3g} to {values[-1]:.3g}")
    return lines


def curve_picture(curves: Curves, marks: Mapping[str, float] | None = None) -> Picture:
    """All curves in one frame; `marks` are levels, such as a threshold, drawn as dashed lines."""
    marks = {name: value for name, value in (marks or {}).items() if math.isfinite(value)}
    low, high = _range({**curves, **{name: [value] for name, value in marks.items()}})
    steps = max(2, *(len(values) for values in curves.values())) if curves else 2
    bottom, right = _MARGIN + _HEIGHT, _LEFT + _WIDTH

    def x(step: int) -> float:
        return _LEFT + _WIDTH * step / (steps - 1)

    def y(value: float) -> float:
        return bottom - _HEIGHT * (value - low) / (high - low)

    parts = []
    for tick in range(5):
        value = low + (high - low) * tick / 4
        parts.append(
            f'<line x1="{_LEFT}" x2="{right}" y1="{y(value):.1f}" y2="{y(value):.1f}" stroke="{UNUSED}" '
            f'stroke-opacity="0.4"/>\n'
            f'<text class="dim" x="{_LEFT - 8}" y="{y(value) + 4:.1f}" text-anchor="end" fill="{DIM}">{value:.3g}</text>\n'
        )
    for name, value in marks.items():
        parts.append(
            f'<line x1="{_LEFT}" x2="{right}" y1="{y(value):.1f}" y2="{y(value):.1f}" stroke="{DIM}" '
            f'stroke-dasharray="6 4"/>\n'
            f'<text class="dim" x="{right - 4}" y="{y(value) - 5:.1f}" text-anchor="end" fill="{DIM}">'
            f"{text(name)} {value:.3g}</text>\n"
        )
    for bit, (name, values) in enumerate(curves.items()):
        points = " ".join(
            f"{x(step):.1f},{y(value):.1f}" for step, value in enumerate(values) if math.isfinite(value)
        )
        parts.append(
            f'<polyline points="{points}" fill="none" stroke="{fill_of(bit)}" stroke-width="2.5">'
            f"<title>{text(name)}</title></polyline>\n"
        )
        at = _LEFT + bit * 130
        parts.append(f'<rect x="{at}" y="{bottom + 34}" width="14" height="10" fill="{fill_of(bit)}"/>\n')
        parts.append(f'<text x="{at + 20}" y="{bottom + 43}" fill="{INK}">{text(name)}</text>\n')
    parts.append(f'<text class="dim" x="{_LEFT}" y="{bottom + 18}" fill="{DIM}">step 1</text>\n')
    parts.append(
        f'<text class="dim" x="{right}" y="{bottom + 18}" text-anchor="end" fill="{DIM}">step {steps}</text>\n'
    )
    return Picture(right + _MARGIN, bottom + 34 + _MARGIN, "".join(parts))


def _range(curves: Curves) -> tuple[float, float]:
    """From below the lowest value to above the highest, in round numbers. 0 is inside, so that heights compare."""
    values = [value for one in curves.values() for value in one if math.isfinite(value)]
    low, high = min([0.0, *values]), max([0.0, *values])
    step = (high - low) / 4 or 0.25
    size = 10.0 ** math.floor(math.log10(step))
    step = next(size * factor for factor in (1, 2, 2.5, 5, 10) if size * factor >= step * (1 - 1e-9))
    low = math.floor(low / step) * step
    return low, low + (4 if low + 4 * step >= high else 5) * step
