"""Notes about jobs that Ray's head keeps. They outlive every process of the job."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

from ray.experimental import internal_kv

_SPACE = b"roost"


def leave_note(job: str, run: str, note: Mapping[str, Any]) -> None:
    """Leave a note about one run of the job."""
    internal_kv._internal_kv_put(_key(job, run), json.dumps(note).encode(), overwrite=False, namespace=_SPACE)


def read_note(job: str, run: str) -> dict[str, Any] | None:
    """The note about one run of the job; None if there is none, or if this process has disconnected meanwhile."""
    client = internal_kv.global_gcs_client
    found = None if client is None else client.internal_kv_get(_key(job, run), _SPACE)
    return None if found is None else json.loads(found)


def _key(job: str, run: str) -> bytes:
    return f"taken-down/{job}/{run}".encode()
