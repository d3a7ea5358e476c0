"""Verbs that look at running jobs from any shell: the option for the Ray, and the connection to it."""

from __future__ import annotations

import os
import threading
from collections.abc import Iterator
from contextlib import contextmanager

import click

from roost.cli.ending import UNREACHABLE, tell_findings
from roost.config.fields import NAME
from roost.engine.connection.embedded import own_cluster_address
from roost.engine.job.job_folder import address_of, latest_address, past_jobs, read_processes
from roost.errors import ClusterError, Finding

CONNECT_WITHIN = 60.0  # seconds
_NO_RAY, _NAME_ONE = "there is no Ray to ask", "name one with --address"

address_option = click.option(
    "--address",
    metavar="ADDRESS",
    help="The Ray to ask. Default: RAY_ADDRESS, then the Ray of the job, then yours on this machine.",
)


def chosen_address(address: str | None, job: str | None) -> str | None:
    """The Ray that the option or RAY_ADDRESS names, else where the job runs; None when there is none.

    Without a job, or for one that this machine does not know: this user's own Ray, else an embedded one on which a job
    was started last.
    """
    named = address or os.environ.get("RAY_ADDRESS")
    if job is None or not _is_known(job):
        return named or own_cluster_address() or latest_address()
    return named or address_of(job) or own_cluster_address()


def _is_known(job: str) -> bool:
    return bool(NAME.fullmatch(job)) and (job in past_jobs() or read_processes(job) is not None)


def address_for(address: str | None, job: str) -> str | None:
    """The address to open a job with; None for a job of this machine whose Ray is gone. Raises if there is no Ray."""
    found = chosen_address(address, job)
    if found is None and not _is_known(job):
        raise no_ray("no Ray and no job")
    return found


def named_or_own(address: str | None, what: str = _NO_RAY, remedy: str = _NAME_ONE) -> str:
    """The Ray that the option or RAY_ADDRESS names, else this user's own. Raises if there is none."""
    found = address or os.environ.get("RAY_ADDRESS") or own_cluster_address()
    if not found:
        raise no_ray("no Ray", what, remedy)
    return found


def no_ray(runs: str, what: str = _NO_RAY, remedy: str = _NAME_ONE) -> ClusterError:
    why = f"no --address was given, RAY_ADDRESS is not set, and this user runs {runs} on this machine"
    return ClusterError(code="RE101", what=what, why=why, remedy=remedy)


@contextmanager
def connected(address: str) -> Iterator[str]:
    """This process is connected to Ray inside the `with` block, which gets its address. Starts nothing there."""
    from roost.engine.connection.cluster_watch import expect_end
    from roost.engine.connection.ray_connection import connect

    with _ended_if_late(address):
        connection = connect(address, None, may_start=False)
    expect_end()  # an embedded Ray ends with its job
    try:
        yield connection.address
    finally:
        with _ended_if_late(address):
            connection.close()


@contextmanager
def _ended_if_late(address: str) -> Iterator[None]:
    """End this process if the block takes too long: Ray's own calls cannot be interrupted otherwise."""
    timer = threading.Timer(CONNECT_WITHIN, _give_up, (address,))
    timer.daemon = True
    timer.start()
    try:
        yield
    finally:
        timer.cancel()


def _give_up(address: str) -> None:
    what = f"Ray at {address} has not answered in {CONNECT_WITHIN:g} s"
    remedy = "is the machine of its head overloaded, or stopped?"
    tell_findings([Finding(code="RE101", what=what, remedy=remedy)])
    os._exit(UNREACHABLE)
