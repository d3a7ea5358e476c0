"""Reads a job: its `cluster` section, with every check that needs no cluster."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from roost.config.document import Document, load
from roost.config.fields import NAME
from roost.config.labels import label_problems
from roost.config.labels import split_labels as split_labels
from roost.config.layout import PLACE, Layout
from roost.config.layout_checks import layout_problems
from roost.config.ranks import RankSpec, RankSyntaxError, parse_ranks
from roost.config.schema import OLDER_KEYS, ClusterConfig, NodeGroupConfig, PlacementRule, validate
from roost.errors import Finding, Path, close_to, nearest, shown

RESERVED_LABELS = ("cluster", "node")
_CLUSTER_EXAMPLE = "write `cluster:` with `num_nodes` and `component_placement` under it"
MAX_COMPONENTS = 1_000
MAX_PLACEMENTS = 200_000  # characters of all placements together
MAX_GROUPS = 10_000


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


def read_job(
    source: Any, overrides: Sequence[str] = (), there: Collection[str] = ()
) -> tuple[Job, list[Finding]]:
    """A job and all its problems. Input that cannot be read raises.

    A job that declares no node groups may name the groups of its cluster, whose labels are `there`.
    """
    if isinstance(source, Job):
        return source, []
    if isinstance(source, Layout):
        if not overrides:  # a Layout is checked already; the inventory knows its node groups
            document = Document(source.as_job())
            findings = _unknown_shares(source.shares, source.roles, document)
            return Job(document=document, layout=source, shares=_wishes(source.shares, source)), findings
        source = source.as_job()
    document = load(source, overrides)
    section = document.data.get("cluster")
    if not isinstance(section, dict):
        known = [key for key in document.data if isinstance(key, str)]
        close = None if "cluster" in document.data else close_to("cluster", known)
        code, what, remedy = "RC102", "the `cluster` section is missing", _CLUSTER_EXAMPLE
        if close:
            remedy = f"if {close!r} is meant to be it, rename it to `cluster`"
        elif section is not None:
            code, what = "RC103", "`cluster` must be a mapping"
        elif "cluster" in document.data:
            what = "the `cluster` section is empty"
        elif isinstance(document.data.get("defaults"), list):
            what = "the `cluster` section is missing, and `defaults` are not composed here"
            remedy = "compose it with Hydra: `python train.py --cfg job --resolve > job.yaml`, or pass its DictConfig"
        finding = document.finding(code, what, (close or "cluster",), key=section is None, remedy=remedy)
        return Job(document=document), [finding]
    cluster, findings = validate(ClusterConfig, section, document, ("cluster",), OLDER_KEYS)
    if cluster is None:  # drop the broken parts, and look for more problems in the rest
        sound = _without(section, [finding.path for finding in findings if finding.severity == "error"])
        cluster, _ = validate(ClusterConfig, sound, document, ("cluster",), OLDER_KEYS)
    if cluster is None:
        return Job(document=document), findings
    # An earlier finding explains a missing section if the section is broken or its name may be misspelt.
    said = any(found.path[1:2] == ("component_placement",) or found.code == "RC101" for found in findings)
    if not cluster.component_placement and section.get("layout") is None and not said:
        findings.append(
            document.finding(
                "RC102",
                "`component_placement` is missing or empty",
                ("cluster", "component_placement"),
                key=True,
                remedy="say where components go, such as `component_placement: {actor: 0-7}`",
            )
        )
    labels = _labels(cluster, there)
    rules = _rules(cluster, labels, document, findings)
    layout = _layout(cluster, rules, labels, document, findings)
    placed = _names_placed(cluster, layout, findings)
    if placed is not None:
        findings += _unknown_shares(cluster.shares or {}, placed, document)
    groups = _in_place(cluster.node_groups or (), findings)
    job = Job(
        document=document,
        num_nodes=cluster.num_nodes,
        rules=rules,
        groups=groups,
        layout=layout,
        shares=_wishes(cluster.shares or {}, layout),
    )
    return job, findings


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


def _in_place(groups: Sequence[NodeGroupConfig], findings: Sequence[Finding]) -> tuple[Any, ...]:
    """The readable groups, each at its index in the job; None at the index of any other."""
    places = [found.path for found in findings if found.severity == "error"]
    broken = {path[2] for path in places if path[1:2] == ("node_groups",) and len(path) > 2}
    left = iter(groups)
    return tuple(None if index in broken else next(left) for index in range(len(groups) + len(broken)))


def _rules(
    cluster: ClusterConfig, labels_known: set[str], document: Document, findings: list[Finding]
) -> dict[str, ComponentRule]:
    rules: dict[str, ComponentRule] = {}
    groups_lost = _groups_lost(findings)
    names = [name for key in cluster.component_placement for name in key.split(",")]
    written = sum(len(_placement_text(value)) for value in cluster.component_placement.values())
    if written > MAX_PLACEMENTS:
        findings.append(
            document.finding(
                "RL106",
                f"{written:,} characters of placements",
                ("cluster", "component_placement"),
                key=True,
                remedy=f"at most {MAX_PLACEMENTS:,} together; write ranges such as 0-7",
            )
        )
        return {}
    if len(names) > MAX_COMPONENTS or len(labels_known) > MAX_GROUPS:
        findings.append(
            document.finding(
                "RL106",
                f"{len(names):,} components and {len(labels_known) - 2:,} node groups",
                ("cluster", "component_placement"),
                key=True,
                remedy=f"at most {MAX_COMPONENTS:,} components and {MAX_GROUPS:,} groups",
            )
        )
        return {}
    for key, value in cluster.component_placement.items():
        path: Path = ("cluster", "component_placement", key)
        text_path = (*path, "placement") if isinstance(value, PlacementRule) else path
        text = _placement_text(value)
        spec = _spec(text, key, document, text_path, findings)
        labels = split_labels(value.node_group) if isinstance(value, PlacementRule) else ()
        if isinstance(value, PlacementRule) and value.node_group is not None:
            known = () if groups_lost else labels_known
            wrong = label_problems(key, value.node_group, known, document, (*path, "node_group"))
            findings += wrong
            if wrong and labels_known.issuperset(labels):
                continue  # the rule names no group, or one group twice
        for name in key.split(","):
            name = name.strip()
            if not NAME.fullmatch(name):
                findings.append(
                    document.finding(
                        "RC105",
                        f"{name!r} is not a component name",
                        path,
                        key=True,
                        remedy="use letters, digits, dot, dash and underscore, at most 64 of them",
                    )
                )
            elif name in rules:
                findings.append(
                    document.finding(
                        "RC106",
                        f"component {name!r} is placed twice",
                        path,
                        key=True,
                        why=f"it is already placed under {rules[name].path[2]!r}",
                        remedy="keep one of them",
                    )
                )
            elif spec is not None and labels_known.issuperset(labels):
                rules[name] = ComponentRule(name=name, labels=labels, spec=spec, path=text_path)
    return rules


def _placement_text(value: PlacementRule | str) -> str:
    return value.placement if isinstance(value, PlacementRule) else value


def _broken(findings: Sequence[Finding], key: str) -> bool:
    return any(found.severity == "error" and found.path[1:2] == (key,) for found in findings)


def _layout(
    cluster: ClusterConfig,
    rules: Mapping[str, ComponentRule],
    labels: set[str],
    document: Document,
    findings: list[Finding],
) -> Layout | None:
    """The layout if it has no problem: a broken one would only cause further findings."""
    if cluster.layout is None or _broken(findings, "layout"):
        return None
    layout = Layout.of(cluster.layout, cluster.shares or {})
    findings += layout_problems(layout, document, PLACE)
    written = document.data["cluster"]["layout"].get("node_group")
    if written is not None:
        known = () if _groups_lost(findings) else labels
        findings += label_problems("layout", written, known, document, (*PLACE, "node_group"))
    if _broken(findings, "layout") or not labels.issuperset(layout.node_group):
        return None
    for name in layout.components:
        if name in rules:
            findings.append(
                document.finding(
                    "RC106",
                    f"component {name!r} is placed twice",
                    rules[name].path[:3],
                    key=True,
                    why="the layout places it already",
                    remedy="remove it here, or change the layout",
                )
            )
    return layout


def _names_placed(
    cluster: ClusterConfig, layout: Layout | None, findings: Sequence[Finding]
) -> list[str] | None:
    """The names of the job's components; None if a broken section hides some of them."""
    if _broken(findings, "component_placement") or (cluster.layout is not None and layout is None):
        return None
    names = [name.strip() for key in cluster.component_placement for name in key.split(",")]
    return [*names, *(layout.roles if layout else ())]


