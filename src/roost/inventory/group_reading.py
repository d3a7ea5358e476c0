"""Reads the node groups of a config, and reports their problems."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from roost.config.document import Document
from roost.config.fields import NAME
from roost.config.job import RESERVED_LABELS
from roost.config.ranks import Ranks, RankSyntaxError, parse_node_ranks
from roost.config.schema import EnvConfig, HardwareConfig, NodeGroupConfig
from roost.errors import Finding, Path, shown
from roost.inventory.groups import NodeEnvironment, NodeGroup
from roost.inventory.hardware import HardwareUnit, hardware_problems
from roost.inventory.resources import ACCELERATOR, BARE_NODE


def build_groups(
    configs: Sequence[NodeGroupConfig | None], num_nodes: int | None, document: Document, path: Path
) -> tuple[dict[str, NodeGroup], list[Finding]]:
    """The groups that a config declares, and their problems.

    Without `num_nodes`, as in offline validation, only problems that do not depend on the cluster are found.
    """
    reader = _GroupReader(num_nodes=num_nodes, document=document)
    groups: dict[str, NodeGroup] = {}
    for index, config in enumerate(configs):
        if config is None:  # it cannot be read, and the schema has reported that
            continue
        here = (*path, index)
        label = config.label.strip()
        if label in RESERVED_LABELS:
            reader.found(
                "RI102",
                f"the node group label {label!r} is reserved",
                (*here, "label"),
                why="`cluster` always means all nodes, `node` all nodes as bare nodes",
                remedy="choose another label",
            )
        elif label in groups:
            reader.found(
                "RI102",
                f"node group {label!r} is declared twice",
                (*here, "label"),
                remedy="merge the two, or rename one",
            )
        elif not NAME.fullmatch(label):
            reader.found(
                "RC105",
                f"{shown(label)} is not a node group label",
                (*here, "label"),
                remedy="use letters, digits, dot, dash and underscore, at most 64 of them",
            )
        else:
            groups[label] = reader.group(label, config, here)
    return groups, reader.findings


@dataclass(slots=True, kw_only=True)
class _GroupReader:
    """Reads groups and collects their problems."""

    num_nodes: int | None
    document: Document
    findings: list[Finding] = field(default_factory=list)
    left: int = 2_000_000  # how many more nodes, and settings of nodes, all groups together may name

    def found(
        self, code: str, what: str, path: Path, key: bool = False, why: str = "", remedy: str = ""
    ) -> None:
        self.findings.append(self.document.finding(code, what, path, key=key, why=why, remedy=remedy))

    def group(self, label: str, config: NodeGroupConfig, path: Path) -> NodeGroup:
        subject = f"node group {label!r}"
        ranks = self._node_ranks(config.node_ranks, subject, (*path, "node_ranks"))
        units = self._hardware(subject, config.hardware, ranks, (*path, "hardware"))
        environments = self._environments(subject, config.env_configs or (), ranks, (*path, "env_configs"))
        return NodeGroup(
            label=label,
            node_ranks=tuple(ranks or ()),
            hardware_type=config.hardware.type if config.hardware and not config.ignore_hardware else None,
            hardware=units,
            ignore_hardware=config.ignore_hardware,
            environments=environments,
        )

    def _spend(self, number: int, subject: str, path: Path) -> bool:
        self.left -= number
        if self.left < 0 <= self.left + number:  # only the first time
            self.found(
                "RL106", f"{subject}: too many nodes", path, remedy="name fewer nodes, groups or variables"
            )
        return self.left >= 0

    def _node_ranks(self, value: Any, subject: str, path: Path) -> list[int] | None:
        """Ascending node ranks; None if they are wrong, or depend on an unknown number of nodes."""
        found: set[int] = set()
        for index, item in enumerate(value if isinstance(value, list) else [value]):
            here = (*path, index) if isinstance(value, list) else path
            try:
                pieces = parse_node_ranks(item)
            except RankSyntaxError as error:
                self.findings += self.document.findings_in(here, subject, error.problems)
                return None
            if pieces is None:
                known = self.num_nodes is not None and self._spend(self.num_nodes, subject, here)
                return list(range(self.num_nodes or 0)) if known else None
            for piece in pieces:
                if not self._exists(piece, subject, here) or not self._spend(len(piece), subject, here):
                    return None
                again = found.intersection(piece)
                if again:
                    self.found(
                        "RI109",
                        f"{subject}: node {min(again)} is listed twice",
                        here,
                        remedy="list each node once",
                    )
                found.update(piece)
        if not found:
            self.found("RL101", f"{subject}: no nodes", path, remedy="write 0, 0-3, `0,2` or all")
            return None
        return sorted(found)

    def _exists(self, piece: Ranks, subject: str, path: Path) -> bool:
        number = self.num_nodes
        if number is None or piece.last < number:
            return True
        self.found(
            "RI104",
            f"{subject}: node {piece.last} does not exist",
            path,
            why="there is only node 0" if number == 1 else f"there are {number:,} nodes, 0-{number - 1}",
            remedy="correct node_ranks, or use more nodes",
        )
        return False

    def _hardware(
        self, subject: str, config: HardwareConfig | None, ranks: list[int] | None, path: Path
    ) -> tuple[HardwareUnit, ...]:
        if config is None:
            return ()
        if config.type in (ACCELERATOR, BARE_NODE):
            self.found(
                "RC105",
                f"{subject}: {config.type!r} is not the name of a hardware type",
                (*path, "type"),
                why="accelerators and nodes are counted without being declared",
                remedy="leave `hardware` out to count them, or choose another name",
            )
        units: list[HardwareUnit] = []
        members = None if ranks is None else frozenset(ranks)
        for index, entry in enumerate(config.configs or ()):
            here = (*path, "configs", index)
            rank = entry.get("node_rank")
            if not isinstance(rank, int) or isinstance(rank, bool) or rank < 0:
                given = "node_rank" in entry
                self.found(
                    "RI107",
                    f"{subject}: the node_rank of a {config.type} must be the number of a node"
                    if given
                    else f"{subject}: a {config.type} without a node_rank",
                    (*here, "node_rank") if given else here,
                    remedy="write `node_rank: N`, the node it is attached to",
                )
                continue
            if members is not None and rank not in members:
                self.found(
                    "RI105",
                    f"{subject}: a {config.type} on node {rank}, which is not in the group",
                    (*here, "node_rank"),
                    why=_members(ranks),
                    remedy=f"attach it to one of the group's nodes, or add {rank} to its node_ranks",
                )
                continue
            problems = hardware_problems(config.type, entry)
            if _holds_nan(entry):
                problems.append(((), "NaN is not a value", "write a number"))
            for inner, reason, remedy in problems:
                what = f"{subject}: {config.type} on node {rank}: {reason}"
                self.found("RI107", what, (*here, *inner), key=bool(remedy and inner), remedy=remedy)
            units.append(HardwareUnit.from_dict(entry))
        return tuple(sorted(units, key=lambda unit: unit.node_rank))

    def _environments(
        self, subject: str, configs: Sequence[EnvConfig], ranks: list[int] | None, path: Path
    ) -> tuple[NodeEnvironment, ...]:
        environments: list[NodeEnvironment] = []
        taken: dict[tuple[int, str], str] = {}
        interpreters: dict[tuple[int, str], str] = {}
        members = frozenset(ranks or ())
        for index, config in enumerate(configs):
            here = (*path, index)
            nodes = (
                ranks
                if config.node_ranks == "all"
                else self._node_ranks(config.node_ranks, subject, (*here, "node_ranks"))
            ) or []
            outside = [node for node in nodes if node not in members] if ranks is not None else []
            if outside:
                self.found(
                    "RI105",
                    f"{subject}: env_configs name node {outside[0]}, which is not in the group",
                    (*here, "node_ranks"),
                    why=_members(ranks),
                    remedy=f"name only the group's nodes here, or add {outside[0]} to its node_ranks",
                )
                continue
            variables = self._variables(subject, config, nodes, taken, (*here, "env_vars"))
            interpreter = config.python_interpreter_path
            if interpreter and self._spend(len(nodes), subject, here):
                name = "python_interpreter_path"
                self._set(subject, name, interpreter, nodes, interpreters, (*here, name))
            environments.append(
                NodeEnvironment(
                    node_ranks=tuple(nodes),
                    env_vars=tuple(variables.items()),
                    python_interpreter_path=interpreter,
                )
            )
        return tuple(environments)

    def _named_apart(self, subject: str, path: Path) -> None:
        self.found(
            "RC103",
            f"{subject}: a variable is written as its name and its value",
            path,
            key=True,
            why="`name` and `value` would be two variables",
            remedy="write `NAME: value`, such as `- HF_HOME: /data`",
        )
        where = self.findings[-1].where
        if where is not None:  # the value may be a secret
            self.findings[-1] = replace(self.findings[-1], where=replace(where, excerpt=""))

    def _variables(
        self,
        subject: str,
        config: EnvConfig,
        nodes: Sequence[int],
        taken: dict[tuple[int, str], str],
        path: Path,
    ) -> dict[str, str]:
        variables: dict[str, str] = {}
        for entry, inner in _maps(config.env_vars, path):
            if any(apart <= {str(key).lower() for key in entry} for apart in _NAMED_APART):
                self._named_apart(subject, inner)
        for where, name, value in _each_variable(config.env_vars, path):
            problem = _variable_problem(name, value)
            if problem:
                cut = _SEPARATOR.split(name, maxsplit=1)[0]  # what follows may be a secret
                apart = f"write `{cut or 'NAME'}: value`, with a space"
                remedy = apart if cut != name or not name else "write one value, in quotes"
                self.found("RC103", f"{subject}: {problem}", where, key=True, remedy=remedy)
                self.findings[-1] = replace(self.findings[-1], path=(*where[:-1], cut))
                continue
            if not self._spend(len(nodes), subject, where):
                break
            text = self.document.text(where, value)
            self._set(subject, name, text, nodes, taken, where, variables.get(name))
            variables[name] = text
        return variables

    def _set(
        self,
        subject: str,
        name: str,
        text: str,
        nodes: Sequence[int],
        taken: dict[tuple[int, str], str],
        where: Path,
        before: str | None = None,
    ) -> None:
        """Record a setting of these nodes. Another value on one of them, or another `before`, is a problem."""
        clash = [node for node in nodes if taken.get((node, name), text) != text]
        if clash or before not in (None, text):
            node = f" on node {clash[0]}" if clash else ""
            self.found(
                "RI106",
                f"{subject}: {name} is set twice{node}",
                where,
                key=True,
                why="its two values differ",
                remedy="keep one of them",
            )
        taken.update({(node, name): text for node in nodes})


_SEPARATOR = re.compile("[=:]")
# Other systems write a variable as {name: X, value: Y}. Here these would be two variables, `name` and `value`, and
# the name of a secret would be a value.
_NAMED_APART = ({"name", "value"}, {"key", "value"})


def _maps(value: Any, path: Path) -> list[tuple[Mapping[str, Any], Path]]:
    if isinstance(value, Mapping):
        return [(value, path)]
    return [(entry, (*path, index)) for index, entry in enumerate(value or ())]


def _each_variable(value: Any, path: Path) -> list[tuple[Path, str, Any]]:
    return [
        ((*inner, name), name, item) for entry, inner in _maps(value, path) for name, item in entry.items()
    ]


def _variable_problem(name: str, value: Any) -> str:
    cut = _SEPARATOR.split(name, maxsplit=1)[0]
    if cut != name and value is None:
        return f"{shown(cut)} without a value"
    if not name or "=" in name or "\0" in name:
        return f"{shown(cut + '=...' if cut != name else name)} is not a variable name"
    if value is None or isinstance(value, (dict, list)):
        return f"the value of {name} must be text or a number"
    return f"the value of {name} holds a NUL character" if "\0" in str(value) else ""


def _members(ranks: Sequence[int] | None) -> str:
    listed = ", ".join(map(str, (ranks or ())[:8])) + (", ..." if len(ranks or ()) > 8 else "")
    return f"its nodes are {listed}" if len(ranks or ()) > 1 else f"its only node is {listed}"


def _holds_nan(value: Any) -> bool:  # NaN does not equal itself, so plans could not be compared
    if isinstance(value, Mapping):
        return any(map(_holds_nan, value.values()))
    return any(map(_holds_nan, value)) if isinstance(value, list) else value != value
