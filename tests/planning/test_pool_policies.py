"""Restart policies of a job whose layout is opened as a pool."""

from __future__ import annotations

import logging
import re
from typing import Any

import pytest

import roost

LAYOUT = {"actor_num_gpus_per_node": 2, "rollout_num_gpus": 2}


@pytest.mark.parametrize(
    ("supervise", "followed", "warned"),
    [
        ({"actor": {"policy": "one_for_all"}}, {"actor": "one_for_all"}, ""),
        ({"rollout": {"policy": "fail", "ping": "1s"}}, {"rollout": "fail"}, ""),
        (
            {"actor,rollout": {"policy": "one_for_one"}},
            {"actor": "one_for_one"},
            r"rollout: its restart policy is not carried out in a pool.*call recover\(\) of the RolloutManager",
        ),
        (
            {"actor": {"policy": "relocate", "spare_nodes": 1}},
            {},
            "actor: its restart policy is not carried out in a pool.*the accelerators of a pool do not move",
        ),
    ],
)
def test_train_roles_follow_their_policies_and_the_rest_is_told(
    supervise: Any, followed: dict[str, str], warned: str, caplog: pytest.LogCaptureFixture
) -> None:
    job = {"cluster": {"layout": LAYOUT}, "supervise": supervise}
    with (
        caplog.at_level(logging.WARNING, "roost"),
        roost.Cluster(num_nodes=2, inline="2x4") as cluster,
        cluster.pool(job) as pool,
    ):
        assert {name: one.policy for name, one in pool.plan.supervise.items()} == followed
        findings = [one for one in pool.plan.findings if one.code == "RW109"]
        assert len(findings) == bool(warned)
    text = " ".join(caplog.text.split())
    assert ("RW109" in text) == bool(warned)
    assert re.search(warned, text)
