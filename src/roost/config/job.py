"""Reads a job: its `cluster` section, with every check that needs no cluster."""

from __future__ import annotations

import os
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, TypeVar

from roost.config.document import Document, Findings, load
from roost.config.fields import NAME, NAME_RULE, names_in
from roost.config.labels import label_problems, split_labels
from roost.config.layout import Layout
from roost.config.layout_checks import layout_problems
from roost.config.layout_section import PLACE
from roost.config.plain_data import PLACEMENTS
from roost.config.ranks import RankSpec, RankSyntaxError, parse_ranks
from roost.config.schema import OLDER_KEYS, ClusterConfig, NodeGroupConfig, PlacementRule, validate
from roost.config.supervise import RestartPolicy, read_supervise
from roost.errors import ConfigurationError, Finding, Path, close_to, error_for, errors_in, nearest, shown

RESERVED_LABELS = ("cluster", "node")
_CLUSTER_EXAMPLE = "write `cluster:` with `num_nodes` and `component_placement` under it"
_NAMED = (("cluster", "node_groups"), PLACE)
_PRIVATE = frozenset(("env_vars", "configs"))  # the keys below these belong to the user
MAX_COMPONENTS = 1_000
MAX_PLACEMENTS = 200_000  # characters of all placements together
MAX_GROUPS = 10_000
Wish = TypeVar("Wish")


@dataclass(frozen=True, slots=True, kw_only=True)
class ComponentRule:
    """One component's placement: the labels of its node groups, and its ranks."""

    name: str
    labels: tuple[str, ...]  # empty: the whole cluster
    spec: RankSpec
    path: Path  # of the placement text in the job


@dataclass(frozen=True, slots=True, kw_only=True)
class Job:
    document: Document
    num_nodes: int | None = None
    rules: Mapping[str, ComponentRule] = field(default_factory=dict)
    groups: tuple[NodeGroupConfig | None, ...] = ()  # in the job's order; None for an unreadable group
    layout: Layout | None = None
    shares: Mapping[str, float] = field(default_factory=dict)  # the shares the job asks for, by component
    supervise: Mapping[str, RestartPolicy] = field(default_factory=dict)  # by component


def read_job(
    source: Any, overrides: Sequence[str] = (), there: Collection[str] = ()
) -> tuple[Job, list[Finding]]:
    """A job and all its problems. Raises if the input cannot be read.

    A job that declares no node groups may name the groups of its cluster, whose labels are `there`.
    """
    if isinstance(source, Job):
        return source, []
    if isinstance(source, Layout):
        if not overrides:  # a Layout is checked already; the inventory knows its node groups
            document = Document(source.as_job())
            findings = list(_unknown_shares(source.shares, source.roles, document))
            return Job(document=document, layout=source, shares=_wishes(source.shares, source)), findings
        source = source.as_job()
    document = load(source, overrides)
    section = document.data.get("cluster")
    if not isinstance(section, dict):
        return Job(document=document), [_no_cluster_section(document)]
    misplaced = [] if "component_placement" in section else _placements_at_top(document)
    cluster, problems = validate(ClusterConfig, section, document, ("cluster",), OLDER_KEYS)
    named = list(_names_from_secrets(document))
    problems += [*misplaced, *named]
    if cluster is None or named:  # drop the broken parts, and look for more problems in the rest
        sound = _without(section, [problem.path for problem in errors_in(problems)])
        cluster, _ = validate(ClusterConfig, sound, document, ("cluster",), OLDER_KEYS)
    if cluster is None:
        return Job(document=document), problems
    reader = _JobReader(cluster, there, problems)
    return reader.job(has_layout=section.get("layout") is not None), problems


def read_supervised_layout(source: Any) -> tuple[Layout, Mapping[str, RestartPolicy]]:
    """The layout of flags, a job, or the `cluster` section of a job, and the job's restart policies by component.

    One error reports all problems.
    """
    if isinstance(source, Layout):
        return source, {}
    if isinstance(source, Mapping) and "layout" in source and "cluster" not in source:
        # `cfg.cluster`, which `Cluster` takes too
        source = load(source, inside=("cluster",))
    is_job = isinstance(source, (str, os.PathLike, Document)) or (
        isinstance(source, Mapping) and "cluster" in source
    )
    if source is None or isinstance(source, (int, float, bytes, list, tuple, set)):
        raise ConfigurationError(
            code="RC103",
            what=f"{source!r} is not a layout"[:200],
            remedy="pass a Layout, parsed flags, or a job whose `cluster` section has a `layout`",
        )
    if not is_job:
        return Layout.from_args(source), {}
    job, findings = read_job(source)
    if errors_in(findings):
        raise error_for(findings)
    if job.layout is None:
        remedy = "write one under `cluster`, or launch its components by their placements"
        missing = job.document.finding("RC102", "the job has no layout", PLACE, key=True, remedy=remedy)
        raise ConfigurationError(missing)
    own = {name: share for name, share in job.layout.shares.items() if name in job.layout.roles}
    return replace(job.layout, shares=own), job.supervise


