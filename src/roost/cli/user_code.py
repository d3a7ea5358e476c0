"""Imports the classes and the driver that a job file names."""

from __future__ import annotations

import inspect
import os
import sys
import traceback
from collections.abc import Callable, Iterator, Mapping
from dataclasses import replace
from importlib import import_module
from pathlib import Path as FilePath
from typing import Any

from roost.cli.ending import tell
from roost.config.document import Document, Findings
from roost.config.program import Program, WorkerClass
from roost.engine.workers.worker import GroupLauncher, Worker
from roost.errors import Path, RoostError, close_to, error_for, nearest

Driver = Callable[[Any, Any], Any]
_OURS = str(FilePath(__file__).parents[1]) + os.sep


class UserCode:
    """The classes and the driver of a program, imported with the current folder first. Raises all their problems."""

    def __init__(self, program: Program, document: Document) -> None:
        self._modules: dict[str, Any] = {}  # None for a module that could not be imported
        self.findings = Findings(document)
        here = _current_folder()
        if here and sys.path[:1] != [here]:
            sys.path.insert(0, here)
        found = {name: self._worker(name, worker) for name, worker in program.workers.items()}
        self.workers: Mapping[str, GroupLauncher] = {
            name: worker for name, worker in found.items() if worker is not None
        }
        self.driver: Driver | None = self._driver(program.driver) if program.driver else None
        if self.findings:
            # One entry may name the class of several components; its problem is reported once.
            raise error_for(list(dict.fromkeys(self.findings)))

    def _fail(self, what: str, path: Path, why: str = "", remedy: str = "") -> None:
        self.findings.add("RC107", what, path, why=why, remedy=remedy)

    def _worker(self, component: str, worker: WorkerClass) -> GroupLauncher | None:
        known, cls = self._named(worker.import_path, worker.path, _is_worker)
        if not known:
            return None
        if not _is_worker(cls):
            remedy = f"write `class {getattr(cls, '__name__', 'Name')}(roost.Worker)`"
            self._fail(f"{worker.import_path} is not a subclass of roost.Worker", worker.path, remedy=remedy)
            return None
        problem = _mismatch(cls.__init__, None, **worker.args)
        if problem:
            what = f"{component}: {cls.__name__} cannot be made with these arguments"
            takes = f"it takes {_names_only(cls.__init__)}"
            place = (*worker.key, "args") if worker.args else worker.path
            self._fail(what, place, why=problem, remedy=takes)
            return None
        try:
            return cls.create_group(**worker.args)  # type: ignore[no-any-return]
        except RoostError as error:
            where = self.findings.document.value_span(worker.path)
            self.findings += [replace(problem, path=worker.path, where=where) for problem in error.findings]
            return None

    def _driver(self, import_path: str) -> Driver | None:
        known, function = self._named(import_path, ("driver",), callable)
        if not known:
            return None
        if not callable(function):
            what, problem = f"{import_path} is not a function", ""
        elif _yields(function):
            what = f"{import_path} cannot be called as a driver"
            problem = "it has a `yield`, so a call would run nothing of it"
        elif problem := _mismatch(function, None, None):
            what = f"{import_path} cannot be called as a driver"
        else:
            return function  # type: ignore[no-any-return]
        self._fail(what, ("driver",), why=problem, remedy="write `def main(run, config):`")
        return None

    def _named(self, import_path: str, path: Path, fits: Callable[[Any], bool]) -> tuple[bool, Any]:
        """Whether the module has this name, and its value. The error suggests names that fit first."""
        module_name, _, names = import_path.partition(":")
        found = self._module(module_name, path)
        if found is None:
            return False, None
        for name in names.split("."):
            if not hasattr(found, name):
                there = [one for one in vars(found) if not one.startswith("_")]
                fitting = [one for one in there if fits(getattr(found, one))]
                file = str(getattr(found, "__file__", None) or "")
                elsewhere = file and not file.startswith(_current_folder() + os.sep)
                why = f"it was imported from {file}" if elsewhere else ""
                remedy = nearest(name, fitting or there)
                self._fail(f"{module_name} has no {name!r}", path, why=why, remedy=remedy)
                return False, None
            found = getattr(found, name)
        return True, found

    def _module(self, name: str, path: Path) -> Any:
        if name in self._modules:
            return self._modules[name]
        self._modules[name] = None
        try:
            self._modules[name] = import_module(name)
        except ModuleNotFoundError as error:
            if error.name is not None and f"{name}.".startswith(f"{error.name}."):
                why, remedy = "neither in the current folder nor installed", _module_like(error.name)
                self._fail(f"there is no module {error.name!r}", path, why=why, remedy=remedy)
            else:
                self._raised(name, path, error)
        except (Exception, SystemExit) as error:
            self._raised(name, path, error)
        return self._modules[name]

    def _raised(self, name: str, path: Path, error: BaseException) -> None:
        tell(users_traceback(error))
        what = f"{name} cannot be imported"
        said = str(error).splitlines()
        self._fail(what, path, why=f"{type(error).__name__}{f': {said[0][:300]}' if said else ''}")


def users_traceback(error: BaseException) -> str:
    """The traceback of an error without the frames of roost and of Python's importing."""
    shown = traceback.TracebackException.from_exception(error)
    for part in _chain(shown):
        kept = [frame for frame in part.stack if not _is_ours(frame.filename)]
        part.stack = traceback.StackSummary.from_list(kept)
    return "".join(shown.format()).rstrip()


def _is_ours(file: str) -> bool:
    return file.startswith((_OURS, "<frozen importlib")) or file == sys.modules["importlib"].__file__


def _chain(shown: traceback.TracebackException) -> Iterator[traceback.TracebackException]:
    part: traceback.TracebackException | None = shown
    while part is not None:
        yield part
        part = part.__cause__ or part.__context__


def _is_worker(value: Any) -> bool:
    return isinstance(value, type) and issubclass(value, Worker) and value is not Worker


def _names_only(function: Any) -> str:
    """The parameters after `self`, without defaults, which may be secrets: `(lr, model=...)`."""
    parameters = list(inspect.signature(function).parameters.values())[1:]
    named = [
        f"{one.replace(default=one.empty)}{'' if one.default is one.empty else '=...'}" for one in parameters
    ]
    return f"({', '.join(named)})"


def _mismatch(function: Any, *args: Any, **kwargs: Any) -> str:
    """Why a function cannot be called like this; empty if it can, or if that cannot be known."""
    try:
        signature = inspect.signature(function)
    except (TypeError, ValueError):
        return ""
    try:
        signature.bind(*args, **kwargs)
    except TypeError as error:
        return str(error)
    return ""


def _yields(function: Any) -> bool:
    """Whether a call only makes a generator."""
    called = function if inspect.isroutine(function) else getattr(function, "__call__", function)  # noqa: B004
    return inspect.isgeneratorfunction(called) or inspect.isasyncgenfunction(called)


def _current_folder() -> str:
    try:
        return os.getcwd()  # noqa: PTH109
    except FileNotFoundError:  # it was deleted
        return ""


def _module_like(name: str) -> str:
    """The remedy for a missing module: a module of a similar name, if the current folder has one."""
    folder = FilePath(_current_folder() or os.sep)
    there = [one.stem for one in folder.glob("*.py")]
    there += [one.parent.name for one in folder.glob("*/__init__.py")]
    if close := close_to(name, there):
        return f"did you mean {close!r}?"
    return "run `roost launch` in the folder of your code, or install it"
