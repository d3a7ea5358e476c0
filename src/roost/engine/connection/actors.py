"""Creates, finds and asks roost's own actors. The job's managers import this, so it imports little."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable
from typing import Any

import ray
from ray._private import worker as ray_worker
from ray.util.scheduling_strategies import NodeAffinitySchedulingStrategy

from roost.engine.connection.cluster_watch import (
    HEAD_WITHIN,
    ask_head,
    check_head,
    check_own_jobs,
    patient_get,
)
from roost.engine.workers.remote_errors import first_line
from roost.errors import JobEnded, NoAnswer, RoostError

NAMESPACE = "roost"


def logs_folder() -> str:
    """The directory of this Ray node's logs. Call it in a process of that node."""
    return str(ray_worker._global_node.get_logs_dir_path())


def job_namespace(job: str) -> str:
    return f"{NAMESPACE}.{job}"


def on_node(node_id: str) -> NodeAffinitySchedulingStrategy:
    return NodeAffinitySchedulingStrategy(node_id, soft=False)


def named(create: Callable[[], Any], within: float = 5.0) -> Any:
    """Create a named actor. Retries for a while: Ray frees the name of an ended actor with a delay."""
    deadline = time.monotonic() + within
    while True:
        try:
            return ask_head(create)
        except ValueError:
            if time.monotonic() > deadline:
                raise
            time.sleep(0.02)


def create_named(create: Callable[[], Any], name: str, error: type[RoostError], remedy: str) -> Any:
    """Create an actor of a name that the program chose. Raises this error when the name is taken."""
    try:
        return named(create)
    except ValueError as taken:
        what = f"an actor named {name!r} exists already"
        raise error(code="RE115", what=what, why=first_line(taken, 200), remedy=remedy) from None


def find_actor(name: str, job: str) -> Any:
    """An actor of a job. Raises `ValueError` when there is none."""
    return ask_head(lambda: ray.get_actor(name, namespace=job_namespace(job)))


def named_actors(within: float = HEAD_WITHIN) -> list[tuple[str, str]]:
    """The names and namespaces of all named actors. Raises `NoAnswer` after `within` seconds."""
    listed = ask_head(lambda: ray.util.list_named_actors(all_namespaces=True), within)
    return [(entry["name"], entry["namespace"]) for entry in listed]


def actors_of(job: str, within: float = HEAD_WITHIN) -> list[str]:
    """The names of a job's actors. Raises `NoAnswer` after `within` seconds."""
    return [name for name, namespace in named_actors(within) if namespace == job_namespace(job)]


def answer(refs: Any, what: str, within: float = 60.0) -> Any:
    """The answers of roost's own actors. Raises `NoAnswer` after the deadline, `JobEnded` if the actor is gone."""
    try:
        return patient_get(refs, within)
    except ray.exceptions.GetTimeoutError:
        raise _no_answer(what, within) from None
    except (ray.exceptions.RayTaskError, ray.exceptions.RayActorError) as error:
        raise _translated(error, what) from None


async def async_answer(refs: Any, what: str, within: float = 60.0) -> Any:
    """As `answer`, for one reference or a list of them."""
    waiting = asyncio.gather(*refs) if isinstance(refs, list) else refs
    try:
        return await asyncio.wait_for(waiting, within)
    except asyncio.TimeoutError:
        raise _no_answer(what, within) from None
    except (ray.exceptions.RayTaskError, ray.exceptions.RayActorError) as error:
        raise _translated(error, what) from None


def _no_answer(what: str, within: float) -> NoAnswer:
    return NoAnswer(
        code="RE112",
        what=f"{what} took more than {within:g} s",
        why="a process of roost does not answer",
        remedy="is a node overloaded or gone? `ray status` shows them",
    )


def _translated(error: Exception, what: str) -> Exception:
    """The error to raise here: the actor's own if it is one of roost's, or `JobEnded` if the actor is gone."""
    if isinstance(error, ray.exceptions.RayTaskError):
        return error.cause if isinstance(error.cause, RoostError) else error
    check_head()
    check_own_jobs()
    return JobEnded(
        code="RE106",
        what=f"{what} failed: the process of roost that does it is gone",
        why=first_line(error),
    )
