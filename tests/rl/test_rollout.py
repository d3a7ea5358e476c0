"""Rollout engines on a real Ray of three nodes with four accelerators each."""

from __future__ import annotations

import json
import os
import signal
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
from engines import COMMAND, Telling, Visitor
from running import alive, eventually, module_path

import roost
from roost import EngineGroup, Layout, Server

pytestmark = pytest.mark.ray
ADDRESS = "127.0.0.2"
TWO = Layout(actor_num_nodes=0, rollout_num_gpus=2)
ONE_ALONE = Layout(actor_num_nodes=0, rollout_num_gpus=1, accelerators="1")


@pytest.fixture
def rollouts(cluster: roost.Cluster) -> Iterator[Callable[..., roost.RolloutManager]]:
    """Open a pool and run its rollout. Giving the pools back ends everything."""
    pools: list[roost.Pool] = []

    def start(layout: Layout, engine: Any = Telling, **more: Any) -> roost.RolloutManager:
        pools.append(cluster.pool(layout))
        return roost.RolloutManager(pools[-1], engine, timeout=90, **more)

    yield start
    for pool in reversed(pools):
        pool.release()


def told(rollout: roost.RolloutManager, component: str = "rollout") -> list[roost.EngineContext]:
    workers = rollout.groups[component].workers
    assert workers is not None
    return workers.told().wait(timeout=60)


def test_an_engine_wider_than_a_node_meets_on_its_first(rollouts: Callable[..., Any]) -> None:
    """Pitfall: `node_rank = global_rank % nodes_per_engine` is wrong after a group of odd size."""
    layout = Layout(
        actor_num_nodes=0,
        servers=(
            Server(
                groups=(
                    EngineGroup(kind="prefill", num_gpus=4, gpus_per_engine=4),
                    EngineGroup(kind="decode", num_gpus=8, gpus_per_engine=8),
                )
            ),
        ),
    )
    with rollouts(layout) as rollout:
        prefill, decode = told(rollout, "rollout.prefill"), told(rollout, "rollout.decode")
        assert [(one.node_rank, one.num_nodes) for one in prefill] == [(0, 1)]
        assert [(one.node_rank, one.num_nodes, one.index) for one in decode] == [(0, 2, 0), (1, 2, 0)]
        assert len({one.dist_init_addr for one in decode}) == 1
        assert [len(one.devices) for one in decode] == [4, 4]
        assert prefill[0].bootstrap_port is not None
        assert decode[0].bootstrap_port is None
        endpoints = rollout.endpoints()
        assert [(one.kind, one.bootstrap_port, one.port) for one in endpoints] == [
            ("prefill", prefill[0].bootstrap_port, prefill[0].port),
            ("decode", None, decode[0].port),
        ]
        nodes = rollout.groups["rollout.decode"].workers.environment("CLUSTER_NODE_RANK").wait(60)
        assert [one["CLUSTER_NODE_RANK"] for one in nodes] == ["1", "2"]


