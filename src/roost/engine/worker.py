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

    context: WorkerContext

    def __new__(cls, *args: Any, **kwargs: Any) -> Any:
        worker = super().__new__(cls)
        if _starting is not None:  # before __init__, so that it can use all of this
            worker.context = _starting
        return worker

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        pass

    @classmethod
    def create_group(cls, *args: Any, **kwargs: Any) -> GroupLauncher:
        """Workers constructed with these arguments, once `launch` says where."""
        from roost.engine.group import GroupLauncher

        return GroupLauncher(cls, args, kwargs)

    @property
    def placement(self) -> Placement:
        return self.context.placement

    @property
    def rank(self) -> int:
        return self.context.placement.rank

    @property
    def world_size(self) -> int:
        return self.context.world_size

    @property
    def local_rank(self) -> int:
        return self.context.placement.local_rank

    @property
    def group_name(self) -> str:
        return self.context.group

    _rank, _world_size, _group_name = rank, world_size, group_name

    @property
    def logger(self) -> logging.Logger:
        log = logging.getLogger(f"roost.worker.{self.context.name}")
        if not log.handlers:
            handler = logging.StreamHandler(sys.stderr)
            handler.setFormatter(logging.Formatter(f"[{self.context.name}] %(levelname)s %(message)s"))
            log.addHandler(handler)
            log.setLevel(logging.INFO)
            log.propagate = False
        return log

    def log_debug(self, message: str) -> None:
        self.logger.debug(message)

    def log_info(self, message: str) -> None:
        self.logger.info(message)

    def log_warning(self, message: str) -> None:
        self.logger.warning(message)

    def log_error(self, message: str) -> None:
        self.logger.error(message)
