"""Model-parallel placement: actor and rollout hold model shards on the same accelerators, or on separate ones."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, ClassVar

from roost.config.document import Findings
from roost.config.job import ComponentRule
from roost.config.plain_data import PLACEMENTS
from roost.config.ranks import Ranks, ranges
from roost.config.yaml_text import plain_value
from roost.errors import RoostError, counted, errors_in, nearest, shown
from roost.inventory.resources import ACCELERATOR
from roost.placement.packed import PackedPlacementStrategy
from roost.placement.spread import spread
from roost.placement.strategies import PlacementStrategy
from roost.planning.compiler import JobCompiler
from roost.planning.component_placement import ComponentPlacement, PlacementMode
from roost.planning.component_plan import by_node

INFERENCE_NAMES = ("inference", "actor_inference")
KNOWN = ("actor", "rollout", "reward", *INFERENCE_NAMES, "critic", "critic_inference")


def _places(devices: frozenset[tuple[int, int]]) -> str:
    """`node 0: 4-7; node 1: 0-3`."""
    where = [f"node {node}: {ranges(held)}" for node, held in sorted(by_node(devices).items())]
    more = f" and {counted(len(where) - 4, 'more node')}" if len(where) > 4 else ""
    return "; ".join(where[:4]) + more


@dataclass(frozen=True, slots=True)
class Held:
    """The accelerators of a component: as resource ranks, and as numbers on nodes."""

    ranks: Ranks
    devices: frozenset[tuple[int, int]]


@dataclass(frozen=True, slots=True)
class ParallelSizes:
    tp: int = 1
    pp: int = 1
    cp: int = 1

    @property
    def width(self) -> int:
        return self.tp * self.pp * self.cp

    def __str__(self) -> str:
        context = f" x CP {self.cp}" if self.cp > 1 else ""
        return f"TP {self.tp} x PP {self.pp}{context}"


def _sizes(name: str, findings: Findings) -> ParallelSizes:
    """The parallel sizes of a component, from the job's sections."""
    if name == "rollout":
        return ParallelSizes(
            _size(findings, "rollout", "tensor_parallel_size"),
            _size(findings, "rollout", "pipeline_parallel_size"),
        )
    section = "inference" if name in INFERENCE_NAMES else name
    model = ParallelSizes(
        _size(findings, section, "model", "tensor_model_parallel_size"),
        _size(findings, section, "model", "pipeline_model_parallel_size"),
        _size(findings, section, "model", "context_parallel_size"),
    )
    if section == "inference" and not isinstance(findings.document.data.get("inference"), dict):
        actor = _sizes("actor", findings)
        return ParallelSizes(actor.tp, actor.pp)
    if section == "critic_inference":
        return _sizes("critic", findings)
    return ParallelSizes() if section == "reward" else model


def _size(findings: Findings, *path: str) -> int:
    value: Any = findings.document.data
    for step in path:
        value = value.get(step) if isinstance(value, dict) else None
    if isinstance(value, str) and len(value) < 10 and value.isascii() and value.isdecimal():
        value = int(value)
    if isinstance(value, int) and not isinstance(value, bool) and 0 < value <= 1_000_000:
        return value
    if value is not None and all(
        known.path != path for known in findings
    ):  # two components may read one size
        what = f"{'.'.join(path)} must be a whole number of at least 1, not {shown(value)}"
        findings.add("RM104", what, path, remedy="write a number, such as 2")
    return 1