def test_several_models_with_commands_of_their_own_and_a_placeholder(rollouts: Callable[..., Any]) -> None:
    kinds = (EngineGroup(kind="prefill", num_gpus=4), EngineGroup(kind="decode", num_gpus=4))
    layout = Layout(
        actor_num_nodes=0,
        rollout_num_gpus_per_engine=4,
        servers=(
            Server(name="pd", groups=kinds),
            Server(name="judge", groups=(EngineGroup(num_gpus=2, gpus_per_engine=2),)),
            Server(name="later", groups=(EngineGroup(kind="placeholder", num_gpus=2, gpus_per_engine=2),)),
        ),
    )
    env = {"ENGINE_NOTE": "{kind} of {server}, engine {engine}"}
    decode = roost.CommandLine(COMMAND, env=env, start_within=60)
    prefill = roost.CommandLine(
        [*COMMAND, "--bootstrap-port", "{bootstrap_port}"], env={"ENGINE_NOTE": "{kind}"}, start_within=60
    )
    engines = {"pd": decode, "rollout.pd.prefill": prefill, "judge": Telling.create_group("j")}
    with rollouts(layout, engines) as rollout:
        assert [(one.server, one.kind, one.engine) for one in rollout.endpoints()] == [
            ("pd", "prefill", 0),
            ("pd", "decode", 0),
            ("judge", "regular", 0),
        ]
        assert [one.server for one in rollout.endpoints("judge")] == ["judge"]
        assert len(rollout.groups["rollout.later"]) == 0
        assert len(rollout.pool.positions) == 12  # two are held for later
        assert rollout.health() == {
            "rollout.pd.prefill": [True],
            "rollout.pd.decode": [True],
            "rollout.judge": [True],
        }
        endpoints = rollout.endpoints("pd")
        elsewhere = roost.NodePlacementStrategy([2])  # a node that has none of these engines
        with Visitor.create_group().launch(rollout.pool.cluster, elsewhere) as visitor:
            answers = [json.loads(visitor.get(f"{one.url}/whoami").wait(60)[0]) for one in endpoints]
        notes = ["prefill", "decode of pd, engine 0"]
        for answer, endpoint, note in zip(answers, endpoints, notes, strict=True):
            flags = answer["flags"]
            assert flags["--port"] == str(endpoint.port)
            assert flags["--host"] == ADDRESS
            assert flags["--devices"] == "0,1,2,3"
            assert (flags["--node-rank"], flags["--num-nodes"]) == ("0", "1")
            host, _, port = flags["--dist-init-addr"].rpartition(":")
            assert answer["environment"] == {
                "CUDA_VISIBLE_DEVICES": "0,1,2,3",
                "RANK": "0",
                "WORLD_SIZE": "1",
                "MASTER_ADDR": host,
                "MASTER_PORT": port,
                "ENGINE_NOTE": note,
            }
        assert answers[0]["flags"]["--bootstrap-port"] == str(endpoints[0].bootstrap_port)
        servers = [answer["pid"] for answer in answers]
        assert all(map(alive, servers))
    eventually(lambda: not any(map(alive, servers)), 10, "the servers are gone after shutdown")


def test_every_problem_of_the_engines_at_once(cluster: roost.Cluster) -> None:
    layout = Layout(
        actor_num_nodes=0,
        servers=(
            Server(name="policy", groups=(EngineGroup(num_gpus=1),)),
            Server(name="judge", groups=(EngineGroup(num_gpus=1),)),
        ),
    )
    with cluster.pool(layout) as pool:
        with pytest.raises(roost.ConfigurationError) as caught:
            roost.RolloutManager(pool, {"polcy": Telling, "judge": 3})
        text = str(caught.value)
        assert "server 'policy' has no engine" in text
        assert "the layout has no server 'polcy'" in text
        assert "did you mean 'policy'" in text
        assert "3 is not a subclass of roost.Engine" in text
        with pytest.raises(roost.ConfigurationError, match="nothing says what the engines of judge, policy"):
            roost.RolloutManager(pool)


def test_when_one_engine_fails_all_are_taken_down(cluster: roost.Cluster) -> None:
    layout = Layout(actor_num_nodes=0, rollout_num_gpus=2, rollout_num_gpus_per_engine=1)
    with cluster.pool(layout) as pool:
        with pytest.raises(roost.LaunchError) as caught:
            roost.RolloutManager(pool, Telling.create_group("fails 1"), timeout=60)
        assert str(caught.value) == (
            "error[RE120]: engine 1 of rollout (node 0 (127.0.0.2), accelerator 1) did not start\n"
            "  = why: RuntimeError: no weights here"
        )
        manager = roost.WorkerManager.get_proxy(cluster.job)
        eventually(lambda: "rollout" not in manager.list_groups(), 30, "no engine is left")


def test_a_command_that_ends_says_why(rollouts: Callable[..., Any]) -> None:
    layout = Layout(actor_num_nodes=0, rollout_num_gpus=1)
    command = roost.CommandLine(COMMAND, env={"ENGINE_EXIT": "3"}, start_within=60)
    with pytest.raises(roost.LaunchError) as caught:
        rollouts(layout, command)
    text = str(caught.value)
    assert "engine 0 of rollout (node 0 (127.0.0.2), accelerator 0) did not start" in text
    assert "exited with 3 before it was healthy" in text
    assert text.endswith("its last lines:\nCUDA out of memory")


