"""The one connection of this process to Ray."""

from __future__ import annotations

import atexit
import contextlib
import ipaddress
import logging
import os
import sys
from collections.abc import Callable, Iterator
from typing import Any, ClassVar

import ray
from ray._private import ray_logging
from ray._private import worker as ray_worker
from ray._private.accelerators import NvidiaGPUAcceleratorManager

from roost.engine.connection.actors import NAMESPACE
from roost.engine.connection.cluster_watch import HEAD_WITHIN, ask_head, forget_cluster, watch_cluster
from roost.engine.connection.embedded import INDEX_LABEL, EmbeddedCluster, own_cluster_address
from roost.engine.connection.implicit_start import keep_out_own_threads
from roost.engine.connection.listening import check_answers
from roost.engine.connection.ray_settings import settings_without_a_head
from roost.engine.connection.signals import own_sigterm
from roost.engine.health.diagnosis import old_ray
from roost.engine.workers.remote_errors import first_line
from roost.engine.workers.worker_context import current_worker
from roost.errors import ClusterError, Finding, counted, render
from roost.inventory.inventory import Inventory

WARNING = "worker processes have been started on node"
_UNASKED = "Unhandled error"
_SECONDARY = (
    "input arguments for this task could not be computed",
    "ActorDiedError",
    "The actor died",
    "The actor is dead",
)
log = logging.getLogger("roost")


class Connection:
    """One user of this process's connection to Ray. When the last user closes, roost disconnects if it connected."""

    _users: ClassVar[set[Connection]] = set()
    _ours: ClassVar[bool] = False  # roost called ray.init, so it may call ray.shutdown
    _embedded: ClassVar[EmbeddedCluster | None] = None
    _show_warning: ClassVar[Callable[[], None]] = staticmethod(lambda: None)

    def __init__(self, address: str, ours: bool = False, embedded: EmbeddedCluster | None = None) -> None:
        self.address = address
        is_first = not Connection._users
        Connection._users.add(self)
        Connection._ours = Connection._ours or ours
        Connection._embedded = Connection._embedded or embedded
        if current_worker() is None:
            watch_cluster(address)
        if is_first:
            try:
                Connection._show_warning = staticmethod(hide_if_embedded())
            except BaseException:
                self.close()
                raise

    def close(self) -> None:
        if self in Connection._users:
            Connection._users.remove(self)
            if not Connection._users:
                self._undo()

    @classmethod
    def forget(cls) -> None:
        """Drop all users: the program ended the connection itself, so they have nothing left to close."""
        cls._users.clear()
        cls._undo()

    @staticmethod
    def _undo() -> None:
        Connection._show_warning()
        Connection._show_warning = staticmethod(lambda: None)
        forget_cluster()
        ours, embedded = Connection._ours, Connection._embedded
        Connection._ours, Connection._embedded = False, None
        if ours and ray.is_initialized():
            _disconnect()
        if embedded is not None:
            embedded.stop()


def _disconnect() -> None:
    try:
        check_answers(ray.get_runtime_context().gcs_address, 2.0, 2.0)
    except TimeoutError:
        ray_worker.global_worker.set_is_connected(False)  # or Ray waits until a stopped head takes its leave
    except (OSError, ValueError):
        pass
    ray.shutdown()


def connect(
    address: str | None, num_nodes: int | None, *, may_start: bool = True, warn: bool = True
) -> Connection:
    """The existing connection, or a new one: to `address`, RAY_ADDRESS, this user's Ray, or an embedded Ray."""
    check_version(ray.__version__)
    if ray.is_initialized():
        return Connection(_fitting_connection(address))
    Connection.forget()
    started: EmbeddedCluster | None = None
    target = address or os.environ.get("RAY_ADDRESS") or own_cluster_address()
    if target and target.startswith("ray://"):
        raise ClusterError(
            code="RE103",
            what=f"{target} is the address of a Ray client server",
            why="reservations and placements need a driver inside the cluster",
            remedy="run the driver on a node of the cluster, with the address HOST:6379",
        )
    if not target:
        if not may_start:
            raise ClusterError(
                code="RE101",
                what="there is no Ray to attach to",
                why="no address was given, RAY_ADDRESS is not set, and this user runs no Ray on this machine",
                remedy="set RAY_ADDRESS to its HOST:PORT, or start one with `ray start --head`",
            )
        shape = os.environ.get("ROOST_EMBEDDED") or _this_machine(num_nodes or 1)
        started = EmbeddedCluster(shape)
        print(
            f"roost: No running Ray found; starting an embedded one ({_shape(started.inventory)}).",
            file=sys.stderr,
            flush=True,
        )
        target = started.start()
    try:
        _knock(target)
        with own_sigterm(), settings_without_a_head():
            context = ray.init(
                address=target, namespace=NAMESPACE, log_to_driver=True, logging_level=logging.WARNING
            )
    except BaseException as error:
        if started is not None:
            started.stop()
        if not isinstance(error, Exception):
            raise
        raise ClusterError(
            code="RE101",
            what=f"cannot connect to Ray at {target}",
            why=first_line(error),
            remedy="is the head running (`ray start --head`), and the address right and reachable from here?",
        ) from error
    logging.getLogger("ray._private.worker").addFilter(_is_no_secondary_error)
    reached = context.address_info.get("gcs_address") or target
    if warn:
        warn_if_open(reached)
    return Connection(reached, ours=True, embedded=started)


