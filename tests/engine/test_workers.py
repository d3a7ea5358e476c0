"""Workers are where they should be, and see what they should, before their class is imported."""

from __future__ import annotations

import os
import re
import stat
import sys
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from typing import Any

import pytest
import ray
from changed_visibility import ChangesVisibility
from crew import DiesWhileStarting, FailsToStart, NeverStarts, Picky, Reporter
from running import Program, alive, eventually, new_job

import roost
from roost.engine.connection.actors import job_namespace

pytestmark = pytest.mark.ray
NAMES = (
    "RANK",
    "WORLD_SIZE",
    "LOCAL_RANK",
    "LOCAL_WORLD_SIZE",
    "NODE_RANK",
    "CLUSTER_NODE_RANK",
    "MASTER_ADDR",
    "CUDA_VISIBLE_DEVICES",
)


def named_actors(cluster: roost.Cluster, group: str) -> list[str]:
    return [
        actor["name"]
        for actor in ray.util.list_named_actors(all_namespaces=True)
        if actor["namespace"] == job_namespace(cluster.job) and actor["name"].startswith(f"{group}:")
    ]


def nothing_left(cluster: roost.Cluster, group: str) -> None:
    eventually(lambda: not named_actors(cluster, group), 30, f"no actor of {group} is left")
    assert group not in roost.WorkerManager.get_proxy(cluster.job).list_groups()


@pytest.fixture(scope="module")
def trainer(cluster: roost.Cluster) -> Iterator[roost.WorkerGroup]:
    strategy = roost.FlexiblePlacementStrategy([[4, 5], [6], [9], [10, 11]])
    with Reporter.create_group(roost.scatter("abcd")).launch(
        cluster, placement_strategy=strategy, name="trainer"
    ) as made:
        yield made


def test_every_rank_has_its_environment_before_its_class_is_imported(
    cluster: roost.Cluster, trainer: roost.WorkerGroup
) -> None:
    expected = [
        ("0", "4", "0", "2", "0", "1", "127.0.0.2", "0,1"),
        ("1", "4", "1", "2", "0", "1", "127.0.0.2", "2"),
        ("2", "4", "0", "2", "1", "2", "127.0.0.2", "1"),
        ("3", "4", "1", "2", "1", "2", "127.0.0.2", "2,3"),
    ]
    for seen in (trainer.environment(*NAMES), trainer.environment_at_import(*NAMES)):
        assert [tuple(rank[name] for name in NAMES) for rank in seen.wait(timeout=60)] == expected
    ports = {rank["MASTER_PORT"] for rank in trainer.environment_at_import("MASTER_PORT").wait(timeout=60)}
    assert len(ports) == 1
    assert ports != {str(cluster.master_port)}


def test_a_worker_knows_who_it_is(trainer: roost.WorkerGroup) -> None:
    told = trainer.identity().wait(timeout=60)
    for rank, one in enumerate(told):
        assert one["rank"] == one["rank_in_constructor"] == rank
        assert one["world_size"] == 4
        assert one["group"] == "trainer"
        assert one["placement"] == trainer.placements[rank]
        assert one["local_rank"] == trainer.placements[rank].local_rank
        assert one["note"] == "abcd"[rank]


def test_no_runtime_env_for_plain_variables(cluster: roost.Cluster, trainer: roost.WorkerGroup) -> None:
    for rank in range(4):
        handle = ray.get_actor(f"trainer:{rank}", namespace=job_namespace(cluster.job))
        assert ray._private.state.actors(handle._actor_id.hex())["State"] == "ALIVE"
    assert trainer.execute_on(0).runtime_env().wait(timeout=60) == [{}]


