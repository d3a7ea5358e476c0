"""How many plans a job keeps, and what becomes of those whose processes moved."""

from __future__ import annotations

import asyncio
import pickle

import pytest

from roost.engine import kept_plans
from roost.engine.job.job_reader import JobReader
from roost.engine.job.managers import NodeManager


@pytest.fixture
def manager(monkeypatch: pytest.MonkeyPatch) -> NodeManager:
    monkeypatch.setattr(kept_plans, "MOST_PLANS", 3)
    return NodeManager()


def test_the_manager_and_the_readers_of_a_job_keep_the_latest_plans(manager: NodeManager) -> None:
    reader = JobReader("job")
    for number in range(5):
        plan = pickle.dumps(f"plan {number}")
        manager.add_plan(str(number), plan)
        kept_plans.keep_plan(reader._plans, str(number), pickle.loads(plan))
    assert list(map(pickle.loads, manager.get_plans())) == ["plan 2", "plan 3", "plan 4"]
    assert list(reader._plans) == list(manager._plans)


def test_what_a_plan_became_is_forgotten_when_it_is_launched_again_or_dropped(manager: NodeManager) -> None:
    manager.add_plan("first", b"")
    manager.add_plan("moved", b"", instead_of="first")
    manager.add_plan("moved twice", b"", instead_of="moved")
    assert manager._became == {"first": "moved twice", "moved": "moved twice"}
    manager.add_plan("first", b"")
    assert manager._became == {"moved": "moved twice"}
    for number in range(3):
        manager.add_plan(str(number), b"")
    assert manager._became == {}


def test_node_groups_may_arrive_before_the_layout(manager: NodeManager) -> None:
    """Ray delivers calls of an asynchronous actor in any order."""

    async def told() -> list[str]:
        early = asyncio.create_task(manager.add_groups({"arms": 1}))
        await asyncio.sleep(0)  # it waits
        await manager.set_layout({"groups": {"tail": 2}})
        await early
        await manager.remove_groups(["tail"])
        return list((await manager.get_layout())["groups"])

    assert asyncio.run(told()) == ["arms"]
