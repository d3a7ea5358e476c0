"""Calls the driver of a job, and turns its end into an exit code."""

from __future__ import annotations

import asyncio
import inspect
from typing import Any

from roost.cli.ending import FAILED, FINE, FOUND, UNREACHABLE, emit, tell
from roost.cli.user_code import Driver, users_traceback
from roost.errors import ClusterGone, JobTakenDown


def drive(driver: Driver, run: Any, config: Any) -> int:
    """The exit code of `driver(run, config)`: the int it returns, what it exits with, or 5 for an exception."""
    try:
        returned = driver(run, config)
        if inspect.iscoroutine(returned):
            returned = asyncio.run(returned)
    except SystemExit as end:
        if end.code is not None and not isinstance(end.code, int):
            tell(str(end.code))
            return FOUND
        return _code(end.code or FINE)
    except JobTakenDown:  # nothing of the driver's doing, so its traceback tells nothing
        raise
    except KeyboardInterrupt:
        raise
    except BaseException as error:  # an asyncio.CancelledError too
        emit("")  # what the driver printed comes before its traceback
        tell(users_traceback(error))
        return UNREACHABLE if isinstance(error, ClusterGone) else FAILED
    emit("")
    return _code(returned) if isinstance(returned, int) and not isinstance(returned, bool) else FINE


def _code(returned: int) -> int:
    """As the shell will see it: a code has 8 bits, and one that would be cut to 0 stays a failure."""
    return returned if 0 <= returned < 256 else (returned & 0xFF or FOUND)