def test_without_isolation_all_accelerators_of_the_node_are_seen(cluster: roost.Cluster) -> None:
    strategy = roost.FlexiblePlacementStrategy([[1], [2]])
    with Reporter.create_group().launch(
        cluster, placement_strategy=strategy, name="open", isolate_accelerator=False
    ) as group:
        seen = group.environment("CUDA_VISIBLE_DEVICES", "LOCAL_RANK").wait(timeout=60)
        assert [rank["CUDA_VISIBLE_DEVICES"] for rank in seen] == ["0,1,2,3"] * 2
        assert [one["placement"].local_accelerator_rank for one in group.identity().wait(timeout=60)] == [
            1,
            2,
        ]


def test_processes_on_bare_nodes_see_everything_and_reserve_nothing(cluster: Any) -> None:
    before = set(cluster._backend.reservation.held)
    with Reporter.create_group().launch(
        cluster, placement_strategy=roost.NodePlacementStrategy([2, 2]), name="bare"
    ) as group:
        seen = group.environment("CUDA_VISIBLE_DEVICES", "CLUSTER_NODE_RANK").wait(timeout=60)
        assert [rank["CLUSTER_NODE_RANK"] for rank in seen] == ["2", "2"]
        assert {rank["CUDA_VISIBLE_DEVICES"] for rank in seen} == {"0,1,2,3"}
    assert set(cluster._backend.reservation.held) == before


def test_two_processes_share_one_accelerator(cluster: roost.Cluster) -> None:
    strategy = roost.FlexiblePlacementStrategy([[0], [0]])
    with Reporter.create_group().launch(cluster, placement_strategy=strategy, name="sharing") as group:
        seen = group.environment("CUDA_VISIBLE_DEVICES").wait(timeout=60)
        assert [rank["CUDA_VISIBLE_DEVICES"] for rank in seen] == ["0", "0"]


# -- ports ---------------------------------------------------------------------------------------------------


def test_every_launch_gets_a_port_of_its_own_and_can_listen_there(cluster: roost.Cluster) -> None:
    """Pitfall: a relaunched group gets the dead group's port."""
    ports = []
    with Reporter.create_group().launch(
        cluster, placement_strategy=roost.NodePlacementStrategy([1]), name="neighbour"
    ) as neighbour:
        ports.append(neighbour.environment("MASTER_PORT").wait(timeout=60)[0]["MASTER_PORT"])
        for _ in range(2):
            with Reporter.create_group().launch(
                cluster, placement_strategy=roost.NodePlacementStrategy([1]), name="relaunched"
            ) as group:
                listened = group.listens_on_master_port().wait(timeout=60)[0]
                ports.append(group.environment("MASTER_PORT").wait(timeout=60)[0]["MASTER_PORT"])
                assert ports[-1] in listened
                if len(ports) == 2:
                    group.execute_on(0).dies(0)  # while it holds the port
        assert neighbour.listens_on_master_port().wait(timeout=60)
    assert len(set(ports)) == 3


# -- names and logs --------------------------------------------------------------------------------------------


def test_log_lines_name_the_worker(run: Callable[..., Program]) -> None:
    # Ray keeps back lines that differ in a number only, until the program ends.
    program = run("logging_job", new_job("logs"), env={"RAY_DEDUP_LOGS": "0"})
    program.answer()
    eventually(lambda: program.output.count("said in plain words") >= 2, 60, "the workers' lines came")
    eventually(lambda: program.output.count("printed plainly") >= 2, 60, "what they printed came")
    program.tell("end")
    assert program.end() == 0
    for rank in range(2):
        assert f"[speakers:{rank}] INFO said in plain words by {rank}" in program.output
        (line,) = [line for line in program.lines if f"printed plainly by {rank}" in line]
        assert f"speakers:{rank}" in line


@pytest.mark.parametrize("name", ["a/b", "", "x" * 65, "with space"])
def test_a_group_name_that_is_not_a_name(cluster: roost.Cluster, name: str) -> None:
    launcher = Reporter.create_group()
    if name:
        with pytest.raises(roost.LaunchError, match="is not a group name"):
            launcher.launch(cluster, placement_strategy=roost.NodePlacementStrategy([0]), name=name)
    else:  # the class's name then
        with launcher.launch(cluster, placement_strategy=roost.NodePlacementStrategy([0])) as group:
            assert group.name == "Reporter"


