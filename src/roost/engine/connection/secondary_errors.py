"""Hides errors that only follow from a failure which roost reports.

Ray prints the error of every result that the program drops unread. If results are arguments of further calls, Ray
would print one death once for each call of the chain. The caller at the end of the chain gets the first error, and
roost announces the death.
"""

from __future__ import annotations

import logging

_UNASKED = "Unhandled error"
_SECONDARY = (
    "input arguments for this task could not be computed",
    "ActorDiedError",
    "The actor died",
    "The actor is dead",
)


class _OnlyFirstErrors(logging.Filter):
    def filter(self, record: logging.LogRecord) -> bool:
        message = record.getMessage()
        return not (message.startswith(_UNASKED) and any(mark in message for mark in _SECONDARY))


_filter = _OnlyFirstErrors()


def hide_secondary_errors() -> None:
    """Add the filter to Ray's log. May be called twice."""
    logging.getLogger("ray._private.worker").addFilter(_filter)
