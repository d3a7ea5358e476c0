"""Which backend stands behind a cluster: Ray, or this process alone. Ray is imported only when it is the one."""

from __future__ import annotations

from roost.engine.backend import Backend
from roost.engine.cluster_options import ClusterOptions, wants_inline
from roost.engine.inline_backend.inline_backend import InlineBackend, current_inline


def new_backend(options: ClusterOptions, inline: bool | str | None) -> Backend:
    """A new job, of which this process is the driver."""
    if wants_inline(inline):
        return InlineBackend(options)
    from roost.engine.ray_backend.ray_backend import RayBackend

    return RayBackend.create(options)


def attached_backend(address: str | None, job: str | None, inline: bool | str | None) -> Backend:
    """A job that is running, joined from any process of its cluster."""
    current = current_inline()
    mine = current is not None and address is None and job in (None, current.job)
    if wants_inline(inline) or (inline is None and mine):
        return InlineBackend.attach()
    from roost.engine.ray_backend.ray_backend import RayBackend

    return RayBackend.attach(address, job)
