"""Saves plans to files, and loads them. All files are written by rename, so that readers never see half a file."""

from __future__ import annotations

import json
import os
import secrets
import stat
from dataclasses import replace
from pathlib import Path as FilePath

from roost.config.plain_data import read_json
from roost.config.text_files import read_text
from roost.errors import ConfigurationError
from roost.planning.plan import Plan

MAX_BYTES = 1 << 30  # of a saved plan


def plan_text(plan: Plan) -> str:
    return json.dumps(plan.to_dict(), indent=1) + "\n"


def save_plan(plan: Plan, path: str | os.PathLike[str]) -> None:
    """Write a plan, without secrets, to a file that only its owner can read."""
    write_file(path, plan_text(plan), private=True)


def load_plan(path: str | os.PathLike[str]) -> Plan:
    """Load the plan in a file. Every error names the file."""
    source = FilePath(path)
    try:
        text = read_text(source, MAX_BYTES)
    except ConfigurationError as error:
        raise ConfigurationError(*(replace(found, code="RS101") for found in error.findings)) from None
    return read_plan(text, str(source))


def read_plan(text: str, source: str) -> Plan:
    """The plan in a text. Every error names its source."""
    try:
        return Plan.from_dict(read_json(text))
    except ConfigurationError as error:
        raise ConfigurationError(
            *(replace(found, code="RS101", what=f"{source}: {found.what}") for found in error.findings)
        ) from None
    except (ValueError, RecursionError) as error:
        remedy = "`roost plan JOB -o PLAN` saves the plan of a job; give that file"
        what, why = f"{source}: this is not a saved plan", f"it is not JSON: {str(error)[:200]}"
        raise ConfigurationError(code="RS101", what=what, why=why, remedy=remedy) from None


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
