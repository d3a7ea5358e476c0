"""What is checked of a Ray before anything is asked of it."""

from __future__ import annotations

import logging
import os
import socket
import sys
import threading
import time
from pathlib import Path

import pytest
import ray
from ray._private.auto_init_hook import auto_init_ray

import roost
from roost.engine.connection import cluster_watch, discovery
from roost.engine.connection.embedded import own_cluster_address
from roost.engine.connection.ray_connection import _shape, check_version, warn_if_open
from roost.engine.job import open_jobs
from roost.errors import NoAnswer


@pytest.mark.parametrize("version", ["2.49.0", "2.60.0", "3.0.0", "2.100.1", "3.0.0.dev0", "2.49.0rc1"])
def test_a_ray_that_is_new_enough(version: str) -> None:
    check_version(version)


@pytest.mark.parametrize("version", ["2.48.9", "2.9.0", "1.13.0", "0.8.7"])
def test_a_ray_that_is_too_old(version: str) -> None:
    with pytest.raises(roost.ClusterError, match="too old") as caught:
        check_version(version)
    assert caught.value.codes == ("RE102",)
    assert "2.49" in str(caught.value)


@pytest.mark.parametrize(
    ("address", "mode", "warned"),
    [
        ("10.0.0.1:6379", None, True),
        ("10.0.0.1:6379", "disabled", True),
        ("[fd00::1]:6379", None, True),
        ("head.example:6379", None, True),
        ("10.0.0.1:6379", "token", False),
        ("10.0.0.1:6379", "TOKEN", False),
        ("127.0.0.1:6379", None, False),
        ("127.0.0.2:6379", "disabled", False),
        ("[::1]:6379", None, False),
        ("localhost:6379", None, False),
    ],
)
def test_an_open_cluster_on_the_network_is_warned_of(
    address: str,
    mode: str | None,
    warned: bool,
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
) -> None:
    if mode is None:
        monkeypatch.delenv("RAY_AUTH_MODE", raising=False)
    else:
        monkeypatch.setenv("RAY_AUTH_MODE", mode)
    with caplog.at_level(logging.WARNING):
        warn_if_open(address)
    assert ("RW201" in caplog.text) is warned
    assert ("RAY_AUTH_MODE=token" in caplog.text) is warned


