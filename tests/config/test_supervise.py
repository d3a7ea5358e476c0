"""The section `supervise`: what it takes, what it refuses, and that the plan carries it."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

import roost
from roost.config.supervise import RestartLimits, RestartPolicy
from roost.planning.policy_checks import with_policies

PLACED: dict[str, Any] = {"component_placement": {"actor": "0-3", "rollout": "4-5"}}


def planned(supervise: Any, on: str = "3x4") -> roost.Plan:
    return roost.plan({"cluster": PLACED, "supervise": supervise}, on)


def test_policies_are_read_with_their_defaults() -> None:
    plan = planned(
        {
            "actor": {"policy": "one_for_all", "restarts": 5, "within": "30m", "ping": "2s"},
            "rollout": {"policy": "relocate", "restarts": {"hang": 0}, "spare_nodes": "2"},
        }
    )
    assert plan.supervise == {
        "actor": RestartPolicy(
            policy="one_for_all",
            restarts=RestartLimits(crash=5, hang=5, node_lost=5, out_of_memory=5, failed_start=5),
            within=1800.0,
            ping=2.0,
        ),
        "rollout": RestartPolicy(policy="relocate", restarts=RestartLimits(hang=0), spare_nodes=(2,)),
    }


def test_the_plan_carries_them_and_older_plans_still_load() -> None:
    plan = planned({"actor": {"policy": "one_for_one"}})
    data = json.loads(json.dumps(plan.to_dict()))
    again = roost.Plan.from_dict(data)
    assert (again.supervise, again.digest) == (plan.supervise, plan.digest)
    plain = roost.plan({"cluster": PLACED}, "3x4")
    assert "supervise" not in plain.to_dict()
    assert plain.digest != plan.digest
    assert roost.Plan.from_dict(plain.to_dict()).supervise == {}


@pytest.mark.parametrize(
    "damage",
    [
        {"policy": "often"},
        {"restarts": {"crash": -1}},
        {"restarts": {"crush": 1}},
        {"within": 0.0},
        {"spare_nodes": [7]},
        {"spare_nodes": [2, 1]},
        {"other": 1},
    ],
)
def test_a_saved_plan_with_a_damaged_policy_is_refused(damage: Any) -> None:
    data = planned({"actor": {"policy": "relocate", "spare_nodes": "1-2"}}).to_dict()
    data["supervise"]["actor"].update(damage)
    with pytest.raises(roost.ConfigurationError, match="the plan is damaged"):
        roost.Plan.from_dict(data)


def test_policies_and_shares_are_refused_together() -> None:
    cluster = {"component_placement": {"actor,critic": "0-3"}, "shares": {"actor": 0.9, "critic": 0.9}}
    with pytest.raises(roost.ConfigurationError) as caught:
        roost.plan(
            {"cluster": cluster, "supervise": {"actor": {"policy": "relocate", "spare_nodes": 7}}}, "1x4"
        )
    assert caught.value.codes == ("RI104", "RP111")


@pytest.mark.parametrize(
    ("entry", "code", "what"),
    [
        ({"polcy": "fail"}, "RC101", "unknown key 'polcy'"),
        ({"policy": "sometimes"}, "RC103", "policy: 'sometimes' does not fit"),
        ({"restarts": -1}, "RC104", "restarts: -1 is out of range"),
        ({"restarts": {"crush": 1}}, "RC101", "unknown key 'crush'"),
        ({"within": "soon"}, "RC103", "within: 'soon' does not fit"),
        ({"within": True}, "RC103", "within: True does not fit"),
        ({"ping": 0}, "RC104", "ping: 0 is out of range"),
        ({"policy": "relocate"}, "RC102", "actor: relocate needs spare nodes"),
        ({"spare_nodes": 2}, "RC104", "actor: only the policy relocate uses spare nodes"),
        ({"policy": "relocate", "spare_nodes": "x"}, "RL101", "actor: 'x' is not a range of spare nodes"),
        ({"policy": "relocate", "spare_nodes": "all"}, "RL101", "actor: 'all' is not a range of spare nodes"),
        ({"spare_nodes": " all "}, "RL101", "actor: 'all' is not a range of spare nodes"),
        ({"policy": "relocate", "spare_nodes": "0-60000,1-60000"}, "RL106", "actor: too many spare nodes"),
        ({"within": 10**400}, "RC103", "supervise.actor.within: a number of too many digits"),
        ({"policy": "relocate", "spare_nodes": ""}, "RL101", "actor: node ranks are missing"),
        ({"policy": "relocate", "spare_nodes": 7}, "RI104", "actor: spare nodes 7 do not exist"),
        (
            {"policy": "relocate", "spare_nodes": "0-2"},
            "RC104",
            "actor: its spare nodes 0 are nodes it runs on",
        ),
    ],
)
def test_what_is_wrong_is_said(entry: Any, code: str, what: str) -> None:
    with pytest.raises(roost.ConfigurationError) as caught:
        planned({"actor": entry})
    assert caught.value.codes == (code,)
    assert caught.value.findings[0].what.startswith(what)


def test_all_problems_at_once_with_their_positions(tmp_path: Path) -> None:
    file = tmp_path / "job.yaml"
    file.write_text(
        "cluster: {num_nodes: 1, component_placement: {actor: 0-3}}\n"
        "supervise:\n"
        "  actor: {policy: often, within: never}\n"
        "  actr: {restarts: 1}\n"
    )
    with pytest.raises(roost.ConfigurationError) as caught:
        roost.plan(file, "1x4")
    places = [(one.code, one.where.line, one.where.column) for one in caught.value.findings if one.where]
    assert places == [("RC103", 3, 19), ("RC103", 3, 34), ("RP106", 4, 3)]


def test_interpolations_and_overrides_reach_it(tmp_path: Path) -> None:
    file = tmp_path / "job.yaml"
    file.write_text(
        "cluster: {num_nodes: 1, component_placement: {actor: 0-3}}\n"
        "often: 7\n"
        "supervise: {actor: {policy: one_for_one, restarts: '${often}'}}\n"
    )
    plan = roost.plan(file, "1x4", overrides=["supervise.actor.within=2h"])
    assert (plan.supervise["actor"].restarts.crash, plan.supervise["actor"].within) == (7, 7200.0)


def test_robots_come_with_a_warning() -> None:
    group = {"label": "r", "node_ranks": 0, "hardware": {"type": "Franka", "configs": [{"node_rank": 0}]}}
    job = {
        "cluster": {
            "component_placement": {"env": {"node_group": "r", "placement": "0"}},
            "node_groups": [group],
        },
        "supervise": {"env": {"policy": "one_for_one"}},
    }
    assert "RW109" in [finding.code for finding in roost.plan(job, "1x0").findings]


def test_advice_about_spare_nodes_does_not_name_all_nodes() -> None:
    for text in ("x", "all", ""):
        with pytest.raises(roost.ConfigurationError) as caught:
            planned({"actor": {"policy": "relocate", "spare_nodes": text}})
        assert caught.value.findings[0].remedy == "name nodes that nothing else uses, such as 2, 2-3 or `2,4`"


def test_all_components_together_have_so_many_spare_nodes() -> None:
    policy = {"policy": "relocate", "spare_nodes": "4-60000"}
    with pytest.raises(roost.ConfigurationError) as caught:
        planned({"actor": policy, "rollout": policy})
    assert [finding.what for finding in caught.value.findings] == ["rollout: too many spare nodes"]


def test_policies_given_in_python_warn_as_those_of_a_job_do() -> None:
    group = {"label": "r", "node_ranks": 0, "hardware": {"type": "Franka", "configs": [{"node_rank": 0}]}}
    cluster = {
        "component_placement": {"env": {"node_group": "r", "placement": "0"}},
        "node_groups": [group],
    }
    plan = roost.plan({"cluster": cluster}, "1x0")
    warned = with_policies(plan, {"env": {"policy": "one_for_one"}})
    assert [(found.code, found.path) for found in warned.findings] == [("RW109", ("supervise", "env"))]
    assert with_policies(warned, {"env": {"policy": "one_for_all"}}).findings[0].why.endswith("one_for_all")
    assert with_policies(warned, {"env": {"policy": "fail"}}).findings == ()


def test_a_policy_given_in_python_may_hold_no_number_that_is_too_large() -> None:
    with pytest.raises(roost.ConfigurationError, match="a number of too many digits"):
        with_policies(roost.plan({"cluster": PLACED}, "3x4"), {"actor": {"within": 10**400}})
