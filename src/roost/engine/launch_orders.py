"""What to run as each component of a plan, checked before anything is started."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from typing import Any

from roost.config.fields import NAME, NAME_RULE
from roost.config.supervise import RestartPolicy
from roost.engine.backend import GroupOrder
from roost.engine.workers.arguments import check_scattered
from roost.engine.workers.result import GroupResult
from roost.engine.workers.worker import GroupLauncher, Worker
from roost.errors import Finding, LaunchError, RoostError, WorkerError, nearest
from roost.planning.component_plan import ComponentPlan
from roost.planning.plan import Plan

UNDER_ANOTHER_NAME = "launch it under another name; the groups of a plan are named like its components"


def orders_for(plan: Plan, workers: Mapping[str, Any], skip: Collection[str] = ()) -> list[GroupOrder]:
    """An order for each component that runs. Everything that does not fit is reported together."""
    if not isinstance(workers, Mapping):
        raise LaunchError(
            code="RE122",
            what=f"workers are a mapping of components to classes, not {type(workers).__name__}",
            remedy='such as {"actor": Actor, "rollout": Rollout.create_group(model="...")}',
        )
    if isinstance(skip, str) or not isinstance(skip, Collection):
        is_text = isinstance(skip, str)
        raise LaunchError(
            code="RE122",
            what=f"skip is a list of components, not {'a text' if is_text else type(skip).__name__}",
            remedy=f"write skip=[{skip!r}]"
            if is_text
            else 'such as skip=["reward"]; leave it out to skip none',
        )
    runs = [name for name, part in plan.components.items() if not part.runs_nothing and name not in skip]
    known = list(plan.components)
    problems = [
        Finding(
            code="RE122",
            what=f"no worker for component {name!r}",
            why=f"the plan has {', '.join(known)}; workers are given for {', '.join(map(str, workers)) or 'none'}",
            remedy=f"give it a class: workers={{{name!r}: ...}}, or leave it out with skip=[{name!r}]",
        )
        for name in runs
        if name not in workers
    ]
    for name in [*workers, *skip]:
        if name not in plan.components:
            what = f"the plan has no component {name!r}"[:200]
            problems.append(Finding(code="RE122", what=what, remedy=nearest(str(name), known)))
        elif name in workers and plan.components[name].runs_nothing:
            what = f"component {name!r} is a placeholder and runs nothing"
            problems.append(Finding(code="RE122", what=what, remedy="leave it out of the workers"))
    orders = []
    for name in runs:
        if name in workers:
            try:
                orders.append(order_for(plan, plan.components[name], workers[name]))
            except RoostError as error:
                problems += error.findings
    if problems:
        raise LaunchError(*problems)
    return orders


def order_for(
    plan: Plan, component: ComponentPlan, worker: Any, name: str | None = None, charged: bool = True
) -> GroupOrder:
    """One component under a name. Its processes are told their shares where they are `charged` any."""
    launcher = _launcher(worker, component.name)
    group = name or component.name
    if not isinstance(group, str) or not NAME.fullmatch(group):
        raise LaunchError(
            code="RE115",
            what=f"{group!r} is not a group name",
            remedy=NAME_RULE,
        )
    arguments = [*launcher.args, *launcher.kwargs.values()]
    if any(isinstance(one, GroupResult) or getattr(one, "result", None) is not None for one in arguments):
        what, remedy = f"{group}: a result cannot be an argument of a constructor", "pass result.wait()"
        raise LaunchError(code="RE113", what=what, remedy=remedy)
    try:
        check_scattered(group, arguments, component.world_size, "processes")
    except WorkerError as error:
        raise LaunchError(*error.findings) from None
    shares = [plan.share_of(component.name, rank) for rank in range(component.world_size)] if charged else ()
    return GroupOrder(
        name=group,
        component=component,
        worker=launcher,
        shares=tuple(shares),
        policy=plan.supervise.get(component.name, RestartPolicy()),
    )


def _launcher(worker: Any, component: str) -> GroupLauncher:
    if isinstance(worker, GroupLauncher):
        return worker
    if isinstance(worker, type) and issubclass(worker, Worker):
        return worker.create_group()
    raise LaunchError(
        code="RE122",
        what=f"{getattr(worker, '__name__', f'a value of type {type(worker).__name__}')} is not a worker for component {component!r}",
        remedy="pass a subclass of roost.Worker, or MyWorker.create_group(...)",
    )


def aftermath_of_launch(orders: Sequence[GroupOrder]) -> str:
    """What becomes of the other processes when one cannot start, for the error."""
    return (
        "the whole group was taken down"
        if len(orders) == 1
        else "all that was started with it was taken down"
    )


def aftermath_of_restart(ranks: Sequence[int], world_size: int) -> str:
    return "the whole group was taken down" if len(ranks) == world_size else "the other ranks go on"
