"""Groups that take turns on a device of a real Ray, and what happens when one of them dies."""

from __future__ import annotations

import os
import re
import signal
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from port_clients import Locker, LockingEngine
from running import eventually

import roost
from live import EndedJob
from roost.engine.locks.node_devices import NodeDevices
from roost.engine.workers.worker_context import WorkerContext, _running_as
from roost.inventory.nodes import Accelerators, Node

pytestmark = pytest.mark.ray
ON_ONE = roost.FlexiblePlacementStrategy([[0]])


@pytest.fixture(scope="module")
def running(cluster: roost.Cluster) -> Iterator[dict[str, roost.WorkerGroup]]:
    """The groups of one worker that run on the first accelerator."""
    made: dict[str, roost.WorkerGroup] = {}
    yield made
    for group in made.values():
        group.shutdown()


@pytest.fixture
def groups(
    cluster: roost.Cluster, running: dict[str, roost.WorkerGroup]
) -> Iterator[Callable[[str], roost.WorkerGroup]]:
    """A group by its name, launched when it does not run. None holds a lock when a test begins."""

    def named(name: str) -> roost.WorkerGroup:
        if name not in running:
            running[name] = Locker.create_group().launch(cluster, ON_ONE, name=name)
        return running[name]

    yield named
    for name, group in [*running.items()]:
        try:
            group.let_go().wait(timeout=60)
        except roost.WorkerDied:
            running.pop(name).shutdown()


def refused(call: Callable[[], Any]) -> roost.ClusterError:
    with pytest.raises(roost.ClusterError) as caught:
        call()
    return caught.value


def in_worker(call: Callable[[], Any]) -> Any:
    """What a worker raised."""
    with pytest.raises(roost.WorkerRaised) as caught:
        call()
    return caught.value.__cause__


def test_two_groups_take_turns(groups: Callable[[str], roost.WorkerGroup], tmp_path: Path) -> None:
    one, two = groups("holder"), groups("waiter")
    running = [group.take_turns(60, str(tmp_path)) for group in (one, two)]
    first, second = [fences for result in running for fences in result.wait(timeout=120)]
    assert first == sorted(first)
    assert second == sorted(second)
    assert len({*first, *second}) == 120
    assert max(first[0], second[0]) < min(first[-1], second[-1])  # and not one after the other


def test_a_killed_holders_lock_goes_to_the_next(
    cluster: roost.Cluster, groups: Callable[[str], roost.WorkerGroup]
) -> None:
    """Pitfall: a dead lock holder wedges everyone."""
    holder, waiter, bystander = groups("holder"), groups("waiter"), groups("third")
    ((old, devices),) = holder.lock().wait(timeout=60)
    assert devices == (0,)
    cluster.check_fence(0, 0, old)
    waiting = waiter.lock(timeout=60)
    os.kill(holder.pid().wait(timeout=60)[0], signal.SIGKILL)
    ((new, _),) = waiting.wait(timeout=2)
    assert new > old
    assert waiter.held().wait(timeout=60) == [True]
    cluster.check_fence(0, 0, new)
    bystander.check_fence(0, new).wait(timeout=60)
    for error in (
        refused(lambda: cluster.check_fence(0, 0, old)),
        in_worker(lambda: bystander.check_fence(0, old).wait(timeout=60)),
    ):
        assert error.codes == ("RE119",)
        assert f"{old} is not the number of the lock on accelerator 0" in str(error)
        assert f"= why: waiter rank 0 (pid {waiter.pid().wait(timeout=60)[0]}) has held it" in str(error)


def test_a_waiter_that_dies_is_dropped(groups: Callable[[str], roost.WorkerGroup]) -> None:
    holder, dying, next_one = groups("holder"), groups("waiter"), groups("third")
    ((first, _),) = holder.lock().wait(timeout=60)
    pid = dying.pid().wait(timeout=60)[0]
    dying.lock(timeout=60)
    waiting = next_one.lock(timeout=60)
    os.kill(pid, signal.SIGKILL)
    holder.unlock().wait(timeout=60)
    ((fence, _),) = waiting.wait(timeout=30)
    assert first < fence <= first + 2  # the dying one may have had it for a moment
    assert next_one.held().wait(timeout=60) == [True]