def _placements_at_top(document: Document) -> list[Finding]:
    """The finding about a `component_placement` beside `cluster`, if the file has one."""
    if "component_placement" not in document.data:
        return []
    what = "`component_placement` stands at the top level"
    why = "roost reads it in the `cluster` section; other sections belong to your program"
    remedy = "move it under `cluster:`, and indent it"
    return [document.finding("RC102", what, ("component_placement",), key=True, why=why, remedy=remedy)]


def _names_from_secrets(document: Document) -> Iterator[Finding]:
    """Findings about names in plans and messages that a reference to a secret gave."""
    for path in document.positions.secrets:
        if path[:2] not in _NAMED or _PRIVATE.intersection(path):
            continue
        if path[-1] in ("label", "type", "name"):
            what, why = f"the {path[-1]} comes from a secret", "plans and messages show it"
            remedy = "write it, or give what it refers to another name"
            yield document.finding("RC105", what, path, why=why, remedy=remedy)


def _no_cluster_section(document: Document) -> Finding:
    section = document.data.get("cluster")
    known = [key for key in document.data if isinstance(key, str)]
    close = None if "cluster" in document.data else close_to("cluster", known)
    if section is None and {"format_version", "digest", "components"} <= set(known):
        what, why = (
            "this is a saved plan, not a job",
            "it says where processes go, and not how that was asked for",
        )
        remedy = "`roost show` shows it; `roost launch JOB --plan PLAN` runs it"
        return document.finding("RC102", what, ("format_version",), key=True, why=why, remedy=remedy)
    code, what, remedy = "RC102", "the `cluster` section is missing", _CLUSTER_EXAMPLE
    if close:
        remedy = f"if {close!r} is meant to be it, rename it to `cluster`"
    elif section is None and (misplaced := _placements_at_top(document)):
        return misplaced[0]
    elif section is not None:
        code, what = "RC103", "`cluster` must be a mapping"
    elif "cluster" in document.data:
        what = "the `cluster` section is empty"
    return document.finding(code, what, (close or "cluster",), key=section is None, remedy=remedy)


def _without(section: dict[str, Any], broken: Sequence[Path]) -> dict[str, Any]:
    """The section without the components, node groups and settings that have problems."""
    tops = {path[1] for path in broken if len(path) == 2}
    parts = {path[1:3] for path in broken if len(path) > 2}
    left: dict[str, Any] = {}
    for key, value in section.items():
        if key in tops:
            continue
        if isinstance(value, dict):
            value = {name: item for name, item in value.items() if (key, name) not in parts}
        elif isinstance(value, list):
            value = [item for index, item in enumerate(value) if (key, index) not in parts]
        left[key] = value
    return left


