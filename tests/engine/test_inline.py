"""The same program in one process, without Ray."""

from __future__ import annotations

import asyncio
import logging
import os
import pickle
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from crew import FailsToStart, Overlapping, Picky, Reporter, Unusual, UnusualAsync
from frail import Frail, FrailAsync
from omegaconf import OmegaConf
from remains import is_free
from running import Program

import roost
from roost.engine.events import MOST_EVENTS, Event
from roost.engine.inline_backend import inline_workers
from roost.engine.inline_backend.inline_workers import InlineResult, Outcome


@pytest.fixture
def cluster() -> Iterator[roost.Cluster]:
    with roost.Cluster(num_nodes=2, inline="2x4") as made:
        yield made


@pytest.fixture
def group(cluster: roost.Cluster) -> roost.WorkerGroup:
    strategy = roost.FlexiblePlacementStrategy([[0, 1], [2], [5]])
    return Reporter.create_group("note").launch(cluster, placement_strategy=strategy, name="inline")


def test_calls_work_the_same(group: roost.WorkerGroup) -> None:
    assert group.echo(1).wait(timeout=60) == [(0, 1), (1, 1), (2, 1)]
    assert group.execute_on(2, 0).echo(roost.scatter("ab")).wait() == [(0, "a"), (2, "b")]
    assert group[1:].echo(1).wait() == [(1, 1), (2, 1)]
    assert list(group.echo(1).as_completed()) == [(0, (0, 1)), (1, (1, 1)), (2, (2, 1))]
    assert len(group.echo(1).durations()) == 3
    assert group.echo(1).done

    async def awaited() -> Any:
        return await group.echo(2)

    assert asyncio.run(awaited()) == [(0, 2), (1, 2), (2, 2)]
    with pytest.raises(AttributeError, match="did you mean 'echo'"):
        group.ecko(1)
    with pytest.raises(roost.WorkerError, match="its ranks are 0-2"):
        group.execute_on(3)


@pytest.mark.parametrize("worker", [Frail, FrailAsync])
def test_an_exit_ends_the_rank_and_not_the_program(
    cluster: roost.Cluster, worker: type[roost.Worker]
) -> None:
    strategy = roost.FlexiblePlacementStrategy([[0], [1]])
    group = worker.create_group().launch(cluster, placement_strategy=strategy, name="frail")
    with pytest.raises(roost.WorkerDied, match=r"rank 1 .*died in or before exits"):
        group.execute_on(1).exits(3).wait()
    with pytest.raises(roost.WorkerDied, match="this rank was ended"):
        group.story().wait()
    with pytest.raises(roost.WorkerDied, match="frail rank 1 is down, and nothing restarts it"):
        group.wait_recovered(60)
    (death,) = [one for one in cluster.events if one.action == "reported"]
    assert (death.component, death.rank, death.node, death.cause) == ("frail", 1, 0, "crash")
    assert death.detail == "node 0, accelerator 1; it called sys.exit(3); restart_ranks(1) starts it again"
    assert group.execute_on(0).story().wait() == [(0, 0, [])]
    group.restart_ranks(1)
    group.wait_recovered(60)
    assert group.story().wait() == [(0, 0, []), (1, 1, [1])]


@pytest.mark.parametrize("name", ["../up", "..", ".", "a/b", "a b", "x" * 65])
def test_names_that_could_leave_a_folder_are_refused(cluster: roost.Cluster, name: str) -> None:
    for named, make in {
        "a job name": lambda: roost.Cluster(num_nodes=1, inline=True, job=name),
        "a group name": lambda: Frail.create_group().launch(cluster, name=name),
        "a component name": lambda: roost.plan({"cluster": {"component_placement": {name: "0"}}}, "1x1"),
        "a name of a channel": lambda: roost.Channel(name),
        "a name of a data buffer": lambda: roost.DataBuffer([1], name=name),
    }.items():
        with pytest.raises(roost.RoostError, match=f"is not {named}"):
            make()  # type: ignore[no-untyped-call]


