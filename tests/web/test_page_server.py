"""The server of the live page: who may see it, what it sends, and metrics. The jobs are made up."""

from __future__ import annotations

import http.client
import json
import threading
from collections.abc import Iterator
from dataclasses import dataclass, field, replace

import pytest
import uvicorn
from browser import Browser
from running import eventually
from running_jobs import ended_job, running_job

import roost
from roost.cli import live_page
from roost.engine.job_snapshot import JobSnapshot
from roost.errors import ClusterGone, RoostError
from roost.web.live_jobs import EVERY, LiveJobs
from roost.web.page_access import PageAccess
from roost.web.page_server import PageServer, ServerOfPages, listening_socket


@dataclass
class Jobs:
    """What the server reads."""

    found: list[JobSnapshot] = field(default_factory=lambda: [running_job(1), ended_job()])
    problem: RoostError | None = None
    now: float = 0.0
    reads: int = 0

    def read(self) -> list[JobSnapshot]:
        self.reads += 1
        if self.problem is not None:
            raise self.problem
        return self.found

    def later(self, *found: JobSnapshot) -> None:
        self.found, self.now = list(found), self.now + EVERY


@dataclass
class Served:
    jobs: Jobs
    access: PageAccess
    port: int

    def get(self, path: str, token: str | None = None, **headers: str) -> http.client.HTTPResponse:
        given = {} if token is None else {"Authorization": f"Bearer {token}"}
        asked = http.client.HTTPConnection("127.0.0.1", self.port, timeout=60)
        asked.request("GET", path, headers={**given, **headers})
        return asked.getresponse()

    def page(self, path: str) -> str:
        answer = self.get(path, self.access.token)
        assert answer.status == 200
        return answer.read().decode()

    def events(self, path: str) -> Iterator[dict[str, str]]:
        """What a page is sent."""
        answer = self.get(path, self.access.token)
        assert answer.getheader("content-type", "").startswith("text/event-stream")
        while line := answer.readline():
            if line.startswith(b"data: "):
                yield json.loads(line.removeprefix(b"data: "))


@pytest.fixture
def served(capfd: pytest.CaptureFixture[str]) -> Iterator[Served]:
    jobs, access = Jobs(), PageAccess()
    pages = PageServer(LiveJobs(jobs.read, clock=lambda: jobs.now), access)
    listening = listening_socket("127.0.0.1", 0)
    server = ServerOfPages(
        uvicorn.Config(pages.app(), log_level="error", access_log=False, lifespan="off"), pages
    )
    thread = threading.Thread(target=server.run, kwargs={"sockets": [listening]})
    thread.start()
    yield Served(jobs, access, listening.getsockname()[1])
    pages.close()
    server.should_exit = True
    thread.join(60)
    assert not thread.is_alive()
    assert access.token not in "".join(capfd.readouterr())  # it is logged nowhere
    assert access.token not in repr(access)


def test_only_the_token_opens_pages(served: Served) -> None:
    for path in ("/", "/job/night-run", "/events", "/events/night-run", "/metrics", "/?token=wrong"):
        for token in (None, "", "wrong", served.access.token + "x"):
            refused = served.get(path, token)
            assert refused.status == 403, (path, token)
            assert b"night-run" not in refused.read()
    assert served.jobs.reads == 0
    assert served.get("/nothing").status == 404

    moved = served.get(f"/?token={served.access.token}")
    assert (moved.status, moved.getheader("location")) == (303, "/")  # so that it leaves the address bar
    cookie, *attributes = (moved.getheader("set-cookie") or "").split("; ")
    assert {"HttpOnly", "SameSite=strict"} <= set(attributes)
    assert cookie.startswith(f"roost-{served.port}=")
    assert served.get("/", Cookie=cookie).status == 200
    assert served.get("/", Cookie=f"roost-{served.port}=wrong").status == 403
    headers = served.get("/", served.access.token).headers
    assert (headers["cache-control"], headers["referrer-policy"]) == ("no-store", "no-referrer")


