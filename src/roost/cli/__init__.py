"""The command line."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from importlib import import_module
from typing import NoReturn


def main(arguments: Sequence[str] | None = None) -> NoReturn:
    """The `roost` script. It always ends with one of the documented exit codes."""
    try:  # Ctrl-C may come while modules are imported
        run = import_module("roost.cli.verbs").run
    except KeyboardInterrupt:
        sys.exit(130)
    sys.exit(run(arguments))