def test_nothing_is_left_when_the_driver_is_killed(run: Callable[..., Any]) -> None:
    path = os.pathsep.join([module_path(), str(Path(__file__).parent)])
    program = run("serving", env={"PYTHONPATH": path})
    said = program.answer(120)
    family = [said["router"], *[pid for one in said["engines"] for pid in [one["pid"], *one["children"]]]]
    assert len(family) == 4
    assert all(map(alive, family))
    program.signal(signal.SIGKILL)
    eventually(lambda: not any(map(alive, family)), 5, "server, children and router are gone")


@pytest.mark.parametrize(("where", "layout"), [("constructor 0", ONE_ALONE), ("start 1", TWO)])
def test_an_engine_that_hangs_while_starting_is_named(
    cluster: roost.Cluster, where: str, layout: Layout
) -> None:
    with cluster.pool(layout) as pool:
        with pytest.raises(roost.LaunchError) as caught:
            roost.RolloutManager(pool, Telling.create_group(f"hangs in {where}"), timeout=6)
        assert "node 0 (127.0.0.2), accelerator 1" in str(caught.value)
        manager = roost.WorkerManager.get_proxy(cluster.job)
        eventually(lambda: "rollout" not in manager.list_groups(), 30, "no engine is left")


def test_engines_for_what_does_not_run_in_this_mode_may_be_given(cluster: roost.Cluster) -> None:
    servers = (Server(name="policy", groups=(EngineGroup(num_gpus=1),)),)
    layout = Layout(actor_num_gpus_per_node=1, debug_train_only=True, servers=servers)
    with cluster.pool(layout) as pool, roost.RolloutManager(pool, {"policy": Telling}) as rollout:
        assert rollout.endpoints() == []


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"engine": 3}, "3 is not a subclass of roost.Engine"),
        ({"engine": Visitor}, "is not a subclass of roost.Engine"),
        ({"engine": Visitor.create_group()}, "is not a subclass of roost.Engine"),
        ({"external": "10.0.0.7:30000"}, "is not a list of addresses"),
        ({"external": None}, "None is not a list of addresses"),
        ({"health_path": None}, "None is not a path to ask for health"),
        ({"health_path": "health"}, "'health' is not a path to ask for health"),
        ({"dist_init_ports": 0}, "0 is not a number of ports"),
        ({"timeout": "x"}, "a timeout is a number of seconds"),
        ({"name": "no name"}, "'no name' is not a group name"),
        ({"pool": None}, "None is not a pool"),
    ],
)
def test_wrong_arguments_have_words(cluster: roost.Cluster, arguments: dict[str, Any], message: str) -> None:
    with cluster.pool(Layout(actor_num_nodes=0, rollout_num_gpus=1)) as pool:
        with pytest.raises(roost.RoostError) as caught:
            roost.RolloutManager(**{"pool": pool, "engine": Telling, **arguments})
        assert message in str(caught.value)


def test_external_engines_must_be_named_and_servers_known(cluster: roost.Cluster) -> None:
    with (
        cluster.pool(Layout(actor_num_gpus_per_node=1, rollout_external=True)) as pool,
        pytest.raises(roost.ConfigurationError, match="no external engine is named"),
    ):
        roost.RolloutManager(pool)
    rollout = roost.RolloutManager(cluster.pool(Layout(actor_num_nodes=0, rollout_num_gpus=0)))
    with pytest.raises(roost.ConfigurationError, match="no server 'nope'"):
        rollout.endpoints("nope")


# -- three engines beside an actor that several tests share -------------------------------------------------


@dataclass(frozen=True)
class Three:
    """Three engines, the place of the files that refuse their restarts, and who was listed at each renewal."""

    rollout: roost.RolloutManager
    starts: Path
    renewed: list[tuple[int | None, list[int | None]]]
    refused: set[int | None]  # engines whose renewal fails


