"""A real Ray of several nodes on this machine, with virtual accelerators.

It listens on loopback only, on free ports, in a directory of its own, so it never meets another Ray. A child
process runs it: Ray's signal handlers stay out of the caller, and when the caller ends, however it ends, the child
reads the end of its input and ends the whole Ray.
"""

from __future__ import annotations

import contextlib
import json
import os
import secrets
import select
import selectors
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Mapping
from pathlib import Path
from typing import IO, Any

from roost.engine.connection.listening import listens
from roost.engine.processes import keeper
from roost.errors import ClusterError
from roost.inventory.accelerators import accelerator_kind
from roost.inventory.inventory import Inventory
from roost.inventory.nodes import Node
from roost.secret_names import looks_secret

INDEX_LABEL = "roost-index"
TYPE_LABEL = "roost-accelerator"
LOOPBACK = "127.0.0.2"  # Ray turns 127.0.0.1 into the machine's address on the network
TRIES = 3
TOO_SLOW = "timed out during startup"  # Ray's words
ENDED = "ended during startup"
NODE_WITHIN = 120  # seconds that Ray gives a node to start
WORKER_WITHIN = 300  # seconds that Ray gives a worker process to start
# Longer than Ray's own limit, so that Ray's message is in the log when this process gives up.
START_WITHIN = 60.0  # seconds, plus `NODE_WITHIN` for each node
STOP_WITHIN = 30.0
CLEAR_WITHIN = 10.0
SCRIPTS = Path(__file__).parents[1] / "ray_backend"  # worker_start.py, worker_forker.py and agent_start.py
FORKED_WORKERS = "ROOST_FORKED_WORKERS"  # "0": Ray starts worker processes as on any other cluster
LONGEST_TITLE = 400  # characters: the title of a process has the room that its arguments had
SMALLEST_STORE = 150 * 2**20  # bytes: as in Ray's test clusters; one large result fills it
# Variables that describe the machine, its Python and its accelerators. The config sets all others a worker needs.
INHERITED = frozenset(
    (
        *("PATH", "HOME", "USER", "LOGNAME", "SHELL", "TMPDIR", "LANG", "LANGUAGE", "TZ"),
        *("VIRTUAL_ENV", "CONDA_PREFIX"),
    )
)
INHERITED_PREFIXES = (
    *("LC_", "PYTHON", "LD_", "DYLD_", "MALLOC_", "RAY_", "ROOST_"),
    *("CUDA_", "NVIDIA_", "HIP_", "ROCR_", "ROCM_", "HSA_", "ASCEND_", "MUSA_", "ONEAPI_", "ZE_", "XPU_"),
    *("NCCL_", "GLOO_", "TORCH_", "OMP_", "MKL_", "OPENBLAS_"),
)


