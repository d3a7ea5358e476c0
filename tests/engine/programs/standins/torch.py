"""Stands in for torch on machines without accelerators: it counts the devices a process may see."""

from __future__ import annotations

import os
from types import SimpleNamespace

_seen = [name for name in os.environ.get("CUDA_VISIBLE_DEVICES", "").split(",") if name]
cuda = SimpleNamespace(device_count=lambda: len(_seen), get_device_properties=lambda index: _seen[index])