def test_a_lock_not_had_in_time_says_who_has_it(
    cluster: roost.Cluster, groups: Callable[[str], roost.WorkerGroup]
) -> None:
    holder, waiter = groups("holder"), groups("waiter")
    holder.lock().wait(timeout=60)
    pid = holder.pid().wait(timeout=60)[0]
    error = refused(lambda: cluster.device_lock(0, [0, 1], timeout=0.1))
    assert error.codes == ("RE118",)
    node = re.escape(str(cluster.nodes[0]))
    assert re.fullmatch(
        rf"error\[RE118\]: accelerators 0-1 of {node} could not be locked within 0\.1 s\n"
        rf"  = why: holder rank 0 \(pid {pid}\) has held accelerator 0 for \d+\.\d s\n"
        r"  = help: wait longer, or let holders lock with hold_for=\.\.\.",
        str(error),
    )
    waiting = waiter.lock(timeout=60)
    # Who waits keeps nobody else waiting, and those who come later are told of it.
    eventually(
        lambda: (
            "1 other process asked before" in str(refused(lambda: cluster.device_lock(0, [0], timeout=0)))
        ),
        30,
        "the waiter has asked",
    )
    with cluster.device_lock(0, [1], timeout=30) as other, cluster.lease_ports(0):
        assert other.held
    assert not waiting.done
    holder.unlock().wait(timeout=60)
    waiting.wait(timeout=30)


def test_asking_again_is_refused_at_once(groups: Callable[[str], roost.WorkerGroup]) -> None:
    holder = groups("holder")
    ((fence, _),) = holder.lock().wait(timeout=60)
    error = in_worker(lambda: holder.lock(timeout=600).wait(timeout=60))
    assert error.codes == ("RE118",)
    assert re.fullmatch(
        rf"error\[RE118\]: this process already holds accelerator 0 of [\d.]+, with number {fence}\n"
        r"  = why: it would wait for itself\n"
        r"  = help: release that lock first, or use it",
        str(error),
    )
    assert holder.held().wait(timeout=60) == [True]


def test_after_hold_for_the_next_one_may_have_it(groups: Callable[[str], roost.WorkerGroup]) -> None:
    slow, next_one = groups("holder"), groups("waiter")
    slow.lock(hold_for=0.2).wait(timeout=60)
    slow.check().wait(timeout=60)
    next_one.lock(timeout=60).wait(timeout=30)
    assert slow.held().wait(timeout=60) == [False]
    assert in_worker(lambda: slow.check().wait(timeout=60)).codes == ("RE119",)
    slow.unlock().wait(timeout=60)  # of what it has no more: no matter to the other
    assert next_one.held().wait(timeout=60) == [True]


def test_the_driver_locks_on_any_node(
    cluster: roost.Cluster, groups: Callable[[str], roost.WorkerGroup]
) -> None:
    for node in range(3):
        with cluster.device_lock(node, [2, 3]) as lock:
            assert lock.held
            assert repr(lock) == f"<lock {lock.fence} of accelerators 2-3 on {cluster.nodes[node]}>"
            error = refused(lambda node=node: cluster.device_lock(node, [3]))
            assert "this process already holds accelerators 2-3" in str(error)
        assert not lock.held
        lock.release()
        error = refused(lock.check)
        assert "= why: nobody holds it now" in str(error)


def test_locks_are_one_a_rank_and_none_is_had_whose_end_nobody_would_notice(cluster: roost.Cluster) -> None:
    strategy = roost.FlexiblePlacementStrategy([[1], [8]])
    with (
        Locker.create_group().launch(cluster, strategy, name="pair") as pair,
        cluster.device_lock(0, [0]) as lock,
    ):
        assert [devices for _, devices in pair.lock().wait(timeout=60)] == [(1,), (0,)]
        assert pair.held().wait(timeout=60) == [True, True]
        pair.unlock().wait(timeout=60)
        far = pair[1]
        error = in_worker(lambda: far.lock_on_node(0).wait(timeout=60))
        assert error.codes == ("RE114",)
        assert "nobody there would notice its end" in str(error)
        far.lock_on_node(2).wait(timeout=60)
        far.check_on_node(0, lock.fence).wait(timeout=60)  # asking is free
        assert in_worker(lambda: far.check_on_node(0, 0).wait(timeout=60)).codes == ("RE119",)