def test_a_group_name_is_taken(cluster: roost.Cluster, trainer: roost.WorkerGroup) -> None:
    with pytest.raises(roost.ClusterError, match="'trainer' is already running"):
        Reporter.create_group().launch(
            cluster, placement_strategy=roost.NodePlacementStrategy([0]), name="trainer"
        )
    assert len(trainer.pid().wait(timeout=60)) == 4


def test_scattered_constructor_arguments_must_fit(cluster: roost.Cluster) -> None:
    with pytest.raises(roost.LaunchError, match="scatter has 3 values for 2 processes"):
        Reporter.create_group(roost.scatter([1, 2, 3])).launch(
            cluster, placement_strategy=roost.NodePlacementStrategy([0, 0]), name="unfitting"
        )


# -- all or nothing ---------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("kind", "error"),
    [(OSError, partial(OSError, "no such model")), (Picky, partial(Picky, 3, text="no such model"))],
    ids=["plain", "picky"],
)
def test_one_constructor_that_fails_takes_the_group_down(
    cluster: roost.Cluster, kind: type[Exception], error: Callable[[], Exception]
) -> None:
    strategy = roost.FlexiblePlacementStrategy([[0], [6]])
    with pytest.raises(roost.LaunchError) as caught:
        FailsToStart.create_group(1, error).launch(cluster, placement_strategy=strategy, name="failing")
    text = str(caught.value)
    assert "failing rank 1 (node 1 (127.0.0.2), accelerator 2) could not start" in text
    assert kind.__name__ in text
    assert "no such model" in text
    assert type(caught.value.__cause__) is kind
    assert caught.value.codes == ("RE108",)
    nothing_left(cluster, "failing")


@pytest.mark.parametrize(
    ("how", "told"),
    [
        ("exit", "ended with exit code 4"),
        ("crash", "was killed by SIGSEGV"),
        ("kill", "ended, and Ray says: Worker "),
    ],
)
def test_a_process_that_ends_while_it_starts(cluster: roost.Cluster, how: str, told: str) -> None:
    with pytest.raises(roost.LaunchError, match="dying rank 1 ") as caught:
        DiesWhileStarting.create_group(1, how).launch(
            cluster, placement_strategy=roost.NodePlacementStrategy([0, 1]), name="dying"
        )
    assert re.match(rf"pid \d+ {told}.*; its log /", caught.value.findings[0].why)
    assert "the process ended while starting: look at its log" in str(caught.value)
    nothing_left(cluster, "dying")


def test_constructors_that_block_are_given_up_in_time(cluster: roost.Cluster, tmp_path: Path) -> None:
    """Pitfall: waiting for peers with no deadline and no diagnosis."""
    with pytest.raises(roost.LaunchError) as caught:
        NeverStarts.create_group(str(tmp_path)).launch(
            cluster, placement_strategy=roost.NodePlacementStrategy([0, 1, 1, 2]), name="blocked", timeout=15
        )
    text = str(caught.value)
    assert "3 of 4 workers of 'blocked' did not start in 15 s" in text
    assert "still starting: rank 1 (node 1 (127.0.0.2)); rank 2 (node 1" in text
    nothing_left(cluster, "blocked")
    pids = [int(path.name) for path in tmp_path.iterdir()]
    assert len(pids) == 4
    eventually(lambda: not any(map(alive, pids)), 30, "the stopped process has ended too")
    # The name and the place are free again.
    with Reporter.create_group().launch(
        cluster, placement_strategy=roost.NodePlacementStrategy([1]), name="blocked"
    ) as group:
        assert len(group.pid().wait(timeout=60)) == 1


