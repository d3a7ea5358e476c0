"""Which ports may be leased, and in which order they are tried."""

from __future__ import annotations

import math
import random
import re
import socket
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path

from roost.errors import ConfigurationError, Finding, shown

ALLOWED = range(20_000, 65_536)  # Ray's own workers listen on 10,002-19,999
RANGE_VARIABLE = "ROOST_PORT_RANGE"


def allowed_ports(environ: Mapping[str, str]) -> range:
    """What the node's environment allows: ROOST_PORT_RANGE=21000-21099, for firewalls; else everything."""
    said = environ.get(RANGE_VARIABLE, "").strip()
    if not said:
        return ALLOWED
    match = re.fullmatch(r"(\d{1,5})\s*-\s*(\d{1,5})", said, re.ASCII)
    found = range(int(match[1]), int(match[2]) + 1) if match else range(0)
    if found and found.start in ALLOWED and found[-1] in ALLOWED:
        return found
    raise ConfigurationError(
        Finding(
            code="RC104",
            what=f"{RANGE_VARIABLE}={shown(said)} on {socket.gethostname()} is not a range of ports",
            why="below 20000 are the ports of Ray's own workers" if found else "",
            remedy=f"write it as 21000-21099, inside {text_of(ALLOWED)}",
        )
    )


def ephemeral_ports() -> range:
    """Where the kernel takes ports for connections going out, and for whoever asks for any port."""
    try:
        low, high = map(int, Path("/proc/sys/net/ipv4/ip_local_port_range").read_text().split())
    except (OSError, ValueError):
        low, high = 32_768, 60_999
    return range(low, high + 1)


def without(allowed: range, kernels: range) -> tuple[list[range], list[range]]:
    """The allowed ports outside the kernel's ephemeral range, and those inside."""
    low, high = max(allowed.start, kernels.start), min(allowed.stop, kernels.stop)
    if low >= high:
        return [allowed], []
    outside = [range(allowed.start, low), range(high, allowed.stop)]
    return [piece for piece in outside if piece], [range(low, high)]


def shuffled(pieces: Sequence[range], last: Iterable[int] = ()) -> Iterator[int]:
    """Each port once, in an order that differs every time, without making a list of them all.

    The ports named in `last` come after the others, in that order.
    """
    waiting = {port: place for place, port in enumerate(last)}
    total = sum(map(len, pieces))
    if not total:
        return
    at, step = random.randrange(total), random.randrange(1, total + 1)
    while math.gcd(step, total) != 1:  # then the walk comes to every port before it comes back
        step = random.randrange(1, total + 1)
    late = []
    for _ in range(total):
        at = (at + step) % total
        port = _nth(pieces, at)
        if port in waiting:
            late.append(port)
        else:
            yield port
    yield from sorted(late, key=waiting.__getitem__)


def _nth(pieces: Sequence[range], place: int) -> int:
    for piece in pieces:
        if place < len(piece):
            return piece[place]
        place -= len(piece)
    raise IndexError(place)


def around_from_somewhere(pieces: Sequence[range], count: int) -> Iterator[range]:
    """The pieces from somewhere on, around once; those too short for the block left out."""
    pieces = [piece for piece in pieces if len(piece) >= count]
    if not pieces:
        return
    first = random.randrange(len(pieces))
    start = random.choice(pieces[first])
    yield range(start, pieces[first].stop)
    yield from pieces[first + 1 :] + pieces[:first]
    yield range(pieces[first].start, min(pieces[first].stop, start + count - 1))


def text_of(ports: range) -> str:
    return f"{ports.start}-{ports.stop - 1}"