class _JobReader:
    """Reads the parts of a `cluster` section, and adds their problems to the section's own."""

    def __init__(self, cluster: ClusterConfig, there: Collection[str], findings: Findings) -> None:
        self.cluster, self.findings, self.document = cluster, findings, findings.document
        declared = {group.label.strip() for group in cluster.node_groups or ()}
        self.labels = (declared or set(there)) | set(RESERVED_LABELS)
        self.names = [name for key in cluster.component_placement for name in names_in(key)]

    def job(self, has_layout: bool) -> Job:
        # An earlier finding explains a missing section if the section is broken or its name may be misspelt.
        said = any(
            found.path[:2] == PLACEMENTS or found.path == PLACEMENTS[1:] or found.code == "RC101"
            for found in self.findings
        )
        if not self.cluster.component_placement and not has_layout and not said:
            what = "`component_placement` is missing or empty"
            remedy = "write it under `cluster`, such as `component_placement: {actor: 0-7}`"
            self.findings.add("RC102", what, PLACEMENTS, key=True, remedy=remedy)
        rules = self._rules()
        layout = self._layout(rules)
        shares, known = self.cluster.shares or {}, None
        if not self._broken("component_placement") and (layout is None) == (self.cluster.layout is None):
            placed = [*self.names, *(layout.roles if layout else ())]
            self.findings += _unknown_shares(shares, placed, self.document)
            known = [*placed, *(layout.components if layout else ())]
        policies, problems = read_supervise(self.document, known)
        self.findings += problems
        return Job(
            document=self.document,
            num_nodes=self.cluster.num_nodes,
            rules=rules,
            groups=self._groups(),
            layout=layout,
            shares=_wishes(shares, layout),
            supervise=_wishes(policies, layout),
        )

    def _broken(self, key: str) -> bool:
        return any(found.path[1:2] == (key,) for found in errors_in(self.findings))

    def _groups_lost(self) -> bool:
        """Whether labels are unknown because a node group cannot be read."""
        keys = (found.path[1] for found in errors_in(self.findings) if len(found.path) == 2)
        return self._broken("node_groups") or any(
            close_to(str(key), ClusterConfig.model_fields) == "node_groups" for key in keys
        )

    def _groups(self) -> tuple[NodeGroupConfig | None, ...]:
        """The node groups by their index in the job; None for a group that cannot be read."""
        groups, places = self.cluster.node_groups or (), [found.path for found in errors_in(self.findings)]
        broken = {path[2] for path in places if path[1:2] == ("node_groups",) and len(path) > 2}
        left = iter(groups)
        return tuple(None if index in broken else next(left) for index in range(len(groups) + len(broken)))

    def _rules(self) -> dict[str, ComponentRule]:
        placements = self.cluster.component_placement
        written = sum(len(_placement_text(value)) for value in placements.values())
        if written > MAX_PLACEMENTS:
            remedy = f"at most {MAX_PLACEMENTS:,} together; write ranges such as 0-7"
            what = f"{written:,} characters of placements"
            self.findings.add("RL106", what, PLACEMENTS, key=True, remedy=remedy)
            return {}
        if len(self.names) > MAX_COMPONENTS or len(self.labels) > MAX_GROUPS:
            what = f"{len(self.names):,} components and {len(self.labels) - 2:,} node groups"
            remedy = f"at most {MAX_COMPONENTS:,} components and {MAX_GROUPS:,} groups"
            self.findings.add("RL106", what, PLACEMENTS, key=True, remedy=remedy)
            return {}
        rules: dict[str, ComponentRule] = {}
        known = () if self._groups_lost() else self.labels
        for key, value in placements.items():
            self._rule(key, value, known, rules)
        return rules

    def _rule(
        self, key: str, value: PlacementRule | str, known: Collection[str], rules: dict[str, ComponentRule]
    ) -> None:
        """Add the rule of each component in a key such as `actor,critic`."""
        path: Path = (*PLACEMENTS, key)
        text_path: Path = path
        labels: tuple[str, ...] = ()
        if isinstance(value, PlacementRule):
            text_path, labels = (*path, "placement"), split_labels(value.node_group)
        spec: RankSpec | None = None
        try:
            spec = parse_ranks(_placement_text(value))
        except RankSyntaxError as error:
            self.findings += self.document.findings_in(text_path, key, error.problems)
        if isinstance(value, PlacementRule) and value.node_group is not None:
            wrong = label_problems(key, value.node_group, known, self.document, (*path, "node_group"))
            self.findings += wrong
            if wrong and self.labels.issuperset(labels):
                return  # the rule names no group, or one group twice
        for name in names_in(key):
            if not NAME.fullmatch(name):
                self.findings.add(
                    "RC105", f"{name!r} is not a component name", path, key=True, remedy=NAME_RULE
                )
            elif name in rules:
                why = f"it is already placed under {rules[name].path[2]!r}"
                self._placed_twice(name, path, why, "keep one of them")
            elif spec is not None and self.labels.issuperset(labels):
                rules[name] = ComponentRule(name=name, labels=labels, spec=spec, path=text_path)

    def _placed_twice(self, name: str, path: Path, why: str, remedy: str) -> None:
        self.findings.add(
            "RC106", f"component {name!r} is placed twice", path, key=True, why=why, remedy=remedy
        )

    def _layout(self, rules: Mapping[str, ComponentRule]) -> Layout | None:
        """The layout if it has no problem: a broken one would only cause further findings."""
        if self.cluster.layout is None or self._broken("layout"):
            return None
        layout = Layout.of(self.cluster.layout, self.cluster.shares or {})
        self.findings += layout_problems(layout, self.document)
        written = self.document.data["cluster"]["layout"].get("node_group")
        if written is not None:
            known = () if self._groups_lost() else self.labels
            self.findings += label_problems("layout", written, known, self.document, (*PLACE, "node_group"))
        if self._broken("layout") or not self.labels.issuperset(layout.node_group):
            return None
        for name in layout.components:
            if name in rules:
                why, remedy = "the layout places it already", "remove it here, or change the layout"
                self._placed_twice(name, rules[name].path[:3], why, remedy)
        return layout


def _placement_text(value: PlacementRule | str) -> str:
    return value.placement if isinstance(value, PlacementRule) else value


def _unknown_shares(
    shares: Mapping[str, float], known: Collection[str], document: Document
) -> Iterator[Finding]:
    for name in shares:
        if name not in known:
            what, path = f"shares: unknown component {shown(name)}", ("cluster", "shares", name)
            yield document.finding("RP106", what, path, key=True, remedy=nearest(name, known))


def _wishes(shares: Mapping[str, Wish], layout: Layout | None) -> dict[str, Wish]:
    """Wishes by component. A wish for `rollout` goes to each group of engines without a wish of its own."""
    wishes = dict(shares)
    parts = [part.component for part in layout.engine_groups()] if layout else []
    if "rollout" in wishes and parts:
        common = wishes.pop("rollout")
        wishes = {**dict.fromkeys(parts, common), **wishes}
    return wishes
