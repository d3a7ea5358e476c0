"""Pictures as librsvg draws them: it knows no CSS variables and no scripts. Needs Debian's `librsvg2-bin`."""

from __future__ import annotations

import struct
import subprocess
import zlib
from collections import Counter
from pathlib import Path

import pytest

import roost
from roost.views.svg import render_svg

pytestmark = pytest.mark.slow


def pixels(png: bytes) -> Counter[bytes]:
    """How often each colour occurs in a PNG of 8 bits a channel, as rsvg-convert writes it."""
    width, _, depth, kind = struct.unpack(">IIBB", png[16:26])
    assert (depth, kind) == (8, 6)
    at, data = 8, b""
    while at < len(png):
        [length] = struct.unpack(">I", png[at : at + 4])
        if png[at + 4 : at + 8] == b"IDAT":
            data += png[at + 8 : at + 8 + length]
        at += length + 12
    raw, step, found = zlib.decompress(data), 4, Counter[bytes]()
    above = bytearray(width * step)
    for start in range(0, len(raw), width * step + 1):
        method, line = raw[start], bytearray(raw[start + 1 : start + 1 + width * step])
        for index in range(len(line)):
            left = line[index - step] if index >= step else 0
            corner = above[index - step] if index >= step else 0
            line[index] = (line[index] + _predicted(method, left, above[index], corner)) & 255
        found.update(bytes(line[index : index + step]) for index in range(0, len(line), step))
        above = line
    return found


def _predicted(method: int, left: int, up: int, corner: int) -> int:
    if method == 4:
        guess = left + up - corner
        return min((left, up, corner), key=lambda one: abs(guess - one))
    return (0, left, up, (left + up) // 2)[method]


@pytest.mark.parametrize("nodes", [1, 4, 64, 1024])
def test_librsvg_draws_the_components_in_their_colours(nodes: int, tmp_path: Path) -> None:
    last = nodes * 8 - 1
    placement = {"actor": f"0-{last}", "rollout": f"0-{last}:0-{nodes * 4 - 1}"}
    plan = roost.plan({"cluster": {"component_placement": placement}}, f"{nodes}x8")
    (tmp_path / "plan.svg").write_text(render_svg(plan))
    drawn = ["rsvg-convert", "-w", "400", "-o", "plan.png", "plan.svg"]
    subprocess.run(drawn, cwd=tmp_path, check=True, timeout=120)
    counted = pixels((tmp_path / "plan.png").read_bytes())
    size = sum(counted.values())
    background, most = counted.most_common(1)[0]
    assert background == b"\xff\xff\xff\xff"
    assert 0.2 < most / size < 0.95
    coloured = sum(
        count
        for (red, green, blue, _), count in counted.items()
        if max(red, green, blue) - min(red, green, blue) > 40
    )
    assert coloured / size > 0.02
