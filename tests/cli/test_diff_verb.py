"""`roost diff` and `roost show`."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

import roost
from roost.planning.preflight import Holder

MOVED = "cluster: {num_nodes: 2, component_placement: {actor: 0-7}}\n"


def test_a_saved_plan_and_a_job_are_compared_on_the_nodes_of_the_plan(cli: Any) -> None:
    cli("plan", "job.yaml", "--on", "2x8", "-o", "plan.json")
    done = cli("diff", "plan.json", "job.yaml")
    assert (done.code, done.out, done.err) == (0, "plan.json and job.yaml: no differences\n", "")
    done = cli("diff", "plan.json", "job.yaml", "cluster.component_placement.actor=0-7", "--exit-code")
    assert done.code == 6
    assert done.out.endswith("actor changed: 8 gone\n  8-15 gone: node 1 accelerators 0-7\n")


def test_differences_are_no_failure_unless_asked(cli: Any) -> None:
    Path("other.yaml").write_text(MOVED)
    assert cli("diff", "job.yaml", "other.yaml", "--on", "2x8").code == 0
    done = cli("diff", "job.yaml", "other.yaml", "--on", "2x8", "--json", "--exit-code")
    assert (done.code, done.data["format_version"], done.data["same"]) == (6, 1, False)
    [change] = done.data["components"]
    assert (change["component"], change["change"], len(change["processes"])) == ("actor", "changed", 8)
    assert change["processes"][0] == {
        "rank": 8,
        "change": "gone",
        "before": {"node": 1, "kind": "accelerator", "devices": [0], "group": "cluster"},
        "after": None,
    }
    plan = roost.plan("other.yaml", roost.Inventory.parse("2x8"))
    assert done.data["after"] == {"name": "other.yaml", "digest": plan.digest}
    assert cli("diff", "job.yaml", "job.yaml", "--on", "2x8", "--exit-code").code == 0


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["plan.json"], "Name another plan or job file, or add --live"),
        (["job.yaml", "--live"], "only a saved plan is compared with the running cluster"),
        (["job.yaml", "job.yaml"], "which cluster? Say it with --on 2x8"),
        (["plan.json", "cluster.num_nodes=1"], "'cluster.num_nodes=1' is an override"),
        (["job.yaml", "plan.json", "cluster.num_nodes=1"], "plan.json is placed already"),
        (["plan.json", "job.yaml", "x"], "is not an override"),
    ],
)
def test_wrong_usage(cli: Any, arguments: list[str], said: str) -> None:
    cli("plan", "job.yaml", "--on", "2x8", "-o", "plan.json")
    done = cli("diff", *arguments)
    assert (done.code, done.out) == (2, "")
    assert said in done.err


@pytest.mark.parametrize(
    ("file", "text", "code", "found"),
    [
        ("wrong.yaml", "cluster: {component_placement: {actor: 7-0}}", 1, "RL102"),
        ("large.yaml", "cluster: {component_placement: {actor: 0-99}}", 3, "RP101"),
        ("empty.yaml", "", 1, "RC102"),
        ("plan2.json", '{"format_version": 2}', 1, "RS101"),
    ],
)
def test_a_side_that_cannot_be_read(cli: Any, file: str, text: str, code: int, found: str) -> None:
    Path(file).write_text(text)
    done = cli("diff", "job.yaml", file, "--on", "2x8", "--json")
    assert done.code == code
    assert [one["code"] for one in done.data["findings"]] == [found]
    assert file in done.err


@pytest.mark.ray  # its module imports Ray
def test_a_saved_plan_against_the_running_cluster(cli: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    from roost.engine.reservation import cluster_snapshot

    cli("plan", "job.yaml", "--on", "2x8", "-o", "plan.json")
    there = roost.Inventory.parse("1x8")
    holder = Holder(name="job 'other'", node=0, count=2, devices=frozenset((2, 3)))
    snapshot = cluster_snapshot.ClusterSnapshot(inventory=there, holders=(holder,))
    monkeypatch.setattr(cluster_snapshot, "take_snapshot", lambda: snapshot)
    done = cli("diff", "plan.json", "--live", "--exit-code")
    assert done.code == 6
    assert done.out == (
        "plan.json -> the running cluster\nnode 1 gone: 8 x nvidia_gpu\n"
        "actor changed: 8 gone\n  8-15 gone: node 1 accelerators 0-7\n"
    )
    assert "job 'other' holds accelerators 2-3" in done.err


@pytest.mark.ray  # its module imports Ray
def test_what_others_hold_is_counted_on_the_nodes_that_are_there(
    cli: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    from roost.engine.reservation import cluster_snapshot

    cli("plan", "job.yaml", "--on", "2x8", "-o", "plan.json")
    snapshot = cluster_snapshot.ClusterSnapshot(
        inventory=roost.Inventory.parse("2x2"), holders=(Holder(name="job 'other'", node=0, count=2),)
    )
    monkeypatch.setattr(cluster_snapshot, "take_snapshot", lambda: snapshot)
    done = cli("diff", "plan.json", "--live")
    assert done.code == 3
    assert "node 0 changed: 8 x nvidia_gpu -> 2 x nvidia_gpu" in done.out
    assert done.err.count("error[RE107]") == 1  # nothing is held on node 1
    assert "8 needed, 0 of 2 free; job 'other' holds 2" in done.err
    assert cli("diff", "plan.json", "--live", "--exit-code").code == 6


def test_show_shows_a_plan_as_plan_does(cli: Any) -> None:
    job = ["plan", "job.yaml", "cluster.component_placement.actor=0-7", "--on", "2x8"]
    first = cli(*job, "-o", "plan.json", "--svg", "a.svg", "--html", "a.html")
    shown = cli("show", "plan.json", "--svg", "b.svg", "--html", "b.html")
    assert (shown.code, shown.out) == (0, first.out)
    assert shown.err.startswith("warning[RW102]: 8 of 16 accelerators are idle")
    assert Path("b.svg").read_text() == Path("a.svg").read_text()
    assert Path("b.html").read_text() == Path("a.html").read_text()
    assert cli("show", "plan.json", "--json").data == cli(*job, "--json").data


def test_a_saved_plan_where_a_job_belongs_is_named(cli: Any) -> None:
    assert cli("plan", "job.yaml", "--on", "2x8", "-o", "plan.json").code == 0
    for words in (["plan", "plan.json", "--on", "2x8"], ["validate", "plan.json"], ["launch", "plan.json"]):
        done = cli(*words)
        assert done.code == 1
        assert "error[RC102]: this is a saved plan, not a job" in done.err
        assert "`roost show` shows it" in done.err
        assert "`cluster` section" not in done.err


def test_show_refuses_what_is_no_plan(cli: Any) -> None:
    done = cli("show", "job.yaml")
    assert (done.code, done.out) == (1, "")
    assert "error[RS101]: job.yaml: this is not a saved plan\n  = why: it is not JSON: " in done.err
    assert "= help: `roost plan JOB -o PLAN` saves the plan of a job; give that file" in done.err
    assert cli("show", "job.yaml", "--svg", "job.yaml").code == 2
