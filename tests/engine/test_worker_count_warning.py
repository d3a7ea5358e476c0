"""Ray's warning about many worker processes is not for users of an embedded cluster."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

import roost

pytestmark = pytest.mark.ray


def say(line: str, source: str = "raylet") -> None:
    """As Ray's thread that listens for errors does."""
    from ray._private import worker

    worker.print_to_stdstream({"lines": [line], "pid": source, "is_err": False}, ignore_prefix=False)


def test_it_is_hidden_while_connected(
    clusters: Callable[..., roost.Cluster], capsys: pytest.CaptureFixture[str]
) -> None:
    from roost.engine.connection.ray_connection import WARNING

    with clusters(num_nodes=1):
        say(f"WARNING: 16 PYTHON {WARNING}: hidden")
        say("another warning of the first cluster")
        say(f"{WARNING}, says a worker", source="4711")
    said = capsys.readouterr().out
    assert "hidden" not in said
    assert "another warning of the first cluster" in said
    assert "says a worker" in said


@pytest.mark.parametrize("labels", [{}, {"roost-index": "0"}])
def test_it_is_shown_by_other_clusters_and_afterwards(
    labels: dict[str, str], monkeypatch: pytest.MonkeyPatch
) -> None:
    import ray
    from ray._private import worker

    from roost.engine.connection.ray_connection import WARNING, hide_if_embedded

    shown: list[str] = []
    monkeypatch.setattr(worker, "print_to_stdstream", lambda data, **_: shown.extend(data["lines"]))
    monkeypatch.setattr(ray, "nodes", lambda: [{"Labels": labels}])
    undo = hide_if_embedded()
    say(f"while connected: {WARNING}")
    undo()
    say(f"afterwards: {WARNING}")
    assert len(shown) == (1 if labels else 2)
    assert shown[-1].startswith("afterwards")


def test_for_a_command_everything_goes_to_stderr_plain_and_unmerged(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    from roost.engine.connection.ray_connection import prints_on_stderr

    monkeypatch.delenv("RAY_DEDUP_LOGS", raising=False)
    monkeypatch.setenv("RAY_COLOR_PREFIX", "1")
    with prints_on_stderr(colour=False):
        for source in ("4711", "4712", "raylet"):
            say("the same of each", source)
    said = capsys.readouterr()
    assert said.out == ""
    assert said.err.splitlines() == [
        "(pid=4711) the same of each",
        "(pid=4712) the same of each",
        "(raylet) the same of each",
    ]
    say("afterwards")
    assert "afterwards" in capsys.readouterr().out


def test_this_ray_says_it_in_these_words_and_this_way() -> None:
    import ray
    from ray._private import worker

    from roost.engine.connection.ray_connection import WARNING

    assert WARNING.encode() in (Path(ray.__file__).parent / "core/src/ray/raylet/raylet").read_bytes()
    assert "print_to_stdstream" in worker.listen_error_messages.__code__.co_names
