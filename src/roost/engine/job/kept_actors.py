"""The named actors of channels and data buffers. The job's agents keep them as long as the job lives."""

from __future__ import annotations

import os
from contextlib import suppress
from typing import Any

import ray

from roost.engine.connection.actors import answer, find_actor, job_namespace
from roost.engine.job.agents import agent_on, head_agent
from roost.engine.job.managers import check_connected, current_job, is_running
from roost.errors import ChannelError, JobEnded, RoostError

START_WITHIN = 120.0  # seconds
_ended: set[str] = set()  # ids of actors that this process found dead: Ray still finds them by name for long


def find_kept(actor: str) -> tuple[str, Any]:
    """The job of this process, and its living actor of this name or None."""
    check_connected()
    told = os.environ.get("ROOST_JOB")  # trying this name costs less than asking for the job's name
    if told and (found := _living(actor, told)) is not None:
        return told, found
    job = current_job()
    return job, _living(actor, job)


def _living(actor: str, job: str) -> Any:
    with suppress(ValueError):
        found = find_actor(actor, job)
        return None if found._actor_id.hex() in _ended else found
    return None


def find_or_keep(actor: str, cls: type, on_this_node: bool = False) -> tuple[str, Any]:
    """The job of this process, and its actor of this name, which lives as long as the job. Starts the actor if needed.

    The actor starts on the job's first node; with `on_this_node`, on this node if it is one of the job's.
    """
    job, found = find_kept(actor)
    if found is not None:
        return job, found
    agent = agent_on(job, ray.get_runtime_context().get_node_id()) if on_this_node else None
    kept = (agent or head_agent(job)).keep.remote(actor, job_namespace(job), cls)
    return job, answer(kept, f"starting {actor}", START_WITHIN)


def process_ended(job: str, host: Any, what: str, error: JobEnded) -> RoostError:
    """The error for a channel or buffer whose process died; `error` itself if the job has ended."""
    if not is_running(job):
        return error
    _ended.add(host._actor_id.hex())
    return ChannelError(
        code="RE126",
        what=what,
        why=error.findings[0].why,
        remedy="look for what killed it, such as a lack of memory; a process that opens it again gets a new one",
    )