def test_only_a_running_ray_of_this_user_is_joined(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Pitfall: attaching to whatever Ray is on the machine: jobs join another user's cluster."""
    monkeypatch.setenv("RAY_TMPDIR", str(tmp_path))
    assert own_cluster_address() is None  # none was ever started
    note = tmp_path / "ray" / "ray_current_cluster"
    note.parent.mkdir()
    with socket.create_server(("127.0.0.1", 0)) as server:
        address = f"127.0.0.1:{server.getsockname()[1]}"
        note.write_text(address)
        assert own_cluster_address() == address
        user = os.getuid()
        monkeypatch.setattr(os, "getuid", lambda: user + 1)
        assert own_cluster_address() is None  # somebody else's
        monkeypatch.setattr(os, "getuid", lambda: user)
    assert own_cluster_address() is None  # it has ended
    note.write_text("")
    assert own_cluster_address() is None


@pytest.mark.parametrize(
    ("shape", "words"),
    [
        ("2x4", "2 nodes x 4 accelerators"),
        ("1x1", "1 node x 1 accelerator"),
        ("3x0", "3 nodes x 0 accelerators"),
        ("1x8,1x0", "2 nodes, 8 accelerators"),
    ],
)
def test_the_shape_of_an_embedded_cluster_in_words(shape: str, words: str) -> None:
    assert _shape(roost.Inventory.parse(shape)) == words


def test_a_question_to_the_head_that_is_interrupted_has_ended_when_the_program_goes_on(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """The program disconnects next, and Ray would end a process in which a thread asks it something after that."""
    go, ended = threading.Event(), threading.Event()

    def question() -> None:
        assert go.wait(60)
        time.sleep(0.1)  # the head takes its time
        ended.set()

    def interrupted(*_: object) -> None:
        go.set()
        raise KeyboardInterrupt

    monkeypatch.setattr(cluster_watch, "_watched", "127.0.0.2:1")
    monkeypatch.setattr(cluster_watch, "_answer_of_head", interrupted)
    with pytest.raises(KeyboardInterrupt):
        cluster_watch.ask_head(question)
    assert ended.is_set()


def test_a_head_that_never_answers_is_waited_for_only_so_long(monkeypatch: pytest.MonkeyPatch) -> None:
    """It is stopped. No question may wait longer, also when so many are open that no other one is asked."""
    goes_on = threading.Event()
    monkeypatch.setattr(cluster_watch, "_watched", "127.0.0.2:1")
    monkeypatch.setattr(cluster_watch, "_questions", threading.BoundedSemaphore(2))
    monkeypatch.setattr(sys, "excepthook", cluster_watch.ray_worker.custom_excepthook)
    monkeypatch.setattr(ray, "nodes", goes_on.wait)
    for _ in range(3):
        with pytest.raises(NoAnswer, match=r"127.0.0.2:1 has not answered in 0.01 s") as silent:
            cluster_watch.ask_head(ray.nodes, 0.01)
        assert silent.value.codes == ("RE112",)
    assert sys.excepthook is cluster_watch.ray_worker.normal_excepthook  # Ray's other one asks the head
    goes_on.set()
    assert cluster_watch.ask_head(lambda: "an answer", 60) == "an answer"
    for thread in threading.enumerate():
        if thread.name == "roost-question":
            thread.join(60)


def test_nodes_are_waited_for_as_long_as_the_program_says(monkeypatch: pytest.MonkeyPatch) -> None:
    allowed: list[float] = []

    def silent(_: object, within: float) -> None:
        allowed.append(within)
        raise NoAnswer(code="RE112", what="no answer")

    monkeypatch.setattr(discovery, "ask_head", silent)
    with pytest.raises(NoAnswer):
        discovery.wait_for_nodes(1, "127.0.0.2:1", 7)
    assert 6 < allowed[0] <= 7


def test_a_taken_down_job_is_not_asked_about_for_ever(monkeypatch: pytest.MonkeyPatch) -> None:
    """The caller has another error to tell, and a head that does not answer must not hide it."""

    def silent(_: object, within: float) -> None:
        raise NoAnswer(code="RE112", what="no answer")

    monkeypatch.setattr(open_jobs, "ask_head", silent)
    monkeypatch.setattr(open_jobs, "_runs", {"job": "run"})
    assert open_jobs.order_against("job") is None


class Hooks:
    """Ray's hooks for errors that end a program. Notes whether waits raised the error when one was replaced."""

    def __init__(self) -> None:
        self.raised: list[bool] = []

    def custom_excepthook(self, *_: object) -> None:
        """Asks the head, which is gone."""

    @property
    def normal_excepthook(self) -> object:
        self.raised.append(cluster_watch.cluster_is_gone())
        return sys.__excepthook__


def test_rays_hook_is_replaced_before_a_wait_raises_that_the_cluster_is_gone(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """The program may end with that error at once, and Ray's hook would wait a minute for the head."""
    hooks, known = Hooks(), threading.Event()
    known.set()
    monkeypatch.setattr(cluster_watch, "ray_worker", hooks)
    monkeypatch.setattr(cluster_watch, "_main_knows", known)
    monkeypatch.setattr(cluster_watch, "_gone", None)
    hook = hooks.custom_excepthook
    monkeypatch.setattr(hooks, "custom_excepthook", hook, raising=False)  # the same object each time
    monkeypatch.setattr(sys, "excepthook", hook)
    cluster_watch._cluster_lost("127.0.0.2:1", "its head is silent", threading.Event())
    assert cluster_watch.cluster_is_gone()
    assert sys.excepthook is sys.__excepthook__
    assert hooks.raised == [False]


@pytest.mark.parametrize(("name", "starts"), [("roost-watch", False), ("program", True)])
def test_no_thread_of_roost_starts_a_ray(name: str, starts: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    """As one that asks something while the program disconnects."""
    asked: list[str] = []
    monkeypatch.setattr(ray, "is_initialized", lambda: False)
    monkeypatch.setattr(ray, "init", lambda: asked.append(name))
    thread = threading.Thread(target=auto_init_ray, name=name)
    thread.start()
    thread.join()
    assert asked == [name] * starts
