"""The section `supervise`: what roost does when processes of a component fail."""

from __future__ import annotations

import math
import re
from collections.abc import Collection, Mapping
from dataclasses import asdict, dataclass, fields
from typing import Annotated, Any, Literal

from pydantic import BeforeValidator, Field, Tag, WithJsonSchema
from pydantic_core import PydanticCustomError

from roost.config.document import Document, Findings
from roost.config.fields import NonNegativeInt, Rank, Section, TextOrTexts, by_kind, names_in
from roost.config.plain_data import plain_mapping
from roost.config.ranks import RankSyntaxError, parse_node_ranks
from roost.config.schema import validate
from roost.errors import ConfigurationError, Finding, Path, error_for, errors_in, nearest, shown

CAUSES = ("crash", "hang", "node lost", "out of memory", "failed start")
SECTION = "supervise"
MAX_SPARE = 100_000  # spare nodes of all components together
_UNITS = {"s": 1.0, "m": 60.0, "h": 3600.0, "d": 86400.0}
_DURATION = re.compile(r"\s*([0-9]+(?:\.[0-9]+)?)\s*([smhd]?)\s*", re.ASCII)
_EXAMPLE = "such as 30s, 10m, 1h or 2d"


def _seconds(value: Any) -> Any:
    if isinstance(value, str) and (written := _DURATION.fullmatch(value)):
        return float(written[1]) * _UNITS[written[2] or "s"]
    if isinstance(value, bool) or not isinstance(value, (int, float)) or not math.isfinite(value):
        raise PydanticCustomError("duration", f"it should be a time, {_EXAMPLE}")  # type: ignore[arg-type]
    return value


Policy = Literal["fail", "one_for_one", "one_for_all", "relocate"]
_WRITTEN = WithJsonSchema(
    {"anyOf": [{"type": "number"}, {"type": "string", "pattern": f"^{_DURATION.pattern}$"}]},
    mode="validation",
)
Period = Annotated[float, BeforeValidator(_seconds), Field(ge=1, le=31_536_000), _WRITTEN]
PingTime = Annotated[float, BeforeValidator(_seconds), Field(ge=0.1, le=3_600), _WRITTEN]


# Pydantic reads the limits of a job file, and the policies of a saved plan, straight into these records.
@dataclass(frozen=True, slots=True, kw_only=True)
class RestartLimits:
    """How many restarts each cause allows within the period."""

    crash: NonNegativeInt = 3
    hang: NonNegativeInt = 3
    node_lost: NonNegativeInt = 3
    out_of_memory: NonNegativeInt = 3
    failed_start: NonNegativeInt = 3

    def of(self, cause: str) -> int:
        limit: int = getattr(self, cause.replace(" ", "_"))
        return limit


@dataclass(frozen=True, slots=True, kw_only=True)
class RestartPolicy:
    """What roost does when processes of one component fail."""

    policy: Policy = "fail"
    restarts: RestartLimits = RestartLimits()
    within: Period = 3600.0  # seconds: the period of the limits
    ping: PingTime = 10.0  # seconds: a process that misses three pings hangs
    spare_nodes: tuple[Rank, ...] = ()  # where `relocate` may move ranks, by node rank

    def to_dict(self) -> dict[str, Any]:
        return {**asdict(self), "spare_nodes": list(self.spare_nodes)}


class PolicySection(Section):
    policy: Policy = Field(
        "fail",
        description="fail: tell; one_for_one: restart that rank; one_for_all: the group; relocate: to a spare node",
    )
    restarts: Annotated[
        Annotated[NonNegativeInt, Tag("one")] | Annotated[RestartLimits, Tag("map")],
        by_kind(dict, "map", "one"),
    ] = Field(3, description="restarts allowed in each period, for each cause, or by cause")
    within: Period = Field(3600.0, description="the period, such as 30m or 1h")
    ping: PingTime = Field(10.0, description="a process that misses three pings of this length hangs")
    spare_nodes: TextOrTexts | None = Field(None, description="node ranks that `relocate` may use")


class SupervisedJob(Section):
    supervise: dict[str, PolicySection]


