"""A real Slurm of three nodes on this machine, with its own munge, configuration, ports and files."""

from __future__ import annotations

import os
import secrets
import shutil
import socket
import subprocess
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

DAEMONS = ("munged", "slurmctld", "slurmd", "sbatch")
PATIENCE = 180.0


def is_installed() -> bool:
    return all(shutil.which(name, path=_path()) for name in DAEMONS)


def _path() -> str:
    return f"{os.environ['PATH']}{os.pathsep}/usr/sbin"


@dataclass(frozen=True)
class Slurm:
    folder: Path

    @property
    def environment(self) -> dict[str, str]:
        kept = {name: value for name, value in os.environ.items() if not name.startswith(("RAY_", "ROOST_"))}
        return {**kept, "SLURM_CONF": str(self.folder / "slurm.conf"), "PATH": _path()}

    def run(self, *words: str | Path, folder: Path | None = None) -> str:
        done = subprocess.run(
            list(map(str, words)),
            cwd=folder,
            env=self.environment,
            capture_output=True,
            text=True,
            timeout=PATIENCE,
        )
        assert done.returncode == 0, done.stderr
        return done.stdout.strip()

    def state(self, job: str) -> tuple[str, str]:
        """The state of a job, and its exit code."""
        shown = self.run("scontrol", "show", "job", "-o", job)
        facts = dict(word.partition("=")[::2] for word in shown.split() if "=" in word)
        return facts["JobState"], facts["ExitCode"]

    def wait_until_ended(self, job: str) -> tuple[str, str]:
        deadline = time.monotonic() + PATIENCE
        while True:
            state = self.state(job)
            if state[0] not in ("PENDING", "CONFIGURING", "RUNNING", "COMPLETING"):
                return state
            assert time.monotonic() < deadline, state
            time.sleep(0.2)


def free_ports(count: int) -> list[int]:
    held = [socket.socket() for _ in range(count)]
    for one in held:
        one.bind(("127.0.0.1", 0))
    ports = [one.getsockname()[1] for one in held]
    for one in held:
        one.close()
    return ports


def _configuration(folder: Path) -> str:
    here = socket.gethostname()
    controller, *ports = free_ports(4)
    nodes = "\n".join(
        f"NodeName=n{number} NodeHostname={here} NodeAddr=127.0.0.1 Port={port} CPUs=8 RealMemory=500 State=UNKNOWN"
        for number, port in enumerate(ports, 1)
    )
    return f"""\
ClusterName=roost
SlurmctldHost={here}(127.0.0.1)
SlurmctldPort={controller}
SlurmUser=root
SlurmdUser=root
AuthType=auth/munge
AuthInfo=socket={folder}/munge.socket
StateSaveLocation={folder}/state
SlurmdSpoolDir={folder}/spool-%n
SlurmctldPidFile={folder}/slurmctld.pid
SlurmdPidFile={folder}/slurmd-%n.pid
SlurmctldLogFile={folder}/slurmctld.log
SlurmdLogFile={folder}/slurmd-%n.log
ProctrackType=proctrack/linuxproc
TaskPlugin=task/none
SchedulerType=sched/backfill
SelectType=select/cons_tres
SelectTypeParameters=CR_CPU
SlurmdParameters=config_overrides
ReturnToService=2
MailProg=/bin/true
FirstJobId={secrets.randbelow(50_000) + 1_000}
KillWait=15
OverTimeLimit=0
{nodes}
PartitionName=all Nodes=ALL Default=YES MaxTime=INFINITE State=UP OverSubscribe=FORCE:4
"""


@contextmanager
def three_node_slurm() -> Iterator[Slurm]:
    folder = Path(tempfile.mkdtemp(prefix="slurm-", dir="/tmp"))
    slurm = Slurm(folder)
    started: list[subprocess.Popen[bytes]] = []
    (folder / "state").mkdir()
    (folder / "munge.key").write_bytes(secrets.token_bytes(128))
    (folder / "munge.key").chmod(0o600)
    (folder / "slurm.conf").write_text(_configuration(folder))
    munged = [
        *("munged", "--foreground", "--force", f"--socket={folder}/munge.socket"),
        *(f"--key-file={folder}/munge.key", f"--pid-file={folder}/munged.pid"),
        *(f"--log-file={folder}/munged.log", f"--seed-file={folder}/munged.seed"),
    ]
    folder.chmod(0o755)
    daemons = [munged, ["slurmctld", "-D"], *(["slurmd", "-D", "-N", f"n{number}"] for number in (1, 2, 3))]
    try:
        for words in daemons:
            with (folder / f"{words[0]}{words[-1]}.out".replace("/", "-")).open("wb") as output:
                started.append(
                    subprocess.Popen(
                        words,
                        env=slurm.environment,
                        stdin=subprocess.DEVNULL,
                        stdout=output,
                        stderr=subprocess.STDOUT,
                    )
                )
        _wait_for_nodes(slurm)
        yield slurm
    finally:
        _cancel_all(slurm)
        for one in reversed(started):
            one.terminate()
        for one in reversed(started):
            try:
                one.wait(20)
            except subprocess.TimeoutExpired:
                one.kill()
                one.wait()
        shutil.rmtree(folder, ignore_errors=True)


def _cancel_all(slurm: Slurm) -> None:
    """Ends jobs that a failed test left."""
    deadline = time.monotonic() + 60
    while time.monotonic() < deadline:
        asked = {"env": slurm.environment, "capture_output": True, "text": True, "timeout": 30}
        if not subprocess.run(["squeue", "-h", "-o", "%i"], **asked).stdout.split():  # type: ignore[call-overload]
            return
        subprocess.run(["scancel", "--full", "--user=root"], **asked)  # type: ignore[call-overload]
        time.sleep(0.5)


def _wait_for_nodes(slurm: Slurm) -> None:
    deadline = time.monotonic() + PATIENCE
    while True:
        done = subprocess.run(
            ["sinfo", "-h", "-N", "-o", "%T"], env=slurm.environment, capture_output=True, text=True
        )
        if done.stdout.split() == ["idle"] * 3:
            return
        if time.monotonic() > deadline:
            logs = "\n".join(path.read_text()[-2000:] for path in slurm.folder.glob("*.log"))
            raise AssertionError(f"{done.stdout}{done.stderr}\n{logs}")
        time.sleep(0.2)
