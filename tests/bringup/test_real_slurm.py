"""The sbatch script on a real Slurm of three nodes on this machine. Needs Debian's `slurm-wlm` and `munge`, and root."""

from __future__ import annotations

import os
import re
import shutil
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from slurm_cluster import PATIENCE, Slurm, is_installed, three_node_slurm

from roost.cli.verbs import run

pytestmark = pytest.mark.slow

PROGRAM = """
import os, time
from pathlib import Path
import roost

JOB = os.environ["SLURM_JOB_ID"]


class Actor(roost.Worker):
    def where(self):
        return [os.environ[name] for name in ("CLUSTER_NODE_RANK", "SLURM_PROCID", "SLURMD_NODENAME")]


def main(run, config):
    print("seen", run["actor"].where().wait(timeout=120), flush=True)
    Path(f"running-{JOB}").touch()
    time.sleep(600)
"""
JOB = """
cluster: {num_nodes: 3, component_placement: {actor: 0-2}}
workers: {actor: program:Actor}
driver: program:main
"""
BROKEN = """#!/bin/bash
if [[ $SLURMD_NODENAME == n3 ]]; then exit 9; fi
exec {ray} "$@"
"""


@pytest.fixture
def slurm(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Slurm]:
    if not is_installed() or os.geteuid() != 0:
        if os.environ.get("CI") == "true":
            pytest.fail("CI should have installed slurm-wlm and munge, and be root")
        pytest.skip("needs slurm-wlm, munge and root")
    monkeypatch.chdir(tmp_path)
    Path("program.py").write_text(PROGRAM)
    Path("job.yaml").write_text(JOB)
    with three_node_slurm() as started:
        yield started


def submitted(slurm: Slurm, *options: str, setup: str = "true") -> str:
    folder = Path(sys.executable).parent
    code = run(
        [
            *("up", "slurm", "job.yaml", "--on", "3x1", "--gres", "none", "--declare-accelerators", *options),
            *("--setup", f"export PATH={folder}:$PATH", "--setup", setup, "-o", "job.sbatch"),
        ]
    )
    assert code == 0
    return slurm.run("sbatch", "--parsable", "job.sbatch", folder=Path.cwd())


def wait_for(path: str, slurm: Slurm, job: str) -> None:
    deadline = time.monotonic() + PATIENCE
    while not Path(path).exists():
        assert slurm.state(job)[0] in ("PENDING", "RUNNING"), said(job)
        assert time.monotonic() < deadline, said(job)
        time.sleep(0.2)


def said(job: str) -> str:
    return Path(f"job-{job}.log").read_text() if Path(f"job-{job}.log").exists() else ""


def assert_nothing_runs(job: str) -> None:
    """No process has the job's number in its environment."""
    mark = f"SLURM_JOB_ID={job}\0".encode()
    deadline = time.monotonic() + PATIENCE
    while left := [one for one in Path("/proc").glob("[0-9]*/environ") if mark in _content(one)]:
        assert time.monotonic() < deadline, left
        time.sleep(0.2)


def _content(path: Path) -> bytes:
    try:
        return path.read_bytes()
    except OSError:  # it has ended
        return b""


def test_three_allocations_on_one_machine(slurm: Slurm) -> None:
    """Node ranks follow SLURM_PROCID. One job ends by scancel, one at its time limit, and one lacks a node.

    They run at the same time, so that the test takes little longer than the slowest of them.
    """
    cancelled, late = submitted(slurm), submitted(slurm, "--time", "600")
    Path("bin").mkdir()
    Path("bin/ray").write_text(BROKEN.format(ray=Path(sys.executable).parent / "ray"))
    Path("bin/ray").chmod(0o755)
    lacking = submitted(slurm, "--timeout", "45", setup="export PATH=$PWD/bin:$PATH")
    for job in (cancelled, late):
        wait_for(f"running-{job}", slurm, job)
        seen = re.search(r"seen (.*)", said(job))
        assert seen is not None
        assert seen[1] == "[['0', '0', 'n1'], ['1', '1', 'n2'], ['2', '2', 'n3']]"

    slurm.run("scancel", cancelled)
    assert slurm.wait_until_ended(cancelled)[0] == "CANCELLED"
    assert_nothing_runs(cancelled)
    shutil.rmtree(f"/tmp/roost-{cancelled}", ignore_errors=True)  # Slurm leaves no time to remove it
    assert slurm.state(late)[0] == "RUNNING", said(late)

    # Slurm looks at limits every 30 s, and a minute before this one the job is told to end.
    slurm.run("scontrol", "update", f"JobId={late}", "TimeLimit=2")
    assert slurm.wait_until_ended(lacking) == ("FAILED", "4:0"), said(lacking)
    assert said(lacking).count("node 2 (n3): Ray did not start (exit code 9), trying again") == 2
    assert "node 2 (n3): Ray ended with exit code 9" in said(lacking)
    assert "error[RE104]: 2 of 3 nodes are here after 45 s" in said(lacking)
    assert slurm.wait_until_ended(late) == ("FAILED", "143:0"), said(late)
    assert "ending the job" in said(late)
    for job in (lacking, late):
        assert_nothing_runs(job)
        assert not Path(f"/tmp/roost-{job}").exists()
