"""What a cluster gave is no use after its shutdown, and starts no Ray."""

from __future__ import annotations

from collections.abc import Callable

import pytest
from running import Program

pytestmark = pytest.mark.ray


def test_after_the_shutdown_everything_is_refused_alike(run: Callable[..., Program]) -> None:
    said = run("afterwards").answer()
    assert set(said.values()) == {"RE106"}, said
