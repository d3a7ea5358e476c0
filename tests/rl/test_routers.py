"""The list of engines that a router is given, on a real Ray, with a router that only keeps the list."""

from __future__ import annotations

import json
import os
import signal
import sys
import urllib.request
from collections.abc import Callable, Iterator
from types import SimpleNamespace
from typing import Any

import pytest
from engines import COMMAND, LIST_ROUTER, Telling
from running import alive, eventually

import roost
from roost import CommandLine, EngineGroup, Layout, Server
from roost.rl.router_worker import sglang_router

pytestmark = pytest.mark.ray
ENGINE = CommandLine(COMMAND, start_within=60)
ROUTER = CommandLine(LIST_ROUTER, start_within=60)


@pytest.fixture
def pools(cluster: roost.Cluster) -> Iterator[Callable[[Layout], roost.Pool]]:
    made: list[roost.Pool] = []

    def make(layout: Layout) -> roost.Pool:
        made.append(cluster.pool(layout))
        return made[-1]

    yield make
    for pool in reversed(made):
        pool.release()


@pytest.fixture(scope="module")
def routed(cluster: roost.Cluster) -> Iterator[roost.RolloutManager]:
    """Two engines behind a router; every test leaves them so."""
    with (
        cluster.pool(Layout(actor_num_nodes=0, rollout_num_gpus=2)) as pool,
        roost.RolloutManager(pool, ENGINE, router=ROUTER, timeout=90) as rollout,
    ):
        yield rollout


def asked(rollout: roost.RolloutManager) -> Any:
    opener = urllib.request.build_opener(urllib.request.ProxyHandler({}))
    with opener.open(f"{rollout.router.url}/history", timeout=30) as answer:
        return json.load(answer)


def listed(router: Any) -> list[str]:
    return sorted(one.url for one in router.engines())


def urls(rollout: roost.RolloutManager) -> list[str]:
    return sorted(one.url for one in rollout.endpoints())


def test_engines_join_when_ready_leave_before_a_restart_and_come_back(routed: roost.RolloutManager) -> None:
    before = urls(routed)
    assert listed(routed.router) == before
    first = routed.endpoints()[0].url
    back = routed.restart("rollout", 0)
    history = asked(routed)["history"]
    assert sorted(history[:2]) == [["add", url, True] for url in before]
    assert history[2:] == [["remove", first, True], ["add", back.url, True]]  # it still served when it left
    assert listed(routed.router) == urls(routed)
    routed.offload("rollout")
    assert (listed(routed.router), routed.endpoints()) == ([], [])
    assert routed.recover() == []
    routed.onload()
    assert listed(routed.router) == urls(routed) != before
    assert {fine for _, _, fine in asked(routed)["history"]} == {True}
    with pytest.raises(roost.LaunchError, match=r"(?s)'rolout'.*did you mean 'rollout'"):
        routed.offload("rolout")


def test_a_router_that_ends_is_started_again_on_its_address(routed: roost.RolloutManager) -> None:
    engines = urls(routed)
    said = asked(routed)
    assert said["flags"]["--server"] == "default"
    assert said["flags"]["--metrics"] != said["flags"]["--port"]
    os.kill(said["pid"], signal.SIGKILL)

    def back() -> bool:
        try:
            return asked(routed)["pid"] != said["pid"] and listed(routed.router) == engines
        except (OSError, roost.LaunchError):
            return False

    eventually(back, 30, "the router is back with its engines")
    # Its keeper dies with everything it runs: recover() is for that, and keeps the address too.
    manager = roost.WorkerManager.get_proxy(routed.pool.cluster.job)
    url = routed.router.url
    os.kill(manager.get_group("rollout.default.router")["pids"][0], signal.SIGKILL)
    assert routed.recover() == []
    assert (routed.router.url, listed(routed.router)) == (url, engines)


