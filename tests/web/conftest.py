"""Tests of the page use the made-up jobs of the tests of views."""

from __future__ import annotations

import sys
from pathlib import Path

sys.path.append(str(Path(__file__).parents[1] / "views"))
