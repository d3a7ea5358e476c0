"""Secrets that a saved plan left out, found again when it is launched."""

from __future__ import annotations

from typing import Any

import pytest

import roost
from roost.planning.launch_preparation import with_secrets


def planned(*settings: dict[str, Any]) -> roost.Plan:
    group = {"label": "g", "node_ranks": "0-1", "env_configs": list(settings)}
    rules = {"w": {"node_group": "g", "placement": "0-1"}}
    return roost.plan({"cluster": {"component_placement": rules, "node_groups": [group]}}, "2x1")


def saved(plan: roost.Plan) -> roost.Plan:
    return roost.Plan.from_dict(plan.to_dict())


def variables(plan: roost.Plan, node: int) -> dict[str, str | None]:
    return dict(plan.inventory.environment("g", node).env_vars)


def test_the_job_goes_before_the_environment() -> None:
    plan = planned({"node_ranks": "0-1", "env_vars": {"API_KEY": "old", "PLAIN": "p"}})
    job = planned({"node_ranks": "0-1", "env_vars": {"PLAIN": "changed", "API_KEY": "new"}})
    found = with_secrets(saved(plan), job.inventory.groups, {"API_KEY": "environment", "PLAIN": "x"})
    assert variables(found, 1) == {"API_KEY": "new", "PLAIN": "p"}  # only what was left out is filled in
    found = with_secrets(saved(plan), {}, {"API_KEY": "environment"})
    assert variables(found, 0) == {"API_KEY": "environment", "PLAIN": "p"}


def test_values_are_those_of_the_same_nodes_in_whatever_order() -> None:
    one = {"node_ranks": 0, "env_vars": {"API_KEY": "zero"}}
    two = {"node_ranks": 1, "env_vars": {"API_KEY": "one"}}
    found = with_secrets(saved(planned(one, two)), planned(two, one).inventory.groups, {})
    assert [variables(found, node)["API_KEY"] for node in (0, 1)] == ["zero", "one"]


def test_an_empty_value_in_the_job_is_none() -> None:
    plan = planned({"node_ranks": 0, "env_vars": {"API_KEY": "old"}})
    job = planned({"node_ranks": 0, "env_vars": {"API_KEY": ""}})
    assert variables(with_secrets(saved(plan), job.inventory.groups, {"API_KEY": "x"}), 0) == {"API_KEY": "x"}
    with pytest.raises(roost.ConfigurationError, match="the value of API_KEY is missing"):
        with_secrets(saved(plan), job.inventory.groups, {})


def test_a_plan_keeps_an_empty_value() -> None:
    plan = planned({"node_ranks": 0, "env_vars": {"WANDB_API_KEY": ""}})  # switches it off
    for groups in ({}, plan.inventory.groups):
        assert with_secrets(saved(plan), groups, {"WANDB_API_KEY": "x"}) == plan


def test_all_that_is_missing_is_named() -> None:
    path = "uv run --index https://me:s3cret@host python"
    setting = {
        "node_ranks": "0-1",
        "env_vars": {"API_KEY": "a", "HF_TOKEN": "b"},
        "python_interpreter_path": path,
    }
    plan = planned(setting)
    with pytest.raises(roost.ConfigurationError) as caught:
        with_secrets(saved(plan), {}, {})
    assert [finding.what for finding in caught.value.findings] == [
        "the value of API_KEY is missing, for node group 'g'",
        "the value of HF_TOKEN is missing, for node group 'g'",
        "the value of python_interpreter_path is missing, for node group 'g'",
    ]
    assert caught.value.codes == ("RS103",) * 3
    assert [finding.remedy for finding in caught.value.findings] == [
        "set API_KEY in the environment of the launch, or launch with the job file",
        "set HF_TOKEN in the environment of the launch, or launch with the job file",
        "launch with the job file",  # no variable holds the interpreter
    ]
    assert with_secrets(saved(plan), plan.inventory.groups, {}) == plan


def test_a_plan_in_memory_has_its_secrets() -> None:
    plan = planned({"node_ranks": 0, "env_vars": {"API_KEY": "a"}})
    assert with_secrets(plan, {}, {}) == plan
