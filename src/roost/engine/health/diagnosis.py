"""Judges a machine or a cluster: facts in, findings out."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import replace
from typing import TypeVar

from roost.engine.health.machine_facts import MachineFacts, NodeFacts
from roost.engine.ports.port_ranges import allowed_ports, split_by, text_of
from roost.errors import ClusterError, ConfigurationError, Finding, counted
from roost.inventory.accelerators import AcceleratorKind, accelerator_kind
from roost.inventory.nodes import NO_ACCELERATORS
from roost.inventory.ordering import NodeInfo, order_nodes

MINIMUM_RAY = (2, 49)
CLOCKS_APART = 1.0  # seconds; traces and events of nodes are compared by their clocks
FEW_PORTS = 256  # a node of 8 engines leases about 20 for each
FEW_FILES = 4_096  # a raylet with some hundred workers uses more
SMALL_SHARED_MEMORY = 1 << 30  # bytes; containers have 64 MiB by default
OLD_FOLDER = 30.0  # days
_MIB = 1 << 20
_Value = TypeVar("_Value")


def diagnose_machine(facts: MachineFacts) -> list[Finding]:
    """Findings about one machine, without a cluster."""
    return _shared([(facts.host, trouble) for rule in MACHINE_RULES for trouble in rule(facts)])


def diagnose_cluster(nodes: Sequence[NodeFacts]) -> list[Finding]:
    """Findings about the nodes of a running cluster: about each node, and about differences between them."""
    findings = [finding for rule in CLUSTER_RULES for finding in rule(nodes)]
    machines = {(node.machine.machine, node.machine.open_files): node.machine for node in nodes}.values()
    told = [(one.host, trouble) for rule in MACHINE_RULES for one in machines for trouble in rule(one)]
    told += [(node.machine.host, trouble) for rule in NODE_RULES for node in nodes for trouble in rule(node)]
    return findings + _shared(told)


def _shared(told: Sequence[tuple[str, Finding]]) -> list[Finding]:
    """Machines with the same trouble share a finding, which names them."""
    return [replace(one, what=f"{listed(hosts)}: {one.what}") for one, hosts in _by_value(told).items()]


def listed(names: Iterable[str]) -> str:
    distinct = list(dict.fromkeys(names))
    more = f" and {len(distinct) - 6} more" if len(distinct) > 6 else ""
    return ", ".join(distinct[:6]) + more


# -- one machine -------------------------------------------------------------------------------------------


def _ray_installed(facts: MachineFacts) -> Iterator[Finding]:
    if (finding := old_ray(facts.ray)) is not None:
        yield finding


def old_ray(version: str) -> Finding | None:
    """The finding about a Ray that is too old, or missing if the version is empty."""
    numbers = tuple(int(part) for part in version.split(".")[:2] if part.isdecimal())
    if numbers >= MINIMUM_RAY:
        return None
    least = ".".join(map(str, MINIMUM_RAY))
    return Finding(
        code="RE102",
        what=f"Ray {version} is too old" if version else "Ray is not installed",
        why=f"roost needs Ray {least} or newer",
        remedy=f"pip install -U 'ray[default]>={least}', on every node",
    )


def _ports(facts: MachineFacts) -> Iterator[Finding]:
    try:
        allowed = allowed_ports({"ROOST_PORT_RANGE": facts.port_range})
    except ConfigurationError as error:
        (problem,) = error.findings
        yield Finding(
            code="RC104",
            what=f"ROOST_PORT_RANGE={facts.port_range} is not a range of ports",
            why=problem.why,
            remedy=problem.remedy,
        )
        return
    ephemeral = range(facts.ephemeral[0], facts.ephemeral[1] + 1)
    outside, _ = split_by(ephemeral, allowed)
    free = sum(map(len, outside)) - sum(any(port in ports for ports in outside) for port in facts.listening)
    if free < FEW_PORTS:
        yield Finding(
            code="RW221",
            what=f"{counted(max(0, free), 'port')} to lease outside the kernel's ephemeral range",
            why=f"roost leases {text_of(allowed)}, the kernel gives {text_of(ephemeral)} to any connection",
            remedy="sysctl -w net.ipv4.ip_local_port_range='32768 60999', or set ROOST_PORT_RANGE to ports outside it",
        )


def _open_files(facts: MachineFacts) -> Iterator[Finding]:
    soft, hard = facts.open_files
    if 0 < soft < FEW_FILES:
        yield Finding(
            code="RW222",
            what=f"a process may have {soft:,} files open",
            why="every process of a job has connections to many others, and Ray to all",
            remedy=(
                f"raise the hard limit, {hard:,}, in /etc/security/limits.conf first, then "
                if 0 < hard < 65_536
                else ""
            )
            + "ulimit -n 65536 before Ray is started",
        )


def _shared_memory(facts: MachineFacts) -> Iterator[Finding]:
    total = facts.shared_memory
    if 0 < total < SMALL_SHARED_MEMORY:
        yield Finding(
            code="RW223",
            what=f"/dev/shm has {total // _MIB:,} MiB",
            why="Ray keeps values there, and NCCL its buffers",
            remedy="give the container more: docker run --shm-size=16g, or an emptyDir with medium: Memory",
        )


def _leftovers(facts: MachineFacts) -> Iterator[Finding]:
    left = facts.leftovers
    why = "jobs that have ended left them"
    if left.processes:
        shown = ", ".join(f"{pid} ({title})" for pid, title in left.processes[:4])
        pids = " ".join(str(pid) for pid, _ in left.processes[:20])
        yield Finding(
            code="RW224",
            what=f"{counted(len(left.processes), 'process')} without a job: {shown}",
            why=why,
            remedy=f"kill -9 {pids}",
        )
    if left.rays:
        what = f"{counted(len(left.rays), 'directory')} of embedded Rays that have ended: {listed(left.rays)}"
        yield Finding(
            code="RW224",
            what=what,
            why="a process that was killed could not remove it",
            remedy=f"rm -r {' '.join(left.rays[:20])}",
        )
    if left.shared_memory:
        size, names = sum(size for _, size in left.shared_memory), [name for name, _ in left.shared_memory]
        what = f"{counted(len(names), 'file')} in shared memory that no process uses, {size // _MIB:,} MiB: {listed(names)}"
        yield Finding(code="RW224", what=what, why=why, remedy=f"rm {' '.join(names[:20])}")
    old = [(path, size) for path, days, size in left.folders if days >= OLD_FOLDER]
    if old:
        size = sum(size for _, size in old)
        what = f"{counted(len(old), 'folder')} of jobs that ended over {OLD_FOLDER:g} days ago, {size // 1024:,} KiB"
        yield Finding(
            code="RW224",
            what=what,
            why="they hold the jobs' histories",
            remedy=f"rm -r {' '.join(path for path, _ in old[:10])}",
        )


MACHINE_RULES: tuple[Callable[[MachineFacts], Iterator[Finding]], ...] = (
    _ray_installed,
    _ports,
    _open_files,
    _shared_memory,
    _leftovers,
)


# -- one node of a cluster ---------------------------------------------------------------------------------


def _devices(node: NodeFacts) -> Iterator[Finding]:
    if node.is_virtual:
        return
    for name, present in node.machine.devices.items():
        kind = accelerator_kind(name)
        shown = _shown_devices(kind, node.machine.visible.get(kind.visible_variable))
        expected = present if shown is None else min(present, shown)
        counts = int(node.resources.get(kind.ray_resource, 0))
        if counts != expected:
            hidden = f", {shown} of them visible by {kind.visible_variable}" if shown is not None else ""
            yield Finding(
                code="RE154",
                what=f"Ray counts {counts} {kind.ray_resource}, and the node has {present}{hidden}",
                why="processes are placed on what Ray counts",
                remedy=f"start Ray there with --num-gpus={expected}"
                if kind.ray_resource == "GPU"
                else f"start Ray there with --resources='{{\"{kind.ray_resource}\": {expected}}}'",
            )


def _shown_devices(kind: AcceleratorKind, value: str | None) -> int | None:
    """How many accelerators the variable shows; None if it is not set."""
    if value is None:
        return None
    return len([one for one in value.removeprefix(kind.visible_prefix).split(",") if one.strip()])


def _object_store(node: NodeFacts) -> Iterator[Finding]:
    store, total = node.resources.get("object_store_memory", 0), node.machine.shared_memory
    if SMALL_SHARED_MEMORY <= total < store:
        yield Finding(
            code="RW223",
            what=f"Ray's object store of {int(store) // _MIB:,} MiB does not fit /dev/shm, which has {total // _MIB:,} MiB",
            why="values are then kept on a disk",
            remedy="give the container more shared memory, or start Ray with a smaller --object-store-memory",
        )


NODE_RULES: tuple[Callable[[NodeFacts], Iterator[Finding]], ...] = (_devices, _object_store)


# -- nodes against each other ------------------------------------------------------------------------------


def _versions(nodes: Sequence[NodeFacts]) -> Iterator[Finding]:
    told = {
        "Python": [(node.machine.host, ".".join(node.machine.python.split(".")[:2])) for node in nodes],
        "Ray": [(node.machine.host, node.machine.ray) for node in nodes],
        "roost": [(node.machine.host, node.machine.roost) for node in nodes],
    }
    for name, versions in told.items():
        by_version = _by_value(versions)
        if len(by_version) > 1:
            yield Finding(
                code="RE152",
                what=f"the nodes have different versions of {name}",
                why=_sides(by_version),
                remedy="install the same on every node, and start Ray there again",
            )


def _authentication(nodes: Sequence[NodeFacts]) -> Iterator[Finding]:
    modes = _by_value([(node.machine.host, node.machine.auth_mode or "unset") for node in nodes])
    tokens = _by_value([(node.machine.host, node.machine.token) for node in nodes])
    if len(modes) > 1:
        yield Finding(
            code="RE153",
            what="RAY_AUTH_MODE differs between the nodes",
            why=_sides(modes),
            remedy="set it alike on every node where Ray is started, and start Ray again",
        )
    elif next(iter(modes), "") == "token" and len(tokens) > 1:
        yield Finding(
            code="RE153",
            what="the nodes have different tokens for Ray",
            why="; ".join(
                f"the same on {listed(hosts)}" if token else f"none on {listed(hosts)}"
                for token, hosts in tokens.items()
            ),
            remedy="copy one token to every node (RAY_AUTH_TOKEN, or the file ~/.ray/auth_token)",
        )


def _node_ranks(nodes: Sequence[NodeFacts]) -> Iterator[Finding]:
    facts = [
        NodeInfo(
            node_id=node.node_id,
            ip=node.machine.host,
            hostname=node.machine.hostname,
            accelerators=NO_ACCELERATORS,
            declared_rank=node.machine.declared_rank,
        )
        for node in nodes
    ]
    try:
        order_nodes(facts)
    except ClusterError as error:
        yield from error.findings


def _clocks(nodes: Sequence[NodeFacts]) -> Iterator[Finding]:
    if not nodes:
        return
    first, last = min(nodes, key=lambda one: one.clock_error), max(nodes, key=lambda one: one.clock_error)
    apart = last.clock_error - first.clock_error
    if apart - first.clock_doubt - last.clock_doubt > CLOCKS_APART:
        yield Finding(
            code="RW220",
            what=f"the clocks of {first.machine.host} and {last.machine.host} are {apart:.1f} s apart",
            why="events, traces and reports put the calls of all nodes in one order by these clocks",
            remedy="run an NTP client such as chrony on every node",
        )


def _by_value(told: Sequence[tuple[str, _Value]]) -> dict[_Value, list[str]]:
    found: dict[_Value, list[str]] = {}
    for host, value in told:
        found.setdefault(value, []).append(host)
    return found


def _sides(by_value: dict[str, list[str]]) -> str:
    return "; ".join(f"{value or 'none'} on {listed(hosts)}" for value, hosts in by_value.items())


CLUSTER_RULES: tuple[Callable[[Sequence[NodeFacts]], Iterator[Finding]], ...] = (
    _versions,
    _authentication,
    _node_ranks,
    _clocks,
)
