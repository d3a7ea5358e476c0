"""Planning on a running cluster: what it is, what is held there, and nothing left behind."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import ray

import roost
from roost.cli import main
from roost.engine.reservation import cluster_snapshot
from roost.engine.reservation.cluster_snapshot import ClusterSnapshot, take_snapshot
from roost.planning.preflight import Holder

pytestmark = pytest.mark.ray


def job_file(place: Path, rules: str) -> Path:
    path = place / "job.yaml"
    path.write_text(f"cluster: {{component_placement: {rules}}}\n")
    return path


def named_actors() -> set[str]:
    return {entry["namespace"] for entry in ray.util.list_named_actors(all_namespaces=True)}


@pytest.fixture
def plan_live(
    address: str, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> Callable[..., tuple[Any, str, str]]:
    """`roost plan JOB --live` in this process: its exit code and what it prints."""
    for name, value in {"RAY_ADDRESS": address, "NO_COLOR": "1", "COLUMNS": "100"}.items():
        monkeypatch.setenv(name, value)

    def plan(job: Path, *arguments: str) -> tuple[Any, str, str]:
        with pytest.raises(SystemExit) as end:
            main(["plan", str(job), "--live", *arguments])
        return (end.value.code, *capsys.readouterr())

    return plan


def test_the_plan_is_that_of_the_cluster_and_nothing_is_left(
    plan_live: Callable[..., Any], tmp_path: Path, cluster: Any
) -> None:
    before = named_actors()
    job = job_file(tmp_path, "{actor: 0-11}")
    code, printed, _ = plan_live(job, "--json")
    assert (code, json.loads(printed)["findings"]) == (0, [])  # a CPU for each accelerator, and none is held
    plan = roost.Plan.from_dict(json.loads(printed))
    assert plan.inventory.nodes == cluster.inventory.nodes
    assert plan.digest == roost.plan(job, roost.Inventory.parse("3x4")).digest
    assert named_actors() == before
    assert ray.is_initialized()  # it was the test's connection


@pytest.fixture(scope="module")
def holding(cluster: Any) -> Holder:
    """The job holds two accelerators of node 0."""
    cluster._backend.reservation.ensure({0: {1, 2}})
    return Holder(name=f"job {cluster.job!r}", node=0, count=2, devices=frozenset({1, 2}))


@pytest.mark.usefixtures("holding")
def test_who_holds_what_is_told_and_the_plan_is_shown(address: str, tmp_path: Path, cluster: Any) -> None:
    job = job_file(tmp_path, "{actor: 0-1}")
    done = subprocess.run(
        [Path(sys.executable).parent / "roost", "plan", job, "--live", "-o", tmp_path / "plan.json"],
        env={**os.environ, "RAY_ADDRESS": address, "NO_COLOR": "1", "COLUMNS": "100"},
        capture_output=True,
        text=True,
        timeout=120,
    )
    assert done.returncode == 3
    assert "A0 A1" in done.stdout
    assert "error[RE107]: node 0" in done.stderr
    assert f"2 needed, 2 of 4 free; job {cluster.job!r} holds accelerator 1" in done.stderr
    assert "RE107" in [finding.code for finding in roost.load_plan(tmp_path / "plan.json").findings]
    assert f"held: node 0: 1-2 by job {cluster.job!r}\n" in done.stdout


def test_what_others_hold_is_drawn_as_held_and_not_advised(
    plan_live: Callable[..., Any], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    holder = Holder(name="job 'other'", node=0, count=2, devices=frozenset({1, 2}))
    found = ClusterSnapshot(inventory=roost.Inventory.parse("3x4"), holders=(holder,))
    monkeypatch.setattr(cluster_snapshot, "take_snapshot", lambda: found)
    job, picture = job_file(tmp_path, '{actor: "0,3-4"}'), tmp_path / "plan.svg"
    code, printed, told = plan_live(job, "--svg", str(picture), "-o", str(tmp_path / "plan.json"))
    assert code == 0, told
    assert "A0 #  #  A1\n" in printed
    assert "held: node 0: 1-2 by job 'other'\n" in printed
    assert "12 accelerators: 3 used, 2 held by others, 7 idle, 0 shared" in printed
    assert "warning[RW102]: 7 of 12 accelerators are idle\n  = why: node 1: 1-3; node 2: 0-3\n" in told
    advice = [one.what for one in roost.load_plan(tmp_path / "plan.json").findings if one.code == "RW102"]
    assert advice == ["7 of 12 accelerators are idle"]
    assert picture.read_text().count("accelerator 1: held by job") == 1


@pytest.mark.usefixtures("holding")
def test_a_placement_is_suggested_for_the_cluster(
    tmp_path: Path, cluster: Any, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    Path("job.yaml").write_text("cluster:\n  num_nodes: 3\n")
    Path("profile.yaml").write_text(
        "{batch: 8, flow: {a: [], b: []}, components: {a: {seconds: {4: 9.0}}, b: {seconds: {8: 9.0}}}}"
    )
    with pytest.raises(SystemExit) as end:
        main(["suggest", "job.yaml", "--profile", "profile.yaml", "--live", "--json"])
    answer = json.loads(capsys.readouterr().out)
    assert (end.value.code, answer["seconds"], answer["accelerators_used"]) == (3, 9.0, 12)
    assert [finding["code"] for finding in answer["findings"]] == ["RE107"]  # the job holds two of them


def test_work_without_a_placement_group_is_seen_beside_a_job(holding: Holder) -> None:
    @ray.remote(num_gpus=3, num_cpus=0)
    class Hoarder:
        def there(self) -> str:
            return ray.get_runtime_context().get_node_id()

    hoarder = Hoarder.remote()
    try:
        ray.get(hoarder.there.remote(), timeout=60)
        job, *others = take_snapshot().holders
    finally:
        ray.kill(hoarder)
    assert job == holding
    assert [(one.name, one.count, one.devices) for one in others] == [
        ("work outside placement groups", 3, None)
    ]
