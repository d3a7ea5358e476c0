"""The process that keeps a router running, and how a manager asks it, without a Ray."""

from __future__ import annotations

import json
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from types import SimpleNamespace
from typing import Any

import pytest
from engines import LIST_ROUTER
from running import eventually

import roost
from roost.rl.addresses import Address
from roost.rl.engine_group import Endpoint
from roost.rl.router_list import RouterList
from roost.rl.router_worker import RouterWorker
from roost.rl.routers import Router
from roost.views.process_text import _SYSTEM_THREADS

ENGINE = Endpoint(url="http://127.0.0.1:1", server="default", kind="regular", host="127.0.0.1", port=1)


def router_of(start_within: float, **workers: Any) -> Router:
    lease: Any = SimpleNamespace(host="127.0.0.1", ports=(1,))
    group: Any = SimpleNamespace(**workers)
    return Router("default", lease, group, start_within)


@pytest.mark.parametrize(
    ("start_within", "left", "least", "most"),
    [(60, 600, 90, 96), (600, 600, 620, 636), (600, 100, 125, 136), (600, 0, 60, 66), (5, 0, 5, 11)],
)
def test_a_router_that_is_being_started_has_the_time_that_it_may_take(
    start_within: float, left: float, least: float, most: float
) -> None:
    waited: list[float] = []

    def wait(timeout: float) -> list[dict[str, str]]:
        waited.append(timeout)
        return [{}]

    router = router_of(start_within, route_to=lambda *_: SimpleNamespace(wait=wait))
    router.route_to([], time.monotonic() + left)
    assert least < waited[0] <= most


@pytest.fixture
def worker() -> Iterator[RouterWorker]:
    port = ThreadingHTTPServer(("127.0.0.1", 0), BaseHTTPRequestHandler)
    address = Address("127.0.0.1", port.server_address[1])
    port.server_close()
    command = roost.CommandLine(LIST_ROUTER, start_within=60)
    made = RouterWorker(command, frozenset({"regular"}), address, 1, "default")
    yield made
    made.stop()


def test_a_router_that_its_watcher_has_started_is_not_replaced(worker: RouterWorker) -> None:
    worker.start()
    first = worker.pid()
    worker.restart()
    assert worker.pid() == first
    assert worker._process is not None
    worker._process.stop(grace=0.0)
    eventually(worker.healthy, 60, "the watcher has started the router again")
    assert worker.pid() != first


def test_the_thread_of_a_router_is_not_taken_for_code_of_the_job(worker: RouterWorker) -> None:
    assert worker._watcher.name.startswith(_SYSTEM_THREADS)


class Listing(BaseHTTPRequestHandler):
    """A router that lists what it is told to."""

    answer: dict[str, Any]

    def do_GET(self) -> None:
        self.send_response(200)
        self.end_headers()
        self.wfile.write(json.dumps(self.answer).encode())

    do_POST = do_GET

    def log_message(self, *args: object) -> None:
        pass


@contextmanager
def listing(answer: dict[str, Any]) -> Iterator[str]:
    """The URL of a server that answers everything so."""
    server = ThreadingHTTPServer(("127.0.0.1", 0), type("Answering", (Listing,), {"answer": answer}))
    threading.Thread(target=server.serve_forever, daemon=True).start()
    yield f"http://127.0.0.1:{server.server_address[1]}"
    server.shutdown()
    server.server_close()


@pytest.mark.parametrize("entry", [{"url": "http://127.0.0.1:2"}, {"id": "1"}, "http://127.0.0.1:2", 3])
def test_a_router_that_lists_engines_in_another_form_is_told_what_to_answer(entry: Any) -> None:
    with listing({"workers": [entry]}) as url, pytest.raises(roost.LaunchError) as caught:
        RouterList(url).bring_to([], 5)
    assert "not a list of engines, each with `url` and `id`" in str(caught.value)
    assert caught.value.codes == ("RE129",)


def test_a_router_may_say_in_other_words_how_an_engine_fares() -> None:
    with listing({"workers": [], "job_status": "pending"}) as url:
        assert "is not listed after" in RouterList(url).bring_to([ENGINE], 0)[ENGINE.url]


def test_engines_have_time_to_stop_after_a_slow_router() -> None:
    """Nothing runs here: the router takes all the time that it is given to stop."""
    waited: dict[str, float] = {}

    def stopping(name: str) -> Any:
        def wait(timeout: float) -> list[None]:
            waited[name] = timeout
            return [None]

        result = SimpleNamespace(wait=wait)
        return SimpleNamespace(is_running=True, stop=lambda: result, shutdown=lambda: ended.append(name))

    ended: list[str] = []
    manager: Any = object.__new__(roost.RolloutManager)
    manager.groups = {"rollout": SimpleNamespace(workers=stopping("engine"))}
    router = SimpleNamespace(workers=stopping("router"), end=lambda: ended.append("router"))
    manager.routers = {"default": router}
    manager.shutdown(grace=100.0)
    assert ended == ["router", "engine"]
    assert 40 < waited["router"] <= 50 < waited["engine"] <= 100
    assert (manager.routers, manager.groups) == ({}, {})