def _unknown_shares(shares: Mapping[str, float], known: Collection[str], document: Document) -> list[Finding]:
    return [
        document.finding(
            "RP106",
            f"shares: unknown component {shown(name)}",
            ("cluster", "shares", name),
            key=True,
            remedy=nearest(name, known),
        )
        for name in shares
        if name not in known
    ]


def _wishes(shares: Mapping[str, float], layout: Layout | None) -> dict[str, float]:
    """The shares by component: a share for `rollout` goes to each group of engines without its own."""
    wishes = dict(shares)
    parts = [part.component for part in layout.engine_groups()] if layout else []
    if "rollout" in wishes and parts:
        common = wishes.pop("rollout")
        wishes = {**dict.fromkeys(parts, common), **wishes}
    return wishes


def _labels(cluster: ClusterConfig, there: Collection[str]) -> set[str]:
    declared = {group.label.strip() for group in cluster.node_groups or ()}
    return (declared or set(there)) | set(RESERVED_LABELS)


def _groups_lost(findings: Sequence[Finding]) -> bool:
    """Whether labels are unknown because a node group cannot be read."""
    return any(
        found.severity == "error" and (found.path[1:2] == ("node_groups",) or _may_mean_groups(found.path))
        for found in findings
    )


def _may_mean_groups(path: Path) -> bool:
    """Whether the unknown key at this path may be `node_groups` misspelt."""
    return len(path) == 2 and close_to(str(path[1]), ClusterConfig.model_fields) == "node_groups"


def _spec(text: str, key: str, document: Document, path: Path, findings: list[Finding]) -> RankSpec | None:
    try:
        return parse_ranks(text)
    except RankSyntaxError as error:
        findings += document.findings_in(path, key, error.problems)
        return None
