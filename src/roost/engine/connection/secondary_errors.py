"""Errors that Ray need not print: they follow from a failure that is reported elsewhere.

Ray prints the error of every result that is dropped without having been looked at. Where results are arguments of
further calls, one death would be printed once for each call of the chain. The caller at its end gets the first error,
and roost announces the death.
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
    """May be called twice."""
    logging.getLogger("ray._private.worker").addFilter(_filter)
