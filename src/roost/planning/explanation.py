"""Explains the place of a process: its rule, how ranks were counted, and its neighbours."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from itertools import groupby

from roost.config.job import Job
from roost.config.layout_section import PLACE
from roost.config.ranks import Ranks, RankSpec, Segment, parse_ranks, ranges
from roost.errors import Path, Span, counted
from roost.inventory.accelerators import accelerator_kind
from roost.inventory.resources import ACCELERATOR, BARE_NODE, Resources
from roost.placement.placement import Placement
from roost.planning.component_plan import ComponentPlan, resource_ranks, resources_of
from roost.planning.plan import Plan


@dataclass(frozen=True, slots=True, kw_only=True)
class Neighbour:
    """A component on the same device. `device` is None for processes that hold nothing but the node."""

    device: int | None
    component: str
    ranks: tuple[int, ...]
    share: float  # of the device, for each of these processes; 0 if it is no accelerator


@dataclass(frozen=True, slots=True, kw_only=True)
class Explanation:
    """An explanation. `process` is None if it is about a whole component."""

    component: str
    world_size: int
    rule: str  # in canonical spelling; empty for a strategy
    node_groups: tuple[str, ...]
    path: Path = ()  # of the rule in the job
    where: Span | None = None  # of the rule in the job's file
    counting: tuple[str, ...]
    shares_with: tuple[str, ...] = ()  # the components that use devices of this one too
    process: ProcessExplanation | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class ProcessExplanation:
    rank: int
    node: int
    host: str
    kind: str
    devices: tuple[int, ...]
    group: str
    engine: str
    share: float
    neighbours: tuple[Neighbour, ...]
    variables: tuple[str, ...]  # set by the job; names only, because values may be secrets
    placed: dict[str, str] = field(default_factory=dict)  # variables that follow from the placement
    interpreter: str


def explain(plan: Plan, component: str, rank: int | None = None, job: Job | None = None) -> Explanation:
    """Explain one process, or a component as a whole. With the job, also the position of the rule in its file."""
    plan = plan.without_secrets()
    found = plan.component(component)
    counting = _Counting(found, resources_of(found, plan.inventory))
    path, where = _position(counting, rank, job)
    return Explanation(
        component=component,
        world_size=found.world_size,
        rule=found.rule,
        node_groups=found.node_groups,
        path=path,
        where=where,
        counting=(*_from_layout(job, found), *counting.sentences(rank)),
        shares_with=tuple(_shares_with(plan, component)),
        process=None if rank is None else _process(plan, found, found.members[rank]),
    )


def _shares_with(plan: Plan, own: str) -> Iterator[str]:
    there = [{use.component for use in uses} for uses in set(plan.occupancy.values())]
    others = set[str]().union(*(names for names in there if own in names)) - {own}
    return (name for name in plan.components if name in others)


def _position(counting: _Counting, rank: int | None, job: Job | None) -> tuple[Path, Span | None]:
    """The place of the rule in the job, and of the segment that placed this rank."""
    if job is None:
        return (), None
    rule = job.rules.get(counting.component.name)
    if rule is None:  # a layout made it
        return PLACE, job.document.key_span(PLACE)
    part = None if rank is None else counting.segment_of(rank, rule.spec)
    return rule.path, job.document.part_span(rule.path, None if part is None else part.place)


def _from_layout(job: Job | None, component: ComponentPlan) -> Iterator[str]:
    layout = None if job is None else job.layout
    if layout is None or component.name not in layout.components:
        return
    pool = f"the layout ({layout.mode.name.lower().replace('_', ' ')}) reserves"
    yield f"{pool} {counted(layout.reserved, 'accelerator')}; it makes the rule `{component.rule}`"


class _Counting:
    """How the ranks of one component were counted."""

    def __init__(self, component: ComponentPlan, resources: Resources) -> None:
        self.component, self.resources = component, resources
        self.ranks = resource_ranks(component, resources)
        self.spec = parse_ranks(component.rule) if component.rule else RankSpec(())

    def sentences(self, rank: int | None) -> Iterator[str]:
        yield f"{self.resources}"
        if len(self.resources.slots) > 1 and not self.resources.bare:
            yield "; ".join(self._by_group())
        wanted = self.spec.segments
        if rank is not None:
            part = self.segment_of(rank, self.spec)
            wanted = (part,) if part else ()
        for segment in wanted:
            yield self._segment(segment)
        if rank is not None:
            yield self._own(self.component.members[rank])

    def _by_group(self) -> Iterator[str]:
        for group, slots in groupby(self.resources.slots, key=lambda slot: slot.group):
            held = list(slots)
            ranks = Ranks(held[0].first, held[-1].first + held[-1].count - 1)
            nodes = [slot.node.rank for slot in held]
            who = f"{group} has" if len(self.resources.labels) > 1 else "nodes in order:"
            yield f"{who} {ranks} on node{'s' * (len(nodes) > 1)} {ranges(nodes)}"

    def segment_of(self, rank: int, spec: RankSpec) -> Segment | None:
        """The segment of the rule that placed a process."""
        return next((one for one in spec.segments if _holds(one, self.ranks[rank][0])), None)

    def _segment(self, segment: Segment) -> str:
        inside = [place for place in self.component.members if _holds(segment, self.ranks[place.rank][0])]
        noun, held = self.resources.noun, len(segment.resources or range(self.resources.total))
        processes = f"process{'es' * (len(inside) > 1)} {ranges(place.rank for place in inside)}"
        where = f"{noun}s {segment.resources}" if segment.resources else f"all {held:,} {noun}s"
        if held == 1:
            where = f"{noun} {segment.resources or 0}"
        return f"`{segment}` puts {processes} on {where}: {self._ratio(inside, held)}"

    def _ratio(self, inside: Sequence[Placement], held: int) -> str:
        noun, count = self.resources.noun, len(inside)
        widths = {max(1, len(place.hardware)) for place in inside}
        if max(widths) > 1:
            return f"{ranges(widths)} {noun}s each"
        if count <= held:
            return "one each"
        each, more = divmod(count, held)
        return f"{each}{f' or {each + 1}' * bool(more)} processes on each {noun}"

    def _own(self, place: Placement) -> str:
        own = self.ranks[place.rank]
        plural = "s" * (len(own) > 1)
        words = f"process {place.rank} has rank{plural} {ranges(own)}"
        if place.kind == BARE_NODE:
            return f"{words}: node {place.cluster_node_rank}"
        noun = self.resources.noun if place.kind != ACCELERATOR else ACCELERATOR
        return f"{words}: {noun}{plural} {ranges(place.hardware)} of node {place.cluster_node_rank}"


def _holds(segment: Segment, rank: int) -> bool:
    return segment.resources is None or segment.resources.first <= rank <= segment.resources.last


def _process(plan: Plan, component: ComponentPlan, place: Placement) -> ProcessExplanation:
    node = plan.inventory.nodes[place.cluster_node_rank]
    setting = plan.inventory.environment(place.node_group_label, node.rank)
    placed = place.variables(component.world_size)
    if place.visible:
        placed |= accelerator_kind(place.accelerator_type).visible(place.visible)
    return ProcessExplanation(
        rank=place.rank,
        node=node.rank,
        host=node.ip or node.hostname,
        kind=place.kind,
        devices=place.hardware,
        group=place.node_group_label,
        engine=_engine(component, place.rank),
        share=plan.share_of(component.name, place.rank),
        neighbours=tuple(_neighbours(plan, component.name, place)),
        variables=tuple(name for name, _ in setting.env_vars),
        placed=placed,
        interpreter=setting.python_interpreter_path or "",
    )


def _engine(component: ComponentPlan, rank: int) -> str:
    engines = component.engines
    if engines is None:
        return ""
    number, count = rank // engines.processes, component.world_size // engines.processes
    first = number * engines.processes
    ranks = Ranks(first, first + engines.processes - 1)
    noun = "process" if engines.processes == 1 else "processes"
    return f"engine {number} of {count} ({engines.kind}, server {engines.server}): {noun} {ranks}"


def _neighbours(plan: Plan, own: str, place: Placement) -> Iterator[Neighbour]:
    """The other processes on the devices of this one, or on its node if it holds no device."""
    for device in place.devices or (None,):
        for name, component in plan.components.items():
            ranks = tuple(
                other.rank
                for other in component.members
                if other.cluster_node_rank == place.cluster_node_rank
                and (device in other.devices if device else other.kind == BARE_NODE)
                and (name, other.rank) != (own, place.rank)
            )
            if ranks:
                share = plan.share_of(name, ranks[0]) if place.holds_accelerators else 0.0
                yield Neighbour(device=device and device.number, component=name, ranks=ranks, share=share)
