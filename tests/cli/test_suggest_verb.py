"""`roost suggest` and `roost simulate`."""

from __future__ import annotations

import json
import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

import roost

JOB = """\
# the job
cluster:
  num_nodes: 2
  component_placement:  # guessed
    actor,critic: 0-7
    # the rest
    rollout: 8-15  # by hand
trainer: {lr: 1}  # ours
"""
SNAPSHOT = Path(__file__).parents[1] / "snapshots" / "suggestion.html"
PROFILE = """\
profile:
  batch: 64
  flow: {rollout: [], actor: [rollout], critic: [rollout]}
  components:
    rollout: {seconds: {4: 60.0, 16: 20.0}, streams: true, accelerators_per_process: 2}
    actor: {seconds: {4: 40.0, 16: 12.0}, switch: 2.0}
    critic: {seconds: 1.0}
"""


@pytest.fixture(autouse=True)
def files(cli: Any) -> None:
    Path("job.yaml").write_text(JOB)
    Path("profile.yaml").write_text(PROFILE)


ARGUMENTS = ("suggest", "job.yaml", "--profile", "profile.yaml", "--on", "2x8")


def test_shows_the_answer_with_its_proof(cli: Callable[..., Any]) -> None:
    done = cli(*ARGUMENTS)
    assert done.code == 0
    assert "proven, no arrangement is faster" in done.out
    for words in (
        "all in turns",
        "all beside",
        "present placement",
        "limited by accelerators",
        "measured",
        "a second method (relaxation) agrees",
        "replayed item by item:",
    ):
        assert words in done.out


def test_write_keeps_comments_and_the_rest(cli: Callable[..., Any]) -> None:
    assert cli(*ARGUMENTS, "--write").code == 0
    text = Path("job.yaml").read_text()
    for comment in ("# the job", "# guessed", "# the rest", "# by hand", "trainer: {lr: 1}  # ours"):
        assert comment in text
    answer = cli(*ARGUMENTS, "--json").data
    planned = roost.plan("job.yaml", "2x8")
    assert set(planned.components) == {"rollout", "actor", "critic"}
    (present,) = [one for one in answer["alternatives"] if one["name"] == "present placement"]
    assert present["seconds"] == pytest.approx(answer["seconds"])


def test_write_keeps_components_that_the_profile_does_not_name(cli: Callable[..., Any]) -> None:
    rule = "    logger,critic: {node_group: node, placement: 1}  # by hand too\n"
    Path("job.yaml").write_text(
        JOB.replace("actor,critic: 0-7", "actor: 0-7").replace("    # the rest\n", rule)
    )
    assert cli(*ARGUMENTS, "--write").code == 0
    planned = roost.plan("job.yaml", "2x8")
    assert set(planned.components) == {"rollout", "actor", "critic", "logger"}
    assert planned.components["logger"].nodes == [1]


@pytest.mark.parametrize("override", [(), ("+cluster.component_placement.env=3",)])
def test_write_keeps_a_rule_that_is_a_number_and_the_mode_of_the_file(
    cli: Callable[..., Any], override: tuple[str, ...]
) -> None:
    rule = "" if override else "    env: 3\n"
    Path("job.yaml").write_text(JOB.replace("    # the rest\n", rule))
    Path("job.yaml").chmod(0o600)
    done = cli(*ARGUMENTS[:2], *override, *ARGUMENTS[2:], "--write")
    assert done.code == 0, done.err
    assert (rule in Path("job.yaml").read_text(), Path("job.yaml").stat().st_mode & 0o777) == (True, 0o600)


def test_an_arrangement_that_does_not_fit_is_not_replayed(cli: Callable[..., Any]) -> None:
    Path("profile.yaml").write_text(
        "{batch: 8, flow: {a: [], b: []}, components: {a: {seconds: {8: 9.0}}, b: {seconds: {8: 9.0}}}}"
    )
    leaves = [{"component": name, "accelerators": 8, "group": "cluster"} for name in "ab"]
    Path("answer.json").write_text(json.dumps({"tree": {"beside": leaves}}))
    done = cli("simulate", "answer.json", "--profile", "profile.yaml", "--on", "1x8")
    assert (done.code, "16 accelerators of 'cluster', which has 8" in done.err) == (1, True), done.err


@pytest.mark.parametrize(
    ("job", "kept"),
    [
        ("cluster:\n  num_nodes: 2  # two\n", "# two"),
        ("cluster:\n    # nothing yet\n    num_nodes: 2\n", "# nothing yet"),
        ("cluster:\n  component_placement: {actor: 0-7}\n  num_nodes: 2\n", "num_nodes: 2"),
    ],
)
def test_write_adds_a_missing_placement(cli: Callable[..., Any], job: str, kept: str) -> None:
    Path("job.yaml").write_text(job)
    assert cli(*ARGUMENTS, "--write").code == 0
    assert kept in Path("job.yaml").read_text()
    assert set(roost.plan("job.yaml", "2x8").components) == {"rollout", "actor", "critic"}


@pytest.mark.parametrize(
    "job",
    [
        "cluster: {num_nodes: 2}\n",
        "cluster:\n  layout: {actor_num_nodes: 1, actor_num_gpus_per_node: 8, rollout_num_gpus: 8}\n",
    ],
)
def test_write_leaves_a_file_alone_that_it_cannot_edit(cli: Callable[..., Any], job: str) -> None:
    Path("job.yaml").write_text(job)
    done = cli(*ARGUMENTS, "--write")
    assert done.code == 1
    assert "RS102" in done.err
    assert Path("job.yaml").read_text() == job


