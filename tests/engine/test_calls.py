"""Calling a group like one object."""

from __future__ import annotations

import asyncio
import pickle
import sys
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
import ray
from crew import Overlapping, Picky, Reporter, Unusual
from running import alive, eventually

import roost
from roost.engine.ray_backend import ray_result, ray_workers

pytestmark = pytest.mark.ray


@pytest.fixture(scope="module")
def group(cluster: roost.Cluster) -> Iterator[roost.WorkerGroup]:
    strategy = roost.FlexiblePlacementStrategy([[0, 1], [2], [5], [9]])
    with Reporter.create_group().launch(cluster, placement_strategy=strategy, name="called") as made:
        yield made


def test_results_come_in_rank_order(group: roost.WorkerGroup) -> None:
    assert group.echo("x").wait(timeout=60) == [(rank, "x") for rank in range(4)]


def test_execute_on_and_slices_call_only_these_ranks(group: roost.WorkerGroup) -> None:
    assert group.execute_on(0, 3).echo(1).wait(timeout=60) == [(0, 1), (3, 1)]
    assert group[1:3].echo(1).wait(timeout=60) == [(1, 1), (2, 1)]
    assert group[-1].echo(1).wait(timeout=60) == [(3, 1)]
    assert group[::2][1].echo(1).wait(timeout=60) == [(2, 1)]
    assert (len(group), len(group[1:3])) == (4, 2)


@pytest.mark.parametrize("ranks", [(4,), (-1,), (0, 0), (), ("0",), (0, 99)])
def test_a_bad_rank_does_not_poison_the_next_call(group: roost.WorkerGroup, ranks: tuple[Any, ...]) -> None:
    """Pitfall: execute_on keeps state on the group."""
    view = group.execute_on(1)
    with pytest.raises(roost.WorkerError, match="its ranks are 0-3") as caught:
        group.execute_on(*ranks)
    assert caught.value.codes == ("RE113",)
    assert [rank for rank, _ in group.echo(0).wait(timeout=60)] == [0, 1, 2, 3]
    assert [rank for rank, _ in view.echo(0).wait(timeout=60)] == [1]
    assert [rank for rank, _ in group.echo(0).wait(timeout=60)] == [0, 1, 2, 3]


def test_scatter_gives_each_rank_its_own(group: roost.WorkerGroup) -> None:
    assert group.echo(roost.scatter("abcd")).wait(timeout=60) == list(enumerate("abcd"))
    assert group.execute_on(3, 1).echo(value=roost.scatter([10, 30])).wait(timeout=60) == [(1, 10), (3, 30)]
    with pytest.raises(roost.WorkerError, match="scatter has 3 values for 4 ranks"):
        group.echo(roost.scatter([1, 2, 3]))


def test_an_unknown_method_is_refused_with_the_nearest(group: roost.WorkerGroup) -> None:
    with pytest.raises(AttributeError, match="no method 'ecko'; did you mean 'echo'"):
        group.ecko(1)
    with pytest.raises(AttributeError, match="'echo'"):
        group.execute_on(1).ecko(1)


def test_arguments_for_a_method_that_takes_none_are_refused(group: roost.WorkerGroup) -> None:
    with pytest.raises(roost.WorkerError, match="too many positional arguments") as caught:
        group.pid(3)
    assert caught.value.codes == ("RE113",)
    assert "called.pid" in str(caught.value)


def test_time_runs_out_and_the_same_result_can_be_waited_for_again(
    group: roost.WorkerGroup, tmp_path: Path
) -> None:
    gate = tmp_path / "gate"
    result = group.execute_on(1, 2).waits_for(str(gate))
    with pytest.raises(roost.CallTimeout) as caught:
        result.wait(timeout=0.05)
    assert isinstance(caught.value, TimeoutError)
    assert "called rank 1 (node 0" in str(caught.value)
    assert "2 of 2 ranks have not answered" in str(caught.value)
    with pytest.raises(roost.CallTimeout):
        list(result.as_completed(timeout=0.05))
    assert not result.done
    assert repr(result) == "<called.waits_for on 2 ranks>"
    assert [rank for rank, _ in group.execute_on(0, 3).echo(0).wait(timeout=60)] == [0, 3]
    gate.touch()
    assert result.wait(timeout=60) == [1, 2]
    assert result.wait(timeout=60) == [1, 2]
    assert result.done


