"""A run as one HTML page: curves, use of every accelerator, phases, bubbles, the placement, and events."""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from roost.config.fields import NAME
from roost.engine.run_record import RunRecord
from roost.engine.workers.spans import Span
from roost.errors import ConfigurationError, counted
from roost.planning.files import write_file
from roost.views.curves import Curves, curve_picture
from roost.views.drawing import text
from roost.views.map_picture import map_picture
from roost.views.page import chip, page_head, table
from roost.views.run_timeline import run_timeline, shares_of_time, use_picture
from roost.views.style import Style
from roost.views.timeline_pictures import bubbles, timeline_picture

_PARTS = 30  # the close-up shows one part of so many
_MOST_EVENTS = 200


@dataclass(frozen=True, slots=True, kw_only=True)
class Phase:
    """The calls of one method of a component, or its waits."""

    component: str
    method: str
    calls: int
    seconds: float  # of all ranks together
    ranks: int


def write_report(
    record: RunRecord,
    folder: str | os.PathLike[str],
    *,
    title: str = "",
    curves: Mapping[str, Curves] | None = None,
    marks: Mapping[str, Mapping[str, float]] | None = None,
    facts: Mapping[str, Any] | None = None,
) -> Path:
    """Write `report.html`, and an SVG of each set of curves, into a folder. Returns the path of the page.

    `record` is `run.record()`. `curves={"reward": {"seed 1": [0.1, ...]}}` are drawn on top, each set in one frame;
    `marks={"reward": {"threshold": 0.7}}` are levels in it; `facts` are lines of a table.
    """
    for name in curves or {}:
        if not NAME.fullmatch(name) or name.startswith("."):
            what = f"a set of curves cannot be called {name!r}: its picture is a file of that name"
            raise ConfigurationError(code="RS102", what=what, remedy="use letters, digits, `_` and `-`")
    place = Path(folder)
    place.mkdir(parents=True, exist_ok=True)
    pictures = {
        name: curve_picture(lines, (marks or {}).get(name)).as_svg(name)
        for name, lines in (curves or {}).items()
    }
    for name, drawn in pictures.items():
        write_file(place / f"{name}.svg", drawn, private=False)
    traced = (place / "trace.json").exists()
    page = _report_page(record, title or f"job {record.job}", pictures, facts or {}, traced)
    write_file(place / "report.html", page, private=False)
    return place / "report.html"


def phases(record: RunRecord) -> list[Phase]:
    """The phases of a run, component by component, the longest first."""
    found: dict[tuple[str, str], tuple[int, float, set[int]]] = {}
    for one in record.processes:
        for call in one.calls:
            start, end = one.span(call, record.until)
            count, seconds, ranks = found.get((one.component, call.method), (0, 0.0, set()))
            found[one.component, call.method] = count + 1, seconds + end - start, ranks | {one.rank}
    order = list(record.plan.components)
    return sorted(
        [
            Phase(component=name, method=method, calls=count, seconds=seconds, ranks=len(ranks))
            for (name, method), (count, seconds, ranks) in found.items()
        ],
        key=lambda phase: (order.index(phase.component), -phase.seconds),
    )


def _report_page(
    record: RunRecord, title: str, pictures: Mapping[str, str], facts: Mapping[str, Any], traced: bool
) -> str:
    """`pictures` are the curves by title; with `traced`, `trace.json` lies beside the page."""
    plan, seconds = record.plan, max(0.0, record.until - record.began)
    style = Style.of(plan.components)
    processes = len({(one.component, one.rank) for one in record.processes})
    sums = f"{counted(processes, 'process')} on {counted(len(plan.nodes), 'node')}, {seconds:.1f} s"
    trace = ', <a href="trace.json">trace</a>' if traced else ""
    legend = "".join(f"{chip(style, name)} &nbsp; " for name in plan.components)
    parts = [
        f"{page_head(title)}<body>\n<h1>{text(title)}</h1>\n<p>{text(sums)}, plan {plan.short_digest}{trace}</p>\n",
        table((), facts.items()),
    ]
    for name, drawn in pictures.items():
        parts.append(f'<h2>{text(name)}</h2>\n<div class="map">\n{drawn}</div>\n')
    parts += [
        "<h2>Placement</h2>\n",
        f'<div class="map">\n{map_picture(plan, style, {}, [], False).as_svg("placement")}</div>\n<p>{legend}</p>\n',
        *(_times(record) if seconds else ["<p>No call was made in this time.</p>\n"]),
        "<h2>Events</h2>\n",
        table((), ((event,) for event in record.events[-_MOST_EVENTS:])),
    ]
    return "".join(parts) + "</body>\n</html>\n"


def _times(record: RunRecord) -> list[str]:
    """What ran when, of a run in which calls were made."""
    plan, whole = record.plan, (record.began, record.until)
    close = _close_up(whole)
    shown = run_timeline(record, close)
    return [
        "<h2>Use of each accelerator</h2>\n"
        '<p class="dim">How much of the time each component worked there. Below: processes without accelerators.</p>\n',
        f'<div class="map">\n{use_picture(record, whole).as_svg("use")}</div>\n',
        table(
            ("", *plan.components, "idle"),
            (
                (label, *(_percent(found.get(name)) for name in plan.components), _idle(found))
                for label, found in shares_of_time(record, whole)
            ),
            numbers=1,
        ),
        f"<h2>Close up: {close[0] - whole[0]:.2f} s to {close[1] - whole[0]:.2f} s</h2>\n",
        f'<div class="map">\n{timeline_picture(shown).as_svg("timeline")}</div>\n',
        *(f'<p class="dim">{text(line)}</p>\n' for line in bubbles(shown)),
        "<h2>Phases</h2>\n",
        table(
            ("component", "call", "calls", "mean", "in all, per rank"),
            (
                (
                    phase.component,
                    phase.method,
                    f"{phase.calls:,}",
                    f"{phase.seconds / phase.calls * 1000:.2f} ms",
                    f"{phase.seconds / phase.ranks:.2f} s",
                )
                for phase in phases(record)
            ),
            numbers=2,
        ),
    ]


def _close_up(whole: Span) -> Span:
    """A part in the middle of the run."""
    middle, half = sum(whole) / 2, (whole[1] - whole[0]) / _PARTS / 2
    return middle - half, middle + half


def _percent(share: float | None) -> str:
    return "" if share is None else f"{share:.0%}"


def _idle(found: Mapping[str, float]) -> str:
    return f"{max(0.0, 1 - sum(found.values())):.0%}"
