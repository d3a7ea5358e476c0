"""The accelerators of a run over time: the components that worked on each, and the reasons of idle gaps."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

from roost.config.ranks import ranges
from roost.engine.run_record import ProcessRecord, RunRecord
from roost.engine.workers.spans import Span, cut, merged
from roost.suggesting.timeline import Bar, Lane, Timeline
from roost.views.drawing import Picture
from roost.views.style import hues
from roost.views.use_lanes import UseLane, lanes_picture

_BUCKETS = 190
_PIXELS = 900  # of a timeline: bars that would touch are drawn as one
_TOLD = 0.01  # of a timeline: shorter gaps are not named
_SAME_WORK = 0.05  # of a timeline: shorter pauses of a component count as work


@dataclass(frozen=True, slots=True, kw_only=True)
class DeviceUse:
    """Accelerators that the same processes hold, or a process without accelerators."""

    label: str
    processes: tuple[ProcessRecord, ...]
    is_device: bool

    def busy(self, until: float) -> dict[str, list[Span]]:
        """The spans in which each component worked here."""
        spans: dict[str, list[Span]] = {}
        for one in self.processes:
            spans.setdefault(one.component, []).extend(one.busy(until))
        return {name: merged(found) for name, found in spans.items()}


def device_uses(record: RunRecord) -> list[DeviceUse]:
    holders: dict[tuple[int, int], list[ProcessRecord]] = {}
    for one in record.processes:
        for device in one.devices:
            holders.setdefault((one.node or 0, device), []).append(one)
    same: dict[tuple[int, tuple[tuple[str, int], ...]], list[int]] = {}
    for (node, device), here in sorted(holders.items()):
        who = tuple((one.component, one.rank) for one in here)
        same.setdefault((node, who), []).append(device)
    uses = [
        DeviceUse(
            label=f"node {node}: {ranges(devices)}",
            processes=tuple(holders[node, devices[0]]),
            is_device=True,
        )
        for (node, _), devices in same.items()
    ]
    others: dict[tuple[str, int], list[ProcessRecord]] = {}
    for one in record.processes:
        if not one.devices:
            others.setdefault((one.component, one.rank), []).append(one)
    return uses + [
        DeviceUse(label=f"{name} {rank} (node {found[-1].node})", processes=tuple(found), is_device=False)
        for (name, rank), found in others.items()
    ]


def run_timeline(record: RunRecord, window: Span) -> Timeline:
    """A part of the run. The reason of a gap on accelerators names the component that worked at that time."""
    start, end = window
    uses = device_uses(record)
    busy = [use.busy(record.until) for use in uses]
    everyone: dict[str, list[Span]] = {}
    for found in busy:
        for name, spans in found.items():
            everyone[name] = merged(
                [*everyone.get(name, []), *cut(spans, window)], _SAME_WORK * (end - start)
            )
    lanes = []
    for use, found in zip(uses, busy, strict=True):
        bars = [
            Bar(start=one - start, end=other - start, component=name)
            for name, spans in found.items()
            for one, other in merged(cut(spans, window), (end - start) / _PIXELS)
        ]
        gaps = list(_gaps(bars, end - start, everyone, start)) if use.is_device else []
        filled = tuple(sorted([*bars, *gaps], key=lambda bar: bar.start))
        lanes.append(Lane(label=use.label, has_accelerators=use.is_device, bars=filled))
    return Timeline(seconds=end - start, components=tuple(record.plan.components), lanes=tuple(lanes))


def _gaps(
    bars: Sequence[Bar], seconds: float, everyone: Mapping[str, Sequence[Span]], begin: float
) -> Iterator[Bar]:
    now = 0.0
    for bar in sorted(bars, key=lambda bar: bar.start) + [Bar(start=seconds, end=seconds, component="")]:
        if bar.start - now > _TOLD * seconds:
            gap = begin + now, begin + bar.start
            worked = {
                name: sum(end - start for start, end in cut(spans, gap)) for name, spans in everyone.items()
            }
            name = max(worked, key=lambda name: worked[name], default="")
            at_work = bool(name) and worked[name] > 0.3 * (bar.start - now)
            meanwhile = f" while {name} works" if at_work else ", no call runs"
            reason = f"waits to run {bar.component}" if bar.component else "waits"
            yield Bar(start=now, end=bar.start, component="", reason=reason + meanwhile)
        now = max(now, bar.end)


def shares_of_time(record: RunRecord, window: Span) -> list[tuple[str, dict[str, float]]]:
    """For each lane, the share of the time that each component worked there."""
    seconds = window[1] - window[0]
    return [
        (
            use.label,
            {
                name: sum(end - start for start, end in cut(spans, window)) / seconds
                for name, spans in use.busy(record.until).items()
            },
        )
        for use in device_uses(record)
    ]


def use_picture(record: RunRecord, window: Span) -> Picture:
    """The whole run: for each lane columns as high as the share of the time in which a component worked."""
    start, end = window
    step = (end - start) / _BUCKETS
    lanes = []
    for use in device_uses(record):
        shares = {}
        for name, spans in use.busy(record.until).items():
            filled = shares[name] = [0.0] * _BUCKETS
            for one, other in cut(spans, window):
                for bucket in range(
                    int((one - start) / step), min(_BUCKETS, int((other - start) / step) + 1)
                ):
                    edge = start + bucket * step
                    filled[bucket] += max(0.0, min(other, edge + step) - max(one, edge)) / step
        lanes.append(UseLane(label=use.label, shares=shares))
    ticks = [f"{(end - start) * tick / 4:.4g} s" for tick in range(5)]
    return lanes_picture(lanes, hues(record.plan.components), ticks)