def test_a_replay_can_decide(cli: Callable[..., Any]) -> None:
    Path("job.yaml").write_text("cluster: {num_nodes: 1}\n")
    Path("profile.yaml").write_text(
        "profile: {batch: 16, flow: {rollout: [], actor: [rollout]}, components: {"
        "rollout: {seconds: {4: 40.0, 8: 21.0}, streams: true},"
        "actor: {seconds: {4: 38.0, 8: 20.0}, streams: true}}}"
    )
    tailed = (*ARGUMENTS[:-1], "1x8", "--tail", "rollout=1.5")
    done = cli(*tailed, "--json").data
    first = done["replays"][0]
    assert done["tails"] == {"rollout": 1.5}
    assert first["tree"] != done["tree"]
    assert done["verification"] == {
        "proven": pytest.approx(done["seconds"]),
        "gap": 0.0,
        "complete": True,
        "method": "relaxation",
    }
    assert "--by-replay takes it" in cli(*tailed).out
    chosen = cli(*tailed, "--by-replay", "--json").data
    assert chosen["tree"] == first["tree"]
    assert chosen["gap"] == pytest.approx(1 - done["seconds"] / chosen["seconds"])


def test_json_page_and_simulation(cli: Callable[..., Any]) -> None:
    done = cli(*ARGUMENTS, "--json", "--html", "page.html")
    assert done.data["format_version"] == 1
    assert done.data["gap"] == 0
    page = Path("page.html").read_text("utf-8")
    if os.environ.get("ROOST_UPDATE_SNAPSHOTS") == "1":
        SNAPSHOT.write_text(page, "utf-8")
    assert page == SNAPSHOT.read_text("utf-8")
    assert "<svg" in page
    assert "rollout" in page
    assert "<script" not in page
    Path("answer.json").write_text(done.out)
    played = cli("simulate", "answer.json", "--profile", "profile.yaml", "--on", "2x8", "--tail", "rollout=1")
    assert played.code == 0
    assert "the model says" in played.out
    numbers = cli("simulate", "answer.json", "--profile", "profile.yaml", "--on", "2x8", "--json").data
    assert numbers["model_seconds"] == pytest.approx(done.data["seconds"])


def test_a_simulation_knows_the_node_groups_of_a_job(cli: Callable[..., Any]) -> None:
    Path("grouped.yaml").write_text(
        "cluster:\n  num_nodes: 2\n  node_groups: [{label: a, node_ranks: 0}, {label: b, node_ranks: 1}]\n"
    )
    Path("by_group.yaml").write_text(
        "profile:\n  batch: 8\n  flow: {rollout: [], actor: [rollout]}\n  components:\n"
        "    rollout: {seconds: {a: {8: 10.0}}, streams: true}\n    actor: {seconds: {b: {8: 12.0}}}\n"
    )
    done = cli("suggest", "grouped.yaml", "--profile", "by_group.yaml", "--on", "2x8", "--json")
    Path("answer.json").write_text(done.out)
    replay = ("simulate", "answer.json", "--profile", "by_group.yaml", "--on", "2x8")
    assert cli(*replay).code == 1  # without the job there are no such groups
    played = cli(*replay, "--job", "grouped.yaml", "--json")
    assert (played.code, played.data["model_seconds"]) == (0, done.data["seconds"])


@pytest.mark.parametrize(
    ("arguments", "code", "words"),
    [
        (("suggest", "job.yaml", "--profile", "profile.yaml"), 2, "which cluster?"),
        (("suggest", "job.yaml", "--profile", "nowhere.yaml", "--on", "2x8"), 1, "RC001"),
        (("suggest", "job.yaml", "--profile", "profile.yaml", "--on", "2x1"), 3, "RP113"),
        (("simulate", "job.yaml", "--profile", "profile.yaml", "--on", "2x8"), 1, "is not JSON"),
        (
            ("simulate", "x.json", "--profile", "profile.yaml", "--on", "2x8", "--tail", "rolout=1"),
            2,
            "one of rollout",
        ),
        (("simulate", "x.json", "--profile", "profile.yaml", "--on", "2x8"), 1, "each component once"),
    ],
)
def test_mistakes(cli: Callable[..., Any], arguments: tuple[str, ...], code: int, words: str) -> None:
    Path("x.json").write_text(json.dumps({"component": "actor", "accelerators": 4, "group": "cluster"}))
    done = cli(*arguments)
    assert done.code == code
    assert words in done.err


GROUPED = JOB.replace("num_nodes: 2", "num_nodes: 4\n  node_groups: [{label: a, node_ranks: 2-3}]")


@pytest.mark.parametrize(
    ("job", "words"),
    [
        (GROUPED, ["RI108", "job.yaml:3:14"]),  # and not the node groups that follow from it
        (JOB.replace("num_nodes: 2", "num_nods: 2"), ["RC101", "job.yaml:3:3"]),
        (JOB.replace("    # the rest\n", "    env: 7-0\n"), ["RL102", "job.yaml:6:10"]),
        ("trainer: {lr: 1}\n", ["RC102", "cluster"]),
    ],
)
def test_mistakes_of_the_job_are_shown_at_their_place(
    cli: Callable[..., Any], job: str, words: list[str]
) -> None:
    Path("job.yaml").write_text(job)
    done = cli(*ARGUMENTS)
    assert done.err.count("error[") == 1, done.err
    assert [word for word in words if word not in done.err] == [], done.err


def test_a_present_placement_that_does_not_fit_is_told_by_its_error(cli: Callable[..., Any]) -> None:
    Path("job.yaml").write_text(JOB.replace("8-15", "80-95"))
    done = cli(*ARGUMENTS[:-1], "3x8")  # a warning comes before the error: one node is not used
    assert done.code == 0, done.err
    assert "cannot be compared: rollout: accelerator 95 does not exist" in done.err, done.err
