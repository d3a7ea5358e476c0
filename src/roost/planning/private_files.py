"""Writing files: by rename, so that nobody sees half of one, and readable by their owner only."""

from __future__ import annotations

import os
import tempfile
from pathlib import Path as FilePath

from roost.errors import ConfigurationError, Finding


def write_private(path: str | os.PathLike[str], text: str) -> None:
    target = FilePath(path)
    try:
        handle, name = tempfile.mkstemp(dir=target.parent, prefix=".roost-")  # mode 0600
    except (OSError, ValueError) as error:
        raise _unwritable(target, error) from None
    try:
        with os.fdopen(handle, "w", encoding="utf-8") as file:
            file.write(text)
            file.flush()
            os.fsync(file.fileno())  # the rename must not be seen before the content
        FilePath(name).replace(target)
    except BaseException as error:
        FilePath(name).unlink(missing_ok=True)
        if isinstance(error, (OSError, ValueError)):
            raise _unwritable(target, error) from None
        raise


def _unwritable(target: FilePath, error: Exception) -> ConfigurationError:
    reason = getattr(error, "strerror", None) or str(error)
    return ConfigurationError(
        Finding(code="RS102", what=f"{target}: cannot be written", why=reason, remedy="choose another place")
    )
