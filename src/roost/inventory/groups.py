"""Node groups: named sets of nodes with their hardware and environment."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from roost.config.document import Document
from roost.config.job import RESERVED_LABELS, place_problems
from roost.config.ranks import RankSyntaxError, parse_node_ranks
from roost.config.schema import NAME, EnvConfig, NodeGroupConfig
from roost.errors import Finding, Path, looks_secret
from roost.inventory.hardware import HardwareUnit, hardware_problems


@dataclass(frozen=True, slots=True, kw_only=True)
class NodeEnvironment:
    """Environment and interpreter for processes placed on some nodes through a group."""

    node_ranks: tuple[int, ...]
    env_vars: tuple[tuple[str, str | None], ...] = ()  # None: a secret that was not saved
    python_interpreter_path: str | None = None

    def __repr__(self) -> str:  # values may be secrets, and reprs end up in logs
        names = ", ".join(name for name, _ in self.env_vars)
        return f"NodeEnvironment(node_ranks={self.node_ranks}, env_vars=({names}))"


@dataclass(frozen=True, slots=True, kw_only=True)
class NodeGroup:
    label: str
    node_ranks: tuple[int, ...]  # ascending
    hardware_type: str | None = None
    hardware: tuple[HardwareUnit, ...] = ()  # in order of node, then of listing
    ignore_hardware: bool = False
    environments: tuple[NodeEnvironment, ...] = ()

    def without_secrets(self) -> NodeGroup:
        from dataclasses import replace

        environments = tuple(
            replace(env, env_vars=tuple((k, None if looks_secret(k) else v) for k, v in env.env_vars))
            for env in self.environments
        )
        hardware = tuple(HardwareUnit.from_dict(unit.to_dict()) for unit in self.hardware)
        return replace(self, environments=environments, hardware=hardware)


def build_groups(
    configs: Sequence[NodeGroupConfig], num_nodes: int | None, document: Document, path: Path
) -> tuple[dict[str, NodeGroup], list[Finding]]:
    """The groups a config declares, and what is wrong with them.

    Without `num_nodes` (validation offline) only what does not depend on the cluster is checked.
    """
    groups: dict[str, NodeGroup] = {}
    findings: list[Finding] = []
    for index, config in enumerate(configs):
        here = (*path, index)
        label = config.label.strip()
        if label in RESERVED_LABELS:
            findings.append(
                document.finding(
                    "RI102",
                    f"the node group label {label!r} is reserved",
                    (*here, "label"),
                    why="`cluster` always means all nodes, `node` all nodes as bare nodes",
                    remedy="choose another label",
                )
            )
        elif label in groups:
            findings.append(
                document.finding(
                    "RI102",
                    f"node group {label!r} is declared twice",
                    (*here, "label"),
                    remedy="merge the two, or rename one",
                )
            )
        elif not NAME.fullmatch(label):
            findings.append(
                document.finding(
                    "RC105",
                    f"{label!r} is not a node group label",
                    (*here, "label"),
                    remedy="use letters, digits, dot, dash and underscore, at most 64 of them",
                )
            )
        else:
            groups[label] = _group(label, config, num_nodes, document, here, findings)
    return groups, findings


def _group(
    label: str,
    config: NodeGroupConfig,
    num_nodes: int | None,
    document: Document,
    path: Path,
    findings: list[Finding],
) -> NodeGroup:
    ranks = _node_ranks(
        config.node_ranks, num_nodes, f"node group {label!r}", document, (*path, "node_ranks"), findings
    )
    units = _hardware(label, config, ranks, document, (*path, "hardware"), findings)
    environments = _environments(label, config.env_configs or (), ranks, num_nodes, document, path, findings)
    return NodeGroup(
        label=label,
        node_ranks=tuple(ranks or ()),
        hardware_type=config.hardware.type if config.hardware and not config.ignore_hardware else None,
        hardware=units,
        ignore_hardware=config.ignore_hardware,
        environments=environments,
    )


def _node_ranks(
    value: Any, num_nodes: int | None, subject: str, document: Document, path: Path, findings: list[Finding]
) -> list[int] | None:
    """Ascending node ranks; None when they cannot be known."""
    found: set[int] = set()
    items = value if isinstance(value, list) else [value]
    for index, item in enumerate(items):
        here = (*path, index) if isinstance(value, list) else path
        try:
            pieces = parse_node_ranks(item)
        except RankSyntaxError as error:
            findings += place_problems(error, subject, document, here)
            return None
        if pieces is None:
            return None if num_nodes is None else list(range(num_nodes))
        for piece in pieces:
            if num_nodes is not None and piece.last >= num_nodes:
                findings.append(
                    document.finding(
                        "RI104",
                        f"{subject}: node {piece.last} does not exist",
                        here,
                        why=f"there are {num_nodes} nodes, 0-{num_nodes - 1}",
                        remedy="correct node_ranks, or raise num_nodes",
                    )
                )
                return None
            if len(piece) > 1_000_000:
                findings.append(document.finding("RL106", f"{subject}: {len(piece):,} nodes", here))
                return None
            again = found.intersection(piece)
            if again:
                findings.append(
                    document.finding(
                        "RI109",
                        f"{subject}: node {min(again)} is listed twice",
                        here,
                        remedy="list each node once",
                    )
                )
            found.update(piece)
    if not found:
        findings.append(document.finding("RL101", f"{subject}: no nodes", path, remedy="write 0, 0-3 or all"))
        return None
    return sorted(found)


def _hardware(
    label: str,
    config: NodeGroupConfig,
    ranks: list[int] | None,
    document: Document,
    path: Path,
    findings: list[Finding],
) -> tuple[HardwareUnit, ...]:
    units: list[HardwareUnit] = []
    if config.hardware is None:
        return ()
    for index, entry in enumerate(config.hardware.configs or ()):
        here = (*path, "configs", index)
        rank = entry.get("node_rank")
        if not isinstance(rank, int) or isinstance(rank, bool) or rank < 0:
            findings.append(
                document.finding(
                    "RI107",
                    f"node group {label!r}: a {config.hardware.type} without a node_rank",
                    (*here, "node_rank") if "node_rank" in entry else here,
                    remedy="add `node_rank: N`, the node it is attached to",
                )
            )
            continue
        if ranks is not None and rank not in set(ranks):
            findings.append(
                document.finding(
                    "RI105",
                    f"node group {label!r}: a {config.hardware.type} on node {rank}, which is not in the group",
                    (*here, "node_rank"),
                    remedy=f"the group's nodes are {_short(ranks)}",
                )
            )
            continue
        for inner, reason in hardware_problems(config.hardware.type, entry):
            findings.append(
                document.finding(
                    "RI107",
                    f"node group {label!r}: {'.'.join(map(str, inner))} of this {config.hardware.type}: {reason}",
                    (*here, *inner),
                )
            )
        units.append(HardwareUnit.from_dict(entry))
    return tuple(sorted(units, key=lambda unit: unit.node_rank))


def _environments(
    label: str,
    configs: Sequence[EnvConfig],
    ranks: list[int] | None,
    num_nodes: int | None,
    document: Document,
    path: Path,
    findings: list[Finding],
) -> tuple[NodeEnvironment, ...]:
    environments: list[NodeEnvironment] = []
    taken: dict[tuple[int, str], str] = {}
    for index, config in enumerate(configs):
        here = (*path, "env_configs", index)
        subject = f"node group {label!r}"
        if config.node_ranks == "all":
            nodes = ranks
        else:
            nodes = _node_ranks(
                config.node_ranks, num_nodes, subject, document, (*here, "node_ranks"), findings
            )
        outside = sorted(set(nodes or ()) - set(ranks)) if ranks is not None else []
        if outside:
            findings.append(
                document.finding(
                    "RI105",
                    f"{subject}: env_configs name node {outside[0]}, which is not in the group",
                    (*here, "node_ranks"),
                    remedy=f"the group's nodes are {_short(ranks or [])}",
                )
            )
            continue
        variables: dict[str, str] = {}
        for where, name, value in _variables(config.env_vars, (*here, "env_vars")):
            problem = _variable_problem(name, value)
            if problem:
                findings.append(document.finding("RC103", f"{subject}: {problem}", where))
                continue
            text = document.text(where, value)
            clash = [node for node in nodes or () if taken.get((node, name), text) != text]
            if clash or variables.get(name, text) != text:
                findings.append(
                    document.finding(
                        "RI106",
                        f"{subject}: {name} is set twice on node {clash[0] if clash else (nodes or [0])[0]}",
                        where,
                        key=True,
                        why="its two values differ",
                        remedy="keep one",
                    )
                )
            variables[name] = text
            taken.update({(node, name): text for node in nodes or ()})
        environments.append(
            NodeEnvironment(
                node_ranks=tuple(nodes or ()),
                env_vars=tuple(variables.items()),
                python_interpreter_path=config.python_interpreter_path,
            )
        )
    return tuple(environments)


def _variables(value: Any, path: Path) -> list[tuple[Path, str, Any]]:
    if isinstance(value, Mapping):
        return [((*path, name), name, item) for name, item in value.items()]
    return [
        ((*path, index, name), name, item)
        for index, entry in enumerate(value or ())
        for name, item in entry.items()
    ]


def _variable_problem(name: str, value: Any) -> str:
    if not name or "=" in name or "\0" in name:
        return f"{name!r} is not a variable name"
    if value is None or isinstance(value, (dict, list)):
        return f"{name} must be text or a number"
    return f"{name} holds a NUL character" if "\0" in str(value) else ""


def _short(ranks: Sequence[int]) -> str:
    return ", ".join(map(str, ranks[:8])) + (", ..." if len(ranks) > 8 else "")
