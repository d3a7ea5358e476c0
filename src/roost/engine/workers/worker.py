"""The base class of a user's workers. Every worker process imports this module, so it imports little."""

from __future__ import annotations

import inspect
import logging
import sys
from functools import cached_property
from typing import Any

from roost.engine.workers.worker_context import WorkerContext, current_worker
from roost.errors import ConfigurationError, Finding, LaunchError
from roost.placement.placement import Placement

START_WITHIN = 300.0  # seconds for all workers of a launch
# Names of groups and their views. A worker method with such a name could not be called through the group.
GROUP_NAMES = frozenset(
    (
        *("_afterwards", "_attached", "_backend", "_group", "_members", "_method", "_methods", "_observed"),
        *("_owned", "_processes", "_public", "_ranks", "_running", "_seat", "_started"),
        *("attach", "end_ranks", "execute_on", "handles", "is_running", "name", "placements"),
        *("restart_ranks", "shutdown", "this_generation", "wait_recovered", "worker_info_list", "world_size"),
    )
)

NOT_CALLED = ("create_group", "on_restart")  # methods of the class that a group does not call
# The attributes that roost sets on every worker.
ATTRIBUTES = (
    *("group_name", "local_rank", "placement", "rank", "share", "world_size"),
    *("_context", "_group_name", "_rank", "_world_size"),
)


class Worker:
    """Subclass it, then `MyWorker.create_group(...).launch(cluster, ...)`."""

    placement: Placement
    rank: int
    world_size: int
    local_rank: int
    group_name: str
    share: float | None
    _rank: int  # the names that older programs use
    _world_size: int
    _group_name: str
    _context: WorkerContext

    def __new__(cls, *args: Any, **kwargs: Any) -> Any:
        worker = super().__new__(cls)
        context = current_worker()
        if context is not None:  # set before __init__, so that __init__ can use them
            worker._context = context
            placement = worker.placement = context.placement
            # Plain attributes, so that a worker may set a `self.rank` of its own.
            worker.rank = worker._rank = placement.rank
            worker.world_size = worker._world_size = context.world_size
            worker.group_name = worker._group_name = context.group
            worker.local_rank = placement.local_rank
            worker.share = context.share
        return worker

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        pass

    def on_restart(self, generation: int) -> None:
        """Called in a restarted process after its constructor; `generation` counts the earlier starts of the rank."""

    @classmethod
    def create_group(cls, *args: Any, **kwargs: Any) -> GroupLauncher:
        """A group of workers with these constructor arguments; `launch` places and starts it."""
        return GroupLauncher(cls, args, kwargs)

    @cached_property  # a worker may set one of its own
    def _logger(self) -> logging.Logger:
        log = logging.getLogger(f"roost.worker.{self._context.name}")
        if not log.handlers:
            handler = logging.StreamHandler(sys.stderr)
            handler.setFormatter(logging.Formatter(f"[{self._context.name}] %(levelname)s %(message)s"))
            log.addHandler(handler)
            log.setLevel(logging.INFO)
            log.propagate = False
        return log

    def log_debug(self, message: str) -> None:
        self._logger.debug(message)

    def log_info(self, message: str) -> None:
        self._logger.info(message)

    def log_warning(self, message: str) -> None:
        self._logger.warning(message)

    def log_error(self, message: str) -> None:
        self._logger.error(message)


class GroupLauncher:
    """A worker class and its constructor arguments, to be launched."""

    def __init__(self, cls: type, args: tuple[Any, ...] = (), kwargs: dict[str, Any] | None = None) -> None:
        self.cls, self.args, self.kwargs = cls, args, kwargs or {}
        self.methods = method_names(cls)
        owners = {**dict.fromkeys(ATTRIBUTES, "workers"), **dict.fromkeys(GROUP_NAMES, "groups")}
        hidden = sorted(owners.keys() & set(self.methods))
        if hidden:
            raise ConfigurationError(
                *[
                    Finding(
                        code="RE115",
                        what=f"{cls.__name__}.{name} could not be called: {owners[name]} have a `{name}` of their own",
                        remedy="rename the method",
                    )
                    for name in hidden
                ]
            )

    def launch(
        self,
        cluster: Any,
        placement_strategy: Any = None,
        name: str | None = None,
        isolate_accelerator: bool = True,
        timeout: float = START_WITHIN,
        *,
        isolate_gpu: bool | None = None,
    ) -> Any:
        """Start one process per placement, all or none, and check that each is where it should be.

        Without a strategy, every accelerator gets a process, or every node where there are none. `isolate_gpu` is
        the older name of `isolate_accelerator`.
        """
        if not hasattr(cluster, "launch_group"):
            raise LaunchError(
                code="RE103",
                what=f"launch takes a cluster first, not a value of type {type(cluster).__name__}",
                remedy="such as launch(roost.Cluster(num_nodes=1), placement_strategy)",
            )
        isolate = isolate_accelerator if isolate_gpu is None else isolate_gpu
        return cluster.launch_group(self, placement_strategy, name, isolate, timeout)


def method_names(cls: type) -> list[str]:
    """The methods that can be called on workers of a class."""
    return [
        name
        for name in dir(cls)
        if not name.startswith("__") and name not in NOT_CALLED and callable(getattr(cls, name, None))
    ]


def takes_nothing(cls: type, method: str) -> bool:
    """Whether a method of a class has no parameter but `self`. False where that cannot be known."""
    found = inspect.getattr_static(cls, method, None)
    if not inspect.isfunction(found):  # a static or class method, or a callable object
        return False
    parameters = list(inspect.signature(found, follow_wrapped=False).parameters.values())
    return len(parameters) == 1 and parameters[0].kind in (
        inspect.Parameter.POSITIONAL_ONLY,
        inspect.Parameter.POSITIONAL_OR_KEYWORD,
    )