@pytest.mark.parametrize(
    ("arguments", "says"),
    [
        ({"devices": []}, "devices are a list of accelerator numbers or names, not []"),
        ({"devices": 0}, "devices are a list of accelerator numbers or names, not 0"),
        ({"devices": [True]}, "devices are a list"),
        ({"devices": [4]}, "accelerator 4 does not exist"),
        ({"devices": [-1]}, "accelerator -1 does not exist"),
        ({"devices": ["4"]}, "accelerator 4 does not exist"),
        ({"devices": ["foo"]}, "device 'foo' does not exist"),
        ({"devices": ["cluster:0"]}, "device 'cluster:0' does not exist"),
        ({"devices": ["1" * 5000]}, "does not exist"),
        ({"node_rank": 3}, "node 3 does not exist"),
        ({"timeout": None}, "timeout is a number of seconds, not None"),
        ({"timeout": float("inf")}, "timeout is a number of seconds, not inf"),
        ({"hold_for": -1}, "hold_for is a number of seconds, not -1"),
    ],
)
def test_mistakes(cluster: roost.Cluster, arguments: dict[str, Any], says: str) -> None:
    with pytest.raises(roost.RoostError) as caught:
        cluster.device_lock(**{"node_rank": 0, "devices": [0], **arguments})
    assert says in str(caught.value)


@pytest.mark.parametrize(
    ("device", "fence", "says"),
    [
        ([0], 1, "a device is an accelerator number or a name, not [0]"),
        (True, 1, "a device is an accelerator number or a name, not True"),
        (None, 1, "a device is an accelerator number or a name, not None"),
        (0, "1", "a fencing number is a whole number, not '1'"),
        (0, None, "a fencing number is a whole number, not None"),
        (9, 1, "accelerator 9 does not exist on node 0"),
        ("foo", 1, "device 'foo' does not exist on node 0"),
    ],
)
def test_mistakes_of_who_checks(
    cluster: roost.Cluster,
    groups: Callable[[str], roost.WorkerGroup],
    device: Any,
    fence: Any,
    says: str,
) -> None:
    with pytest.raises(roost.RoostError) as caught:
        cluster.check_fence(0, device, fence)
    assert says in str(caught.value)
    with roost.Cluster(num_nodes=1, inline="1x4") as inline:
        group = Locker.create_group().launch(inline, ON_ONE)
        assert says in str(in_worker(lambda: group.check_fence(device, fence).wait()))


# -- what a device is called ----------------------------------------------------------------------------


def test_a_device_is_one_whatever_it_is_called(
    cluster: roost.Cluster, groups: Callable[[str], roost.WorkerGroup]
) -> None:
    """An engine knows its accelerators by texts, a trainer by numbers."""
    trainer, engine = groups("holder"), groups("waiter")
    ((fence, devices),) = trainer.lock().wait(timeout=60)
    for call in (
        lambda: engine.lock_by_name(timeout=0).wait(timeout=60),
        lambda: engine.lock(devices=["0"], timeout=0).wait(timeout=60),
        lambda: engine.lock(devices=(0, "0"), timeout=0).wait(timeout=60),
    ):
        assert in_worker(call).codes == ("RE118",)
    assert refused(lambda: cluster.device_lock(0, ["0"], timeout=0)).codes == ("RE118",)
    engine.check_fence("0", fence).wait(timeout=60)
    cluster.check_fence(0, "0", fence)
    trainer.unlock().wait(timeout=60)
    ((_, by_name),) = engine.lock_by_name(timeout=0).wait(timeout=60)
    assert by_name == devices == (0,)
    assert in_worker(lambda: trainer.lock(timeout=0).wait(timeout=60)).codes == ("RE118",)


@pytest.mark.parametrize(("device", "what"), [(99, "accelerator 99"), ("foo", "device 'foo'")])
def test_what_does_not_exist_is_not_locked(
    groups: Callable[[str], roost.WorkerGroup], device: int | str, what: str
) -> None:
    error = in_worker(lambda: groups("holder").lock(devices=[device]).wait(timeout=60))
    assert error.codes == ("RE114",)
    assert error.findings[0].what.startswith(f"{what} does not exist on node 0 (")
    assert error.findings[0].why == "it has accelerators 0-3"


def test_a_worker_without_devices_must_name_them() -> None:
    with roost.Cluster(num_nodes=1, inline="1x4") as inline:
        bare = Locker.create_group().launch(inline, roost.NodePlacementStrategy([0]), name="bare")
        error = in_worker(lambda: bare.lock().wait(timeout=60))
        assert "name them: device_lock(devices=[0])" in str(error)
        ((_, devices),) = bare.lock(devices=[3, 1]).wait(timeout=60)
        assert devices == (1, 3)


def test_locks_end_with_the_job(ended_job: EndedJob) -> None:
    ended_job.lock.release()  # no matter
    assert refused(lambda: ended_job.lock.held).codes == ("RE106",)


