"""The base class of a user's workers."""

from __future__ import annotations

import logging
import sys
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from roost.placement.placement import Placement

if TYPE_CHECKING:
    from roost.engine.group import GroupLauncher


@dataclass(frozen=True, slots=True, kw_only=True)
class WorkerContext:
    """Who a worker is."""

    group: str
    job: str
    placement: Placement
    world_size: int
    master_addr: str
    master_port: int
    node: str  # its node in words
    devices: tuple[str, ...]
    share: float | None = None  # what it is charged of each of its accelerators, where a plan says so

    @property
    def name(self) -> str:
        return f"{self.group}:{self.placement.rank}"


_starting: WorkerContext | None = None


def begin(context: WorkerContext | None) -> None:
    """The next worker constructed in this process is this one."""
    global _starting
    _starting = context


class Worker:
    """Subclass it, then `MyWorker.create_group(...).launch(cluster, ...)`."""

    placement: Placement
    rank: int
    world_size: int
    local_rank: int
    group_name: str
    share: float | None
    _rank: int  # as older programs call them
    _world_size: int
    _group_name: str
    _context: WorkerContext

    def __new__(cls, *args: Any, **kwargs: Any) -> Any:
        worker = super().__new__(cls)
        if _starting is not None:  # before __init__, so that it can use all of this
            worker._context = _starting
            place = worker.placement = _starting.placement
            # Plain attributes: a worker that sets its own `self.rank` may do so.
            worker.rank = worker._rank = place.rank
            worker.world_size = worker._world_size = _starting.world_size
            worker.group_name = worker._group_name = _starting.group
            worker.local_rank = place.local_rank
            worker.share = _starting.share
        return worker

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        pass

    @classmethod
    def create_group(cls, *args: Any, **kwargs: Any) -> GroupLauncher:
        """Workers constructed with these arguments, once `launch` says where."""
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
