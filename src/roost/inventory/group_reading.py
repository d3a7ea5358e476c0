"""Reads the node groups of a config, and reports their problems."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from roost.config.document import Document, Findings
from roost.config.fields import NAME, NAME_RULE
from roost.config.job import RESERVED_LABELS
from roost.config.ranks import Ranks, RankSyntaxError, parse_node_ranks
from roost.config.schema import EnvConfig, NodeGroupConfig
from roost.errors import Finding, Path, shown
from roost.inventory.groups import SEPARATOR, HardwareUnit, NodeEnvironment, NodeGroup, variable_problem
from roost.inventory.hardware_schemas import hardware_problems
from roost.inventory.resources import ACCELERATOR, BARE_NODE

_GROUPS = ("cluster", "node_groups")


def build_groups(
    configs: Sequence[NodeGroupConfig | None], num_nodes: int | None, document: Document
) -> tuple[dict[str, NodeGroup], list[Finding]]:
    """The groups that a config declares, and their problems.

    Without `num_nodes`, as in offline validation, only problems that do not depend on the cluster are found.
    """
    findings = Findings(document)
    reader = _GroupReader(num_nodes=num_nodes, findings=findings)
    groups: dict[str, NodeGroup] = {}
    for index, config in enumerate(configs):
        if config is None:  # the group cannot be read; the schema has reported that
            continue
        label, place = config.label.strip(), (*_GROUPS, index, "label")
        if label in RESERVED_LABELS:
            what, remedy = f"the node group label {label!r} is reserved", "choose another label"
            why = "`cluster` always means all nodes, `node` all nodes as bare nodes"
            findings.add("RI102", what, place, why=why, remedy=remedy)
        elif label in groups:
            what, remedy = f"node group {label!r} is declared twice", "merge the two, or rename one"
            findings.add("RI102", what, place, remedy=remedy)
        elif not NAME.fullmatch(label):
            findings.add("RC105", f"{shown(label)} is not a node group label", place, remedy=NAME_RULE)
        else:
            groups[label] = reader.group(label, config, (*_GROUPS, index))
    return groups, findings


@dataclass(slots=True, kw_only=True)
class _GroupReader:
    """Reads groups and collects their problems."""

    num_nodes: int | None
    findings: Findings
    left: int = 2_000_000  # the nodes and node settings that all groups together may still name
    # For each piece of hardware, the label of the group and the entry of its `configs` that declared it first.
    declared: dict[tuple[object, ...], tuple[str, int]] = field(default_factory=dict)

    def group(self, label: str, config: NodeGroupConfig, path: Path) -> NodeGroup:
        subject = f"node group {label!r}"
        ranks = self._node_ranks(config.node_ranks, subject, (*path, "node_ranks"))
        units = self._hardware(label, config, ranks, (*path, "hardware"))
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
        if self.left < 0 <= self.left + number:  # report it only once
            remedy = "name fewer nodes, groups or variables"
            self.findings.add("RL106", f"{subject}: too many nodes", path, remedy=remedy)
        return self.left >= 0

    def _node_ranks(self, value: Any, subject: str, path: Path) -> list[int] | None:
        """Ascending node ranks; None if they are wrong, or depend on an unknown number of nodes."""
        found: set[int] = set()
        for index, item in enumerate(value if isinstance(value, list) else [value]):
            here = (*path, index) if isinstance(value, list) else path
            try:
                pieces = parse_node_ranks(item)
            except RankSyntaxError as error:
                self.findings += self.findings.document.findings_in(here, subject, error.problems)
                return None
            if pieces is None:
                known = self.num_nodes is not None and self._spend(self.num_nodes, subject, here)
                return list(range(self.num_nodes or 0)) if known else None
            for piece in pieces:
                if not self._exists(piece, subject, here) or not self._spend(len(piece), subject, here):
                    return None
                again = found.intersection(piece)
                if again:
                    what = f"{subject}: node {min(again)} is listed twice"
                    self.findings.add("RI109", what, here, remedy="list each node once")
                found.update(piece)
        if not found:
            self.findings.add("RL101", f"{subject}: no nodes", path, remedy="write 0, 0-3, `0,2` or all")
            return None
        return sorted(found)

    def _exists(self, piece: Ranks, subject: str, path: Path) -> bool:
        number = self.num_nodes
        if number is None or piece.last < number:
            return True
        what, remedy = f"{subject}: node {piece.last} does not exist", "correct node_ranks, or use more nodes"
        why = "there is only node 0" if number == 1 else f"there are {number:,} nodes, 0-{number - 1}"
        self.findings.add("RI104", what, path, why=why, remedy=remedy)
        return False

    def _hardware(
        self, label: str, group: NodeGroupConfig, ranks: list[int] | None, path: Path
    ) -> tuple[HardwareUnit, ...]:
        config, subject = group.hardware, f"node group {label!r}"
        if config is None:
            return ()
        if config.type in (ACCELERATOR, BARE_NODE):
            what = f"{subject}: {config.type!r} is not the name of a hardware type"
            why = "accelerators and nodes are counted without being declared"
            remedy = "leave `hardware` out to count them, or choose another name"
            self.findings.add("RC105", what, (*path, "type"), why=why, remedy=remedy)
        units: list[HardwareUnit] = []
        members = None if ranks is None else frozenset(ranks)
        for index, entry in enumerate(config.configs or ()):
            here = (*path, "configs", index)
            rank = entry.get("node_rank")
            if not isinstance(rank, int) or isinstance(rank, bool) or rank < 0:
                what, place = f"{subject}: a {config.type} without a node_rank", here
                if "node_rank" in entry:
                    what = f"{subject}: the node_rank of a {config.type} must be the number of a node"
                    place = (*here, "node_rank")
                remedy = "write `node_rank: N`, the node it is attached to"
                self.findings.add("RI107", what, place, remedy=remedy)
                continue
            if members is not None and rank not in members:
                what = f"{subject}: a {config.type} on node {rank}, which is not in the group"
                remedy = f"attach it to one of the group's nodes, or add {rank} to its node_ranks"
                self.findings.add("RI105", what, (*here, "node_rank"), why=_members(ranks), remedy=remedy)
                continue
            problems = hardware_problems(config.type, entry)
            if _holds_nan(entry):
                problems.append(((), "NaN is not a value", "write a number"))
            for inner, reason, remedy in problems:
                what = f"{subject}: {config.type} on node {rank}: {reason}"
                self.findings.add("RI107", what, (*here, *inner), key=bool(remedy and inner), remedy=remedy)
            units.append(HardwareUnit.from_dict(self.findings.document.marked(entry, here)))
            if not group.ignore_hardware and not problems:
                self._declare(label, config.type, units[-1], here)
        return tuple(sorted(units, key=lambda unit: unit.node_rank))

    def _declare(self, label: str, kind: str, unit: HardwareUnit, path: Path) -> None:
        """Report hardware that an earlier entry declares. Skips entries without fields: they name no unit."""
        index = int(path[-1])
        same = (kind, unit.node_rank, frozenset(unit.fields))
        other, entry = self.declared.setdefault(same, (label, index))
        if not unit.fields or (other, entry) == (label, index):
            return
        apart = "add a field that tells them apart"
        if other == label:
            what = f"node group {label!r}: a {kind} on node {unit.node_rank} is listed twice"
            why = f"entries {entry} and {index} are the same; ranks count it as two"
            self.findings.add("RW111", what, path, why=why, remedy=f"remove one of them, or {apart}")
            return
        what = f"one {kind} on node {unit.node_rank} is declared by two node groups, {other!r} and {label!r}"
        why = f"entry {entry} of {other!r} is the same, and each group would hand it out"
        remedy = f"declare it in one group and place through that one, or {apart}"
        self.findings.add("RI110", what, path, why=why, remedy=remedy)

    def _environments(
        self, subject: str, configs: Sequence[EnvConfig], ranks: list[int] | None, path: Path
    ) -> tuple[NodeEnvironment, ...]:
        environments: list[NodeEnvironment] = []
        taken: dict[tuple[int, str], str] = {}
        interpreters: dict[tuple[int, str], str] = {}
        members = frozenset(ranks or ())
        for index, config in enumerate(configs):
            here = (*path, index)
            nodes = ranks
            if config.node_ranks != "all":
                nodes = self._node_ranks(config.node_ranks, subject, (*here, "node_ranks"))
            nodes = nodes or []
            outside = [node for node in nodes if node not in members] if ranks is not None else []
            if outside:
                what = f"{subject}: env_configs name node {outside[0]}, which is not in the group"
                remedy = f"name only the group's nodes here, or add {outside[0]} to its node_ranks"
                self.findings.add("RI105", what, (*here, "node_ranks"), why=_members(ranks), remedy=remedy)
                continue
            variables = self._variables(subject, config, nodes, taken, (*here, "env_vars"))
            interpreter = self.findings.document.marked(
                config.python_interpreter_path, (*here, "python_interpreter_path")
            )
            if interpreter and self._spend(len(nodes), subject, here):
                name = "python_interpreter_path"
                self._set(subject, name, interpreter, nodes, interpreters, (*here, name))
            held, set_here = tuple(nodes), tuple(variables.items())
            environments.append(
                NodeEnvironment(node_ranks=held, env_vars=set_here, python_interpreter_path=interpreter)
            )
        return tuple(environments)

    def _named_apart(self, subject: str, path: Path) -> None:
        what = f"{subject}: a variable is written as its name and its value"
        why = "`name` and `value` would be two variables"
        remedy = "write `NAME: value`, such as `- HF_HOME: /data`"
        self.findings.add("RC103", what, path, key=True, why=why, remedy=remedy)
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
        maps = _maps(config.env_vars, path)
        for entry, inner in maps:
            if any(apart <= {str(key).lower() for key in entry} for apart in _NAMED_APART):
                self._named_apart(subject, inner)
            elif isinstance(config.env_vars, list) and len(entry) > 1:
                what = f"{subject}: entry {inner[-1]} of env_vars has {len(entry)} variables"
                why = "each entry of the list is one variable"
                remedy = "write one `- NAME: value` for each, or one map in place of the list"
                self.findings.add("RC103", what, inner, why=why, remedy=remedy)
        for where, value in [((*inner, name), entry[name]) for entry, inner in maps for name in entry]:
            name = str(where[-1])
            problem = variable_problem(name, value)
            if problem:
                cut = SEPARATOR.split(name, maxsplit=1)[0]  # the rest may be a secret
                apart = f"write `{cut or 'NAME'}: value`, with a space"
                remedy = apart if cut != name or not name else "write one value, in quotes"
                self.findings.add("RC103", f"{subject}: {problem}", where, key=True, remedy=remedy)
                self.findings[-1] = replace(self.findings[-1], path=(*where[:-1], cut))
                continue
            if not self._spend(len(nodes), subject, where):
                break
            text = self.findings.document.text(where, value)
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
        """Record a setting of these nodes. Reports another value set earlier, on one of the nodes or in `before`."""
        clash = [node for node in nodes if taken.get((node, name), text) != text]
        if clash or before not in (None, text):
            what = f"{subject}: {name} is set twice" + (f" on node {clash[0]}" if clash else "")
            why, remedy = "its two values differ", "keep one of them"
            self.findings.add("RI106", what, where, key=True, why=why, remedy=remedy)
        taken.update({(node, name): text for node in nodes})


# Other systems write a variable as {name: X, value: Y}. Here these would be two variables, `name` and `value`, and
# the name of a secret would be a value.
_NAMED_APART = ({"name", "value"}, {"key", "value"})


def _maps(value: Any, path: Path) -> list[tuple[Mapping[str, Any], Path]]:
    if isinstance(value, Mapping):
        return [(value, path)]
    return [(entry, (*path, index)) for index, entry in enumerate(value or ())]


def _members(ranks: Sequence[int] | None) -> str:
    listed = ", ".join(map(str, (ranks or ())[:8])) + (", ..." if len(ranks or ()) > 8 else "")
    return f"its nodes are {listed}" if len(ranks or ()) > 1 else f"its only node is {listed}"


def _holds_nan(value: Any) -> bool:  # NaN does not equal itself, so plans could not be compared
    if isinstance(value, Mapping):
        return any(map(_holds_nan, value.values()))
    return any(map(_holds_nan, value)) if isinstance(value, list) else value != value