# -- inline -------------------------------------------------------------------------------------------------


def test_inline_locks_are_had_at_once_or_not() -> None:
    with roost.Cluster(num_nodes=2, inline="2x2") as inline:
        group = Locker.create_group().launch(inline, roost.FlexiblePlacementStrategy([[0], [0], [3]]))
        assert group[0].lock().wait() == [(1, (0,))]
        error = in_worker(lambda: group[1].lock(timeout=600).wait())  # nobody could release it meanwhile
        assert error.codes == ("RE118",)
        assert "Locker rank 0 (pid" in str(error)
        assert group[2].lock().wait() == [(1, (1,))]  # another node has numbers of its own
        inline.check_fence(0, 0, 1)
        group[0].unlock().wait()
        assert group[1].lock().wait() == [(2, (0,))]
        assert group[0].held().wait() == [False]


def test_other_hardware_is_locked_by_its_group_and_number() -> None:
    section = {
        "num_nodes": 1,
        "node_groups": [
            {
                "label": "arm",
                "node_ranks": 0,
                "hardware": {
                    "type": "Franka",
                    "configs": [{"node_rank": 0, "robot_ip": f"10.0.0.{n}"} for n in (8, 9)],
                },
            }
        ],
    }
    with roost.Cluster(cluster_cfg=section, inline="1x2") as inline:
        strategy = roost.FlexiblePlacementStrategy([[1]], node_group_label="arm")
        robot = Locker.create_group().launch(inline, strategy, name="robot")
        assert robot.lock().wait() == [(1, ("arm:1",))]
        with inline.device_lock(0, [1]):  # the accelerator of that number is another thing
            pass
        error = refused(lambda: inline.device_lock(0, ["arm:1"]))
        assert "has held arm:1 for" in str(error)
        assert robot.check_fence("arm:1", 1).wait() == [None]
        for wrong in ("arm:2", "arm:01", "arm", "leg:0"):
            error = refused(lambda wrong=wrong: inline.device_lock(0, [wrong]))
            assert error.codes == ("RE114",)
            assert error.findings[0].why == "it has accelerators 0-1 and arm:0, arm:1"


def on_masked_node(visible: tuple[int, ...] = (), told: tuple[str, ...] = ()) -> NodeDevices:
    """A node whose four accelerators are called 4, 3, 2 and GPU-x, for a worker that was told these names."""
    node = Node(rank=1, accelerators=Accelerators(count=4))
    place = roost.FlexiblePlacementStrategy([[4 + number for number in visible or (0,)]])
    (placement,) = place.get_placement(roost.Inventory.parse("2x4"))
    context = WorkerContext(
        group="g",
        job="j",
        placement=placement,
        world_size=1,
        master_addr="",
        master_port=1,
        node="",
        devices=told,
    )
    with _running_as(context if visible else None):
        return NodeDevices.of("j", node, {}, ("4", "3", "2", "GPU-x"))


@pytest.mark.parametrize(
    ("device", "number"), [("4", 0), ("3", 1), ("2", 2), ("GPU-x", 3), (2, 2), ("0", 0), ("1", 1)]
)
def test_names_come_before_numbers(device: int | str, number: int) -> None:
    assert on_masked_node().identify(device) == number


def test_names_a_worker_was_told_come_first() -> None:
    """Another accelerator than the planned one was granted: the number is the planned one's."""
    known = on_masked_node((1, 3), ("2", "9"))
    assert known.identify_all(["2", "9", 1, "3"]) == [1, 3]
    error = refused(lambda: known.identify("5"))
    assert error.findings[0].why == "it has accelerators 0-3 (called 4, 3, 2, GPU-x, 9)"


def test_a_node_without_devices() -> None:
    bare = NodeDevices.of("j", Node(rank=0), {})
    assert refused(lambda: bare.identify(0)).findings[0].why == "it has no devices"


def test_an_inline_engine_locks_its_own_accelerators() -> None:
    """While it starts, its rank in the environment is that in the engine."""
    layout = roost.Layout(actor_num_gpus_per_node=0, rollout_num_gpus=4, rollout_num_gpus_per_engine=2)
    with (
        roost.Cluster(num_nodes=1, inline="1x4") as inline,
        inline.pool(layout) as pool,
        roost.RolloutManager(pool, LockingEngine) as rollout,
    ):
        workers = rollout.groups["rollout"].workers
        assert workers is not None
        assert workers.locked().wait() == [(0, 1), (2, 3)]