def test_a_router_that_hangs_is_named_and_recovered(routed: roost.RolloutManager) -> None:
    engines, pid = urls(routed), asked(routed)["pid"]
    os.kill(pid, signal.SIGSTOP)
    with pytest.raises(roost.LaunchError, match=r"GET /workers: no answer in 5 s"):
        routed.restart("rollout", 0)
    assert urls(routed) == engines  # nothing was touched
    assert routed.recover() == []
    assert not alive(pid)
    assert listed(routed.router) == engines


def test_each_server_has_a_router_and_prefill_engines_their_bootstrap_port(
    pools: Callable[[Layout], roost.Pool],
) -> None:
    parts = (
        EngineGroup(kind="prefill", num_gpus=1, gpus_per_engine=1),
        EngineGroup(kind="decode", num_gpus=1, gpus_per_engine=1),
        EngineGroup(kind="placeholder", num_gpus=1),
    )
    servers = (
        Server(name="policy", groups=parts),
        Server(name="judge", groups=(EngineGroup(num_gpus=1, gpus_per_engine=1),)),
    )
    pool = pools(Layout(actor_num_nodes=0, servers=servers))
    rollout = roost.RolloutManager(pool, ENGINE, router=ROUTER, timeout=90, name="routed")
    assert sorted(rollout.routers) == ["judge", "policy"]
    assert rollout.routers["judge"].url != rollout.routers["policy"].url
    found = {one.kind: one for one in rollout.routers["policy"].engines()}
    wanted = {one.kind: one for one in rollout.endpoints("policy")}
    assert {kind: (one.url, one.bootstrap_port) for kind, one in found.items()} == {
        kind: (one.url, one.bootstrap_port) for kind, one in wanted.items()
    }
    assert found["prefill"].bootstrap_port
    assert listed(rollout.routers["judge"]) == [one.url for one in rollout.endpoints("judge")]
    with pytest.raises(roost.LaunchError, match=r"(?s)has 2 routers.*they are those of judge, policy"):
        _ = rollout.router
    pids = [router.workers.pid().wait(60)[0] for router in rollout.routers.values()]
    os.kill(rollout.routers["judge"].workers.pid().wait(60)[0], signal.SIGSTOP)
    decode = next(name for name in rollout.groups if name.endswith("decode"))
    back = rollout.restart(decode, 0)  # the router of another server is not asked
    assert back.url in listed(rollout.routers["policy"])
    assert wanted["decode"].url not in listed(rollout.routers["policy"])
    pool.release()  # without a shutdown
    eventually(lambda: not any(map(alive, pids)), 10, "the routers end with the pool")


def test_an_engine_that_does_not_serve_http_does_not_join(pools: Callable[[Layout], roost.Pool]) -> None:
    pool = pools(Layout(actor_num_nodes=0, rollout_num_gpus=1))
    message = r"(?s)did not join the router of server 'default'.*nobody answers /health"
    with pytest.raises(roost.LaunchError, match=message):
        roost.RolloutManager(pool, Telling, router=ROUTER, timeout=90, name="routed")
    other = CommandLine([sys.executable, "-m", "http.server", "{port}", "--bind", "{host}"], health_path="/")
    with pytest.raises(
        roost.LaunchError, match=r"(?s)GET /workers: status 404.*must answer GET, POST and DELETE"
    ):
        roost.RolloutManager(pool, ENGINE, router=other, timeout=90, name="routed")
    with pytest.raises(roost.LaunchError, match=r"router of server 'default' did not start.*exited with 1"):
        roost.RolloutManager(pool, ENGINE, router=CommandLine("false"), timeout=90, name="routed")


@pytest.mark.parametrize(
    ("router", "message"),
    [
        (3, "3 is not a router"),
        (
            CommandLine("x {devices} {port}"),
            r"(?s)uses \{devices\}.*use \{host\}, \{metrics_port\}, \{port\}",
        ),
    ],
)
def test_wrong_routers_have_words(cluster: roost.Cluster, router: Any, message: str) -> None:
    with (
        cluster.pool(Layout(actor_num_nodes=0, rollout_num_gpus=1)) as pool,
        pytest.raises(roost.ConfigurationError, match=message),
    ):
        roost.RolloutManager(pool, ENGINE, router=router, name="routed")


