"""The process a worker lives in: a small actor that sets the environment before the user's code is loaded.

The actor's class has the worker's own method names, made from the names alone: the user's class is loaded only in
the process itself, once its environment is set. Ray's tools show the real names.
"""

from __future__ import annotations

import contextlib
import inspect
import os
import sys
import threading
import traceback
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import Any, ClassVar, NoReturn

import ray
from ray import cloudpickle
from ray.util.tracing import tracing_helper

from roost.engine.connection.actors import logs_folder
from roost.engine.processes.confinement import leave_nothing
from roost.engine.processes.inner_stacks import StackDesk
from roost.engine.processes.log_files import logs_of
from roost.engine.processes.process_facts import Process, this_process
from roost.engine.workers.arguments import assembled, constructor_arguments
from roost.engine.workers.call_log import RAISED, RETURNED, CallLog, keep_own
from roost.engine.workers.remote_errors import Origin, as_portable, text_travels
from roost.engine.workers.result import GENERATORS, refuse_generator
from roost.engine.workers.worker import takes_nothing
from roost.engine.workers.worker_context import WorkerContext, _become_worker

# As Ray does before and after every call.
_set_title = getattr(ray._raylet, "setproctitle", lambda title: None)


@dataclass(frozen=True, slots=True, kw_only=True)
class StartOrder:
    """What one rank is told. Values of the environment travel here, which Ray shows nowhere."""

    context: WorkerContext
    variables: Mapping[str, str]
    defaults: Mapping[str, str]
    module_paths: tuple[str, ...] = ()
    ping: float = 10.0  # seconds between two heartbeats

    def __repr__(self) -> str:
        return f"StartOrder({self.context.name})"


@dataclass(frozen=True, slots=True, kw_only=True)
class StartReport:
    """What a started worker says of itself."""

    node_id: str
    process: Process
    call_log: int  # the descriptor of its log of calls
    visible: str | None
    logs: tuple[str, ...] = ()  # the files its output goes to, errors first


class WorkerHost:
    """Runs one worker. Calls are answered one after the other."""

    _roost_methods: ClassVar[tuple[str, ...]] = ()

    def __init__(self, name: str) -> None:
        self._roost_name = name
        self._roost_worker: Any = None
        self._roost_forked = False

    def __repr__(self) -> str:  # Ray puts this before each log line
        return self._roost_name

    def _roost_start(self, order: StartOrder, program: bytes, visible_variable: str | None) -> StartReport:
        type(self).__name__ = self._roost_name  # Ray's title of an idle actor is the name of its class
        os.environ.update(order.variables)
        for name, value in order.defaults.items():
            os.environ.setdefault(name, value)
        # The driver finds its modules here; a node that has the same directory may look there last.
        sys.path += [path for path in order.module_paths if path not in sys.path and os.path.isdir(path)]  # noqa: PTH112
        context = order.context
        self._roost_seat = (context.group, context.placement.rank, context.seat)
        self._roost_calls = CallLog(self._roost_methods)
        keep_own(self._roost_calls)
        os._exit = _noting(self._roost_calls, os._exit)  # type: ignore[assignment]
        runtime = ray.get_runtime_context()
        self._roost_task_id = runtime.worker.core_worker.get_current_task_id  # faster than runtime's
        leave_nothing(runtime.get_node_id())  # before the constructor, which may start children
        threading.Thread(  # before the constructor, which may hang: then its stack is wanted
            target=_beat, args=(self._roost_calls, order.ping), name="roost-heartbeat", daemon=True
        ).start()
        try:
            cls, args, kwargs = cloudpickle.loads(program)
            _become_worker(context)
            mine, named = constructor_arguments(context.placement.rank, args, kwargs)
            self._roost_worker = cls(*mine, **named)
            if context.generation:
                self._roost_worker.on_restart(context.generation)
        except Exception as error:
            self._roost_raise(error, "__init__")
        os.register_at_fork(after_in_child=self._roost_leave)
        return StartReport(
            node_id=runtime.get_node_id(),
            process=this_process(),
            call_log=self._roost_calls.fd,
            visible=os.environ.get(visible_variable) if visible_variable else None,
            logs=logs_of(os.getpid(), logs_folder()),
        )

    def _roost_leave(self) -> None:
        """In a child that the worker's code forked."""
        self._roost_forked = True

    def _roost_end_fork(self, error: BaseException | None) -> NoReturn:
        """End a forked child that came back from the method: it would answer in the worker's place."""
        if error is not None and not isinstance(error, SystemExit):
            traceback.print_exception(error)
        code = error.code if isinstance(error, SystemExit) else int(error is not None)
        _end_process(code)

    def _roost_begin(self, method: str) -> int:
        _set_title(f"ray::{self._roost_name}.{method}")
        return self._roost_calls.begin(method, self._roost_task_id().binary())

    def _roost_end(self, place: int) -> None:
        if self._roost_forked:
            self._roost_end_fork(None)
        self._roost_calls.end(place, RETURNED)

    def _roost_raise(self, error: BaseException, method: str, place: int | None = None) -> NoReturn:
        """Raise the error, or a description of it where the caller could make no copy of it."""
        if self._roost_forked:
            self._roost_end_fork(error)
        if place is not None:
            self._roost_calls.end(place, RAISED)
        if not isinstance(error, Exception):
            self._roost_raise_exit(error)
        portable = as_portable(error, cloudpickle, Origin(*self._roost_seat, method))
        if portable is error:
            raise error
        if not text_travels(error):  # Ray would carry the whole text in its traceback
            raise portable.with_traceback(error.__traceback__) from None
        raise portable from error

    def _roost_raise_exit(self, error: BaseException) -> NoReturn:
        if isinstance(error, SystemExit):
            self._roost_calls.note_exit(_exit_code(error.code))
        raise error  # Ray ends the process, or cancels the call

    def _roost_seconds(self, task: str) -> float | None:
        """How long a call took that has answered."""
        return self._roost_calls.seconds_of(bytes.fromhex(task))