def read_supervise(
    document: Document, known: Collection[str] | None
) -> tuple[dict[str, RestartPolicy], list[Finding]]:
    """The policies of a job by component, and all problems. `known` is None if the components cannot be read."""
    written = document.data.get(SECTION)
    if written is None:
        return {}, []
    if not isinstance(written, dict):
        remedy = "write `supervise: {actor: {policy: one_for_one, restarts: 3, within: 1h}}`"
        what = "`supervise` must be a mapping of components to policies"
        return {}, [document.finding("RC103", what, (SECTION,), remedy=remedy)]
    section, findings = validate(SupervisedJob, {SECTION: written}, document, ())
    if section is None:
        broken = {finding.path[:2] for finding in errors_in(findings)}
        sound = {name: one for name, one in written.items() if (SECTION, name) not in broken}
        section, _ = validate(SupervisedJob, {SECTION: sound}, document, ())
    policies: dict[str, RestartPolicy] = {}
    left = MAX_SPARE
    for key, entry in (section.supervise if section else {}).items():
        spare = _spare_nodes(key, entry, findings, left)
        left -= len(spare)
        for name in names_in(key):
            if known is not None and name not in known:
                what = f"supervise: unknown component {shown(name)}"
                findings.add("RP106", what, (SECTION, key), key=True, remedy=nearest(name, known))
            elif name in policies:
                what = f"component {name!r} has two policies"
                findings.add("RC106", what, (SECTION, key), key=True, remedy="keep one of them")
            else:
                policies[name] = _policy(entry, spare)
    return policies, findings


def policies_from(source: Any, known: Collection[str]) -> dict[str, RestartPolicy]:
    """Policies given in Python: a mapping of components to a `RestartPolicy`, or to a policy as in a job file."""
    if not isinstance(source, Mapping):
        what = f"supervise is a mapping of components to policies, not {type(source).__name__}"
        raise ConfigurationError(
            code="RC103", what=what, remedy='such as {"actor": {"policy": "one_for_one"}}'
        )
    plain = {key: one.to_dict() if isinstance(one, RestartPolicy) else one for key, one in source.items()}
    policies, findings = read_supervise(Document(plain_mapping({SECTION: plain})), known)
    if errors_in(findings):
        raise error_for(findings)
    return policies


def _policy(entry: PolicySection, spare: tuple[int, ...]) -> RestartPolicy:
    limits = entry.restarts
    if isinstance(limits, int):
        limits = RestartLimits(**{one.name: limits for one in fields(RestartLimits)})
    return RestartPolicy(**{**dict(entry), "restarts": limits, "spare_nodes": spare})


def _spare_nodes(key: str, entry: PolicySection, findings: Findings, left: int) -> tuple[int, ...]:
    """The spare nodes in an entry, each once, ascending: at most `left`. The planner checks that they exist."""
    place: Path = (SECTION, key, "spare_nodes")
    written = [] if entry.spare_nodes is None else entry.spare_nodes
    texts = [written] if isinstance(written, str) else written
    try:
        pieces = [ranks for text in texts for ranks in parse_node_ranks(text, "spare nodes") or ()]
    except RankSyntaxError as error:
        findings += findings.document.findings_in(place, key, error.problems)
        return ()
    if sum(map(len, pieces)) > left:
        what = f"{key}: too many spare nodes"
        why = f"the components of a job have at most {MAX_SPARE:,} together"
        findings.add("RL106", what, place, why=why, remedy="name fewer")
        return ()
    found = {rank for ranks in pieces for rank in ranks}
    if entry.policy == "relocate" and not found:
        remedy = "name nodes that nothing else uses, such as `spare_nodes: 2`"
        what = f"{key}: relocate needs spare nodes"
        findings.add("RC102", what, (SECTION, key), key=True, remedy=remedy)
    elif found and entry.policy != "relocate":
        what = f"{key}: only the policy relocate uses spare nodes"
        remedy = "write `policy: relocate`, or remove spare_nodes"
        findings.add("RC104", what, place, remedy=remedy)
    return tuple(sorted(found))
