"""Reads the facts of the machine this process runs on. The agents of nodes import this, so it imports little."""

# ruff: noqa: PTH111, PTH112, PTH115, PTH116, PTH118, PTH207, PTH208

from __future__ import annotations

import contextlib
import fcntl
import glob
import hashlib
import os
import platform
import resource
import shutil
import socket
import tempfile
import time
from collections.abc import Iterable, Mapping
from importlib import metadata

from roost import __version__
from roost.engine.health.machine_facts import Leftovers, MachineFacts
from roost.engine.ports.port_ranges import RANGE_VARIABLE, ephemeral_ports
from roost.engine.processes import keeper
from roost.engine.processes.process_facts import raylet_of
from roost.inventory.accelerators import known_accelerators

SHARED_MEMORY = "/dev/shm"
# Files of the accelerators themselves. Those of a container may be fewer than its machine's.
DEVICE_FILES = {
    "nvidia_gpu": "/dev/nvidia[0-9]*",
    "ascend_npu": "/dev/davinci[0-9]*",
    "musa_gpu": "/dev/mtgpu.[0-9]*",
    "kunlun_xpu": "/dev/xpu[0-9]*",
}
SHARED_BY_JOBS = ("nccl-", "torch_", "cuda.shm.", "plasma")  # how names begin that training leaves there
_DAY = 86_400.0


def inspect_machine(jobs: str, environ: Mapping[str, str]) -> MachineFacts:
    """`jobs` is the directory of job folders. `environ` is the environment to judge: of a node, that of its raylet."""
    ephemeral = ephemeral_ports()
    return MachineFacts(
        host=socket.gethostname(),
        hostname=socket.gethostname(),
        machine=keeper.contents("/proc/sys/kernel/random/boot_id").decode().strip() or socket.gethostname(),
        python=platform.python_version(),
        ray=_version("ray"),
        roost=__version__,
        auth_mode=environ.get("RAY_AUTH_MODE", "").lower(),
        token=_token_digest(environ),
        declared_rank=environ.get("ROOST_NODE_RANK"),
        port_range=environ.get(RANGE_VARIABLE, ""),
        ephemeral=(ephemeral.start, ephemeral.stop - 1),
        listening=tuple(sorted(listening_ports())),
        devices={kind: found for kind, files in DEVICE_FILES.items() if (found := len(glob.glob(files)))},
        visible={
            name: environ[name]
            for name in sorted({kind.visible_variable for kind in known_accelerators()})
            if name in environ
        },
        open_files=_open_files(),
        shared_memory=_shared_memory(),
        leftovers=Leftovers(
            folders=tuple(_job_folders(jobs)),
            rays=tuple(_dead_rays(tempfile.gettempdir())),
            processes=tuple(_orphans()),
            shared_memory=tuple(_unused_shared_memory(SHARED_MEMORY)),
        ),
    )


def _version(package: str) -> str:
    try:
        return metadata.version(package)
    except metadata.PackageNotFoundError:
        return ""


def _token_digest(environ: Mapping[str, str]) -> str:
    """A digest of Ray's token: nodes with different tokens refuse each other. The token itself stays on its machine."""
    token = environ.get("RAY_AUTH_TOKEN", "")
    path = environ.get("RAY_AUTH_TOKEN_PATH") or os.path.join(os.path.expanduser("~"), ".ray", "auth_token")
    if not token:
        token = keeper.contents(path).decode(errors="replace").strip()
    return hashlib.blake2b(token.encode(), digest_size=8, key=b"roost").hexdigest() if token else ""


def listening_ports() -> set[int]:
    found = set()
    for file in ("/proc/net/tcp", "/proc/net/tcp6"):
        for line in keeper.contents(file).splitlines()[1:]:
            fields = line.split()
            if len(fields) > 3 and fields[3] == b"0A":
                found.add(int(fields[1].rsplit(b":", 1)[1], 16))
    return found


def _open_files() -> tuple[int, int]:
    try:
        return resource.getrlimit(resource.RLIMIT_NOFILE)
    except OSError:
        return (0, 0)


def _shared_memory() -> int:
    try:
        return shutil.disk_usage(SHARED_MEMORY).total
    except OSError:
        return 0


# -- leftovers ---------------------------------------------------------------------------------------------