class Asks(roost.Worker):
    def __init__(self) -> None:
        self.in_constructor = whose_code()

    def asks(self, other: roost.WorkerGroup | None = None) -> tuple[Any, ...]:
        others = other.asks().wait() if other is not None else []
        return (self.in_constructor, *others, whose_code())


def whose_code() -> tuple[str, int] | None:
    context = roost.current_worker()
    return None if context is None else (context.group, context.placement.rank)


def test_code_can_ask_for_the_worker_it_runs_in(cluster: roost.Cluster) -> None:
    two = roost.PackedPlacementStrategy(0, 1)
    outer = Asks.create_group().launch(cluster, two, name="outer")
    inner = Asks.create_group().launch(cluster, roost.PackedPlacementStrategy(2, 2), name="inner")
    within = (("inner", 0), ("inner", 0))
    assert outer.asks(inner).wait() == [(("outer", rank), within, ("outer", rank)) for rank in (0, 1)]
    assert whose_code() is None


def test_every_rank_sees_its_own_environment_and_the_programs_is_restored(group: roost.WorkerGroup) -> None:
    before = dict(os.environ)
    names = ("RANK", "WORLD_SIZE", "LOCAL_RANK", "CLUSTER_NODE_RANK", "CUDA_VISIBLE_DEVICES")
    seen = [tuple(rank.values()) for rank in group.environment(*names).wait()]
    assert seen == [("0", "3", "0", "0", "0,1"), ("1", "3", "1", "0", "2"), ("2", "3", "0", "1", "1")]
    assert dict(os.environ) == before
    told = group.identity().wait()
    assert [one["placement"] for one in told] == group.placements
    assert [one["rank_in_constructor"] for one in told] == [0, 1, 2]


class Sets(roost.Worker):
    def __init__(self) -> None:
        os.environ["SET_IN_CONSTRUCTOR"] = str(self.rank)

    def swap(self, old: str, new: str) -> None:
        os.environ[new] = os.environ.pop(old)

    def environment(self, *names: str) -> list[str | None]:
        return [os.environ.get(name) for name in names]


def test_a_rank_keeps_what_it_sets_in_its_environment(cluster: roost.Cluster) -> None:
    before = dict(os.environ)
    group = Sets.create_group().launch(cluster, roost.PackedPlacementStrategy(0, 1), name="sets")
    assert group.environment("SET_IN_CONSTRUCTOR").wait() == [["0"], ["1"]]
    group.execute_on(1).swap("SET_IN_CONSTRUCTOR", "SET_LATER").wait()
    assert group.environment("SET_IN_CONSTRUCTOR", "SET_LATER").wait() == [["0", None], [None, "1"]]
    group.restart_ranks(1)
    assert group.environment("SET_IN_CONSTRUCTOR", "SET_LATER").wait() == [["0", None], ["1", None]]
    assert dict(os.environ) == before


