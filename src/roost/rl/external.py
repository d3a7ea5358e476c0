"""External engines: they run already, and a rollout joins them by address."""

from __future__ import annotations

from collections.abc import Sequence
from typing import ClassVar

from roost.errors import Finding, LaunchError
from roost.rl.addresses import Address, http_status, is_fine
from roost.rl.engine_group import Endpoint
from roost.rl.role_arguments import refused

ANSWER_WITHIN = 5.0


class ExternalEngines:
    SERVER: ClassVar[str] = "external"

    def __init__(self, addresses: Sequence[Address], health_path: str) -> None:
        if not isinstance(health_path, str) or not health_path.startswith("/"):
            raise refused(health_path, "a path to ask for health", 'such as health_path="/health"')
        self.addresses, self._path = tuple(addresses), health_path

    def check(self) -> None:
        """Raise if an engine does not answer. One error names all of them."""
        answers = [(one, http_status(one.url + self._path, ANSWER_WITHIN)) for one in self.addresses]
        silent = [
            Finding(
                code="RE120",
                what=f"the external engine at {address.url} is not ready",
                why=f"{self._path} answered {answer}" if isinstance(answer, int) else answer,
                remedy="start it, or correct its address",
            )
            for address, answer in answers
            if not is_fine(answer)
        ]
        if silent:
            raise LaunchError(*silent)

    def endpoints(self) -> list[Endpoint]:
        return [
            Endpoint(url=one.url, server=self.SERVER, kind="regular", host=one.host, port=one.port)
            for one in self.addresses
        ]

    def ready(self, timeout: float) -> list[Endpoint]:
        within = max(0.01, min(ANSWER_WITHIN, timeout))
        return [one for one in self.endpoints() if is_fine(http_status(one.url + self._path, within))]
