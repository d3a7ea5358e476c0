"""A worker whose child processes end with it."""

from __future__ import annotations

from typing import Any

from roost.engine.here import inline_here
from roost.engine.processes.confinement import confine
from roost.engine.workers.worker import Worker


class ConfinedWorker(Worker):
    """Children of its process end within seconds of it, whatever ends it; not inline, in the user's own process."""

    def __new__(cls, *args: Any, **kwargs: Any) -> Any:
        worker = super().__new__(cls)
        if hasattr(worker, "_context") and inline_here() is None:
            confine()  # before the constructor, which may start children
        return worker
