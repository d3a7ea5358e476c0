"""Settings every test shares."""

from __future__ import annotations

import os
import signal
import sys
import tempfile
from pathlib import Path

from hypothesis import HealthCheck, settings

# Tests of every directory may use the modules beside this file and those of tests/engine.
sys.path += [str(Path(__file__).parent), str(Path(__file__).parent / "engine")]
pytest_plugins = ["live"]

# Jobs write their history there, and not into the home of whoever runs the tests.
_state = tempfile.TemporaryDirectory(prefix="roost-state-", ignore_cleanup_errors=True)
os.environ.setdefault("ROOST_STATE", _state.name)
# Jobs of the tests lease their ports there, so that tests that count free ports have the others for themselves.
os.environ.setdefault("ROOST_PORT_RANGE", "20000-32767")
# The tests run side by side, and the threads of a linear-algebra library would only wait for each other.
os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")
# A shell lets its background jobs ignore Ctrl-C, and the programs that tests start would inherit that.
signal.signal(signal.SIGINT, signal.default_int_handler)

# No deadline: how long an example takes is the machine's business. In CI the same examples every time.
settings.register_profile(
    "roost",
    deadline=None,
    max_examples=50,
    derandomize=os.environ.get("CI") == "true",
    suppress_health_check=[HealthCheck.too_slow],
)
settings.load_profile("roost")
