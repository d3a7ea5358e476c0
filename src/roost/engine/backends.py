"""Chooses the backend of a cluster, Ray or inline. Imports Ray only for the Ray backend."""

from __future__ import annotations

import signal
from typing import TYPE_CHECKING

from roost.engine.backend import Backend
from roost.engine.cluster_options import ClusterOptions, wants_inline
from roost.engine.connection.ray_settings import settings_without_a_head
from roost.engine.connection.signals import held_signals
from roost.engine.inline_backend.inline_backend import InlineBackend, current_inline

if TYPE_CHECKING:
    from roost.engine.ray_backend.ray_backend import RayBackend


def new_backend(options: ClusterOptions) -> Backend:
    """Start a new job. This process is its driver."""
    if options.inline:
        return InlineBackend(options)
    return _ray_backend().create(options)


def attached_backend(address: str | None, job: str | None, inline: bool | str | None) -> Backend:
    """Join a running job, from any process of its cluster."""
    current = current_inline()
    mine = current is not None and address is None and job in (None, current.job)
    if wants_inline(inline) or (inline is None and mine):
        return InlineBackend.attach()
    return _ray_backend().attach(address, job)


def _ray_backend() -> type[RayBackend]:
    # The import takes long, and in some of its steps Python ignores what a signal handler raises. So signals wait.
    with held_signals(signal.SIGTERM, signal.SIGINT), settings_without_a_head():
        from roost.engine.ray_backend.ray_backend import RayBackend
    return RayBackend
