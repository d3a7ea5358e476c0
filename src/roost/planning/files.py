"""Writes files by rename, so that readers never see half a file."""

from __future__ import annotations

import os
import secrets
import stat
from pathlib import Path as FilePath

from roost.errors import ConfigurationError


def write_file(path: str | os.PathLike[str], text: str, *, private: bool) -> None:
    """Write the text to a file. Only the owner can read a `private` file; other files keep their mode, or get the umask's."""
    try:
        target, mode = _followed(path)
        new = target.parent / f".roost-{secrets.token_hex(8)}"
        handle = os.open(new, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600 if private else 0o666)
    except (OSError, ValueError) as error:
        raise _unwritable(path, error) from None
    try:
        with os.fdopen(handle, "w", encoding="utf-8") as file:
            if mode is not None and not private:
                os.fchmod(handle, mode)
            file.write(text)
            file.flush()
            os.fsync(file.fileno())  # the rename must not be seen before the content
        new.replace(target)
    except BaseException as error:
        new.unlink(missing_ok=True)
        if isinstance(error, (OSError, ValueError)):
            raise _unwritable(path, error) from None
        raise


def _followed(path: str | os.PathLike[str]) -> tuple[FilePath, int | None]:
    """The file to replace, and its mode if it is there: the target if the path is a link.

    Anything but a regular file is refused.
    """
    target = FilePath(path)
    if target.is_symlink() and target.lstat().st_uid != os.geteuid():  # in /tmp it may be a trap
        raise PermissionError(0, "it is a link of another user's")
    try:
        mode = target.stat().st_mode
    except FileNotFoundError:
        return FilePath(os.path.realpath(target)), None
    if not stat.S_ISREG(mode):
        raise OSError(0, "it is a directory" if stat.S_ISDIR(mode) else "it is not a regular file")
    return FilePath(os.path.realpath(target)), stat.S_IMODE(mode)


def _unwritable(path: str | os.PathLike[str], error: Exception) -> ConfigurationError:
    reason = getattr(error, "strerror", None) or str(error)
    what, remedy = f"{os.fspath(path)}: cannot be written", "choose another place"
    if not FilePath(path).is_absolute() and _working_directory_is_gone():
        reason = "the working directory was deleted"
        remedy = "change to another one, or give an absolute path"
    return ConfigurationError(code="RS102", what=what, why=reason, remedy=remedy)


def _working_directory_is_gone() -> bool:
    try:
        FilePath.cwd()
    except FileNotFoundError:
        return True
    return False
