"""The facts about one machine or node that `roost doctor` judges."""

from __future__ import annotations

from dataclasses import dataclass, field


@dataclass(frozen=True, slots=True, kw_only=True)
class Leftovers:
    """Leftovers of ended jobs on a machine."""

    folders: tuple[tuple[str, float, int], ...] = ()  # of ended jobs: path, days since it was written, bytes
    rays: tuple[str, ...] = ()  # directories of embedded Rays without a process
    processes: tuple[tuple[int, str], ...] = ()  # numbers and titles
    shared_memory: tuple[tuple[str, int], ...] = ()  # files that no process has open, with their bytes


@dataclass(frozen=True, slots=True, kw_only=True)
class MachineFacts:
    host: str  # its address in the cluster, or its name
    hostname: str
    machine: str  # identifies the machine until its next boot
    python: str
    ray: str  # "" where it is not installed
    roost: str
    auth_mode: str = ""  # RAY_AUTH_MODE
    token: str = field(default="", repr=False)  # a digest, to compare; "" without one
    declared_rank: str | None = None
    port_range: str = ""  # ROOST_PORT_RANGE
    ephemeral: tuple[int, int] = (32_768, 60_999)
    listening: tuple[int, ...] = ()  # ports
    devices: dict[str, int] = field(default_factory=dict)  # accelerators that the machine has, by kind
    visible: dict[str, str] = field(default_factory=dict)  # variables that hide some of them
    open_files: tuple[int, int] = (0, 0)  # soft and hard limit; -1: none
    shared_memory: int = 0  # bytes
    leftovers: Leftovers = field(default_factory=Leftovers)


@dataclass(frozen=True, slots=True, kw_only=True)
class NodeFacts:
    """A node of a Ray cluster: Ray's facts about it, and the facts of its machine."""

    machine: MachineFacts
    node_id: str = ""
    resources: dict[str, float] = field(default_factory=dict)  # as Ray counts them
    is_virtual: bool = False  # a node of an embedded Ray, whose accelerators do not exist
    is_head: bool = False
    clock_error: float = 0.0  # its clock minus that of the asking machine, in seconds
    clock_doubt: float = 0.0  # the possible error of that, in seconds
