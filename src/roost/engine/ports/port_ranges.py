"""The ports that may be leased, and the order in which they are tried."""

from __future__ import annotations

import math
import random
import re
import socket
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path

from roost.errors import ConfigurationError, shown

ALLOWED = range(20_000, 65_536)  # Ray's own workers listen on 10,002-19,999
RANGE_VARIABLE = "ROOST_PORT_RANGE"


def allowed_ports(environ: Mapping[str, str]) -> range:
    """The ports of ROOST_PORT_RANGE=21000-21099, which a firewall may require; else all that roost uses."""
    said = environ.get(RANGE_VARIABLE, "").strip()
    if not said:
        return ALLOWED
    match = re.fullmatch(r"(\d{1,5})\s*-\s*(\d{1,5})", said, re.ASCII)
    found = range(int(match[1]), int(match[2]) + 1) if match else range(0)
    if found and found.start in ALLOWED and found[-1] in ALLOWED:
        return found
    raise ConfigurationError(
        code="RC104",
        what=f"{RANGE_VARIABLE}={shown(said)} on {socket.gethostname()} is not a range of ports",
        why="below 20000 are the ports of Ray's own workers" if found else "",
        remedy=f"write it as 21000-21099, inside {text_of(ALLOWED)}",
    )


def ephemeral_ports() -> range:
    """The ports that the kernel gives to outgoing connections and to programs that ask for any port."""
    try:
        low, high = map(int, Path("/proc/sys/net/ipv4/ip_local_port_range").read_text().split())
    except (OSError, ValueError):
        low, high = 32_768, 60_999
    return range(low, high + 1)


def split_by(ephemeral: range, allowed: range) -> tuple[list[range], list[range]]:
    """The allowed ports outside the kernel's ephemeral range, and the allowed ports inside it."""
    low, high = max(allowed.start, ephemeral.start), min(allowed.stop, ephemeral.stop)
    if low >= high:
        return [allowed], []
    outside = [range(allowed.start, low), range(high, allowed.stop)]
    return [ports for ports in outside if ports], [range(low, high)]


def shuffled(ranges: Sequence[range], last: Iterable[int] = ()) -> Iterator[int]:
    """Each port once, in a random order, without a list of all ports.

    The ports in `last` come after the others, in that order.
    """
    position_in_last = {port: position for position, port in enumerate(last)}
    total = sum(map(len, ranges))
    if not total:
        return
    at, step = random.randrange(total), random.randrange(1, total + 1)
    while math.gcd(step, total) != 1:  # with no common divisor, the steps meet every port once
        step = random.randrange(1, total + 1)
    late = []
    for _ in range(total):
        at = (at + step) % total
        port = _nth(ranges, at)
        if port in position_in_last:
            late.append(port)
        else:
            yield port
    yield from sorted(late, key=position_in_last.__getitem__)


def _nth(ranges: Sequence[range], index: int) -> int:
    for ports in ranges:
        if index < len(ports):
            return ports[index]
        index -= len(ports)
    raise IndexError(index)


def rotated(ranges: Sequence[range], count: int) -> Iterator[range]:
    """The ranges, starting at a random port of a random one. Leaves out ranges shorter than `count`.

    The range it starts in comes again at the end, up to the blocks that begin before the random port.
    """
    ranges = [ports for ports in ranges if len(ports) >= count]
    if not ranges:
        return
    first = random.randrange(len(ranges))
    start = random.choice(ranges[first])
    yield range(start, ranges[first].stop)
    yield from ranges[first + 1 :] + ranges[:first]
    yield range(ranges[first].start, min(ranges[first].stop, start + count - 1))


def text_of(ports: range) -> str:
    return f"{ports.start}-{ports.stop - 1}"
