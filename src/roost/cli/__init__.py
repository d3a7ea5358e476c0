"""The command line."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from typing import NoReturn


def main(arguments: Sequence[str] | None = None) -> NoReturn:
    """The `roost` script. It always ends with one of the documented exit codes."""
    try:  # Ctrl-C may come while modules are imported
        from roost.cli.ending import guarded
        from roost.cli.verbs import roost
    except KeyboardInterrupt:
        sys.exit(130)
    sys.exit(guarded(lambda: roost.main(arguments, prog_name="roost", standalone_mode=False)))