class ModelParallelCompiler(JobCompiler):
    """Places each component on consecutive accelerators, by the parallel sizes of its model."""

    def _place_components(self) -> None:
        self.mode: PlacementMode | None = None
        self.held: dict[str, Held] = {}
        self.sizes: dict[str, ParallelSizes] = {}
        self.strategies: dict[str, PackedPlacementStrategy] = {}
        if self.job.layout is not None:
            what, why = "model-parallel placement does not take a layout", "it decides the same things"
            remedy = "use ComponentPlacement, or component_placement instead of the layout"
            self.findings.add("RM101", what, ("cluster", "layout"), key=True, why=why, remedy=remedy)
            return
        for name in self.job.rules:
            if name not in KNOWN:
                what = f"model-parallel placement does not know {name!r}"
                self._complain("RM101", what, name, remedy=nearest(name, KNOWN))
        if not errors_in(self.findings):
            for name in ("actor", "rollout"):
                if name not in self.job.rules:
                    remedy = f"place {name} as well, or use ComponentPlacement for a job without it"
                    self._complain("RM101", f"model-parallel placement needs {name!r}", name, remedy=remedy)
        scattered = [
            rule for name, rule in self.job.rules.items() if name in KNOWN and self._is_scattered(rule)
        ]
        for rule in scattered:  # last, because the suggestion needs the ranks of all others
            count = sum(len(segment.resources or ()) for segment in rule.spec.segments)
            free = self._free(rule, count)
            what = f"{rule.name}: accelerators {rule.spec} are not consecutive"
            remedy = "use one range" + (f", such as {free}" if free and len(free) == count else "")
            self._complain("RM102", what, rule.name, remedy=remedy)
        if "actor" not in self.held or "rollout" not in self.held:
            return
        self.sizes = {name: _sizes(name, self.findings) for name in self.held}
        self._choose_mode()
        self._check_inference()
        if errors_in(self.findings):
            return
        for name in sorted(self.held, key=lambda name: name != "actor"):  # rollout follows the actor
            self._lay_out(name)

    def _complain(self, code: str, what: str, name: str, why: str = "", remedy: str = "") -> None:
        rule = self.job.rules.get(name)
        path = rule.path if rule else PLACEMENTS
        named = rule is None or code == "RM101"  # the problem is the name, not the ranks
        self.findings.add(code, what, path[:3] if named else path, key=named, why=why, remedy=remedy)

    def _is_scattered(self, rule: ComponentRule) -> bool:
        """Record the accelerators of a component. True if they are not consecutive."""
        resources = None if self._is_broken(rule) else self._resources(rule)
        if resources is None:
            return False
        if resources.bare or any(slot.kind != ACCELERATOR for slot in resources.slots):
            what = f"{rule.name}: its ranks count {resources.noun}s, not accelerators"
            why = "model-parallel components hold accelerators"
            remedy = "place it on the cluster, or through a group that has accelerators"
            self._complain("RP104", what, rule.name, why, remedy)
            return False
        processes = spread(rule, resources, self.findings, self._left)
        if not processes:
            return False
        ranks = sorted({rank for held in processes for rank in held})
        self._left -= len(processes)
        if len(processes) != len(ranks):
            what = f"{rule.name}: the process ranks of {rule.spec} are not used"
            why = "model-parallel placement takes the number of processes from the parallel sizes"
            self._complain("RW107", what, rule.name, why, f"write {Ranks(ranks[0], ranks[-1])}")
        if ranks[-1] - ranks[0] + 1 != len(ranks):
            return True
        devices = frozenset(
            (slot.node.rank, rank - slot.first) for rank in ranks for slot in (resources.slot_of(rank),)
        )
        self.held[rule.name] = Held(Ranks(ranks[0], ranks[-1]), devices)
        return False

    def _free(self, rule: ComponentRule, wanted: int, unit: int = 1) -> Ranks | None:
        """Consecutive ranks that no other component holds: `wanted` of them, or the most there are, in whole units."""
        resources = self._resources(rule)
        others = [held.ranks for name, held in self.held.items() if name != rule.name]
        same = all(self.job.rules[name].labels == rule.labels for name in self.held)
        if resources is None or not same:
            return None  # ranks of different groups cannot be compared
        first, best = 0, range(0)
        for stop, following in sorted(
            [(held.first, held.last + 1) for held in others] + [(resources.total, 0)]
        ):
            size = min(stop - first, wanted) // unit * unit
            best = max(best, range(first, first + max(0, size)), key=len)
            first = max(first, following)
        return Ranks(best[0], best[-1]) if best else None

    # -- actor, rollout and inference ----------------------------------------------------------------

    def _choose_mode(self) -> None:
        actor, rollout = self.held["actor"], self.held["rollout"]
        if actor.devices == rollout.devices:
            self.mode = PlacementMode.COLLOCATED
        elif not actor.devices & rollout.devices:
            self.mode = PlacementMode.DISAGGREGATED
        else:
            where, unit = _places(actor.devices & rollout.devices), self.sizes["rollout"].width
            same = self.job.rules["actor"].labels == self.job.rules["rollout"].labels
            apart = "take fewer accelerators for the actor" if same else "use groups that share no node"
            has_inference = any(name in self.held for name in INFERENCE_NAMES)
            shared = same and len(actor.ranks) % unit == 0 and not has_inference
            free = self._free(self.job.rules["rollout"], len(rollout.ranks), unit)
            fitting = [actor.ranks if shared else None, free]
            what = f"actor ({actor.ranks}) and rollout ({rollout.ranks}) overlap in part ({where})"
            why = "they must hold the same accelerators, or none in common"
            remedy = f"give both the same accelerators, or {apart}"
            if any(fitting):
                remedy = "give rollout " + ", or ".join(str(ranks) for ranks in fitting if ranks)
            self._complain("RM103", what, "rollout", why, remedy)

    def _check_inference(self) -> None:
        placed = [name for name in INFERENCE_NAMES if name in self.held]
        if not placed:
            return
        if len(placed) > 1:
            what, why = "both inference and actor_inference are placed", "they are two names of one component"
            self._complain("RM105", what, placed[1], why=why, remedy="keep one")
        if self.mode is PlacementMode.DISAGGREGATED:
            for name in ("actor", "rollout"):
                mine, others = self.held[placed[0]], self.held[name]
                if common := mine.devices & others.devices:
                    both = f"{placed[0]} ({mine.ranks}) and {name} ({others.ranks})"
                    why = "in disaggregated placement actor, rollout and inference share no accelerator"
                    remedy = f"give {placed[0]} accelerators of its own, or remove it"
                    self._complain("RM103", f"{both} overlap ({_places(common)})", placed[0], why, remedy)
        if self.mode is PlacementMode.COLLOCATED:
            what = f"{placed[0]} cannot be placed when actor and rollout are collocated"
            self._complain("RM105", what, placed[0], remedy="remove it, or separate actor and rollout")
        algorithm = self.job.document.data.get("algorithm")
        wanted = algorithm.get("recompute_logprobs") if isinstance(algorithm, dict) else None
        if not (plain_value(wanted) if isinstance(wanted, str) else wanted):  # oc.env gives text
            what = f"{placed[0]} is placed but algorithm.recompute_logprobs is not on"
            why = "only recomputing log-probabilities uses it"
            remedy = "set algorithm.recompute_logprobs: true, or remove it"
            self._complain("RM105", what, placed[0], why, remedy)

    def _lay_out(self, name: str) -> None:
        held, sizes, rule = self.held[name].ranks, self.sizes[name], self.job.rules[name]
        world = len(held)
        if sizes.width > world or world % sizes.width:
            reason = "is more than" if sizes.width > world else "does not divide"
            what = f"{name}: {sizes} = {sizes.width} {reason} its {counted(world, 'accelerator')}"
            remedy = f"use a multiple of {sizes.width} accelerators, or smaller sizes"
            return self._complain("RM104", what, name, remedy=remedy)
        width, stride = 1, 1
        if name == "rollout":
            if self.mode is PlacementMode.DISAGGREGATED:
                width = sizes.tp * sizes.pp
            else:
                width, actor_tp = sizes.tp, self.sizes["actor"].tp
                if "actor" not in self.components:
                    return None  # its sizes are wrong, and already reported
                if actor_tp > width:
                    if actor_tp % width:
                        return self.findings.add(
                            "RM104",
                            f"rollout's TP {width} does not divide the actor's TP {actor_tp}",
                            ("rollout", "tensor_parallel_size"),
                            why="collocated shards must meet on one accelerator",
                            remedy=f"choose a divisor of {actor_tp}",
                        )
                    stride = actor_tp // width
        try:
            groups = [self.inventory.groups.get(label, label) for label in rule.labels] or None
            strategy = PackedPlacementStrategy(held.first, held.last, width, stride, groups)
            self._place(rule, strategy.assign(self.inventory.resources(rule.labels)))
        except RoostError as error:
            return self._blame(rule, error)
        self.strategies[name] = strategy