def test_results_as_they_complete(group: roost.WorkerGroup, tmp_path: Path) -> None:
    gates = [tmp_path / str(rank) for rank in range(4)]
    result = group.waits_for(roost.scatter([str(gate) for gate in gates]))
    came = []
    for index in (2, 0, 3, 1):
        gates[index].touch()
        if not came:
            stream = result.as_completed(timeout=60)
        came.append(next(stream))
    assert came == [(2, 2), (0, 0), (3, 3), (1, 1)]
    assert next(stream, None) is None


def test_a_result_can_be_awaited(group: roost.WorkerGroup) -> None:
    async def both() -> list[Any]:
        return list(await asyncio.gather(group.echo("a"), group[:2].echo("b")))

    first, second = asyncio.run(both())
    assert first == [(rank, "a") for rank in range(4)]
    assert second == [(0, "b"), (1, "b")]


def test_durations_per_rank(group: roost.WorkerGroup, tmp_path: Path) -> None:
    gate = tmp_path / "gate"
    result = group.waits_for(roost.scatter([str(tmp_path), str(gate), str(tmp_path), str(tmp_path)]))
    began = time.monotonic()
    eventually(lambda: time.monotonic() > began + 0.3, 5, "a moment")
    gate.touch()
    durations = result.durations(timeout=60)
    assert len(durations) == 4
    assert durations[1] == max(durations)
    assert all(seconds >= 0 for seconds in durations)


def test_waiting_polls_nothing(group: roost.WorkerGroup, monkeypatch: pytest.MonkeyPatch) -> None:
    """Pitfall: results polled every 100 ms."""

    def refuse(seconds: float) -> None:
        raise AssertionError(f"slept for {seconds} s")

    monkeypatch.setattr(time, "sleep", refuse)
    assert group.echo(1).wait(timeout=60) == [(rank, 1) for rank in range(4)]
    assert [rank for rank, _ in sorted(group.echo(1).as_completed(timeout=60))] == [0, 1, 2, 3]


def test_two_hundred_overlapping_calls_need_no_thread(group: roost.WorkerGroup, tmp_path: Path) -> None:
    """Pitfall: one thread per group call."""
    group.echo(0).wait(timeout=60)
    gate = tmp_path / "gate"
    before = threading.active_count()
    results = [group.waits_for(str(gate)), *(group.echo(number) for number in range(200))]
    assert threading.active_count() == before
    assert not results[-1].done
    gate.touch()
    for number, result in enumerate(results[1:]):
        assert result.wait(timeout=60) == [(rank, number) for rank in range(4)]
    assert threading.active_count() == before


def test_a_large_argument_is_stored_once(group: roost.WorkerGroup, monkeypatch: pytest.MonkeyPatch) -> None:
    puts: list[int] = []
    real = ray.put

    def counting(value: Any) -> Any:
        puts.append(len(value))
        return real(value)

    monkeypatch.setattr(ray_workers.ray, "put", counting)
    assert group.size(b"x" * 1_000_000).wait(timeout=60) == [1_000_000] * 4
    assert group.size(value=b"y" * 2_000_000).wait(timeout=60) == [2_000_000] * 4
    assert puts == [1_000_000, 2_000_000]
    assert group.size(b"small").wait(timeout=60) == [5] * 4
    assert len(puts) == 2


def test_large_values_can_be_scattered(group: roost.WorkerGroup) -> None:
    sizes = [300_000, 1, 400_000, 2]
    assert group.size(roost.scatter([b"z" * size for size in sizes])).wait(timeout=60) == sizes


# -- failing ----------------------------------------------------------------------------------------------


def test_a_raising_worker_leaves_everything_usable(group: roost.WorkerGroup) -> None:
    """Pitfall: a worker's exception kills the driver through a signal; the original cannot be caught."""
    with pytest.raises(KeyError) as caught:
        group.raises(KeyError("no such thing"), 2).wait(timeout=60)
    error: Any = caught.value
    assert isinstance(error, roost.WorkerRaised)
    assert not isinstance(error, roost.WorkerDied)
    assert (error.group, error.rank, error.codes) == ("called", 2, ("RE110",))
    text = str(error)
    assert (
        "called rank 2 (node 1 (127.0.0.2), accelerator 1) raised in raises: KeyError: 'no such thing'"
        in text
    )
    assert "remote traceback" in text
    assert "crew.py" in text
    assert "raise error" in text
    assert isinstance(error.__cause__, KeyError)
    assert group.echo(1).wait(timeout=60) == [(rank, 1) for rank in range(4)]


def test_every_device_of_the_failing_rank_is_named(group: roost.WorkerGroup) -> None:
    with pytest.raises(roost.WorkerRaised, match=r"rank 0 \(node 0 \(127.0.0.2\), accelerators 0,1\)"):
        group.raises(ValueError("two devices"), 0).wait(timeout=60)


