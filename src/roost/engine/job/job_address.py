"""Finds the Ray of a job in the job's folder: the address of an embedded Ray is written nowhere else."""

from __future__ import annotations

import socket

from roost.engine.job.job_folder import past_jobs, read_processes

MOST_ASKED = 20  # folders, the latest first


def address_of(job: str) -> str | None:
    """The address of the Ray of a job's last run, if something answers there."""
    found = read_processes(job)
    address = str(found[0].get("address", "")) if found is not None else ""
    return address if _answers(address) else None


def latest_address() -> str | None:
    """The address of the Ray of this machine's latest job whose Ray answers."""
    return next((address for job in past_jobs()[:MOST_ASKED] if (address := address_of(job))), None)


def _answers(address: str) -> bool:
    host, _, port = address.rpartition(":")
    try:
        socket.create_connection((host.strip("[]"), int(port)), timeout=2).close()
    except (OSError, ValueError):
        return False
    return True
