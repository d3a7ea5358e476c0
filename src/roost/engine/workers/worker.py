"""The base class of a user's workers, and the worker that the calling code runs in."""

from __future__ import annotations

import logging
import os
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from roost.placement.placement import Placement

if TYPE_CHECKING:
    from roost.engine.group import GroupLauncher


@dataclass(frozen=True, slots=True, kw_only=True)
class WorkerContext:
    """The group, rank and place of a worker."""

    group: str
    job: str
    placement: Placement
    world_size: int
    master_addr: str
    master_port: int
    node: str  # its node, for messages
    devices: tuple[str, ...]
    share: float | None = None  # its share of each of its accelerators, if a plan sets one

    @property
    def name(self) -> str:
        return f"{self.group}:{self.placement.rank}"


_current: WorkerContext | None = None


def current_worker() -> WorkerContext | None:
    """The worker that the calling code runs in; None in the driver and in processes that roost did not start."""
    return _current


def _become_worker(context: WorkerContext | None) -> None:
    """Called in a worker's own process, before its class is constructed."""
    global _current
    _current = context


@contextmanager
def _running_as(context: WorkerContext | None) -> Iterator[None]:
    """Code inside the block runs in this worker. Blocks may nest: an inline worker may call another group."""
    outer = current_worker()
    _become_worker(context)
    try:
        yield
    finally:
        _become_worker(outer)


def describe_this_process() -> str:
    """A name for this process in messages: `actor rank 3 (pid 4711)`."""
    # The worker knows better than the environment, in which an inference engine sets ranks of its own.
    context = current_worker()
    group, rank = os.environ.get("ROOST_GROUP"), os.environ.get("RANK")
    if context is not None:
        group, rank = context.group, str(context.placement.rank)
    name = f"{group} rank {rank}" if group and rank else "the driver"
    return f"{name} (pid {os.getpid()})"


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
