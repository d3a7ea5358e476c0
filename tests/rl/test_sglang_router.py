"""Engines of our own behind the real sglang-router, on a real Ray. `make test-router` installs it."""

from __future__ import annotations

import json
import os
import signal
import threading
from collections.abc import Callable, Iterator
from http.client import HTTPConnection
from pathlib import Path
from typing import Any

import pytest
from engines import COMMAND
from routed_requests import Answer, ask, ask_many, prompt
from running import alive, eventually, module_path

import roost
from roost import CommandLine, EngineGroup, Layout, Server

pytestmark = [pytest.mark.router, pytest.mark.ray]
ENGINE = CommandLine(COMMAND, start_within=60)
REQUESTS = int(os.environ.get("ROOST_ROUTER_REQUESTS", "300"))


@pytest.fixture(scope="module")
def routed(cluster: roost.Cluster) -> Iterator[roost.RolloutManager]:
    with (
        cluster.pool(Layout(actor_num_nodes=0, rollout_num_gpus=3)) as pool,
        roost.RolloutManager(pool, ENGINE, router=True, timeout=120) as rollout,
    ):
        yield rollout


def pids(rollout: roost.RolloutManager) -> list[int]:
    workers = rollout.groups["rollout"].workers
    assert workers is not None
    return workers.pid().wait(60)


def test_no_request_is_lost_when_engines_die_and_hang(routed: roost.RolloutManager) -> None:
    url, before = routed.router.url, pids(routed)
    assert sorted(one.url for one in routed.router.engines()) == sorted(one.url for one in routed.endpoints())
    under_way, answers = threading.Event(), list[Answer]()

    def progress(done: int) -> None:
        if done == REQUESTS // 3:
            under_way.set()

    def send() -> None:
        answers.extend(ask_many(url, requests=REQUESTS, progress=progress))

    sending = threading.Thread(target=send)
    sending.start()
    assert under_way.wait(120)
    os.kill(before[0], signal.SIGKILL)
    os.kill(before[1], signal.SIGSTOP)
    assert {one.engine for one in routed.recover()} == {0, 1}
    sending.join(180)
    assert not sending.is_alive()
    # Each client has its own answer or an error. What a dead or hanging engine had taken went to another one.
    assert [one.number for one in answers] == list(range(REQUESTS))
    assert all(one.text == prompt(one.number) for one in answers if one.error is None)
    assert [one.error for one in answers if one.error] == []
    assert {one.pid for one in answers} >= set(before)
    new = pids(routed)
    assert len({*before, *new}) == 5
    seen = set[int]()

    def all_seen() -> bool:
        seen.update(one.pid for one in ask_many(url, requests=64))
        return seen >= set(new)

    eventually(all_seen, 60, "the restarted engines are asked")


def test_a_streamed_answer_arrives_chunk_by_chunk(routed: roost.RolloutManager) -> None:
    router = routed.router
    connection = HTTPConnection(router.host, router.port, timeout=60)
    connection.request(
        "POST",
        "/generate",
        json.dumps({"text": "hello", "stream": True}),
        {"content-type": "application/json"},
    )
    answer = connection.getresponse()
    assert json.loads(answer.readline().removeprefix(b"data: ")) == {"text": "hello", "number": 0}
    for one in routed.endpoints():  # the second chunk is only sent after this
        Answer.of(one.url, "/release", {})
    rest = answer.read().strip()
    assert json.loads(rest.removeprefix(b"data: ")) == {"text": "hello", "number": 1}
    connection.close()


def test_without_engines_clients_are_told_so(routed: roost.RolloutManager) -> None:
    routed.offload()
    assert routed.router.engines() == []
    refused = ask(routed.router.url, 0)
    assert "503" in (refused.error or "")
    assert "No available workers" in (refused.error or "")
    routed.onload()
    assert ask(routed.router.url, 1).error is None


def test_prefill_and_decode_engines_are_told_of_each_other(cluster: roost.Cluster) -> None:
    parts = tuple(EngineGroup(kind=kind, num_gpus=1, gpus_per_engine=1) for kind in ("prefill", "decode"))
    layout = Layout(actor_num_nodes=0, servers=(Server(groups=parts),))
    with (
        cluster.pool(layout) as pool,
        roost.RolloutManager(pool, ENGINE, router=True, timeout=120, name="split") as rollout,
    ):
        prefill = next(one for one in rollout.endpoints() if one.kind == "prefill")
        answer = ask(rollout.router.url, 7)
        assert answer.asked["bootstrap_port"] == prefill.bootstrap_port
        assert answer.asked["bootstrap_host"] == prefill.host
        pid = rollout.router.workers.pid().wait(60)[0]
        assert alive(pid)
    eventually(lambda: not alive(pid), 10, "the router ends with its manager")


def test_an_engine_without_http_does_not_join(cluster: roost.Cluster) -> None:
    class Silent(roost.Engine):
        pass

    with cluster.pool(Layout(actor_num_nodes=0, rollout_num_gpus=1)) as pool:
        message = r"(?s)did not join the router of server 'default'.*health check"
        with pytest.raises(roost.LaunchError, match=message):
            roost.RolloutManager(pool, Silent, router=True, timeout=120, name="silent")


def test_the_router_ends_with_a_killed_driver(run: Callable[..., Any]) -> None:
    path = os.pathsep.join([module_path(), str(Path(__file__).parent)])
    program = run("serving", "real", env={"PYTHONPATH": path})
    pid = program.answer(120)["router"]
    assert alive(pid)
    program.signal(signal.SIGKILL)
    eventually(lambda: not alive(pid), 5, "the router is gone")