def test_other_calls_go_on_while_one_fails(group: roost.WorkerGroup) -> None:
    before, failing, after = group.echo("before"), group.raises(ValueError("no"), 1, 3), group.echo("after")
    with pytest.raises(ValueError, match=r"rank [13]"):  # whichever failed first
        failing.wait(timeout=60)
    assert before.wait(timeout=60) == [(rank, "before") for rank in range(4)]
    assert after.wait(timeout=60) == [(rank, "after") for rank in range(4)]


def test_a_failure_is_raised_before_slow_ranks_are_done(group: roost.WorkerGroup, tmp_path: Path) -> None:
    gate = tmp_path / "gate"
    slow = group.execute_on(3).waits_for(str(gate))
    with pytest.raises(ValueError, match="rank 1"):
        group.raises(ValueError("no"), 1).wait(timeout=60)
    assert not slow.done
    gate.touch()
    assert slow.wait(timeout=60) == [3]


@pytest.mark.parametrize("how", ["wait", "await", "as_completed", "durations"])
def test_a_failure_is_the_same_however_it_is_met(group: roost.WorkerGroup, how: str) -> None:
    result = group.execute_on(1).raises(OSError(5, "broken"), 1)

    async def awaited() -> Any:
        return await result

    ways: dict[str, Callable[[], Any]] = {
        "wait": lambda: result.wait(timeout=60),
        "await": lambda: asyncio.run(awaited()),
        "as_completed": lambda: list(result.as_completed(timeout=60)),
        "durations": lambda: result.durations(timeout=60),
    }
    with pytest.raises(OSError, match="broken") as caught:
        ways[how]()
    assert isinstance(caught.value, roost.WorkerRaised)
    assert caught.value.rank == 1


def test_ray_does_not_print_the_failures_of_other_ranks(group: roost.WorkerGroup) -> None:
    """It prints each error that no caller looks at, when the reference to it is gone; `sweep` looks at them."""
    result = group.raises(ValueError("no"), 0, 1, 2, 3)
    with pytest.raises(ValueError, match="no") as first:
        list(result.as_completed(timeout=60))
    rank = first.value.rank  # type: ignore[attr-defined]
    others = {ref for position, ref in enumerate(result.refs) if position != rank}  # type: ignore[attr-defined]
    assert others <= set(ray_result._abandoned)


def test_exceptions_with_constructors_of_their_own_are_caught_by_type(group: roost.WorkerGroup) -> None:
    with pytest.raises(Picky) as caught:
        group.raise_picky().wait(timeout=60)
    assert isinstance(caught.value, roost.WorkerRaised)
    assert caught.value.code == 7
    assert "called rank 1" in str(caught.value)
    copy = pickle.loads(pickle.dumps(caught.value))
    assert isinstance(copy, Picky)
    assert copy.code == 7


def test_an_exception_that_cannot_travel_is_still_a_raising_worker(group: roost.WorkerGroup) -> None:
    with pytest.raises(roost.WorkerRaised, match="cannot travel") as caught:
        group.raise_locked().wait(timeout=60)
    assert caught.value.rank == 1
    assert len(group.echo(0).wait(timeout=60)) == 4


@pytest.mark.parametrize(
    "where",
    [
        "cause",
        "note",
        pytest.param(
            "group", marks=pytest.mark.skipif(sys.version_info < (3, 11), reason="Python has no such errors")
        ),
    ],
)
def test_a_long_text_is_not_carried_whole(group: roost.WorkerGroup, where: str) -> None:
    """Not even that of another exception which Python prints with it."""
    with pytest.raises(roost.WorkerRaised) as caught:
        group.execute_on(1).raises_at_length(where).wait(timeout=60)
    assert len(str(caught.value)) < 20_000
    assert len(pickle.dumps(caught.value)) < 50_000
    if where != "group":
        assert isinstance(caught.value, ValueError)
        assert "raised in raises_at_length: ValueError: small" in str(caught.value)


def test_errors_survive_pickling(group: roost.WorkerGroup) -> None:
    with pytest.raises(LookupError) as caught:
        group.raises(LookupError("lost"), 3).wait(timeout=60)
    copy = pickle.loads(pickle.dumps(caught.value))
    assert isinstance(copy, LookupError)
    assert isinstance(copy, roost.WorkerRaised)
    assert str(copy) == str(caught.value)
    assert (copy.group, copy.rank, type(copy.__cause__)) == ("called", 3, LookupError)