def test_it_runs_in_this_process_where_a_breakpoint_stops(
    group: roost.WorkerGroup, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Pitfall: no way to set a breakpoint."""
    stops: list[str | None] = []
    monkeypatch.setattr("sys.breakpointhook", lambda: stops.append(os.environ.get("RANK")))
    assert group.pid().wait() == [os.getpid()] * 3
    group.stops().wait()
    assert stops == ["0", "1", "2"]


def test_a_wait_for_what_succeeded_counts_no_failures(
    group: roost.WorkerGroup, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Counting them for each rank took a second at thousands of ranks."""
    monkeypatch.setattr(inline_workers, "_failed", None)
    done = InlineResult("group", "method", range(3), ["seat"] * 3, [Outcome(value=rank) for rank in range(3)])
    assert done.wait() == [0, 1, 2]
    assert list(done.as_completed()) == [(0, 0), (1, 1), (2, 2)]


def test_errors_are_of_the_same_types(group: roost.WorkerGroup) -> None:
    before = dict(os.environ)
    result = group.raises(KeyError("missing"), 1, 2)
    with pytest.raises(KeyError) as caught:
        result.wait()
    assert isinstance(caught.value, roost.WorkerRaised)
    assert caught.value.rank == 1
    assert "inline rank 1 (node 0, accelerator 2) raised in raises: KeyError: 'missing'" in str(caught.value)
    assert "1 other rank failed too" in str(caught.value)
    assert "raise error" in str(caught.value)
    assert isinstance(caught.value.__cause__, KeyError)
    with pytest.raises(Picky):
        group.raise_picky().wait()
    assert dict(os.environ) == before
    assert len(group.echo(0).wait()) == 3


@pytest.fixture
def unusual(cluster: roost.Cluster) -> Iterator[roost.WorkerGroup]:
    strategy = roost.FlexiblePlacementStrategy([[0], [1]])
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


def test_only_lists_and_results_are_scattered(unusual: roost.WorkerGroup) -> None:
    with pytest.raises(roost.WorkerError, match="scatter takes a list of values or a result, not int"):
        unusual.static(roost.scatter(5))  # type: ignore[arg-type]


@pytest.mark.parametrize("worker", [Unusual, UnusualAsync])
def test_a_worker_that_is_cancelled_is_a_raising_one(
    cluster: roost.Cluster, worker: type[roost.Worker]
) -> None:
    group = worker.create_group().launch(cluster, roost.PackedPlacementStrategy(0, 0), name="cancelled")
    with pytest.raises(roost.WorkerRaised, match="raised in cancelled: CancelledError: elsewhere"):
        group.cancelled().wait()


def test_an_async_generator_is_refused(cluster: roost.Cluster) -> None:
    group = UnusualAsync.create_group().launch(cluster, roost.PackedPlacementStrategy(0, 0))
    with pytest.raises(TypeError, match="generator returned a generator, which cannot be sent"):
        group.generator().wait()


@pytest.mark.parametrize("timeout", ["5", True, float("nan"), [1]])
def test_a_timeout_is_a_number_here_too(group: roost.WorkerGroup, timeout: Any) -> None:
    for waits in (
        lambda result: result.wait(timeout),
        lambda result: list(result.as_completed(timeout)),
        lambda result: result.durations(timeout),
    ):
        with pytest.raises(roost.WorkerError, match="a timeout is a number of seconds or None"):
            waits(group.echo(1))  # type: ignore[no-untyped-call]


def test_a_rank_that_was_ended_is_dead_until_it_is_restarted(group: roost.WorkerGroup) -> None:
    group.end_ranks(1)
    with pytest.raises(
        roost.WorkerDied, match=r"inline rank 1 \(node 0, accelerator 2\) died in or before echo"
    ):
        group.echo(1).wait()
    with pytest.raises(roost.WorkerDied, match=r"rank 1 .* died\n.*which did not run") as caught:
        group.size(group.echo(1)).wait()
    assert (caught.value.group, caught.value.rank) == ("inline", 1)
    group.restart_ranks(1)
    assert group.echo(1).wait() == [(0, 1), (1, 1), (2, 1)]


def test_a_constructor_that_fails(cluster: roost.Cluster) -> None:
    with pytest.raises(
        roost.LaunchError,
        match=r"failing rank 1 \(node 0, accelerator 1\) could not start; the whole group was taken down",
    ) as caught:
        FailsToStart.create_group(1, ZeroDivisionError).launch(
            cluster, placement_strategy=roost.PackedPlacementStrategy(0, 1), name="failing"
        )
    assert isinstance(caught.value.__cause__, ZeroDivisionError)
    Reporter.create_group().launch(
        cluster, placement_strategy=roost.PackedPlacementStrategy(0, 1), name="failing"
    )


class FailsAgain(roost.Worker):
    def on_restart(self, generation: int) -> None:
        if self.rank == 1:
            raise RuntimeError("no such model")

    def pid(self) -> int:
        return os.getpid()


def test_a_restart_that_fails_ends_the_ranks_that_were_restarted(cluster: roost.Cluster) -> None:
    group = FailsAgain.create_group().launch(cluster, roost.PackedPlacementStrategy(0, 2), name="again")
    with pytest.raises(roost.LaunchError, match="could not start; the other ranks go on"):
        group.restart_ranks(0, 1)
    assert len(group.execute_on(2).pid().wait()) == 1
    with pytest.raises(roost.WorkerDied, match="again rank 0"):
        group.execute_on(0).pid().wait()
    with pytest.raises(roost.LaunchError, match="could not start; the whole group was taken down"):
        group.restart_ranks()


def planned(cluster: roost.Cluster, **rules: Any) -> roost.Plan:
    return roost.plan({"cluster": {"component_placement": rules}}, cluster)


class Hidden(roost.Worker):
    def shutdown(self) -> None: ...


def test_all_that_is_wrong_with_the_workers_of_a_run_is_said(cluster: roost.Cluster) -> None:
    plan = planned(cluster, a="0", b="1", c="2")
    with pytest.raises(roost.LaunchError) as caught:
        cluster.launch(plan, {"a": Hidden, "b": 3, "c": Reporter})
    assert [finding.what for finding in caught.value.findings] == [
        "Hidden.shutdown could not be called: groups have a `shutdown` of their own",
        "a value of type int is not a worker for component 'b'",
    ]


@pytest.mark.parametrize(("skip", "named"), [(None, "NoneType"), ("a", "a text"), (5, "int")])
def test_components_to_skip_are_a_list(cluster: roost.Cluster, skip: Any, named: str) -> None:
    plan = roost.plan({"cluster": {"component_placement": {"a": "0"}}}, cluster)
    with pytest.raises(roost.LaunchError, match=f"skip is a list of components, not {named}"):
        cluster.launch(plan, {"a": Reporter}, skip=skip)


@pytest.mark.parametrize("given", [None, "127.0.0.1", roost.PackedPlacementStrategy(0, 1)])
def test_a_group_is_launched_on_a_cluster(given: Any) -> None:
    with pytest.raises(roost.LaunchError, match="launch takes a cluster first, not a value of type"):
        Reporter.create_group().launch(given)


def test_a_failing_component_takes_the_others_down(cluster: roost.Cluster) -> None:
    workers = {"a": Reporter, "b": FailsToStart.create_group(0, ZeroDivisionError)}
    with pytest.raises(roost.LaunchError, match="all that was started with it was taken down"):
        cluster.launch(planned(cluster, a="0", b="1"), workers)


def test_a_launch_asks_nothing_once_the_processes_have_started(
    cluster: roost.Cluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A question that fails would leave the processes and what they hold behind."""
    monkeypatch.setattr(cluster._backend, "running_group", lambda name: pytest.fail("asked"))
    assert Reporter.create_group().launch(cluster, name="unasked").echo(1).wait()[0] == (0, 1)


def test_a_run_does_not_hear_of_the_end_of_another(cluster: roost.Cluster) -> None:
    first = cluster.launch(planned(cluster, first="0"), {"first": Reporter})
    with cluster.launch(planned(cluster, second="1"), {"second": Reporter}) as second:
        first.shutdown()
        assert [event.action for event in second.events] == ["launched"]
    assert [(event.action, event.component) for event in first.events] == [
        ("launched", "first"),
        ("shut down", "first"),
    ]


def test_a_name_that_is_taken_is_one_of_the_plan(cluster: roost.Cluster) -> None:
    with (
        cluster.launch(planned(cluster, first="0"), {"first": Reporter}),
        pytest.raises(roost.ClusterError, match="'first' is already running") as caught,
    ):
        cluster.launch(planned(cluster, first="1"), {"first": Reporter})
    assert "the groups of a plan are named like its components" in caught.value.findings[0].remedy


def test_a_group_is_in_the_history_as_shut_down_when_it_is(cluster: roost.Cluster) -> None:
    with cluster.launch(
        planned(cluster, first="0", second="1"), {"first": Reporter, "second": Reporter}
    ) as run:
        run["first"].shutdown()
        run["first"].shutdown()
        with Reporter.create_group().launch(cluster, name="third"):
            pass
    told = [(event.action, event.component) for event in cluster.events]
    assert told[2:] == [
        ("shut down", "first"),
        ("launched", "third"),
        ("shut down", "third"),
        ("shut down", "second"),
    ]
    assert ("shut down", "second") in [(event.action, event.component) for event in run.events]


def test_a_run_ends_although_its_history_cannot_be_read(
    cluster: roost.Cluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    """An attached process asks a manager for it, which may be gone."""

    def gone(_: Any) -> Any:
        raise roost.ClusterError(code="RE106", what="the manager is gone")

    run = cluster.launch(planned(cluster, first="0"), {"first": Reporter})
    monkeypatch.setattr(type(cluster._backend), "events", property(gone))
    with pytest.raises(roost.ClusterError, match="the manager is gone"):
        run.shutdown()
    assert not run["first"].is_running
    assert run.holds == ()
    run.shutdown()


def test_a_run_has_events_of_nodes_whose_clock_is_behind(cluster: roost.Cluster) -> None:
    cluster._backend.record([Event(action="before", component="first")])
    with cluster.launch(planned(cluster, first="0"), {"first": Reporter}) as run:
        cluster._backend.record([Event(action="reported", component="first", time=run.events[0].time - 60)])
        assert [event.action for event in run.events] == ["launched", "reported"]


@pytest.mark.parametrize("how", ["run", "pool"])
def test_a_group_that_cannot_be_ended_keeps_no_other_from_ending(
    cluster: roost.Cluster, monkeypatch: pytest.MonkeyPatch, how: str
) -> None:
    if how == "run":
        run = cluster.launch(planned(cluster, first="0", second="1"), {"first": Reporter, "second": Reporter})
        groups, end = [run["first"], run["second"]], run.shutdown
    else:
        pool = cluster.pool(roost.Layout(actor_num_gpus_per_node=2, rollout_num_gpus=0))
        groups = [Reporter.create_group().launch(cluster, name=name) for name in ("first", "second")]
        for group in groups:
            pool.end_with(group)
        end = pool.release
    given_back: list[Any] = []
    monkeypatch.setattr(cluster._backend, "unreserve", given_back.append)
    monkeypatch.setattr(cluster._backend, "give_back_positions", given_back.append)
    monkeypatch.setattr(groups[0], "shutdown", lambda: pytest.fail("it cannot be ended"))
    with pytest.raises(pytest.fail.Exception, match="it cannot be ended"):
        end()
    assert not groups[1].is_running
    assert given_back


def test_only_so_many_events_are_kept(cluster: roost.Cluster) -> None:
    cluster._backend.record([Event(action=str(number)) for number in range(MOST_EVENTS + 1)])
    assert [len(cluster.events), cluster.events[0].action] == [MOST_EVENTS, "1"]


def test_a_plan_that_is_launched_again_is_kept_once(cluster: roost.Cluster) -> None:
    strategy = roost.PackedPlacementStrategy(2, 3)
    for name in ("again", "again", "other"):
        Reporter.create_group().launch(cluster, strategy, name=name).shutdown()
    assert [list(plan.components) for plan in cluster.plans] == [["again"], ["other"]]


def test_async_methods_run_to_their_end(cluster: roost.Cluster) -> None:
    group = Overlapping.create_group().launch(
        cluster, placement_strategy=roost.NodePlacementStrategy([0]), name="async"
    )
    assert group.second().wait() == ["second"]

    async def inside_a_loop() -> Any:
        return await group.second()

    assert asyncio.run(inside_a_loop()) == ["second"]


def test_attaching_and_names(cluster: roost.Cluster, group: roost.WorkerGroup) -> None:
    again = roost.Cluster(inline=True)
    assert again.nodes == cluster.nodes
    assert roost.WorkerGroup.attach("inline", again).echo(1).wait() == group.echo(1).wait()
    with pytest.raises(roost.ClusterError, match="did you mean 'inline'"):
        roost.WorkerGroup.attach("inlin", again)
    with pytest.raises(roost.ClusterError, match="already running"):
        Reporter.create_group().launch(
            cluster, placement_strategy=roost.NodePlacementStrategy([0]), name="inline"
        )
    cluster.shutdown()
    cluster.shutdown()
    with pytest.raises(roost.RoostError, match="shut down"):
        group.echo(1)
    with pytest.raises(roost.ClusterError, match="no job is running"):
        roost.Cluster(inline=True)


@pytest.mark.parametrize("name", [None, 3, ["inline"]])
def test_names_that_are_none(group: roost.WorkerGroup, name: Any) -> None:
    with pytest.raises(roost.ClusterError, match="known: inline") as caught:
        roost.WorkerGroup.attach(name, roost.Cluster(inline=True))
    assert caught.value.codes == ("RE116",)


@pytest.mark.parametrize(
    "ask",
    [
        lambda cluster: Reporter.create_group().launch(cluster, name="late"),
        lambda cluster: cluster.attach_group("inline"),
        lambda cluster: cluster.allocate(object, "late", 0, None),
        lambda cluster: cluster.pool({"colocate": True, "actor_num_gpus_per_node": 2}),
        lambda cluster: cluster.pool({"actor_num_nodes": 0, "rollout_num_gpus": 0}),
        lambda cluster: cluster.lease_ports(0),
        lambda cluster: cluster.device_lock(0, [0]),
        lambda cluster: cluster.check_fence(0, 0, 1),
        lambda cluster: roost.Cluster(inline=True),
    ],
    ids=["launch", "attach", "allocate", "pool", "empty pool", "ports", "lock", "fence", "cluster"],
)
@pytest.mark.parametrize("seen_again", [False, True])
def test_nothing_is_had_of_a_cluster_that_was_shut_down(
    cluster: roost.Cluster, ask: Callable[[roost.Cluster], Any], seen_again: bool
) -> None:
    asked = roost.Cluster(inline=True) if seen_again else cluster
    cluster.shutdown()
    with pytest.raises(roost.ClusterError) as caught:
        ask(asked)
    assert caught.value.codes == ("RE106",)


def test_ports_are_given_back_at_shutdown(cluster: roost.Cluster, group: roost.WorkerGroup) -> None:
    leases = [cluster.lease_ports(0), cluster.lease_ports(1, 2, consecutive=True)]
    cluster.shutdown()
    assert all(is_free(port) for lease in leases for port in lease.ports)
    for lease in leases:
        lease.release()  # no matter


def test_the_program_runs_without_ray() -> None:
    program = Program("inline_without_ray", env={"ROOST_INLINE": "1x4"})
    assert program.answer() == {"answers": [[0, "a"], [1, "b"], [2, "c"], [3, "d"]], "ray": None}
    assert program.end() == 0


def test_a_job_whose_node_groups_the_cluster_was_not_told(cluster: roost.Cluster) -> None:
    job = {
        "cluster": {
            "component_placement": {"env": {"node_group": "arms", "placement": "0-1"}},
            "node_groups": [
                {
                    "label": "arms",
                    "node_ranks": 1,
                    "hardware": {"type": "Arm", "configs": [{"node_rank": 1}, {"node_rank": 1}]},
                    "env_configs": [{"node_ranks": 1, "env_vars": {"ARM_SPEED": "slow"}}],
                }
            ],
        }
    }
    strategy = roost.ComponentPlacement(job, cluster).get_strategy("env")
    group = Reporter.create_group("note").launch(cluster, strategy, name="arms")
    seen = group.environment("ARM_SPEED", "CUDA_VISIBLE_DEVICES").wait()
    assert [tuple(rank.values()) for rank in seen] == [("slow", "0,1,2,3")] * 2
    assert list(cluster.inventory.groups) == ["arms"]


def test_a_job_whose_node_groups_are_others(cluster: roost.Cluster) -> None:
    def strategy(node: int) -> roost.PlacementStrategy:
        rules = {"env": {"node_group": "some", "placement": "0"}}
        groups = [{"label": "some", "node_ranks": node}]
        job = {"cluster": {"component_placement": rules, "node_groups": groups}}
        return roost.ComponentPlacement(job, cluster).get_strategy("env")

    Reporter.create_group("note").launch(cluster, strategy(0), name="first")
    Reporter.create_group("note").launch(cluster, strategy(0), name="same")
    with pytest.raises(roost.ConfigurationError, match="the cluster knows another node group 'some'"):
        Reporter.create_group("note").launch(cluster, strategy(1), name="other")


def test_node_groups_end_with_the_last_run_that_uses_them(cluster: roost.Cluster) -> None:
    def plan(component: str, node: int) -> roost.Plan:
        rules = {component: {"node_group": "some", "placement": "0"}}
        groups = [{"label": "some", "node_ranks": node}]
        return roost.plan({"cluster": {"component_placement": rules, "node_groups": groups}}, "2x4")

    with cluster.launch(plan("second", 0), {"second": Reporter}):
        with cluster.launch(plan("first", 0), {"first": Reporter}):
            pass
        assert list(cluster.inventory.groups) == ["some"]
        with pytest.raises(roost.ConfigurationError, match="or a run that has not ended brought its own"):
            cluster.launch(plan("first", 1), {"first": Reporter})
    assert not cluster.inventory.groups
    strategy = roost.ComponentPlacement(
        {
            "cluster": {
                "component_placement": {"third": {"node_group": "some", "placement": "0"}},
                "node_groups": [{"label": "some", "node_ranks": 1}],
            }
        },
        cluster,
    ).get_strategy("third")
    Reporter.create_group().launch(cluster, strategy, name="third").shutdown()
    assert not cluster.inventory.groups


def test_the_same_groups_worded_differently_are_the_same(tmp_path: Path) -> None:
    text = """\
cluster:
  component_placement: {env: {node_group: some, placement: "0"}}
  node_groups:
    - {label: some, node_ranks: 1, env_configs: [{node_ranks: 1, env_vars: {FLAG: yes, V: 1.10, MY_TOKEN: x}}]}
"""
    path = tmp_path / "job.yaml"
    path.write_text(text)
    section = OmegaConf.load(path).cluster
    with roost.Cluster(cluster_cfg=section, inline="2x4") as cluster:
        for inventory in (cluster, roost.plan(path, "2x4").inventory):
            strategy = roost.ComponentPlacement(path, inventory).get_strategy("env")
            group = Reporter.create_group("note").launch(cluster, strategy)
            assert group.environment("MY_TOKEN").wait() == [{"MY_TOKEN": "x"}]
            group.shutdown()


def test_without_a_strategy_each_accelerator_has_a_process() -> None:
    with roost.Cluster(num_nodes=2, inline="2x4") as cluster:
        group = Reporter.create_group().launch(cluster)
        places = group.placements
        assert [(one.node_id, one.local_gpu_id) for one in places] == [
            (n, d) for n in (0, 1) for d in range(4)
        ]
        assert group.environment("CUDA_VISIBLE_DEVICES").wait() == [
            {"CUDA_VISIBLE_DEVICES": str(device)} for _ in range(2) for device in range(4)
        ]


def test_anything_with_get_placement_is_a_strategy(cluster: roost.Cluster) -> None:
    class Odd:
        def get_placement(self, cluster: Any, isolate_accelerator: bool = True) -> list[roost.Placement]:
            return roost.PackedPlacementStrategy(0, 1).get_placement(cluster, isolate_accelerator)

    group = Reporter.create_group("note").launch(cluster, Odd(), name="odd")  # type: ignore[arg-type]
    assert group.echo(1).wait() == [(0, 1), (1, 1)]


class OwnLogger(roost.Worker):
    def __init__(self) -> None:
        super().__init__()
        self._logger = logging.getLogger("mine")

    def logs_to(self) -> str:
        return self._logger.name


def test_a_worker_may_set_a_logger_of_its_own(cluster: roost.Cluster) -> None:
    group = OwnLogger.create_group().launch(cluster, roost.PackedPlacementStrategy(0, 0), name="own-logger")
    assert group.logs_to().wait() == ["mine"]
