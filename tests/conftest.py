"""Settings every test shares."""

from __future__ import annotations

import os

from hypothesis import HealthCheck, settings

# No deadline: how long an example takes is the machine's business. In CI the same examples every time.
settings.register_profile(
    "roost",
    deadline=None,
    max_examples=150,
    derandomize=os.environ.get("CI") == "true",
    suppress_health_check=[HealthCheck.too_slow],
)
settings.load_profile("roost")