class ModelParallelComponentPlacement(ComponentPlacement):
    """Components on consecutive accelerators each, with the parallel sizes of their models."""

    compiler: ClassVar[type[JobCompiler]] = ModelParallelCompiler
    _compiled: ModelParallelCompiler

    def get_strategy(self, component_name: str) -> PlacementStrategy:
        return self._compiled.strategies[self.plan.component(component_name).name]

    @property
    def placement_mode(self) -> PlacementMode:
        assert self._compiled.mode is not None
        return self._compiled.mode

    @property
    def is_collocated(self) -> bool:
        return self._compiled.mode is PlacementMode.COLLOCATED

    @property
    def is_disaggregated(self) -> bool:
        return self._compiled.mode is PlacementMode.DISAGGREGATED

    @property
    def has_dedicated_inference(self) -> bool:
        return any(name in self._compiled.held for name in INFERENCE_NAMES)

    def __getattr__(self, attribute: str) -> int | None:
        """`actor_tp_size`, `rollout_dp_size`, `critic_world_size` and the like; None if the component is not placed."""
        for suffix in ("_tp_size", "_pp_size", "_cp_size", "_dp_size", "_world_size"):
            name = attribute.removesuffix(suffix)
            if name != attribute and name in KNOWN:
                return self._measure(name, suffix[1:3])
        raise AttributeError(f"{type(self).__name__} has no attribute {attribute!r}")

    def _measure(self, name: str, what: str) -> int | None:
        held = self._compiled.held
        if name in INFERENCE_NAMES:
            name = next((placed for placed in INFERENCE_NAMES if placed in held), name)
        if name not in held:
            return None
        sizes, world = self._compiled.sizes[name], len(held[name].ranks)
        return {"tp": sizes.tp, "pp": sizes.pp, "cp": sizes.cp, "dp": world // sizes.width, "wo": world}[what]
