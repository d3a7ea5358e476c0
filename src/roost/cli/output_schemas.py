"""The JSON that verbs print, as models: `roost schema --of VERB` publishes their schemas."""

from __future__ import annotations

from typing import Any, Literal

from pydantic import BaseModel, ConfigDict, TypeAdapter

from roost.config.job_schema import tidied
from roost.engine.job_snapshot import ChannelStatus, DriverStatus, NodeStatus
from roost.planning.differences import ComponentChange, NodeChange, NodeGroupChange
from roost.planning.explanation import Explanation
from roost.planning.saved_format import SavedFinding, SavedPlan

DRAFT = "https://json-schema.org/draft/2020-12/schema"


class Printed(BaseModel):
    """A record of the output, with exactly these keys."""

    model_config = ConfigDict(extra="forbid")


class Output(Printed):
    format_version: int


class RefusedOutput(Output):
    """Why there is no result."""

    findings: list[SavedFinding]


class ValidatedFile(Printed):
    file: str
    ok: bool
    findings: list[SavedFinding]


class ValidateOutput(Output):
    files: list[ValidatedFile]


class ComparedSide(Printed):
    name: str
    digest: str | None  # null: the running cluster


class DiffOutput(Output):
    same: bool
    before: ComparedSide
    after: ComparedSide
    nodes: list[NodeChange]
    node_groups: list[NodeGroupChange]
    components: list[ComponentChange]
    findings: list[SavedFinding]


class ExplainedProcess(Output):
    plan: str
    explanation: Explanation


class PrintedCodePage(Printed):
    code: str
    title: str
    kind: str
    severity: str
    means: str
    fix: str
    files: dict[str, str]
    run: str
    python: str
    when: str


class ExplainedCode(Output):
    page: PrintedCodePage


class SuggestOutput(Output):
    seconds: float
    bound: float
    gap: float
    tree: dict[str, Any]
    placement: dict[str, Any]
    accelerators_used: int
    measured: dict[str, str]
    alternatives: list[dict[str, Any]]
    binding: list[str]
    verification: dict[str, Any]
    tails: dict[str, float]
    replays: list[dict[str, Any]]
    worth_measuring: list[dict[str, Any]]
    findings: list[SavedFinding]


class ProfileOutput(Output):
    """The last line; the driver may print others."""

    profile: dict[str, Any]


class SimulatedActivity(Printed):
    component: str
    start: float
    end: float
    busy: float


class SimulateOutput(Output):
    seconds: float
    model_seconds: float
    error: float
    staleness: int
    activities: list[SimulatedActivity]


class LaunchOutput(Output):
    exit_code: int
    job: str = ""
    plan: str = ""
    processes: int = 0
    findings: list[SavedFinding] = []


class ShownPlan(Printed):
    digest: str
    job_file: str
    components: list[str]


class ShownProcess(Printed):
    component: str
    rank: int
    state: str
    planned_node: int
    node: int | None  # null: not known
    devices: list[int]
    pid: int | None
    generation: int | None
    calls_in_flight: list[str]
    busy_for: float
    last_call: str
    visible: str
    waits: str
    group: str
    hardware: str


class ShownEvent(Printed):
    action: str
    component: str
    rank: int | None
    node: int | None
    cause: str
    detail: str
    time: float


class ShownJob(Printed):
    job: str
    time: float
    state: str
    plans: list[ShownPlan]
    driver: DriverStatus | None
    nodes: list[NodeStatus]
    processes: list[ShownProcess]
    starting: int
    channels: list[ChannelStatus]
    events: list[ShownEvent]
    silent: list[str]


class StatusOutput(Output):
    jobs: list[ShownJob]


class LoggedLine(Output):
    """One line; the output is one such object a line."""

    component: str
    rank: int
    generation: int
    node: int
    host: str
    pid: int
    stream: Literal["out", "err"]
    text: str


class PrintedFrame(Printed):
    function: str
    file: str
    line: int


class PrintedThread(Printed):
    name: str
    frames: list[PrintedFrame]  # innermost first
    holds_interpreter: bool


class ProcessWithStacks(Printed):
    component: str  # "(driver)" for the job's driver
    rank: int
    generation: int
    node: int  # -1: no node of the job
    host: str
    pid: int
    state: Literal["running", "stopped", "dead", "unknown"]
    threads: list[PrintedThread]
    how: str
    problem: str


class StacksOutput(Output):
    job: str
    processes: list[ProcessWithStacks]
    findings: list[SavedFinding]


class DownOutput(Output):
    job: str
    was_running: bool
    orderly: bool  # by its driver
    driver: Literal["ended", "running", "stopped", "unknown"]
    processes: int
    findings: list[SavedFinding]


class CheckedMachine(Printed):
    host: str
    hostname: str
    is_head: bool
    python: str
    ray: str
    roost: str
    declared_rank: str | None


class DoctorOutput(Output):
    machines: list[CheckedMachine]
    findings: list[SavedFinding]


class UpOutput(Output):
    plan: str
    submitted: str = ""  # what sbatch or kubectl printed


class SlurmOutput(UpOutput):
    nodes: int
    text: str


class KubernetesOutput(UpOutput):
    manifest: dict[str, Any]


class PrintedHost(Printed):
    rank: int
    host: str
    command: str


class HostsOutput(UpOutput):
    address: str
    nodes: list[PrintedHost]
    run: str


class WaitOutput(Output):
    nodes: int


class EmbeddedOutput(Output):
    address: str


OUTPUTS: dict[str, Any] = {
    "plan": SavedPlan | RefusedOutput,
    "show": SavedPlan | RefusedOutput,
    "validate": ValidateOutput,
    "explain": ExplainedProcess | ExplainedCode | RefusedOutput,
    "diff": DiffOutput | RefusedOutput,
    "profile": ProfileOutput | RefusedOutput,
    "suggest": SuggestOutput | RefusedOutput,
    "simulate": SimulateOutput | RefusedOutput,
    "launch": LaunchOutput,
    "status": StatusOutput | RefusedOutput,
    "logs": LoggedLine | RefusedOutput,
    "stacks": StacksOutput | RefusedOutput,
    "down": DownOutput | RefusedOutput,
    "up": SlurmOutput | KubernetesOutput | HostsOutput | WaitOutput | RefusedOutput,
    "doctor": DoctorOutput | RefusedOutput,
    "embedded": EmbeddedOutput | RefusedOutput,
}


def output_schema(verb: str) -> dict[str, Any]:
    schema = tidied(TypeAdapter(OUTPUTS[verb]).json_schema())
    return {"$schema": DRAFT, "title": f"The output of roost {verb} --json", **schema}