class EmbeddedCluster:
    """`with embedded("2x4") as address:`, or `start()` and `stop()`."""

    def __init__(self, shape: str | Inventory) -> None:
        self.inventory = shape if isinstance(shape, Inventory) else Inventory.parse(shape)
        self.address = ""
        self._child: subprocess.Popen[str] | None = None
        self._directory = ""
        self._set_mode = False

    def start(self) -> str:
        if self._child is not None:
            return self.address
        for tries_left in reversed(range(TRIES)):
            try:
                self.address = self._start().strip()
                break
            except Exception as error:
                last = self._last_words()
                self.stop()
                if not tries_left or not (ENDED in last or TOO_SLOW in last):
                    raise self._not_started(error, last) from error
            except BaseException:
                self.stop()
                raise
        # Ray reads the mode when it connects; this process must use the mode of the nodes.
        self._set_mode = "RAY_AUTH_MODE" not in os.environ
        os.environ.setdefault("RAY_AUTH_MODE", "disabled")
        return self.address

    def _start(self) -> str:
        """Start the child, and wait until it prints the address."""
        # Unix socket paths must be short, so the directory lies directly in the temporary directory. Its name is stored
        # before the directory is made: a signal may end this function anywhere.
        self._directory = str(Path(tempfile.gettempdir()) / f"roost-{secrets.token_hex(4)}")
        Path(self._directory).mkdir(mode=0o700)
        (Path(self._directory) / "ray").mkdir()
        with self._log.open("w") as errors:
            self._child = subprocess.Popen(
                [sys.executable, "-m", "roost.engine.connection.embedded", self._directory],
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=errors,
                text=True,
                env=environment_for_nodes(os.environ, self._directory),
                start_new_session=True,  # Ctrl-C goes to the caller, which then stops the child
            )
        assert self._child.stdin
        assert self._child.stdout
        self._child.stdin.write(json.dumps(self._nodes_args()) + "\n")
        self._child.stdin.flush()
        limit = START_WITHIN + NODE_WITHIN * (1 + len(self.inventory.nodes))
        answer = _read_line(self._child.stdout, limit)
        if not answer:
            raise EOFError("it ended while starting")
        return answer

    def _nodes_args(self) -> list[dict[str, Any]]:
        nodes = self.inventory.nodes
        return [{**_node_args(node), "object_store_memory": _store_memory(len(nodes))} for node in nodes]

    @property
    def _log(self) -> Path:
        return Path(self._directory) / "embedded.log"

    def _last_words(self) -> str:
        return (self._log.read_text().strip().splitlines() or [""])[-1][:300] if self._log.exists() else ""

    def _not_started(self, error: Exception, last: str) -> ClusterError:
        return ClusterError(
            code="RE101",
            what=f"the embedded Ray of {self.inventory} did not start",
            why=f"{error}; {last}" if last else str(error),
            remedy="is the machine out of memory, or full of other Rays? try fewer nodes",
        )

    def stop(self) -> None:
        """End every process of this Ray. May be called twice."""
        child, self._child = self._child, None
        if child is not None:
            _disconnect(self.address)
            assert child.stdin
            assert child.stdout
            with contextlib.suppress(BrokenPipeError):  # it ended before it had read everything
                child.stdin.close()
            try:
                child.wait(STOP_WITHIN)
            except subprocess.TimeoutExpired:
                os.killpg(child.pid, signal.SIGKILL)
                child.wait()
            child.stdout.close()
        if self._set_mode:
            os.environ.pop("RAY_AUTH_MODE", None)
            self._set_mode = False
        if self._directory:
            _clear(self._directory)
            self._directory = ""

    def __enter__(self) -> str:
        return self.start()

    def __exit__(self, *_: object) -> None:
        self.stop()


def embedded(shape: str | Inventory) -> EmbeddedCluster:
    """A real Ray on this machine, of a shape such as `2x4` or `1x8:A800,1x0`."""
    return EmbeddedCluster(shape)


def _disconnect(address: str) -> None:
    ray = sys.modules.get("ray")
    if ray is not None and ray.is_initialized() and ray.get_runtime_context().gcs_address == address:
        ray.shutdown()


def _clear(directory: str) -> None:
    """Kill the remaining processes of the Ray in this directory, and remove the directory.

    Ray waits a second for each of its processes to end. On a busy machine some take longer, such as the agents of
    a raylet, and make the directory again when they write into it. So two searches must find nothing: a process that
    is just starting cannot be recognised for a moment.
    """
    deadline = time.monotonic() + CLEAR_WITHIN
    quiet = 0
    while True:
        left = _ray_processes(directory)
        for pid, start in left.items():
            keeper.send(pid, start, signal.SIGKILL)
        shutil.rmtree(directory, ignore_errors=True)
        quiet = 0 if left or Path(directory).exists() else quiet + 1
        if quiet == 2 or time.monotonic() > deadline:
            return
        time.sleep(0.02)


def _ray_processes(directory: str) -> dict[int, int]:
    """Ray's own processes in this directory, without those that workers started: numbers and start times."""
    found = {}
    for pid in keeper.all_processes() - {os.getpid()}:
        status = keeper.status_of(pid)
        if status is None or status.ended or not keeper.was_given(pid, {"RAY_TMPDIR": directory}):
            continue
        command = keeper.contents(f"/proc/{pid}/cmdline")
        if command.startswith(b"ray::") or os.fsencode(directory) in command:
            found[pid] = status.start
    return found