def test_a_worker_that_sees_other_devices_is_refused(cluster: roost.Cluster) -> None:
    strategy = roost.FlexiblePlacementStrategy([[5]])
    with pytest.raises(roost.LaunchError) as caught:
        ChangesVisibility.create_group().launch(cluster, placement_strategy=strategy, name="changer")
    assert caught.value.codes == ("RE109",)
    assert "rank 0 (node 1 (127.0.0.2), accelerator 1) sees '0,1,2,3' instead of '1'" in str(caught.value)
    nothing_left(cluster, "changer")


# -- per node -----------------------------------------------------------------------------------------------------


def test_environment_and_interpreter_per_node(
    cluster: roost.Cluster, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Pitfall: the head node's PYTHONPATH overwrites the robot node's."""
    wrapper = tmp_path / "python"
    wrapper.write_text(f'#!/bin/sh\nexport THROUGH_WRAPPER=yes\nexec {sys.executable} "$@"\n')
    wrapper.chmod(wrapper.stat().st_mode | stat.S_IXUSR)
    (tmp_path / "extra").mkdir()
    (tmp_path / "extra" / "only_there.py").write_text("VALUE = 7\n")
    monkeypatch.setenv("PYTHONPATH", "/the/driver's/own")
    monkeypatch.setenv("NCCL_DEBUG", "WARN")
    monkeypatch.setenv("GLOO_SOCKET_IFNAME", "driver0")
    monkeypatch.setenv("UNRELATED_SETTING", "stays here")
    section = {
        "component_placement": {"mixed": {"node_group": "mixed", "placement": "0-2"}},
        "node_groups": [
            {
                "label": "mixed",
                "node_ranks": "0-2",
                "ignore_hardware": True,
                "env_configs": [
                    {"node_ranks": 0, "env_vars": [{"GLOO_SOCKET_IFNAME": "eth0"}, {"ONLY_ON_0": "1"}]},
                    {
                        "node_ranks": 1,
                        "env_vars": {"PYTHONPATH": str(tmp_path / "extra"), "LD_LIBRARY_PATH": "/opt/lib"},
                    },
                    {"node_ranks": 2, "python_interpreter_path": str(wrapper)},
                ],
            }
        ],
    }
    strategy = roost.ComponentPlacement({"cluster": section}, cluster).get_strategy("mixed")
    with Reporter.create_group().launch(cluster, placement_strategy=strategy, name="mixed") as group:
        names = (
            "GLOO_SOCKET_IFNAME",
            "ONLY_ON_0",
            "NCCL_DEBUG",
            "THROUGH_WRAPPER",
            "UNRELATED_SETTING",
            "LD_LIBRARY_PATH",
        )
        seen = group.environment(*names).wait(timeout=60)
        assert [rank["GLOO_SOCKET_IFNAME"] for rank in seen] == ["eth0", "driver0", "driver0"]
        assert [rank["ONLY_ON_0"] for rank in seen] == ["1", None, None]
        assert [rank["NCCL_DEBUG"] for rank in seen] == ["WARN"] * 3
        assert [rank["THROUGH_WRAPPER"] for rank in seen] == [None, None, "yes"]
        assert [rank["UNRELATED_SETTING"] for rank in seen] == [None] * 3
        assert (seen[1]["LD_LIBRARY_PATH"] or "").split(os.pathsep)[0] == "/opt/lib"
        paths = [path for _, path in group.python().wait(timeout=60)]
        assert str(tmp_path / "extra") in paths[1]
        assert str(Path(__file__).parent) in paths[1]  # the node's own is still there
        assert not any("/the/driver's/own" in path for path in paths)
        assert group.execute_on(1).imports("only_there").wait(timeout=60) == [7]
        envs = group.runtime_env().wait(timeout=60)
        assert envs[0] == {}
        assert set(envs[1]["env_vars"]) == {"PYTHONPATH", "LD_LIBRARY_PATH"}
        assert envs[2]["py_executable"] == str(wrapper)
        seen = group.environment("CUDA_VISIBLE_DEVICES", "RANK").wait(timeout=60)
        assert [tuple(rank.values()) for rank in seen] == [("0,1,2,3", str(rank)) for rank in range(3)]