class AsyncWorkerHost(WorkerHost):
    """For workers with `async def` methods: calls may overlap, as in any event loop."""

    async def _roost_start(  # type: ignore[override]
        self, order: StartOrder, program: bytes, visible_variable: str | None
    ) -> StartReport:
        threading.excepthook = _ending_with(threading.current_thread(), threading.excepthook)
        try:
            return WorkerHost._roost_start(self, order, program, visible_variable)
        except (SystemExit, KeyboardInterrupt) as error:
            self._roost_raise_exit(error)

    def _roost_raise_exit(self, error: BaseException) -> NoReturn:
        """Raised in Ray's event loop, these would end the loop and leave a process that answers nothing."""
        if isinstance(error, SystemExit):
            _end_process(error.code)
        if isinstance(error, KeyboardInterrupt):
            raise ray.exceptions.TaskCancelledError from error
        raise error

    async def _roost_seconds(self, task: str) -> float | None:  # type: ignore[override]
        return WorkerHost._roost_seconds(self, task)


def actor_for(cls: type, methods: Sequence[str]) -> Any:
    """A Ray actor class with these methods, which hosts a worker of `cls`."""
    is_async = any(inspect.iscoroutinefunction(getattr(cls, name, None)) for name in methods)
    return _actor(cls.__name__, tuple((name, takes_nothing(cls, name)) for name in methods), is_async)


@lru_cache(maxsize=256)  # Ray sends every class it is given to all processes
def _actor(name: str, methods: tuple[tuple[str, bool], ...], is_async: bool) -> Any:
    base, forward = (AsyncWorkerHost, _forwarded_async) if is_async else (WorkerHost, _forwarded)
    body: dict[str, Any] = {"_roost_methods": tuple(method for method, _ in methods)}
    for method, _ in methods:
        body[method] = forward(method)
        body[method].__name__ = method
    made = ray.remote(num_cpus=0)(type(name, (base,), body))
    # Ray checks the arguments of every call against the method's parameters, which takes a tenth of the call's time,
    # unless it knows of none. It adds one of its own, which it only uses while it traces.
    if not tracing_helper._is_tracing_enabled():
        parameters = made.__ray_metadata__.method_meta.signatures
        parameters.update({method: [] for method, takes_nothing in methods if takes_nothing})
    return made


def _beat(log: CallLog, every: float) -> None:
    """A thread of its own: it stops when the process is stopped, or another thread holds the interpreter."""
    desk = StackDesk()
    while True:
        log.beat()
        desk.wait(every)


def _noting(log: CallLog, end: Callable[[int], NoReturn]) -> Callable[[int], NoReturn]:
    """`os._exit` that leaves word of the code, in this process and not in its children."""
    mine = os.getpid()

    def _exit(status: int) -> NoReturn:
        if os.getpid() == mine:
            log.note_exit(status)
        end(status)

    return _exit


def _ending_with(loop: threading.Thread, hook: Callable[[Any], object]) -> Callable[[Any], object]:
    """A hook for exceptions of threads that ends the process with its event loop.

    `sys.exit` in a task that a method made ends the loop's thread, and a process without it answers nothing.
    """

    def ended(found: Any) -> None:
        if found.thread is not loop:
            hook(found)
            return
        if isinstance(found.exc_value, SystemExit):
            _end_process(found.exc_value.code)
        hook(found)
        _end_process(1)

    return ended


def _exit_code(code: Any) -> int:
    """The exit code of a `SystemExit`, as the interpreter reads it."""
    return code & 0xFF if isinstance(code, int) else int(code is not None)


def _end_process(code: Any) -> NoReturn:
    """End this process with the exit code of a `SystemExit`."""
    if code is not None and not isinstance(code, int):
        print(code, file=sys.stderr)
    for stream in (sys.stdout, sys.stderr):
        with contextlib.suppress(Exception):
            stream.flush()
    os._exit(_exit_code(code))


def _forwarded(method: str) -> Callable[..., Any]:
    def forward(self: WorkerHost, *args: Any, **kwargs: Any) -> Any:
        place = self._roost_begin(method)
        try:
            args, kwargs = assembled(args, kwargs)  # type: ignore[assignment]
            value = getattr(self._roost_worker, method)(*args, **kwargs)
            if isinstance(value, GENERATORS):
                refuse_generator(method)
        except BaseException as error:
            self._roost_raise(error, method, place)
        self._roost_end(place)
        return value

    return forward


def _forwarded_async(method: str) -> Callable[..., Any]:
    async def forward(self: AsyncWorkerHost, *args: Any, **kwargs: Any) -> Any:
        place = self._roost_begin(method)
        try:
            args, kwargs = assembled(args, kwargs)  # type: ignore[assignment]
            value = getattr(self._roost_worker, method)(*args, **kwargs)
            if inspect.isawaitable(value):
                value = await value
            if isinstance(value, GENERATORS):
                refuse_generator(method)
        except BaseException as error:
            self._roost_raise(error, method, place)
        self._roost_end(place)
        return value

    return forward
