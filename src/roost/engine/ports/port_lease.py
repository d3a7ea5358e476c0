"""A lease of ports on one node."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import AbstractContextManager
from dataclasses import dataclass, field

from roost.config.ranks import ranges


@dataclass(frozen=True, slots=True, kw_only=True, repr=False)
class PortLease(AbstractContextManager["PortLease"]):
    """Ports of one host that only the owner may use. A server that sets SO_REUSEADDR can listen on them at once."""

    host: str  # the node's address, as Ray knows it
    ports: list[int]
    _give_back: Callable[[], object] = field(compare=False)

    @property
    def port(self) -> int:
        return self.ports[0]

    def release(self) -> None:
        """Give the ports back. May be called twice, and on a copy in another process of the job."""
        self._give_back()

    def __exit__(self, *_: object) -> None:
        self.release()

    def __repr__(self) -> str:
        return f"<lease of port{'s' * (len(self.ports) > 1)} {ranges(self.ports)} on {self.host}>"