@pytest.fixture(scope="module")
def three(cluster: roost.Cluster, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Three]:
    layout = Layout(actor_num_gpus_per_node=2, rollout_num_gpus=6, rollout_num_gpus_per_engine=2)
    starts = tmp_path_factory.mktemp("starts")
    renewed: list[tuple[int | None, list[int | None]]] = []
    refused: set[int | None] = set()

    def renew(endpoint: Any) -> None:
        if endpoint.engine in refused:
            raise LookupError(f"no weights for {endpoint.engine}")
        renewed.append((endpoint.engine, [one.engine for one in rollout.endpoints()]))

    engine = Telling.create_group(f"once {starts}")
    with (
        cluster.pool(layout) as pool,
        roost.RolloutManager(pool, engine, timeout=90, renew=renew) as rollout,
    ):
        yield Three(rollout, starts, renewed, refused)


def test_engines_beside_the_actor_know_their_own_devices(three: Three) -> None:
    rollout = three.rollout
    contexts = told(rollout)
    assert [one.index for one in contexts] == list(range(3))
    assert [one.devices for one in contexts] == [("2", "3"), ("0", "1"), ("2", "3")]
    assert {one.host for one in contexts} == {ADDRESS}
    assert {(one.node_rank, one.num_nodes, one.share) for one in contexts} == {(0, 1, 1.0)}
    ports = [port for one in contexts for port in (one.port, one.nccl_port, *one.dist_init_ports)]
    assert len(set(ports)) == len(ports) == 3 * 10
    for one in contexts:
        first = one.dist_init_ports[0]
        assert one.dist_init_ports == tuple(range(first, first + 8))
        assert one.dist_init_addr == f"{ADDRESS}:{first}"
    workers = rollout.groups["rollout"].workers
    assert [len(ports) for ports in workers.can_listen().wait(60)] == [10] * 3
    assert [one.url for one in rollout.endpoints()] == [f"http://{ADDRESS}:{c.port}" for c in contexts]
    seen = workers.environment("RANK", "WORLD_SIZE", "MASTER_PORT", "CUDA_VISIBLE_DEVICES").wait(60)
    assert [one["MASTER_PORT"] for one in seen] == [str(c.dist_init_ports[0]) for c in contexts]
    assert {(one["RANK"], one["WORLD_SIZE"]) for one in seen} == {("0", "1")}
    assert [one["CUDA_VISIBLE_DEVICES"] for one in seen] == [",".join(c.devices) for c in contexts]


def test_an_engine_that_cannot_serve_or_whose_check_fails_is_not_listed(three: Three) -> None:
    rollout = three.rollout
    workers: Any = rollout.groups["rollout"].workers
    workers.become(roost.scatter(["sick", "check fails 1", "well"])).wait(60)
    assert rollout.health() == {"rollout": [False, False, True]}
    assert [one.engine for one in rollout.endpoints()] == [2]
    workers.become("well").wait(60)
    assert rollout.health() == {"rollout": [True] * 3}
    assert [one.engine for one in rollout.endpoints()] == [0, 1, 2]


def test_a_busy_engine_is_not_a_dead_one(three: Three, tmp_path: Path) -> None:
    rollout = three.rollout
    call = rollout.groups["rollout"].workers[0].busy(str(tmp_path / "done"))
    assert rollout.health(timeout=0.5)["rollout"][0] is None
    assert rollout.recover(timeout=0.5) == []
    (tmp_path / "done").touch()
    call.wait(60)
    assert rollout.health() == {"rollout": [True] * 3}


def test_a_restart_that_fails_is_not_listed_and_stops_no_other(three: Three) -> None:
    rollout = three.rollout
    workers: Any = rollout.groups["rollout"].workers
    children, pids = workers.spawn().wait(60), workers.pid().wait(60)
    assert all(alive(pid) for one in children for pid in one)
    for rank in (0, 2):
        os.kill(pids[rank], signal.SIGKILL)
    eventually(lambda: not any(map(alive, children[0] + children[2])), 10, "the children are gone")
    assert all(map(alive, children[1]))
    eventually(lambda: rollout.health() == {"rollout": [False, True, False]}, 30, "both are noticed")
    with pytest.raises(roost.LaunchError) as caught:
        rollout.recover()
    text = str(caught.value)
    assert "engine 0 of rollout" in text
    assert "engine 2 of rollout" in text
    assert rollout.health() == {"rollout": [False, True, False]}
    assert [one.engine for one in rollout.endpoints()] == [1]
    assert three.renewed == []
    (three.starts / "allowed").touch()
    assert [one.engine for one in rollout.recover()] == [0, 2]
    assert [one.engine for one in rollout.endpoints()] == [0, 1, 2]
    # They are listed only after their weights were renewed.
    assert sorted(engine for engine, _ in three.renewed) == [0, 2]
    assert all(engine not in listed for engine, listed in three.renewed)