def test_async_methods_overlap_and_plain_ones_work_beside_them(cluster: roost.Cluster) -> None:
    with Overlapping.create_group().launch(
        cluster, placement_strategy=roost.NodePlacementStrategy([0]), name="overlapping"
    ) as group:
        first = group.first()
        assert group.second().wait(timeout=60) == ["second"]
        assert first.wait(timeout=60) == ["first"]
        assert len(group.plain().wait(timeout=60)) == 1


@pytest.fixture(scope="module")
def unusual(cluster: roost.Cluster) -> Iterator[roost.WorkerGroup]:
    strategy = roost.FlexiblePlacementStrategy([[3], [4]])
    with Unusual.create_group().launch(cluster, strategy, name="unusual") as made:
        yield made


def test_methods_of_every_kind_take_arguments(unusual: roost.WorkerGroup) -> None:
    assert unusual.static("x").wait(timeout=60) == ["x", "x"]
    assert unusual.many(1, 2).wait(timeout=60) == [3, 3]
    with pytest.raises(roost.WorkerError, match="too many positional arguments") as caught:
        unusual.plain(3)
    assert caught.value.codes == ("RE113",)


@pytest.mark.parametrize("method", ["generator", "generator_expression"])
def test_a_generator_is_refused_and_not_cut_to_its_first_value(
    unusual: roost.WorkerGroup, method: str
) -> None:
    with pytest.raises(TypeError, match=f"{method} returned a generator, which cannot be sent"):
        getattr(unusual, method)().wait(timeout=60)
    assert unusual.plain().wait(timeout=60) == [0, 1]


def test_a_stop_iteration_is_raised_by_every_way_of_waiting(unusual: roost.WorkerGroup) -> None:
    with pytest.raises(StopIteration) as caught:
        unusual.stops().wait(timeout=60)
    assert isinstance(caught.value, roost.WorkerRaised)
    # Python lets no coroutine or generator raise a StopIteration.
    with pytest.raises(roost.WorkerRaised, match="raised in stops: StopIteration: no more"):
        list(unusual.stops().as_completed(timeout=60))

    async def awaited() -> Any:
        return await unusual.stops()

    with pytest.raises(roost.WorkerRaised, match="raised in stops: StopIteration: no more") as first:
        asyncio.run(awaited())
    assert isinstance(first.value.__cause__, StopIteration)
    assert isinstance(pickle.loads(pickle.dumps(first.value)), roost.WorkerRaised)


def test_a_result_of_an_earlier_connection_is_told_as_such(
    group: roost.WorkerGroup, monkeypatch: pytest.MonkeyPatch
) -> None:
    result = group.echo(1)
    assert len(result.wait(timeout=60)) == 4

    async def awaited() -> list[Any]:
        return await result

    uses: list[Callable[[], object]] = [
        result.wait,
        lambda: result.done,
        lambda: list(result.as_completed()),
        lambda: asyncio.run(awaited()),
        lambda: group.echo(result),
        lambda: group.echo(roost.scatter(result)),
    ]
    monkeypatch.setattr(
        result, "_connection", object()
    )  # the program has disconnected since, and connected again
    for use in uses:
        with pytest.raises(roost.WorkerError, match="its answer is gone with the cluster, which was shut"):
            use()


def test_only_lists_and_results_are_scattered(unusual: roost.WorkerGroup) -> None:
    with pytest.raises(roost.WorkerError, match="scatter takes a list of values or a result, not int"):
        unusual.static(roost.scatter(5))  # type: ignore[arg-type]


def test_a_dead_worker_is_not_a_raising_one_and_the_others_live(group: roost.WorkerGroup) -> None:
    """The last use of the group: it is not whole any more."""
    pids = group.pid().wait(timeout=60)
    with pytest.raises(roost.WorkerDied) as caught:
        group.dies(2).wait(timeout=60)
    assert not isinstance(caught.value, roost.WorkerRaised)
    assert (caught.value.group, caught.value.rank) == ("called", 2)
    assert "called rank 2 (node 1 (127.0.0.2), accelerator 1) died" in str(caught.value)
    assert isinstance(pickle.loads(pickle.dumps(caught.value)), roost.WorkerDied)
    assert not alive(pids[2])
    assert group.execute_on(0, 3).echo(1).wait(timeout=60) == [(0, 1), (3, 1)]
    with pytest.raises(roost.WorkerDied):
        group.echo(1).wait(timeout=60)
    group.shutdown()
    group.shutdown()
    with pytest.raises(roost.WorkerError, match="'called' was shut down"):
        group.pid()
    eventually(lambda: not any(map(alive, pids)), 30, "the workers ended")
