"""Trainers: one process for each accelerator of a role, called like one object."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import AbstractContextManager
from typing import Any

from roost.engine.group import WorkerGroup
from roost.engine.placement_groups import PlacementGroups, RoleGroup
from roost.engine.pool import Pool
from roost.engine.workers.result import GroupResult, seconds
from roost.engine.workers.worker import START_WITHIN, GroupLauncher, Worker
from roost.errors import WorkerError
from roost.rl.role_arguments import launcher_of, pool_of


def _submitted(method: str) -> Callable[..., GroupResult]:
    def call(self: TrainGroup, *args: Any, **kwargs: Any) -> GroupResult:
        result: GroupResult = getattr(self.workers, method)(*args, **kwargs)
        return result

    call.__name__, call.__qualname__ = f"async_{method}", f"TrainGroup.async_{method}"
    call.__doc__ = f"Start `{method}` on every rank; wait for or await what it returns."
    return call


def _waited(method: str) -> Callable[..., list[Any]]:
    submit = _submitted(method)

    def call(self: TrainGroup, *args: Any, **kwargs: Any) -> list[Any]:
        return submit(self, *args, **kwargs).wait(self.timeout)

    call.__name__, call.__qualname__ = method, f"TrainGroup.{method}"
    call.__doc__ = f"Run `{method}` on every rank at once; the values in rank order."
    return call


class TrainGroup(AbstractContextManager["TrainGroup"]):
    """The trainers of a role of a pool: rank i sits on the role's i-th accelerator.

    `workers` is `Trainer.create_group(...)`, or the class itself. `pool` is a pool, or the role's entry of
    `create_placement_groups`. Arguments of calls are the same for every rank, or one for each with `roost.scatter`.
    `timeout` is how long a blocking call may take; a rank that dies or raises ends the call at once.
    """

    init, async_init = _waited("init"), _submitted("init")
    train, async_train = _waited("train"), _submitted("train")
    eval, async_eval = _waited("eval"), _submitted("eval")
    save, async_save = _waited("save"), _submitted("save")
    update_weights, async_update_weights = _waited("update_weights"), _submitted("update_weights")
    offload, async_offload = _waited("offload"), _submitted("offload")
    onload, async_onload = _waited("onload"), _submitted("onload")

    def __init__(
        self,
        workers: GroupLauncher | type[Worker],
        pool: Pool | RoleGroup | PlacementGroups,
        role: str | None = None,
        *,
        name: str | None = None,
        timeout: float | None = None,
        start_timeout: float = START_WITHIN,
        isolate_accelerator: bool = True,
    ) -> None:
        self._launcher = launcher_of(workers, Worker, "roost.Worker")
        self.pool = pool_of(pool)
        self.role = role or (pool.role if isinstance(pool, RoleGroup) else "actor")
        self.name = name or self.role
        self.timeout = seconds(timeout)
        self._start_timeout, self._isolate = start_timeout, isolate_accelerator
        self._workers: WorkerGroup | None = None
        self.recreate()

    @property
    def workers(self) -> WorkerGroup:
        """The trainers as a worker group, for methods that this class does not have."""
        if self._workers is None:
            raise WorkerError(
                code="RE116",
                what=f"the trainers of {self.name!r} were released",
                remedy="recreate() starts them again on the same accelerators",
            )
        return self._workers

    @property
    def handles(self) -> list[Any]:
        """The Ray actors by rank, for programs that call them directly."""
        return self.workers.handles

    _actor_handlers = handles  # the name that older programs use

    @property
    def world_size(self) -> int:
        return self.pool.component(self.role).world_size

    def __len__(self) -> int:
        return self.world_size

    def release(self) -> None:
        """End the trainers and keep their accelerators. May be called twice."""
        workers, self._workers = self._workers, None
        if workers is not None:
            workers.shutdown()

    def recreate(self) -> None:
        """Start the trainers again, each on its accelerator."""
        self.release()
        self._workers = self.pool.launch(
            self._launcher, self.role, self.name, self._start_timeout, self._isolate
        )

    shutdown = release

    def __exit__(self, *_: object) -> None:
        self.release()

    def __repr__(self) -> str:
        return f"<train group {self.name}, {self.world_size} trainers{'' if self._workers else ', released'}>"
