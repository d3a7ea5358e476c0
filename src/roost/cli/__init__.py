"""The command line."""

from __future__ import annotations

import gc
import sys
from collections.abc import Sequence
from importlib import import_module
from typing import NoReturn

# These verbs end before Python's cyclic collector could find anything to free; it would take a sixth of their time.
SHORT = frozenset(("plan", "validate", "show", "explain", "diff", "schema"))


def main(arguments: Sequence[str] | None = None) -> NoReturn:
    """The `roost` script. It always ends with one of the documented exit codes."""
    short = arguments is None and not SHORT.isdisjoint(sys.argv[1:2])
    if short:
        gc.disable()
    try:  # Ctrl-C may come while modules are imported
        run = import_module("roost.cli.verbs").run
    except KeyboardInterrupt:
        sys.exit(130)
    code = run(arguments)
    if short:
        gc.freeze()  # Python's last collection passes over all that is there
    sys.exit(code)
