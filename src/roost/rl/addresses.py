"""Addresses of engines: parsing them, and asking an engine for its health."""

from __future__ import annotations

import http.client
import ipaddress
import re
import socket
from collections.abc import Sequence
from dataclasses import dataclass
from urllib.parse import urlsplit

from roost.errors import ConfigurationError, Finding, shown

_REMEDY = "write host:port, such as 10.0.0.1:30000, http://node-1:30000 or [fd00::1]:30000"
_NAME = re.compile(r"[a-z0-9_]([a-z0-9_-]{0,61}[a-z0-9_])?(\.[a-z0-9_]([a-z0-9_-]{0,61}[a-z0-9_])?)*\.?")
_NUMBERS = re.compile(r"[0-9.]+")


@dataclass(frozen=True, slots=True, order=True)
class Address:
    host: str  # IPv6 without its brackets
    port: int

    @property
    def url(self) -> str:
        return f"http://{self}"

    def __str__(self) -> str:
        return f"[{self.host}]:{self.port}" if ":" in self.host else f"{self.host}:{self.port}"


def parse_addresses(texts: Sequence[str]) -> tuple[Address, ...]:
    """Parse `host:port`, with or without `http://`; IPv6 in brackets. One error reports all problems."""
    found: dict[Address, None] = {}
    problems = []
    for index, text in enumerate(texts):
        here = (index,) if len(texts) > 1 else ()
        try:
            address = _parsed(text)
        except _Unfit as unfit:
            what = f"{unfit.seen} is not the address of an engine"
            problems.append(Finding(code=unfit.code, what=what, why=unfit.why, remedy=_REMEDY, path=here))
            continue
        if address in found:
            what = f"{address} is listed twice"
            problems.append(Finding(code="RC105", what=what, remedy="list each engine once", path=here))
        found[address] = None
    if problems:
        raise ConfigurationError(*problems)
    return tuple(found)


class _Unfit(Exception):
    def __init__(self, code: str, seen: str, why: str) -> None:
        super().__init__(code, seen, why)
        self.code, self.seen, self.why = code, seen, why


def _parsed(text: object) -> Address:
    if not isinstance(text, str):
        raise _Unfit("RC103", f"a value of type {type(text).__name__}", "an address is text")
    if "@" in text:
        raise _Unfit("RC105", "a text with a login", "roost asks engines without one")
    scheme, found, rest = text.strip().rpartition("://")
    if found and scheme.lower() != "http":
        raise _Unfit("RC105", shown(text), f"roost speaks http to engines, not {scheme[:20]}")
    rest = rest.removesuffix("/")
    if re.search(r"[/?#]", rest):
        raise _Unfit("RC105", shown(text), "an address ends with the port")
    host, colon, port = rest.rpartition(":")
    if not rest.startswith("[") and ":" in host:
        raise _Unfit("RC105", shown(text), "IPv6 goes into brackets")
    if not colon or (rest.startswith("[") and rest.endswith("]")):
        raise _Unfit("RC102", shown(text), "the port is missing")
    if not re.fullmatch(r"[0-9]{1,5}", port) or not 1 <= int(port) <= 65535:
        raise _Unfit("RC104", shown(text), "a port is a number from 1 to 65535")
    return Address(_host(host, text), int(port))


def _host(host: str, text: str) -> str:
    if host.startswith("["):
        try:
            return str(ipaddress.IPv6Address(host[1:-1] if host.endswith("]") else ""))
        except ValueError:
            raise _Unfit("RC105", shown(text), "what is in brackets is not an IPv6 address") from None
    host = host.lower()
    if _NUMBERS.fullmatch(host):
        try:
            return str(ipaddress.IPv4Address(host))
        except ValueError:
            raise _Unfit("RC105", shown(text), "the host is not an IPv4 address") from None
    if len(host) > 253 or not _NAME.fullmatch(host):
        raise _Unfit("RC105", shown(text), "the host is missing" if not host else "the host is not a name")
    return host


def is_fine(answer: int | str) -> bool:
    return isinstance(answer, int) and 200 <= answer < 300


def http_status(url: str, timeout: float) -> int | str:
    """The status of a GET, or in words why there is none. Does not use the proxies of the environment."""
    answer = http_answer(url, timeout, most_bytes=0)
    return answer if isinstance(answer, str) else answer[0]


def http_answer(
    url: str,
    timeout: float,
    method: str = "GET",
    body: bytes | None = None,
    most_bytes: int = 16 * 1024 * 1024,
) -> tuple[int, bytes] | str:
    """Status and first bytes of an answer, or in words why there is none. The request's body is JSON."""
    parts = urlsplit(url)
    connection = http.client.HTTPConnection(parts.hostname or "", parts.port, timeout=timeout)
    path = (parts.path or "/") + (f"?{parts.query}" if parts.query else "")
    try:
        connection.request(method, path, body, {"content-type": "application/json"} if body else {})
        answer = connection.getresponse()
        return answer.status, answer.read(most_bytes) if most_bytes else b""
    except ConnectionRefusedError:
        return "connection refused"
    except TimeoutError:
        return f"no answer in {timeout:g} s"
    except ConnectionError:  # before HTTPException: an empty answer is both
        return "connection closed"
    except socket.gaierror:
        return f"unknown host {parts.hostname}"
    except http.client.HTTPException:
        return "an answer that is not HTTP"
    except OSError as error:
        return (error.strerror or type(error).__name__).lower()
    finally:
        connection.close()
