"""Asking actors of roost, and naming them. The job's managers import this, so it imports little."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any

import ray
from ray.util.scheduling_strategies import NodeAffinitySchedulingStrategy

from roost.engine.workers.remote_errors import first_line
from roost.errors import Finding, JobEnded, NoAnswer, RoostError

NAMESPACE = "roost"


def job_namespace(job: str) -> str:
    return f"{NAMESPACE}.{job}"


def on_node(node_id: str) -> NodeAffinitySchedulingStrategy:
    return NodeAffinitySchedulingStrategy(node_id, soft=False)


def named(create: Callable[[], Any], within: float = 5.0) -> Any:
    """Create a named actor. Tries again for a while: Ray forgets the name of an ended actor with a delay."""
    deadline = time.monotonic() + within
    while True:
        try:
            return create()
        except ValueError:
            if time.monotonic() > deadline:
                raise
            time.sleep(0.02)


def answer(refs: Any, what: str, within: float = 60.0) -> Any:
    """The answers of roost's own actors. Raises `NoAnswer` after the deadline, `JobEnded` if the actor is gone."""
    try:
        return ray.get(refs, timeout=within)
    except ray.exceptions.GetTimeoutError:
        raise NoAnswer(
            Finding(
                code="RE112",
                what=f"{what} took more than {within:g} s",
                why="a process of roost does not answer",
                remedy="is a node overloaded or gone? `ray status` shows them",
            )
        ) from None
    except ray.exceptions.RayTaskError as error:
        # Errors of roost are raised as if they had been raised here.
        raise (error.cause if isinstance(error.cause, RoostError) else error) from None
    except ray.exceptions.RayActorError as error:
        raise JobEnded(
            Finding(
                code="RE106",
                what=f"{what} failed: the process of roost that does it is gone",
                why=first_line(error),
            )
        ) from error
