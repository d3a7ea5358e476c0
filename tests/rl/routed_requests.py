"""Requests to engines or to their router, from several clients."""

from __future__ import annotations

import itertools
import json
import random
import threading
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from http.client import HTTPConnection, HTTPException
from typing import Any
from urllib.parse import urlsplit


@dataclass(frozen=True, slots=True, kw_only=True)
class Answer:
    """What came of one request: what the engine said, or an error."""

    number: int = -1
    text: str | None = None
    pid: int = 0
    error: str | None = None
    asked: Mapping[str, Any] = field(default_factory=dict)  # what the engine was sent

    @classmethod
    def of(
        cls, url: str, path: str, body: object, number: int = -1, connection: HTTPConnection | None = None
    ) -> Answer:
        parts = urlsplit(url)
        used = connection or HTTPConnection(parts.hostname or "", parts.port, timeout=120)
        try:
            used.request("POST", path, json.dumps(body), {"content-type": "application/json"})
            answer = used.getresponse()
            content = answer.read()
        except (OSError, HTTPException) as error:
            used.close()  # a client with a connection of its own opens it again
            return cls(number=number, error=f"{type(error).__name__}: {error}")
        finally:
            if connection is None:
                used.close()
        if answer.status != 200:
            return cls(number=number, error=f"{answer.status} {content.decode(errors='replace')}")
        said = json.loads(content)
        return cls(
            number=number, text=said.get("text"), pid=said.get("pid", 0), asked=said.get("asked") or {}
        )


def prompt(number: int) -> str:
    """No two begin alike: a router that knows of caches sends those to the same engine."""
    return random.Random(number).randbytes(16).hex()


def ask(url: str, number: int, connection: HTTPConnection | None = None) -> Answer:
    return Answer.of(url, "/generate", {"text": prompt(number)}, number, connection)


def ask_many(
    *urls: str, requests: int, clients: int = 8, progress: Callable[[int], None] = lambda done: None
) -> list[Answer]:
    """Every request once, in turn to the addresses, from clients that keep their connections; by number."""
    numbers, done = itertools.count(), itertools.count(1)
    answers: dict[int, Answer] = {}

    def client() -> None:
        connections = {}
        for url in urls:
            parts = urlsplit(url)
            connections[url] = HTTPConnection(parts.hostname or "", parts.port, timeout=120)
        while (number := next(numbers)) < requests:
            url = urls[number % len(urls)]
            answers[number] = ask(url, number, connections[url])
            progress(next(done))
        for connection in connections.values():
            connection.close()

    threads = [threading.Thread(target=client) for _ in range(clients)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    return [answers[number] for number in sorted(answers)]
