"""The worked example learns, in both arrangements, and goes on when an engine is killed."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from keydoor_job import FOLDER, job_of, launched

import roost

import components  # isort: skip
import policy  # isort: skip
import train  # isort: skip
from grid import HORIZON, Grid, rewards  # isort: skip


def reward_of_a_random_policy() -> float:
    random = np.random.default_rng(0)
    grid = Grid(groups=500, group_size=4, random=random)
    for _ in range(HORIZON):
        grid.step(random.integers(4, size=2000))
    return float(rewards(grid.key_at, grid.door_at).mean())


def mean(values: list[float]) -> float:
    return sum(values) / len(values)


def test_the_gradient_is_that_of_the_objective() -> None:
    random = np.random.default_rng(1)
    weights = policy.new_weights(1)
    seen = Grid(groups=6, group_size=2, random=random).observation()
    actions, advantage = random.integers(4, size=12), random.normal(size=12)
    counts, clip, entropy = np.array([1.0] * 9 + [0.0] * 3), 0.2, 0.01
    proximal = policy.chosen(policy.forward(weights, seen)[0], actions) + random.normal(0, 0.2, size=12)

    def objective(vector: Any) -> float:
        table = policy.forward(vector, seen)[0]
        ratio = np.exp(policy.chosen(table, actions) - proximal)
        gain = np.minimum(ratio * advantage, np.clip(ratio, 1 - clip, 1 + clip) * advantage)
        gain -= entropy * (np.exp(table) * table).sum(axis=1)
        return float((gain * counts).sum() / counts.sum())

    found = policy.gradient(weights, seen, actions, proximal, advantage, counts, clip, entropy)
    for _ in range(5):
        direction = random.normal(size=weights.size)
        direction /= np.linalg.norm(direction)
        slope = (objective(weights + 1e-5 * direction) - objective(weights - 1e-5 * direction)) / 2e-5
        assert found @ direction == pytest.approx(slope, rel=1e-4, abs=1e-8)


class Located(components.Rollout):
    """An engine that tells where its weights lie."""

    def weights_at(self) -> tuple[str, int, bool]:
        """The file of shared memory, the offset in it, and whether the array is a copy."""
        address = self.weights.__array_interface__["data"][0]
        for line in Path("/proc/self/maps").read_text().splitlines():
            span, _, offset, _, inode, *_ = line.split(maxsplit=5)
            start, end = (int(edge, 16) for edge in span.split("-"))
            if start <= address < end:
                return inode, address - start + int(offset, 16), bool(self.weights.flags.owndata)
        return "", 0, True


@pytest.mark.ray
def test_colocated_it_learns_the_same_curve_each_time_and_engines_share_the_weights(
    cluster: roost.Cluster,
) -> None:
    config = job_of("colocated", steps=16)
    config.cluster.component_placement["actor,rollout"] = "0-3:0-1"  # all on one node
    with launched(cluster, config, rollout=Located) as run:
        first, behind = train.train(run, config.training, seed=1)
        again, _ = train.train(run, job_of("colocated", steps=6).training, seed=1)
        assert again == first[:6]
        assert behind == [0] * 16
        assert mean(first[-3:]) > first[0] + 0.4
        assert mean(first[-3:]) > reward_of_a_random_policy() + 0.4

        run["rollout"].load(roost.scatter(run["actor"][0].weights()), 1, 0)
        one, other = run["rollout"].weights_at().wait(timeout=120)
        assert one == other  # two processes have the same bytes of the same memory,
        assert one[0] not in ("", "0")  # which is a file that both map
        assert not one[2]


def test_on_three_kinds_of_nodes_inline() -> None:
    """The job with robots and agents, in this process; and mistakes about whom to kill."""
    config = job_of("hetero", steps=12)
    with (
        roost.Cluster(num_nodes=3, inline="1x2:A800,1x2:4090,1x0") as cluster,
        launched(cluster, config) as run,
    ):
        where = {
            name: [(one.cluster_node_rank, one.local_hardware_ranks) for one in part.placements]
            for name, part in run.plan.components.items()
        }
        assert where == {
            "actor": [(0, [0]), (0, [1])],
            "inference": [(1, [0])],
            "rollout": [(1, [0]), (1, [1])],
            "env": [(2, [0]), (2, [1])],
            "reward": [(2, [])],
        }
        curve, behind = train.train(run, config.training, seed=1)
        assert mean(curve[-3:]) > curve[0] + 0.2
        assert max(behind) <= 1
        for wrong in ("rollout:1", "rollout:2@5", "rolout:0@5", "rollout:0@0", "rollout:0@13", "5"):
            config.training.kill = wrong
            with pytest.raises(roost.ConfigurationError, match=r"rollout 0-1.*steps: 1-12"):
                train.main(run, config)


def test_the_tutorial_shows_the_files_of_the_example() -> None:
    page = (FOLDER.parents[1] / "docs" / "tutorial.md").read_text()
    for name in ("grid.py", "policy.py"):
        assert f"```python\n# {name}\n{(FOLDER / name).read_text()}```\n" in page


def staleness_in(trace: Path) -> list[int]:
    """How many versions behind each batch was, by the times of the calls alone."""
    calls = [event for event in json.loads(trace.read_text())["traceEvents"] if event["ph"] == "X"]
    names = {
        event["pid"]: event["args"]["name"]
        for event in json.loads(trace.read_text())["traceEvents"]
        if event["name"] == "process_name"
    }

    def of(component: str, rank: int, method: str) -> list[tuple[float, float]]:
        return sorted(
            (event["ts"], event["ts"] + event["dur"])
            for event in calls
            if names[event["pid"]] == component and event["tid"] // 1000 == rank and event["name"] == method
        )

    made = [end for _, end in of("actor", 0, "weights")]  # versions 0, 1, 2, ...
    loads = of("rollout", 0, "load")
    return [batch - (sum(end <= start for end in made) - 1) for batch, (start, _) in enumerate(loads)]


@pytest.mark.ray
def test_disaggregated_it_learns_within_its_staleness_though_an_engine_is_killed(
    cluster: roost.Cluster, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    config = job_of("disaggregated", steps=18, seeds=[2], threshold=0.5, report=str(tmp_path / "report"))
    with launched(cluster, config) as run:
        _, behind = train.train(run, job_of("disaggregated", steps=3).training, seed=1)
        run.trace(tmp_path / "trace.json")
        found = staleness_in(tmp_path / "trace.json")
        assert len(found) == 3
        assert max(found) <= max(behind) == 1

        config.training.kill = "rollout:1@4"
        assert train.main(run, config) == 0  # the threshold was reached
        actions = [(event.component, event.rank, event.action) for event in run.events]
        assert ("rollout", 1, "restarted") in actions
    page = (tmp_path / "report" / "report.html").read_text()
    assert "rollout rank 1 on node 1: restarted (crash)" in page
    assert "<svg" in (tmp_path / "report" / "reward.svg").read_text()
    assert "passed 0.5: seed 2" in capsys.readouterr().out
