"""Reads JSON text, and refuses a key that is written twice, as the YAML reader does."""

from __future__ import annotations

import json
from typing import Any

from roost.errors import ConfigurationError, Finding, shown


def read_json(text: str) -> Any:
    """Raises ValueError if the text is not JSON, and RecursionError if it nests too deep."""
    return json.loads(text, object_pairs_hook=_mapping)


def _mapping(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    found = dict(pairs)
    if len(found) < len(pairs):
        left = dict.fromkeys(found, 1)
        twice = next(name for name, _ in pairs if not left.pop(name, 0))
        raise ConfigurationError(
            Finding(code="RC003", what=f"the key {shown(twice)} is written twice", remedy="keep one of them")
        )
    return found