def _read_line(stream: IO[str], timeout: float) -> str:
    with selectors.DefaultSelector() as selector:
        selector.register(stream, selectors.EVENT_READ)
        if not selector.select(timeout):
            raise TimeoutError(f"it was not ready in {timeout:g} s")
    return stream.readline()


def _node_args(node: Node) -> dict[str, Any]:
    held = node.accelerators
    # Programs ask for a CPU with each accelerator.
    cpus = node.cpus or max(os.cpu_count() or 1, held.count)
    arguments: dict[str, Any] = {"num_cpus": cpus, "num_gpus": 0}
    labels, resources = {INDEX_LABEL: str(node.rank)}, {}
    if sys.platform == "linux":  # elsewhere only 127.0.0.1 is set up
        arguments["node_ip_address"] = LOOPBACK
    if held.count:
        labels[TYPE_LABEL] = held.type
        resource = accelerator_kind(held.type).ray_resource
        if resource == "GPU":
            arguments["num_gpus"] = held.count
        else:
            resources[resource] = held.count
        if held.model:
            resources[f"accelerator_type:{held.model}"] = held.count
    return {**arguments, "labels": labels, "resources": resources}


def _store_memory(nodes: int) -> int:
    """Bytes for each node's object store. All together get what Ray gives one store: 30 % of the machine's memory."""
    if sys.platform != "linux":
        return SMALLEST_STORE
    memory = os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")
    shared = shutil.disk_usage("/dev/shm").free  # a store is a file there that grows with its contents
    return max(SMALLEST_STORE, int(0.3 * min(memory, shared)) // nodes)


def environment_for_nodes(environ: Mapping[str, str], directory: str) -> dict[str, str]:
    """The environment of the nodes' processes: variables that describe this machine, and no others of the caller."""
    kept = {name: value for name, value in environ.items() if _is_of_the_machine(name)}
    for name in ("RAY_ADDRESS", "ROOST_JOB", "ROOST_NODE_RANK"):
        kept.pop(name, None)
    # Ray writes the address of the last cluster there. Anywhere else, other programs would join this cluster.
    kept["RAY_TMPDIR"] = directory
    return {
        "RAY_raylet_start_wait_time_s": str(NODE_WITHIN),
        # If the first workers of a node are given up, `ray.init` of a program never returns.
        "RAY_worker_register_timeout_seconds": str(WORKER_WITHIN),
        "RAY_AUTH_MODE": "disabled",
        # Event loop statistics take a third of the CPU time of Ray's idle processes, and only Ray's logs show them.
        "RAY_event_stats": "0",
        # While there are fewer log files than this, Ray's log monitor lists them ten times a second.
        "RAY_LOG_MONITOR_MANY_FILES_THRESHOLD": "1",
        **kept,
    }


def _is_of_the_machine(name: str) -> bool:
    if name.startswith("RAY_AUTH_"):  # looks secret, but all nodes of a Ray must agree on it
        return True
    return (name in INHERITED or name.startswith(INHERITED_PREFIXES)) and not looks_secret(name)


def own_cluster_address() -> str | None:
    """The address of a Ray this user started on this machine, by Ray's own note of it, if it still answers."""
    note = Path(os.environ.get("RAY_TMPDIR", "/tmp")) / "ray" / "ray_current_cluster"
    try:
        if note.stat().st_uid != os.getuid():
            return None  # another user's Ray
        address = note.read_text().strip()
    except (OSError, ValueError):
        return None
    return address if listens(address) else None


def _run(directory: str) -> None:
    """The child: read the nodes from its input, start them, print the address, and run until its input ends."""
    told = sys.stdin.readline()
    if not told:  # the caller was killed before it wrote the nodes
        _clear(directory)
        return
    started = threading.Event()
    threading.Thread(target=_end_early, args=(directory, started), daemon=True).start()
    from ray._private import services
    from ray._private.node import Node as RayNode
    from ray.cluster_utils import Cluster as RayCluster

    # Without a dashboard Ray still starts its process, for usage statistics alone.
    RayNode.start_api_server = lambda *_, **__: None
    if sys.platform == "linux":
        _start_agents_when_needed(services)
    nodes = json.loads(told)
    nodes[0] |= {
        "temp_dir": directory,
        "include_dashboard": False,
        "no_monitor": True,  # there is nothing to scale
        "dashboard_agent_listen_port": 0,  # any free one
    }
    output = os.fdopen(os.dup(1), "w")
    os.dup2(2, 1)  # Ray's own output goes to the log
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    cluster = RayCluster()
    try:
        forkers = [_add_node(cluster, directory, number, node) for number, node in enumerate(nodes)]
        cluster.wait_for_nodes(timeout=NODE_WITHIN)
        with contextlib.suppress(BrokenPipeError):  # the caller has ended
            output.write(cluster.address + "\n")
            output.flush()
        started.set()
        waiting = select.poll()
        waiting.register(0, select.POLLIN | select.POLLHUP)
        while not waiting.poll(1000):  # until the caller stops this cluster or ends
            _collect_ended(cluster, forkers)
    finally:
        cluster.shutdown()
    _clear(directory)  # a caller that was killed cannot


def _add_node(cluster: Any, directory: str, number: int, arguments: dict[str, Any]) -> Any:
    """Start a node, and the process that forks its workers (decision 0056). Returns the latter, if there is one."""
    if sys.platform != "linux" or os.environ.get(FORKED_WORKERS) == "0":
        cluster.add_node(wait=not number, **arguments)
        return None
    start, forker = (str(SCRIPTS / name) for name in ("worker_start.py", "worker_forker.py"))
    path = f"{directory}/forker-{number}"
    with socket.socket(socket.AF_UNIX) as server:
        server.bind(path)
        server.listen(128)
        os.environ["ROOST_FORKER"] = path  # for the node's worker_start.py
        node = cluster.add_node(wait=not number, worker_path=start, **arguments)
        raylet = str(node.all_processes["raylet"][0].process.pid)
        return subprocess.Popen(
            [sys.executable, forker, str(server.fileno()), raylet, path.ljust(LONGEST_TITLE)],
            stdin=subprocess.DEVNULL,
            # Ray reads both when it is imported. A worker of no job is given one with its first task.
            env={**os.environ, "RAY_RAYLET_PID": raylet, "RAY_JOB_ID": "ffffffff"},
            pass_fds=[server.fileno()],
        )


def _start_agents_when_needed(services: Any) -> None:
    """Let the nodes run `agent_start.py` in place of Ray's agents."""
    python = services._build_python_executable_command_memory_profileable

    def command(process: str, *args: Any, **kwargs: Any) -> list[str]:
        is_agent = process in ("dashboard_agent", "runtime_env_agent")
        return [*python(process, *args, **kwargs), *[str(SCRIPTS / "agent_start.py")] * is_agent]

    services._build_python_executable_command_memory_profileable = command


def _collect_ended(cluster: Any, forkers: list[Any]) -> None:
    """Workers of a killed node live on until this process, its raylet's parent, has collected the raylet."""
    for node in cluster.list_all_nodes():
        for started in node.all_processes.values():
            for one in started:
                one.process.poll()
    for forker in forkers:
        if forker is not None:
            forker.poll()


def _end_early(directory: str, started: threading.Event) -> None:
    """While Ray starts: end this child and its Ray at once if the caller ends, gives up, or a Ray process fails."""
    waiting = select.poll()
    waiting.register(0, select.POLLHUP)
    failed = ""
    while not failed and not waiting.poll(200):
        if started.is_set():
            return
        failed = _ended_process()
    if started.is_set():
        return
    if failed:  # Ray would wait for the process until its time limit
        print(f"Ray's {failed} {ENDED}", file=sys.stderr, flush=True)
    if os.fork():
        os._exit(1)  # at once, so that nothing more is started
    os.closerange(1, 65_536)  # the caller waits for the end of the output
    waiting.poll(1000 * NODE_WITHIN)  # until the caller has read the log
    _clear(directory)
    os._exit(0)


def _ended_process() -> str:
    """The name of a Ray process that this child started and that has ended; empty if none has."""
    for pid in keeper.listed_children(os.getpid()):
        name = keeper.contents(f"/proc/{pid}/comm").decode(errors="replace").strip()
        if name in ("gcs_server", "raylet") and (status := keeper.status_of(pid)) and status.ended:
            return name
    return ""


if __name__ == "__main__":
    _run(sys.argv[1])
