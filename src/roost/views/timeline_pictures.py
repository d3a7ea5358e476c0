"""A timeline as text for a terminal, and as an SVG."""

from __future__ import annotations

from roost.suggesting.timeline import Lane, Timeline
from roost.views.drawing import DIM, INK, UNUSED, Picture, fill_of, text
from roost.views.style import Style, hues
from roost.views.use_lanes import LEFT, SIDE, WIDTH, with_ticks

_MOST_BUBBLES = 6
_ROW = 30


def timeline_text(shown: Timeline, width: int, ascii_only: bool = False) -> str:
    style = Style.of(shown.components, ascii_only)
    labels = [lane.label for lane in shown.lanes]
    room = max(map(len, labels), default=0) + 2
    cells = max(20, min(72, width - room - 2))
    scale = cells / shown.seconds
    lines = [f"{'':{room}}{'0 s':<{cells - 8}}{shown.seconds:>8.4g} s"]
    for lane, label in zip(shown.lanes, labels, strict=True):
        row = [style.idle] * cells
        for bar in lane.bars:
            if bar.component:
                begin = min(cells - 1, int(bar.start * scale))
                for cell in range(begin, max(begin + 1, min(cells, round(bar.end * scale)))):
                    row[cell] = style.letters[bar.component]
        lines.append(f"{label:{room}}{''.join(row)}{_idle(lane, shown)}")
    legend = "  ".join(f"{letter} {name}" for name, letter in style.letters.items())
    return "\n".join([*lines, f"{'':{room}}{legend}  {style.idle} idle"])


def bubbles(shown: Timeline) -> list[str]:
    """The largest gaps, in words: `cluster 0-27 is idle from 48.1 to 51 s: waits to run actor`."""
    found = [
        (bar.end - bar.start, lane, bar) for lane in shown.lanes for bar in lane.bars if not bar.component
    ]
    large = sorted((one for one in found if one[0] > 0.01 * shown.seconds), key=lambda one: -one[0])
    return [
        f"{lane.label} is idle from {bar.start:.4g} to {bar.end:.4g} s: {bar.reason}"
        for _, lane, bar in large[:_MOST_BUBBLES]
    ]


def _idle(lane: Lane, shown: Timeline) -> str:
    idle = sum(bar.end - bar.start for bar in lane.bars if not bar.component)
    if not lane.has_accelerators or idle <= 0.005 * shown.seconds:
        return ""
    return f" {idle / shown.seconds:.0%} idle"


def timeline_picture(shown: Timeline) -> Picture:
    scale = WIDTH / shown.seconds
    colours = hues(shown.components)
    parts = []
    for number, lane in enumerate(shown.lanes):
        y = SIDE + number * _ROW
        parts.append(f'<text x="{SIDE}" y="{y + 16}" fill="{INK}">{text(lane.label)}</text>\n')
        for bar in lane.bars:
            x, wide = LEFT + bar.start * scale, max(1.0, (bar.end - bar.start) * scale)
            name = bar.component or bar.reason
            title = f"<title>{text(name)}: {bar.start:.4g} to {bar.end:.4g} s</title>"
            place = f'x="{x:.1f}" y="{y}" width="{wide:.1f}" height="{_ROW - 6}"'
            if not bar.component:
                dash = f'fill="none" stroke="{UNUSED}" stroke-dasharray="3 3"'
                parts.append(f"<g>{title}<rect {place} {dash}/>{_label(name, x, y, wide, True)}</g>\n")
            else:
                rect = f'<rect {place} rx="3" fill="{fill_of(colours[bar.component])}"/>'
                parts.append(f'<g class="band">{title}{rect}{_label(name, x, y, wide, False)}</g>\n')
    ticks = [f"{shown.seconds * tick / 4:.4g} s" for tick in range(5)]
    return with_ticks(parts, ticks, SIDE + len(shown.lanes) * _ROW + 14)


def _label(name: str, x: float, y: float, wide: float, dim: bool) -> str:
    if len(name) * 7.3 > wide - 4:
        return ""
    kind = f' class="dim" fill="{DIM}"' if dim else f' fill="{INK}"'
    return f'<text{kind} x="{x + wide / 2:.1f}" y="{y + 16}" text-anchor="middle">{text(name)}</text>'
