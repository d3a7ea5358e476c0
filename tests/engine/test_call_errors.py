"""Errors of calls are also what the worker raised, wherever they are caught."""

from __future__ import annotations

import pickle
from typing import Any

import pytest
from crew import HoldsALock, Picky

import roost
from roost.engine.result import Described, as_portable, raised_error

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