def _job_folders(root: str) -> Iterable[tuple[str, float, int]]:
    """The folders of jobs that have ended. One that runs may write nothing for months."""
    for name in sorted(_listed(root)):
        path = os.path.join(root, name)
        with contextlib.suppress(OSError):
            names = os.listdir(path)
            if any(is_in_use(os.path.join(path, file)) for file in names):
                continue
            files = [os.lstat(os.path.join(path, file)) for file in names]
            written = max([os.lstat(path).st_mtime, *(file.st_mtime for file in files)])
            yield path, max(0.0, time.time() - written) / _DAY, sum(file.st_size for file in files)


def is_in_use(path: str) -> bool:
    """Whether a manager, which may run on another node, has locked the file. True where that cannot be told."""
    try:
        with open(path, "r+b") as file:  # noqa: PTH123
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError:
        return True
    return False


def _dead_rays(root: str) -> Iterable[str]:
    """Directories of embedded Rays that no process uses. Skips young ones, which may just be starting."""
    candidates = []
    for path in glob.glob(os.path.join(glob.escape(root), "roost-" + "[0-9a-f]" * 8)):
        with contextlib.suppress(OSError):
            found = os.lstat(path)
            if found.st_uid == os.getuid() and os.path.isdir(os.path.join(path, "ray")):
                candidates.append((path, found.st_mtime))
    if not candidates:
        return
    commands = [keeper.contents(f"/proc/{pid}/cmdline") for pid in keeper.all_processes()]
    for path, made in candidates:
        used = any(os.fsencode(path) in command for command in commands)
        if not used and time.time() - made > 60:
            yield path


def _orphans() -> Iterable[tuple[int, str]]:
    """This user's processes that outlived the keeper of their engine, and this user's Ray workers without a raylet."""
    kept, marked, workers = set(), {}, {}
    prefix = f"{keeper.VARIABLE}=".encode()
    for pid in keeper.all_processes():
        words = keeper.contents(f"/proc/{pid}/cmdline").split(b"\0")
        if keeper.is_keeper(pid):
            kept.add(words[-2] if words[-1:] == [b""] else words[-1])
            continue
        status = keeper.status_of(pid)
        if status is None or status.ended or not is_own(pid):
            continue
        for entry in keeper.contents(f"/proc/{pid}/environ").split(b"\0"):
            if entry.startswith(prefix):
                marked[pid] = (entry[len(prefix) :], words[0])
        if words[0].startswith(b"ray::") and raylet_of(pid) is None and not _below_a_raylet(status.parent):
            workers[pid] = words[0]
    orphans = {pid: title for pid, (token, title) in marked.items() if token not in kept}
    for pid, title in sorted({**workers, **orphans}.items()):
        if pid != os.getpid():
            yield pid, title.decode(errors="replace")[:80]


def is_own(pid: int) -> bool:
    """Whether the process is this user's."""
    try:
        return os.stat(f"/proc/{pid}").st_uid == os.getuid()
    except OSError:  # it has just ended
        return False


def _below_a_raylet(pid: int) -> bool:
    status = keeper.status_of(pid)
    while status is not None and pid > 1:
        if b"raylet" in keeper.contents(f"/proc/{pid}/cmdline"):
            return True
        pid, status = status.parent, keeper.status_of(status.parent)
    return False


def _unused_shared_memory(folder: str) -> Iterable[tuple[str, int]]:
    """Files of this user that jobs leave behind and that no process of the user has open or mapped."""
    files = {}
    for name in _listed(folder):
        path = os.path.join(folder, name)
        with contextlib.suppress(OSError):
            found = os.lstat(path)
            if name.startswith(SHARED_BY_JOBS) and found.st_uid == os.getuid():
                files[path] = found.st_size
    if not files:
        return
    opened: set[str] = set()
    for pid in keeper.all_processes():
        mapped = keeper.contents(f"/proc/{pid}/maps")
        opened.update(path for path in files if os.fsencode(path) in mapped)
        for number in _listed(f"/proc/{pid}/fd"):
            with contextlib.suppress(OSError):
                opened.add(os.readlink(f"/proc/{pid}/fd/{number}"))
    for path, size in sorted(files.items()):
        if path not in opened:
            yield path, size


def _listed(folder: str) -> list[str]:
    try:
        return os.listdir(folder)
    except OSError:
        return []
