"""The engines that a router sends requests to. roost changes them through the router's own API.

`GET /workers` lists them, `POST /workers` adds one and `DELETE /workers/ID` removes one. The router does both in
the background, so its list is read until it shows the change.
"""

from __future__ import annotations

import json
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, cast

from roost.errors import LaunchError
from roost.rl.addresses import http_answer
from roost.rl.engine_group import Endpoint

ANSWER_WITHIN = 5.0
LOOK_EVERY = 0.05


@dataclass(frozen=True, slots=True, kw_only=True)
class RoutedEngine:
    """An engine as its router lists it."""

    url: str
    kind: str
    is_healthy: bool  # by the router's own checks
    bootstrap_port: int | None = None


class RouterList:
    def __init__(self, url: str) -> None:
        self._url = url

    def engines(self) -> list[RoutedEngine]:
        return [
            RoutedEngine(
                url=url,
                kind=str(entry.get("worker_type", "regular")),
                is_healthy=bool(entry.get("is_healthy", True)),
                bootstrap_port=entry.get("bootstrap_port"),
            )
            for url, entry in sorted(self._entries().items())
        ]

    def bring_to(self, wanted: Sequence[Endpoint], within: float) -> dict[str, str]:
        """Remove the engines that are not wanted and add the missing ones.

        Returns why engines did not join, by URL. Raises if the router does not answer.
        """
        deadline = time.monotonic() + within
        present, urls = self._entries(), {one.url for one in wanted}
        for url in present.keys() - urls:
            self._ask("DELETE", f"/workers/{present[url]['id']}")
        joining = {one.url: self._add(one) for one in wanted if one.url not in present}
        refused: dict[str, str] = {}
        while True:
            present = self._entries()
            for url, number in list(joining.items()):
                reason = "" if url in present else self._refusal(number)
                if url in present or reason:
                    del joining[url]
                    refused.update({url: reason} if reason else {})
            leaving = present.keys() - urls
            if not joining and not leaving:
                return refused
            if time.monotonic() > deadline:
                if leaving:
                    raise self._failed(f"{', '.join(sorted(leaving))} is still listed after {within:g} s")
                return {**refused, **dict.fromkeys(joining, f"it is not listed after {within:g} s")}
            time.sleep(LOOK_EVERY)

    def _entries(self) -> dict[str, Mapping[str, Any]]:
        """The router's entry of each engine, by URL."""
        try:
            entries = self._ask("GET", "/workers")["workers"]
            return {entry["url"]: {**entry, "id": entry["id"]} for entry in entries}
        except (KeyError, TypeError):
            why = "its answer to GET /workers is not a list of engines, each with `url` and `id`"
            raise self._failed(why) from None

    def _add(self, engine: Endpoint) -> str:
        body: dict[str, Any] = {"url": engine.url, "worker_type": engine.kind}
        if engine.bootstrap_port is not None:
            body["bootstrap_port"] = engine.bootstrap_port
        return str(self._ask("POST", "/workers", body).get("worker_id", ""))

    def _refusal(self, number: str) -> str:
        """Why the router gave up adding an engine; empty if it did not."""
        answer = http_answer(f"{self._url}/workers/{number}", ANSWER_WITHIN)
        if isinstance(answer, str) or answer[0] != 200:
            return ""
        status = _json(answer[1]).get("job_status")
        if not isinstance(status, dict) or status.get("status") != "failed":
            return ""
        return str(status.get("message") or "it says no reason")

    def _ask(self, method: str, path: str, body: Mapping[str, Any] | None = None) -> Mapping[str, Any]:
        content = json.dumps(body).encode() if body else None
        answer = http_answer(self._url + path, ANSWER_WITHIN, method, content)
        if isinstance(answer, str):
            raise self._failed(f"{method} {path}: {answer}")
        status, text = answer
        # A DELETE finds nothing if another program has removed the engine before.
        if not 200 <= status < 300 and not (method == "DELETE" and status == 404):
            raise self._failed(
                f"{method} {path}: status {status} {text[:200].decode(errors='replace')}".strip()
            )
        return _json(text)

    def _failed(self, why: str) -> LaunchError:
        return LaunchError(
            code="RE129",
            what=f"the router at {self._url} does not keep its list of engines",
            why=why,
            remedy="a router of your own must answer GET, POST and DELETE of /workers as sglang-router does",
        )


def _json(text: bytes) -> Mapping[str, Any]:
    try:
        found = json.loads(text or b"{}")
    except ValueError:
        return {}
    return cast(Mapping[str, Any], found) if isinstance(found, dict) else {}