def test_an_engine_whose_weights_cannot_be_renewed_is_ended_and_stops_no_other(three: Three) -> None:
    rollout = three.rollout
    pids = rollout.groups["rollout"].workers.pid().wait(60)
    for rank in (0, 2):
        os.kill(pids[rank], signal.SIGKILL)
    eventually(lambda: rollout.health() == {"rollout": [False, True, False]}, 30, "both are noticed")
    three.refused.add(0)
    with pytest.raises(roost.LaunchError, match="engine 0 of rollout") as caught:
        rollout.recover()
    assert "LookupError: no weights for 0" in caught.value.findings[0].why
    assert [one.engine for one in rollout.endpoints()] == [1, 2]
    with pytest.raises(roost.WorkerDied):  # it holds nothing meanwhile
        rollout.groups["rollout"].workers[0].pid().wait(60)
    three.refused.clear()
    assert [one.engine for one in rollout.recover()] == [0]
    assert rollout.health() == {"rollout": [True] * 3}


def test_a_second_rollout_whose_shutdown_is_interrupted_still_ends(
    three: Three, cluster: roost.Cluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    manager = roost.WorkerManager.get_proxy(cluster.job)

    def interrupted(*_: Any, **__: Any) -> None:
        raise KeyboardInterrupt

    with cluster.pool(Layout(actor_num_nodes=0, rollout_num_gpus=1)) as pool:
        second = roost.RolloutManager(pool, Telling, timeout=90, name="judge")
        assert told(second)[0].devices == ("0",)
        (place,) = second.groups["rollout"].workers.environment("CLUSTER_NODE_RANK").wait(60)
        assert place == {"CLUSTER_NODE_RANK": "2"}  # the others are held
        assert set(manager.list_groups()) >= {"rollout", "judge"}
        with monkeypatch.context() as patch:
            patch.setattr("roost.engine.ray_backend.ray_result.RayResult.wait", interrupted)
            with pytest.raises(KeyboardInterrupt):
                second.shutdown()
        eventually(lambda: "judge" not in manager.list_groups(), 30, "no engine of it is left")
    assert three.rollout.health() == {"rollout": [True] * 3}


def test_children_end_with_a_rollout_that_is_shut_down(three: Three) -> None:
    """The last use of the three."""
    children = [pid for one in three.rollout.groups["rollout"].workers.spawn().wait(60) for pid in one]
    assert all(map(alive, children))
    three.rollout.shutdown()
    eventually(lambda: not any(map(alive, children)), 10, "they are gone after shutdown")
    assert three.rollout.groups == {}
    three.rollout.shutdown()
    three.rollout.pool.release()


# -- two servers that all further tests share -----------------------------------------------------------------


@pytest.fixture(scope="module")
def serving(cluster: roost.Cluster) -> Iterator[roost.RolloutManager]:
    """Two engines run as commands with children."""
    command = roost.CommandLine(COMMAND, env={"ENGINE_FAMILY": "1"}, start_within=60)
    with (
        cluster.pool(Layout(actor_num_nodes=0, rollout_num_gpus=2)) as pool,
        roost.RolloutManager(pool, command, timeout=90) as rollout,
    ):
        yield rollout


Served = tuple[roost.RolloutManager, list[dict[str, Any]]]


@pytest.fixture
def served(serving: roost.RolloutManager) -> Served:
    """The engines, and what each says of itself."""
    return serving, [json.loads(Visitor().get(f"{one.url}/whoami")) for one in serving.endpoints()]


def test_a_killed_engine_leaves_no_child_and_comes_back_beside_its_neighbour(served: Served) -> None:
    """Pitfall: orphaned engine children keep GPU memory after a crash."""
    rollout, (first, second) = served
    before = rollout.endpoints()
    workers = rollout.groups["rollout"].workers
    manager = roost.WorkerManager.get_proxy(rollout.pool.cluster.job)
    os.kill(manager.get_group("rollout")["pids"][0], signal.SIGKILL)
    family = [first["pid"], *first["children"]]
    eventually(lambda: not any(map(alive, family)), 10, "the server and its children are gone")
    assert all(map(alive, [second["pid"], *second["children"]]))
    eventually(lambda: rollout.health() == {"rollout": [False, True]}, 30, "the dead engine is noticed")
    assert [one.engine for one in rollout.endpoints()] == [1]
    back = rollout.recover()
    assert [one.engine for one in back] == [0]
    assert rollout.endpoints()[1] == before[1]  # the neighbour, port and all
    ports = {before[1].port, *_ports(rollout, 1)}
    assert not ports & set(_ports(rollout, 0))
    again = json.loads(Visitor().get(f"{back[0].url}/whoami"))
    assert again["environment"]["CUDA_VISIBLE_DEVICES"] == "0"
    assert again["pid"] != first["pid"]
    assert workers is rollout.groups["rollout"].workers


def _ports(rollout: roost.RolloutManager, rank: int) -> list[int]:
    context = rollout.groups["rollout"].contexts[rank]
    return [context.port, context.nccl_port, *context.dist_init_ports]


def test_a_server_that_died_under_a_living_engine_is_replaced(served: Served) -> None:
    rollout, (first, _) = served
    os.kill(first["pid"], signal.SIGKILL)
    eventually(lambda: rollout.health() == {"rollout": [False, True]}, 30, "the dead server is noticed")
    assert [one.engine for one in rollout.recover()] == [0]
    assert rollout.health() == {"rollout": [True, True]}
    eventually(lambda: not any(map(alive, first["children"])), 10, "what the dead server left is gone")


def test_external_engines_are_joined_by_address(served: Served, cluster: roost.Cluster) -> None:
    inner, _ = served
    running = inner.endpoints()
    layout = Layout(actor_num_gpus_per_node=2, rollout_external=True)
    addresses = [f"{running[0].host}:{running[0].port}", running[1].url]
    with cluster.pool(layout) as pool, roost.RolloutManager(pool, external=addresses) as rollout:
        assert [(one.url, one.server, one.engine) for one in rollout.endpoints()] == [
            (one.url, "external", None) for one in running
        ]
        with pytest.raises(roost.LaunchError) as caught:
            roost.RolloutManager(rollout.pool, external=[addresses[0], "127.0.0.1:1", "127.0.0.1:2"])
        text = str(caught.value)
        assert "the external engine at http://127.0.0.1:1 is not ready" in text
        assert "the external engine at http://127.0.0.1:2 is not ready" in text
        assert "connection refused" in text
        with pytest.raises(roost.ConfigurationError, match="the port is missing"):
            roost.RolloutManager(rollout.pool, external=["somewhere"])


def test_an_unknown_engine_cannot_be_restarted(served: Served) -> None:
    rollout, _ = served
    for component, engine in (("rollout", 2), ("rollout", -1), ("decode", 0)):
        with pytest.raises(roost.LaunchError, match=r"engines: rollout 0-1"):
            rollout.restart(component, engine)


def test_inline_engines_run_in_one_process() -> None:
    with roost.Cluster(num_nodes=2, inline="2x4") as cluster:
        layout = Layout(actor_num_nodes=0, rollout_num_gpus=8, rollout_num_gpus_per_engine=8)
        with roost.RolloutManager(cluster.pool(layout), Telling) as rollout:
            contexts = told(rollout)
            assert [one.node_rank for one in contexts] == [0, 1]
            assert len({one.dist_init_addr for one in contexts}) == 1
            assert [one.engine for one in rollout.endpoints()] == [0]
