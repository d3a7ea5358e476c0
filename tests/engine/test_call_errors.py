"""Errors of calls are also what the worker raised, wherever they are caught."""

from __future__ import annotations

import pickle
from typing import Any

import pytest
from crew import FailsToStart, HoldsALock, Picky, Reporter

import roost
from roost.engine.workers.remote_errors import Described, as_portable, in_one_line, raised_error

FINDING = roost.Finding(code="RE110", what="actor rank 1 (node 0) raised in step: it broke")


def raised(cause: BaseException | None) -> Any:
    return raised_error(FINDING, cause, "actor", 1, "Traceback: the remote one")


CAUSES = [
    ValueError("bad"),
    KeyError("missing"),
    OSError(28, "No space left"),
    FileNotFoundError(2, "not there", "/a/file"),
    UnicodeDecodeError("utf-8", b"\xff", 0, 1, "bad byte"),
    StopIteration(3),
    Picky(7, text="picky"),
    roost.ConfigurationError(FINDING),
    roost.WorkerDied(FINDING),
]


@pytest.mark.parametrize("cause", CAUSES, ids=lambda cause: type(cause).__name__)
def test_the_error_is_of_both_types_and_survives_pickling(cause: Exception) -> None:
    error = raised(cause)
    for one in (error, pickle.loads(pickle.dumps(error))):
        assert isinstance(one, type(cause))
        assert isinstance(one, roost.WorkerRaised)
        assert (one.group, one.rank, one.codes) == ("actor", 1, ("RE110",))
        assert type(one.__cause__) is type(cause)
        assert str(one) == str(error)
    assert "actor rank 1 (node 0) raised in step" in str(error)
    assert "Traceback: the remote one" in str(error)


TWO = roost.ConfigurationError(
    roost.Finding(code="RC104", what="the port is too large", why="it is 70000", remedy="use a smaller one"),
    roost.Finding(code="RC101", what="unknown key 'prot'"),
)


@pytest.mark.parametrize(
    ("cause", "says"),
    [
        (TWO, "ConfigurationError: the port is too large (it is 70000); unknown key 'prot'"),
        (ValueError("two\n  lines\n\n"), "ValueError: two lines"),
        (KeyError("a\nb"), "KeyError: 'a\\nb'"),
        (ValueError(), "ValueError: "),
        (roost.RoostError(), "RoostError: "),
        (roost.RoostError("a text\nin two lines"), "RoostError: a text in two lines"),  # type: ignore[arg-type]
    ],
)
def test_an_exception_in_one_line(cause: Exception, says: str) -> None:
    assert in_one_line(cause) == says


@pytest.mark.parametrize("cause", [TWO, ValueError("two\nlines")])
def test_a_message_has_no_lines_of_another_in_it(cause: Exception) -> None:
    """Newlines inside would be shown as characters that cannot be printed."""
    with roost.Cluster(num_nodes=1, inline="1x1") as inline:
        group = Reporter.create_group("").launch(inline, name="calls")
        with pytest.raises(roost.WorkerRaised) as caught:
            group.raises(cause, 0).wait()
        with pytest.raises(roost.LaunchError) as refused:
            FailsToStart.create_group(0, lambda: cause).launch(inline, name="starts")
    said = in_one_line(cause)
    assert f"raised in raises: {said}\n\nremote traceback:" in str(caught.value)
    assert refused.value.findings[0].why == said
    for error in (caught.value, refused.value):
        assert "\N{REPLACEMENT CHARACTER}" not in str(error)
    assert "Traceback (most recent call last)" in caught.value.remote_traceback  # type: ignore[attr-defined]


def test_what_the_exception_knows_can_be_asked() -> None:
    assert raised(Picky(7, text="x")).code == 7
    assert raised(OSError(28, "No space left")).errno == 28
    assert raised(FileNotFoundError(2, "not there", "/a/file")).filename == "/a/file"


@pytest.mark.parametrize(
    "cause",
    [
        None,
        SystemExit(3),
    ],
)
def test_without_a_type_to_share_it_is_still_a_raising_worker(cause: BaseException | None) -> None:
    error = raised(cause)
    assert isinstance(error, roost.WorkerRaised)
    assert error.__cause__ is cause


def test_what_can_travel_travels_as_it_is() -> None:
    error = ValueError("plain")
    assert as_portable(error) is error


@pytest.mark.parametrize("error", [Picky(7, text="no copy"), HoldsALock()], ids=["Picky", "HoldsALock"])
def test_what_cannot_travel_is_described_and_built_again(error: Exception) -> None:
    carried = as_portable(error)
    assert isinstance(carried, Described)
    copy = pickle.loads(pickle.dumps(carried))
    assert str(copy) == str(error)
    built = copy.rebuilt()
    assert type(built) is type(error)
    assert built.args == error.args
    assert getattr(built, "code", None) == getattr(error, "code", None)


@pytest.mark.parametrize(
    "kind", [roost.WorkerDied, roost.CallTimeout, roost.LaunchError, roost.ReservationError]
)
def test_the_other_errors_survive_pickling(kind: type[roost.RoostError]) -> None:
    error: Any = kind(FINDING)
    error.group, error.rank = "actor", 1
    copy = pickle.loads(pickle.dumps(error))
    assert type(copy) is kind
    assert (copy.group, copy.rank, copy.findings) == ("actor", 1, (FINDING,))