def test_regular_engines_beside_prefill_engines_cannot_have_a_router(cluster: roost.Cluster) -> None:
    parts = tuple(EngineGroup(kind=kind, num_gpus=1, gpus_per_engine=1) for kind in ("prefill", "regular"))
    layout = Layout(actor_num_nodes=0, servers=(Server(groups=parts),))
    with (
        cluster.pool(layout) as pool,
        pytest.raises(roost.ConfigurationError, match="its engines are prefill, regular"),
    ):
        roost.RolloutManager(pool, ENGINE, router=True, name="routed")


def test_without_engines_there_is_no_router(cluster: roost.Cluster) -> None:
    layout = Layout(actor_num_gpus_per_node=1, rollout_num_gpus=1, debug_train_only=True)
    with (
        cluster.pool(layout) as pool,
        roost.RolloutManager(pool, ENGINE, router=True, name="routed") as rollout,
    ):
        assert rollout.routers == {}
        with pytest.raises(roost.LaunchError, match=r"(?s)no routers.*a layout that runs engines"):
            _ = rollout.router
    with pytest.raises(roost.LaunchError, match="this rollout has ended"):
        _ = rollout.router


def test_a_missing_package_is_named_with_what_installs_it(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("roost.rl.router_worker.PACKAGE", "no_such_router")
    with pytest.raises(
        roost.LaunchError, match=r"(?s)cannot import no_such_router.*pip install 'roost\[router\]'"
    ):
        sglang_router(frozenset({"regular"}))


def test_the_missing_package_is_named_by_the_manager(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("roost.rl.router_worker.PACKAGE", "no_such_router")
    with roost.Cluster(num_nodes=1, inline="1x1") as cluster:
        monkeypatch.setenv("ROOST_JOB", cluster.job)  # this process may be connected to a Ray as well
        pool = cluster.pool(Layout(actor_num_nodes=0, rollout_num_gpus=1))
        with pytest.raises(roost.LaunchError, match=r"pip install 'roost\[router\]'") as caught:
            roost.RolloutManager(pool, ENGINE, router=True)
    assert caught.value.codes == ("RE129",)


def test_the_command_asks_engines_without_a_proxy(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("roost.rl.router_worker.PACKAGE", "json")
    command = sglang_router(frozenset({"prefill", "decode"}))
    assert set(command.env.values()) == {""}
    assert "--pd-disaggregation" in command.argv
    assert "--pd-disaggregation" not in sglang_router(frozenset({"regular"})).argv


@pytest.mark.parametrize("kind", [roost.LaunchError, roost.WorkerError])
def test_engines_come_back_although_their_router_does_not(
    monkeypatch: pytest.MonkeyPatch, kind: type[roost.RoostError]
) -> None:
    """Nothing runs here: the engines are names, and their router fails whatever it is asked."""
    problem = {"what": "the router does not start"}

    def fails(*_: Any) -> None:
        raise roost.LaunchError(code="RE129", **problem)

    def is_being_restarted(*_: Any) -> None:
        raise kind(code="RE129", **problem)

    started: list[int] = []
    group = SimpleNamespace(
        server="default",
        workers=SimpleNamespace(restart_ranks=lambda rank, timeout: started.append(rank)),
        ranks=lambda engine: [engine],
        up=lambda: started,
        forget=lambda _: None,
        endpoint=lambda engine: SimpleNamespace(url=f"engine {engine}", server="default", kind="regular"),
    )
    manager: Any = object.__new__(roost.RolloutManager)
    manager.groups, manager.routers = (
        {"rollout": group},
        {"default": SimpleNamespace(recover=is_being_restarted, route_to=fails)},
    )
    manager._offloaded, manager._timeout, manager._renew = set(), 60.0, None
    monkeypatch.setattr(manager, "health", lambda _: {"rollout": [False, True, False]})
    monkeypatch.setattr(manager, "_bring_up", lambda *_: None)
    with pytest.raises(roost.LaunchError, match="the router does not start") as caught:
        manager.recover()
    assert started == [0, 2]
    assert len(caught.value.findings) == 1  # the same problem is told once
