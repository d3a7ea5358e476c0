"""The base class of a user's workers. Every worker process imports this module, so it imports little."""

from __future__ import annotations

import logging
import sys
from typing import TYPE_CHECKING, Any

from roost.engine.workers.worker_context import WorkerContext, current_worker
from roost.placement.placement import Placement

if TYPE_CHECKING:
    from roost.engine.group import GroupLauncher


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

    @classmethod
    def create_group(cls, *args: Any, **kwargs: Any) -> GroupLauncher:
        """A group of workers with these constructor arguments; `launch` places and starts it."""
        from roost.engine.group import GroupLauncher

        return GroupLauncher(cls, args, kwargs)

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
        self._logger().debug(message)

    def log_info(self, message: str) -> None:
        self._logger().info(message)

    def log_warning(self, message: str) -> None:
        self._logger().warning(message)

    def log_error(self, message: str) -> None:
        self._logger().error(message)
