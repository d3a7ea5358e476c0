"""Lets a program answer the test that started it."""

from __future__ import annotations

import json
import os
from typing import Any


def say(value: Any) -> None:
    # One write, on a line of its own: Ray and roost print between the program's lines.
    os.write(1, f"\n@{json.dumps(value)}\n".encode())