def _shape(inventory: Inventory) -> str:
    first, *others = [node.accelerators.count for node in inventory.nodes]
    if any(count != first for count in others):
        return str(inventory)
    return f"{counted(len(inventory.nodes), 'node')} x {counted(first, 'accelerator')}"


def _knock(address: str) -> None:
    """Raise if nothing listens at the address, or does not answer: Ray itself would try for minutes, or forever."""
    host, _, port = address.rpartition(":")
    if host and port.isdecimal() and "/" not in host:
        check_answers(address, 10.0, HEAD_WITHIN)


def _this_machine(num_nodes: int) -> Inventory:
    """An inventory of `num_nodes` nodes. A single node has the accelerators that Ray finds here; several have none."""
    # Private, but Ray has no public way to detect accelerators.
    found = NvidiaGPUAcceleratorManager.get_current_node_num_accelerators()
    return Inventory.uniform(num_nodes, found if num_nodes == 1 else 0)


def check_version(version: str) -> None:
    if (finding := old_ray(version)) is not None:
        raise ClusterError(finding)


def _fitting_connection(address: str | None) -> str:
    context = ray.get_runtime_context()
    namespace, reached = context.namespace, context.gcs_address
    if not (namespace == NAMESPACE or namespace.startswith(f"{NAMESPACE}.") or _anonymous(namespace)):
        raise ClusterError(
            code="RE103",
            what=f"the program already called ray.init(namespace={namespace!r})",
            why=f"roost keeps its actors in the namespace {NAMESPACE!r}",
            remedy=f"call ray.init(namespace={NAMESPACE!r}), or leave ray.init to roost.Cluster",
        )
    if address is not None and address not in ("auto", reached):
        raise ClusterError(
            code="RE103",
            what=f"the program is connected to Ray at {reached}, not at {address}",
            remedy="call ray.shutdown() first, or leave the address out",
        )
    return str(reached)


def _anonymous(namespace: str) -> bool:
    """Whether Ray made the namespace up: a connection without a namespace gets a random UUID."""
    return len(namespace) == 36 and namespace.count("-") == 4


def warn_if_open(address: str) -> None:
    finding = network_warning(address)
    if finding is not None:
        log.warning("%s", render([finding]))


def network_warning(address: str) -> Finding | None:
    """The warning about a Ray on the network without tokens: anyone who reaches it can run code there."""
    host = address.rpartition(":")[0].strip("[]")
    try:
        local = ipaddress.ip_address(host).is_loopback
    except ValueError:
        local = host == "localhost"
    if local or os.environ.get("RAY_AUTH_MODE", "").lower() == "token":
        return None
    return Finding(
        code="RW201",
        what=f"Ray at {address} takes commands from anyone who can reach it",
        why="it is on the network, and token authentication is off",
        remedy="start every node and the driver with RAY_AUTH_MODE=token and a shared token",
    )


def hide_if_embedded() -> Callable[[], None]:
    """Hide Ray's warning about many worker processes on a node from users of an embedded cluster.

    Many processes are normal there, since all nodes share the CPUs of one machine, and no setting turns the warning
    off. Returns a function that shows the warning again.
    """
    if not any(INDEX_LABEL in (node.get("Labels") or {}) for node in ask_head(ray.nodes)):
        return lambda: None
    show = ray_worker.print_to_stdstream

    def filtered(data: dict[str, Any], *args: Any, **kwargs: Any) -> None:
        if data.get("pid") != "raylet" or not any(WARNING in line for line in data["lines"]):
            show(data, *args, **kwargs)

    def undo() -> None:
        ray_worker.print_to_stdstream = show

    ray_worker.print_to_stdstream = filtered
    return undo


@contextlib.contextmanager
def prints_on_stderr(colour: bool) -> Iterator[None]:
    """Inside the block, what workers print and Ray says goes to stderr, and no line is merged with another."""
    show, merges = ray_worker.print_worker_logs, ray_logging.RAY_DEDUP_LOGS

    def on_stderr(data: dict[str, Any], print_file: Any, *args: Any, **kwargs: Any) -> None:
        show(data, sys.stderr, *args, **kwargs)

    ray_worker.print_worker_logs = on_stderr
    if "RAY_DEDUP_LOGS" not in os.environ:
        ray_logging.RAY_DEDUP_LOGS = False
    if not colour:
        os.environ["RAY_COLOR_PREFIX"] = "0"
    try:
        yield
    finally:
        ray_worker.print_worker_logs, ray_logging.RAY_DEDUP_LOGS = show, merges


def _is_no_secondary_error(record: logging.LogRecord) -> bool:
    """Hides, as a filter of Ray's log, errors that only follow from a failure which roost reports.

    Ray prints the error of every result that the program drops unread. If results are arguments of further calls, Ray
    would print one death once for each call of the chain. The caller at the end of the chain gets the first error, and
    roost announces the death.
    """
    message = record.getMessage()
    return not (message.startswith(_UNASKED) and any(mark in message for mark in _SECONDARY))


def _end_as_interrupted() -> None:
    """Let the program end by SIGINT after Ctrl-C, as shells and schedulers expect.

    Python forgets the Ctrl-C when code from a string runs, and Ray's exit hook imports modules that run such
    code. So disconnect from Ray first, then raise KeyboardInterrupt again.
    """
    if getattr(sys, "last_type", None) is KeyboardInterrupt:
        ray.shutdown()
        with contextlib.suppress(KeyboardInterrupt):
            exec("raise KeyboardInterrupt")


keep_out_own_threads()
atexit.register(_end_as_interrupted)  # runs before Ray's own hook, because Ray was imported earlier
