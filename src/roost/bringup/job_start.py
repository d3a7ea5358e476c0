"""The facts that a target needs to start Ray for a job: the nodes by shape, and the command that runs the job."""

from __future__ import annotations

import shlex
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from itertools import groupby

from roost.errors import ConfigurationError, Finding, nearest
from roost.inventory.accelerators import AcceleratorType, known_accelerators
from roost.inventory.nodes import Accelerators, Node
from roost.planning.plan import Plan

# Ray counts these itself. `ray start` must declare the others.
_COUNTED_BY_RAY = frozenset(
    kind.value
    for kind in (
        AcceleratorType.NV_GPU,
        AcceleratorType.AMD_GPU,
        AcceleratorType.ASCEND_NPU,
        AcceleratorType.INTEL_GPU,
    )
)


@dataclass(frozen=True, slots=True, kw_only=True)
class NodeShape:
    """The kind of node to ask a scheduler for. Nodes of one shape are interchangeable."""

    accelerators: Accelerators
    cpus: int | None
    selections: tuple[str, ...] = ()  # the target's names for such nodes, from `select`
    host: str = ""  # set if it must be this machine: a robot is attached to it

    @property
    def name(self) -> str:
        held = self.accelerators
        return f"{held.count}x{held.model or held.type}" if held.count else "cpu"


@dataclass(frozen=True, slots=True, kw_only=True)
class ShapedNodes:
    shape: NodeShape
    ranks: tuple[int, ...]  # ascending


@dataclass(frozen=True, slots=True, kw_only=True)
class JobStart:
    """A job, and how Ray is started for it."""

    name: str
    plan: Plan
    command: str  # a line of shell that runs the job once Ray runs
    waits: bool = False  # the command waits for the nodes itself, as `roost launch` does
    timeout: float = 300.0  # seconds to wait for the nodes
    declare: bool = False  # tell Ray the plan's accelerators instead of letting it count them
    select: Mapping[str, str] = field(default_factory=dict)  # by accelerator model or node group
    setup: tuple[str, ...] = ()  # lines of shell before anything else

    @property
    def nodes(self) -> tuple[Node, ...]:
        return self.plan.inventory.nodes

    @property
    def seconds(self) -> str:
        return f"{self.timeout:g}"

    @property
    def waiting_command(self) -> str:
        """The command, after a wait for the nodes if it does not wait itself."""
        if self.waits:
            return self.command
        return f"roost up wait --nodes {len(self.nodes)} --timeout {self.seconds} && {self.command}"

    def shape_of(self, node: Node) -> NodeShape:
        held, groups = node.accelerators, self.plan.inventory.groups.values()
        mine = [group for group in groups if node.rank in group.node_ranks]
        names = [held.model if held.count else "", *(group.label for group in mine)]
        return NodeShape(
            accelerators=held,
            cpus=node.cpus,
            selections=tuple(self.select[name] for name in dict.fromkeys(names) if name in self.select),
            host=node.hostname if self._robots(node) else "",
        )

    def _robots(self, node: Node) -> list[str]:
        """The groups whose hardware is on this node."""
        return [
            group.label
            for group in self.plan.inventory.groups.values()
            if any(unit.node_rank == node.rank for unit in group.hardware)
        ]

    def shapes(self) -> tuple[ShapedNodes, ...]:
        """The shapes in order of their first node, each with all its nodes."""
        found: dict[NodeShape, list[int]] = {}
        for node in self.nodes:
            found.setdefault(self.shape_of(node), []).append(node.rank)
        return tuple(ShapedNodes(shape=shape, ranks=tuple(ranks)) for shape, ranks in found.items())

    def runs(self) -> tuple[ShapedNodes, ...]:
        """The nodes in rank order, with neighbours of one shape together."""
        return tuple(
            ShapedNodes(shape=shape, ranks=tuple(node.rank for node in run))
            for shape, run in groupby(self.nodes, key=self.shape_of)
        )

    def problems(self) -> list[Finding]:
        """Names in `select` that the plan does not have, and nodes that the target cannot tell apart."""
        models = {node.accelerators.model for node in self.nodes if node.accelerators.count} - {""}
        known = sorted(models | set(self.plan.inventory.groups))
        wrong = [name for name in self.select if name not in known]
        if wrong:
            remedy = nearest(wrong[0], known) if known else "the plan names no model and no node group"
            what = f"--select {wrong[0]}: neither an accelerator model nor a node group of the plan"
            raise ConfigurationError(code="RI103", what=what, remedy=remedy)
        findings = []
        unnamed = sorted(model for model in models if model not in self.select)
        if len(models) > 1 and unnamed:
            what = f"nothing says which machines have {' and which '.join(unnamed)}"
            remedy = f"name them as this cluster does: --select {unnamed[0]}=..."
            findings.append(Finding(code="RW112", what=what, remedy=remedy))
        for node in self.nodes:
            shape, robots = self.shape_of(node), self._robots(node)
            if robots and not shape.host and not shape.selections:
                what = (
                    f"nothing says which machine is node {node.rank}, where the hardware of {robots[0]!r} is"
                )
                remedy = f"give its hostname in the inventory, or --select {robots[0]}=..."
                findings.append(Finding(code="RW112", what=what, remedy=remedy))
        return findings


def ray_resources(shape: NodeShape, declare: bool) -> dict[str, str]:
    """The options of `ray start` for resources that Ray does not detect by itself on a node of this shape."""
    held, options = shape.accelerators, dict[str, str]()
    if shape.cpus is not None:
        options["num-cpus"] = str(shape.cpus)
    if held.count and (declare or held.type not in _COUNTED_BY_RAY):
        resource = next((kind.ray_resource for kind in known_accelerators() if kind.name == held.type), "GPU")
        if resource == "GPU":
            options["num-gpus"] = str(held.count)
        else:
            options["resources"] = f'{{"{resource}": {held.count}}}'
    elif declare:
        options["num-gpus"] = "0"
    return options


def node_variables(shape: NodeShape, declare: bool) -> dict[str, str]:
    """Variables of the node's Ray, beside its rank: the kind of accelerators, if Ray does not detect it."""
    held = shape.accelerators
    named = held.count and (declare or held.type not in _COUNTED_BY_RAY)
    return {"ROOST_ACCELERATOR_TYPE": held.type} if named else {}


def options_text(options: Mapping[str, str]) -> str:
    return "".join(f" --{name}={shlex.quote(value)}" for name, value in options.items())


def shell_words(words: Sequence[str]) -> str:
    return " ".join(map(shlex.quote, words))
