"""Values that go from group to group: results as arguments."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest
from flow import Sink, Source

import roost

Groups = tuple[Any, Any, Any]


@pytest.fixture(scope="module", params=["inline", pytest.param("ray", marks=pytest.mark.ray)])
def groups(request: pytest.FixtureRequest) -> Iterator[Groups]:
    """Four sources, four sinks, and the first two of these."""
    if request.param == "inline":
        cluster = roost.Cluster(num_nodes=3, inline="3x4")
    else:
        cluster = request.getfixturevalue("cluster")
    rules = {"source": "0-3", "four": "4-7"}
    plan = roost.plan({"cluster": {"component_placement": rules}}, cluster)
    try:
        with cluster.launch(plan, {"source": Source, "four": Sink}) as run:
            yield run["source"], run["four"], run["four"][:2]
    finally:
        if request.param == "inline":
            cluster.shutdown()


def test_a_result_is_the_list_of_all_values(groups: Groups) -> None:
    source, four, _ = groups
    assert four.take(source.number()).wait(timeout=60) == [[0, 10, 20, 30]] * 4


def test_scattered_each_rank_gets_its_own(groups: Groups) -> None:
    source, four, _ = groups
    assert four.take(roost.scatter(source.number())).wait(timeout=60) == [0, 10, 20, 30]


def test_more_values_than_ranks_are_given_out_in_runs(groups: Groups) -> None:
    source, _, two = groups
    assert two.take(roost.scatter(source.number())).wait(timeout=60) == [[0, 10], [20, 30]]


def test_more_ranks_than_values_share_them_in_runs(groups: Groups) -> None:
    source, four, _ = groups
    assert four.take(roost.scatter(source[:2].number())).wait(timeout=60) == [0, 0, 10, 10]


def test_counts_that_do_not_divide_are_refused(groups: Groups) -> None:
    source, four, two = groups
    with pytest.raises(roost.WorkerError, match="scatter has 3 values for 2 ranks") as caught:
        two.take(roost.scatter(source[:3].number()))
    assert "one of the two counts must divide the other" in str(caught.value)
    with pytest.raises(roost.WorkerError, match="scatter has 2 values for 4 ranks"):
        four.take(roost.scatter([1, 2]))  # a list is meant as it is written


def test_several_results_and_plain_values_in_one_call(groups: Groups) -> None:
    source, four, _ = groups
    numbers = source.number()
    found = four.take(roost.scatter(numbers), numbers, 7, named=roost.scatter(numbers), plain="p").wait(
        timeout=60
    )
    assert found == [(10 * rank, [0, 10, 20, 30], 7, {"named": 10 * rank, "plain": "p"}) for rank in range(4)]


def test_a_large_value_beside_a_list_of_values(groups: Groups) -> None:
    source, four, _ = groups
    large = b"x" * 200_000
    found = four.take(source.number(), large, named=large).wait(timeout=60)
    assert found == [([0, 10, 20, 30], large, {"named": large})] * 4


def test_no_ranks_and_no_values_are_refused(groups: Groups) -> None:
    source, four, _ = groups
    with pytest.raises(roost.WorkerError, match="scatter has 4 values for 0 ranks"):
        four[4:].take(roost.scatter(source.number()))


def test_chains_wait_for_nothing_in_between(groups: Groups) -> None:
    source, four, two = groups
    through = two.take(roost.scatter(four.take(roost.scatter(source.number()))))
    assert through.wait(timeout=60) == [[0, 10], [20, 30]]


def test_results_of_some_ranks(groups: Groups) -> None:
    source, four, _ = groups
    assert four.execute_on(1, 2).take(roost.scatter(source.execute_on(0, 3).number())).wait(timeout=60) == [
        0,
        30,
    ]


def test_the_first_error_is_raised_and_the_second_call_does_not_run(groups: Groups) -> None:
    source, four, _ = groups
    before = four.how_many().wait(timeout=60)
    result = four.take(roost.scatter(source.fails(2)))
    with pytest.raises(KeyError) as caught:
        result.wait(timeout=60)
    error: Any = caught.value
    assert isinstance(error, roost.WorkerRaised)
    assert (error.group, error.rank) == ("source", 2)
    assert "source rank 2 (node 0" in str(error)
    assert "raised in fails: KeyError: 'nothing at 2'" in str(error)
    assert "its result is an argument of four.take, which did not run" in str(error)
    assert "in fails" in error.remote_traceback
    after = four.how_many().wait(timeout=60)
    assert [now - then for now, then in zip(after, before, strict=True)] == [1, 1, 0, 1]


def test_an_error_goes_through_a_chain(groups: Groups) -> None:
    source, four, two = groups
    result = two.take(four.take(roost.scatter(source.fails(1))))
    with pytest.raises(KeyError) as caught:
        result.wait(timeout=60)
    assert (caught.value.group, caught.value.rank) == ("source", 1)  # type: ignore[attr-defined]


def test_a_result_inside_another_value_is_refused(groups: Groups) -> None:
    source, four, _ = groups
    result = source.number()
    for argument in ([result], (1, result), {"batch": result}, roost.scatter([result] * 4)):
        with pytest.raises(roost.WorkerError, match=r"four\.take: an argument contains a result") as caught:
            four.take(argument)
        assert "it cannot be inside another value" in str(caught.value)
    with pytest.raises(roost.WorkerError, match=r"four\.take: an argument contains a scatter"):
        four.take([roost.scatter([1, 2, 3, 4])])
    if type(result).__name__ == "InlineResult":
        return  # nothing is sent anywhere inline
    with pytest.raises(roost.WorkerError, match="an argument cannot be sent") as caught:
        four.take([[result]])
    assert "it cannot be inside another value" in str(caught.value)


def test_a_dead_worker_is_named_by_the_call_that_needed_it(groups: Groups) -> None:
    """The last use of the groups: one is not whole any more."""
    source, _, two = groups
    if type(source.number()).__name__ == "InlineResult":
        return  # inline workers do not die
    before = two.how_many().wait(timeout=60)
    result = two.take(roost.scatter(source[:2].dies(1)))
    with pytest.raises(roost.WorkerDied) as caught:
        result.wait(timeout=60)
    assert (caught.value.group, caught.value.rank) == ("source", 1)
    assert "source rank 1 (node 0" in str(caught.value)
    assert "its result is an argument of four.take, which did not run" in str(caught.value)
    after = two.how_many().wait(timeout=60)
    assert [now - then for now, then in zip(after, before, strict=True)] == [1, 0]
