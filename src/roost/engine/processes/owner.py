"""The owner of a port lease or a lock: a process, or the job as a whole."""

from __future__ import annotations

import secrets
from dataclasses import dataclass, field

from roost.engine.processes.process_facts import Process


@dataclass(frozen=True, slots=True, kw_only=True)
class Owner:
    """The owner of one lease or lock. Without a process the job owns it, until the job ends."""

    process: Process | None = None
    token: str = field(default_factory=lambda: secrets.token_hex(8))  # one process may own many
    who: str = field(default="", compare=False)  # for messages
