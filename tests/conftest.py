"""Settings every test shares."""

from __future__ import annotations

import os
import sys
from pathlib import Path

from hypothesis import HealthCheck, settings

# Tests of every directory may use the modules beside this file and those of tests/engine.
sys.path += [str(Path(__file__).parent), str(Path(__file__).parent / "engine")]
pytest_plugins = ["live"]

# No deadline: how long an example takes is the machine's business. In CI the same examples every time.
settings.register_profile(
    "roost",
    deadline=None,
    max_examples=150,
    derandomize=os.environ.get("CI") == "true",
    suppress_health_check=[HealthCheck.too_slow],
)
settings.load_profile("roost")
