"""`roost doctor` finds each fault it knows: by facts, and where it is cheap on this machine itself."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from running import eventually
from sound_machine import MACHINE

from roost.engine.health.diagnosis import diagnose_cluster, diagnose_machine
from roost.engine.health.machine_facts import Leftovers, MachineFacts, NodeFacts
from roost.engine.health.machine_inspection import inspect_machine
from roost.engine.job.job_folder import JobHistory
from roost.errors import Finding

SOUND = NodeFacts(machine=MACHINE, node_id="n0", is_head=True)


def other(**changed: Any) -> NodeFacts:
    """A second node, with some facts of its machine changed."""
    return NodeFacts(
        machine=replace(MACHINE, **{"host": "10.0.0.2", "hostname": "b", "machine": "boot-b", **changed}),
        node_id="n1",
    )


def codes(findings: list[Finding]) -> list[str]:
    return [finding.code for finding in findings]


FAULTS: dict[str, tuple[dict[str, Any], str, str]] = {
    "old Ray": ({"ray": "2.48.1"}, "RE102", "Ray 2.48.1 is too old"),
    "no Ray": ({"ray": ""}, "RE102", "Ray is not installed"),
    "port range": ({"port_range": "80-90"}, "RC104", "ROOST_PORT_RANGE=80-90"),
    "few ports": ({"ephemeral": (1_024, 65_535)}, "RW221", "0 ports to lease"),
    "ports taken": (
        {"port_range": "21000-21299", "listening": tuple(range(21_000, 21_100))},
        "RW221",
        "200 ports to lease",
    ),
    "open files": ({"open_files": (1_024, 4_096)}, "RW222", "1,024 files"),
    "shared memory": ({"shared_memory": 64 << 20}, "RW223", "64 MiB"),
    "processes": ({"leftovers": Leftovers(processes=((12, "ray::x"),))}, "RW224", "12 (ray::x)"),
    "embedded Rays": ({"leftovers": Leftovers(rays=("/tmp/roost-1",))}, "RW224", "/tmp/roost-1"),
    "shared files": (
        {"leftovers": Leftovers(shared_memory=(("/dev/shm/nccl-1", 5 << 20),))},
        "RW224",
        "5 MiB: /dev/shm/nccl-1",
    ),
    "folders": ({"leftovers": Leftovers(folders=(("/jobs/a", 31.0, 2_048),))}, "RW224", "1 folder of jobs"),
}


def test_a_sound_machine_and_a_sound_cluster_have_no_findings() -> None:
    recent = Leftovers(folders=(("/jobs/new", 2.0, 10),))
    assert diagnose_machine(replace(MACHINE, leftovers=recent)) == []
    assert diagnose_cluster([SOUND, other()]) == []
    assert diagnose_cluster([]) == []


@pytest.mark.parametrize("fault", FAULTS)
def test_each_fault_of_a_machine(fault: str) -> None:
    changed, code, text = FAULTS[fault]
    alone = diagnose_machine(replace(MACHINE, **changed))
    assert codes(alone) == [code]
    assert text in alone[0].what
    assert alone[0].what.startswith("10.0.0.1: ")
    assert alone[0].remedy
    in_cluster = diagnose_cluster([SOUND, other(**changed)])
    assert code in codes(in_cluster)
    assert any(finding.what.startswith("10.0.0.2: ") for finding in in_cluster)


CLUSTERS: dict[str, tuple[list[NodeFacts], str, str]] = {
    "Python": ([SOUND, other(python="3.12.1")], "RE152", "3.11 on 10.0.0.1; 3.12 on 10.0.0.2"),
    "Ray": ([SOUND, other(ray="2.59.0")], "RE152", "2.60.0 on 10.0.0.1; 2.59.0 on 10.0.0.2"),
    "roost": ([SOUND, other(roost="0.2.0")], "RE152", "0.1.0 on 10.0.0.1; 0.2.0 on 10.0.0.2"),
    "auth": ([SOUND, other(auth_mode="token")], "RE153", "unset on 10.0.0.1; token on 10.0.0.2"),
    "token": (
        [
            replace(SOUND, machine=replace(MACHINE, auth_mode="token", token="digest")),
            other(auth_mode="token"),
        ],
        "RE153",
        "the same on 10.0.0.1; none on 10.0.0.2",
    ),
    "mixed ranks": ([SOUND, other(declared_rank="1")], "RE105", "a (10.0.0.1): unset, b (10.0.0.2): 1"),
    "clock": ([SOUND, replace(other(), clock_error=-7.5, clock_doubt=0.1)], "RW220", "traces"),
    "devices": (
        [SOUND, replace(other(devices={"nvidia_gpu": 8}), resources={"GPU": 4.0})],
        "RE154",
        "placed on what Ray counts",
    ),
    "NPUs": ([SOUND, other(devices={"ascend_npu": 8})], "RE154", "placed on what Ray counts"),
    "object store": (
        [
            SOUND,
            replace(other(shared_memory=2 << 30), resources={"object_store_memory": 3.0 * (1 << 30)}),
        ],
        "RW223",
        "kept on a disk",
    ),
}


@pytest.mark.parametrize("fault", CLUSTERS)
def test_each_fault_of_a_cluster(fault: str) -> None:
    nodes, code, why = CLUSTERS[fault]
    (finding,) = diagnose_cluster(nodes)
    assert finding.code == code
    assert why in finding.why
    assert finding.remedy


@pytest.mark.parametrize(("first", "second"), [("0", "0"), ("0", "2"), ("x", "1"), (None, "0")])
def test_node_ranks_that_contradict(first: str | None, second: str) -> None:
    nodes = [replace(SOUND, machine=replace(MACHINE, declared_rank=first)), other(declared_rank=second)]
    assert codes(diagnose_cluster(nodes)) == ["RE105"]
    nodes = [replace(SOUND, machine=replace(MACHINE, declared_rank="1")), other(declared_rank="0")]
    assert diagnose_cluster(nodes) == []


def test_what_is_no_fault() -> None:
    """A slow answer may hide a clock; hidden and virtual accelerators are not missing."""
    slow = replace(other(), clock_error=-7.5, clock_doubt=8.0)
    hidden = replace(
        other(devices={"nvidia_gpu": 8}, visible={"CUDA_VISIBLE_DEVICES": "2,3"}), resources={"GPU": 2.0}
    )
    virtual = replace(other(devices={"nvidia_gpu": 1}), resources={"GPU": 4.0}, is_virtual=True)
    for node in (slow, hidden, virtual):
        assert diagnose_cluster([SOUND, node]) == []


def test_nodes_of_one_machine_and_machines_with_the_same_fault_share_a_finding() -> None:
    low = {"open_files": (1_024, 4_096)}
    twice = [replace(SOUND, machine=replace(MACHINE, **low)), other(**low), other(**low, host="10.0.0.3")]
    (finding,) = diagnose_cluster(twice)
    assert finding.what == "10.0.0.1, 10.0.0.3: a process may have 1,024 files open"


def test_a_low_hard_limit_is_raised_first() -> None:
    (finding,) = diagnose_cluster([replace(SOUND, machine=replace(MACHINE, open_files=(256, 256)))])
    first = "raise the hard limit, 256, in /etc/security/limits.conf first"
    assert finding.remedy == f"{first}, then ulimit -n 65536 before Ray is started"


# -- this machine --------------------------------------------------------------------------------------------


@pytest.fixture
def inspect(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[..., MachineFacts]:
    """The facts of this machine, with directories and an environment of the test."""
    monkeypatch.setattr("tempfile.gettempdir", lambda: str(tmp_path))
    monkeypatch.setattr("roost.engine.health.machine_inspection.SHARED_MEMORY", str(tmp_path))

    def facts(**environ: str) -> MachineFacts:
        return inspect_machine(str(tmp_path / "jobs"), {"HOME": str(tmp_path), **environ})

    return facts


def test_the_facts_of_this_machine(inspect: Callable[..., MachineFacts], tmp_path: Path) -> None:
    tokens = [inspect(RAY_AUTH_TOKEN=token).token for token in ("canary-1", "canary-1", "canary-2")]
    assert tokens[0] == tokens[1] != tokens[2]
    assert "canary-1" not in repr(inspect(RAY_AUTH_TOKEN="canary-1"))
    facts = inspect(
        ROOST_NODE_RANK="3", ROOST_PORT_RANGE="21000-21099", CUDA_VISIBLE_DEVICES="1", RAY_AUTH_MODE="Token"
    )
    assert (facts.declared_rank, facts.port_range, facts.auth_mode) == ("3", "21000-21099", "token")
    assert facts.visible == {"CUDA_VISIBLE_DEVICES": "1"}
    assert facts.python == ".".join(map(str, sys.version_info[:3]))
    assert facts.open_files[0] > 0
    assert facts.ephemeral[0] < facts.ephemeral[1]


def test_leftovers_are_found(
    inspect: Callable[..., MachineFacts], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    long_ago = 1_000_000_000
    for name in ("roost-0123abcd", "roost-0123abce", "roost-not-ours"):
        (tmp_path / name / "ray").mkdir(parents=True)
        os.utime(tmp_path / name, (long_ago, long_ago))
    for name in ("nccl-used", "nccl-left", "mine"):
        (tmp_path / name).write_bytes(b"12345")
    old = tmp_path / "jobs" / "old"
    old.mkdir(parents=True)
    (old / "events.jsonl").write_text("{}\n")
    monkeypatch.setenv("ROOST_STATE", str(tmp_path))
    running = JobHistory("quiet")  # nothing has happened for long, and its manager still runs
    quiet = tmp_path / "jobs" / "quiet"
    for path in (old / "events.jsonl", old, *quiet.iterdir(), quiet):
        os.utime(path, (long_ago, long_ago))
    with (
        (tmp_path / "nccl-used").open() as used,
        subprocess.Popen(["sleep", "600"], env={**os.environ, "ROOST_CONFINED": "f" * 32}) as orphan,
        subprocess.Popen(["sh", "-c", "read x", str(tmp_path / "roost-0123abce")], stdin=subprocess.PIPE),
    ):
        try:
            eventually(
                lambda: orphan.pid in [pid for pid, _ in inspect().leftovers.processes],
                30,
                "the orphan is found",
            )
            left = inspect().leftovers
            with pytest.MonkeyPatch.context() as another_user:
                another_user.setattr(os, "getuid", lambda: -1)
                assert inspect().leftovers.processes == ()
        finally:
            orphan.kill()
        assert not used.closed
    assert left.rays == (str(tmp_path / "roost-0123abcd"),)
    assert left.shared_memory == ((str(tmp_path / "nccl-left"), 5),)
    assert [(path, size) for path, days, size in left.folders if days > 30] == [(str(old), 3)]
    for file in running._files.values():
        os.close(file)
    assert [path for path, _, _ in inspect().leftovers.folders] == [str(old), str(quiet)]
    findings = diagnose_machine(replace(MACHINE, leftovers=left))
    assert set(codes(findings)) == {"RW224"}
    assert orphan.pid not in [pid for pid, _ in inspect().leftovers.processes]


def test_the_verb_finds_faults_of_this_machine(tmp_path: Path) -> None:
    """In a shell with a low limit and a bad range of ports."""
    script = Path(sys.executable).parent / "roost"
    done = subprocess.run(
        ["sh", "-c", f"ulimit -S -n 256; exec {script} doctor --json"],
        env={**os.environ, "ROOST_PORT_RANGE": "80-90", "ROOST_STATE": str(tmp_path)},
        capture_output=True,
        text=True,
        check=False,
    )
    told = json.loads(done.stdout)
    assert done.returncode == 1, done.stderr
    assert {"RC104", "RW222"} <= {finding["code"] for finding in told["findings"]}
    assert told["machines"][0]["python"] == ".".join(map(str, sys.version_info[:3]))