def test_pages_and_metrics(served: Served) -> None:
    assert '<a href="/job/night-run">' in served.page("/")
    page = served.page("/job/night-run")
    assert 'data-events="/events/night-run"' in page
    assert "is-busy" in page
    assert served.get("/job/other", served.access.token).status == 404
    answer = served.get("/metrics", served.access.token)
    assert answer.getheader("content-type") == "text/plain; version=0.0.4; charset=utf-8"
    assert b'\nroost_processes{job="night-run",component="actor",state="busy"} 3\n' in answer.read()
    assert served.jobs.reads == 1  # for all who asked meanwhile


def test_a_page_is_sent_what_changes(served: Served) -> None:
    sent, all_jobs = served.events("/events/night-run"), served.events("/events")
    first = next(sent)
    assert {"head", "map", "processes", "connection"} <= first.keys()
    assert "night-run" in next(all_jobs)["jobs"]
    served.jobs.later(running_job(1, faults=True))
    changed = next(sent)
    assert "is-dead" in changed["map"]
    assert "nodes" not in changed  # they are as before
    served.jobs.problem = ClusterGone(code="RE128", what="the Ray cluster is gone")
    served.jobs.later()
    assert next(sent) == {"connection": "the Ray cluster is gone"}  # and the last look stays
    assert "is-dead" in served.page("/job/night-run")


@pytest.mark.browser
def test_a_search_goes_on_when_processes_move(served: Served) -> None:
    """The job has two plans, and the actor of one moves to the other node."""
    first, second = (
        roost.plan({"cluster": {"num_nodes": 2, "component_placement": {"actor": place}}}, "2x1")
        for place in ("0", "1")
    )
    judging = roost.plan({"cluster": {"num_nodes": 2, "component_placement": {"judge": "0"}}}, "2x1")
    job = replace(running_job(1), processes=(), plans=(first, judging))
    served.jobs.found = [job]
    browser = Browser()
    try:
        browser.open(f"http://127.0.0.1:{served.port}/job/night-run?token={served.access.token}")
        found = "document.getElementById('found').innerText"
        lit = "[...document.querySelectorAll('#map .band.hit')].map(band => band.textContent).join()"
        search = "document.getElementById('search')"
        for words, said, label in (
            ("actor:0", "actor:0 is on node 0, accelerator 0", "A0"),
            ("judge:0", "judge:0 is on node 0, accelerator 0", "J0"),
            ("actor:0", "actor:0 is on node 0, accelerator 0", "A0"),
        ):
            browser.value(f"{search}.value = '{words}'; {search}.dispatchEvent(new Event('input'))")
            assert (browser.value(found), browser.value(lit)) == (said, label)
        served.jobs.later(replace(job, plans=(second, judging)))
        said = "actor:0 is on node 1, accelerator 0"
        eventually(lambda: browser.value(found) == said, 60, "the new place of the actor")
        assert browser.value(lit) == "A0"
        assert browser.errors == []
    finally:
        browser.close()


def test_a_job_that_is_not_there_has_no_parts() -> None:
    jobs = Jobs()
    live = LiveJobs(jobs.read, clock=lambda: jobs.now)
    assert live.parts("other") == {"connection": ""}
    assert [one.job for one in live.jobs()] == ["night-run", "yesterday"]


def test_what_is_missing_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    live_page.check_web()
    monkeypatch.setattr(live_page, "find_spec", lambda name: None if name == "uvicorn" else name)
    with pytest.raises(RoostError) as caught:
        live_page.check_web()
    assert caught.value.findings[0].remedy == "pip install 'roost[web]'"
    assert caught.value.findings[0].why == "missing: uvicorn"


def test_a_port_that_is_taken_is_named() -> None:
    with listening_socket("127.0.0.1", 0) as other, pytest.raises(RoostError, match="RE140") as caught:
        live_page.serve_jobs(lambda: [], None, "127.0.0.1", other.getsockname()[1], False)
    assert "cannot be served" in caught.value.findings[0].what
