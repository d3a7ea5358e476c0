"""The log lines and stacks of a job's processes, as text."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from roost.engine.job.job_folder import StartedProcess
    from roost.engine.operating.job_logs import LogLine
    from roost.engine.operating.job_stacks import SeenProcess
    from roost.engine.processes.python_stacks import Frame, ThreadStack

_MARKS = {"out": "|", "err": "!"}
_COLOURS = ("36", "35", "33", "32", "34", "31")
_SYSTEM_THREADS = ("roost-", "ray_", "PythonGCThread")
# Files whose frames call the code of a job, at the outer end of a stack.
_CALLERS = (
    "ray/_private/workers/default_worker.py",
    "ray/_private/worker.py",
    "ray/_private/function_manager.py",
    "ray/_private/async_compat.py",
    "ray/util/tracing/tracing_helper.py",
    "roost/engine/ray_backend/worker_host.py",
    "roost/engine/ray_backend/worker_forker.py",
    "<frozen runpy>",
    "/runpy.py",
    "/threading.py",
    "asyncio/runners.py",
    "roost/cli/__init__.py",
    "roost/cli/chosen_job.py",
    "roost/cli/driver.py",
    "roost/cli/ending.py",
    "roost/cli/launch.py",
    "roost/cli/profile.py",
    "roost/cli/verbs.py",
    "bin/roost",
    "-packages/click/core.py",
    "-packages/click/decorators.py",
)
# Folders of what the code of a job calls, at the inner end of a stack.
_LIBRARIES = ("-packages/ray/", "roost/engine/")


def log_text(line: LogLine, colour: bool = False) -> str:
    who = f"{line.process.name} {_MARKS[line.stream]}"
    if colour:
        who = f"\033[{_COLOURS[sum(line.process.component.encode()) % len(_COLOURS)]}m{who}\033[0m"
    return f"{who} {line.text}\n"


def stacks_text(seen: Sequence[SeenProcess], *, show_all: bool = False, colour: bool = False) -> str:
    """The threads of each process that run the job's code, without the frames that call it; or all, in full."""
    blocks = []
    for one in seen:
        lines = [_title(one.process, one.stacks.state, one.stacks.how)]
        if one.stacks.problem:
            lines.append(f"  not read: {one.stacks.problem}")
        for thread in one.stacks.threads:
            frames = thread.frames if show_all else _own_frames(thread)
            if frames is None:
                continue
            holds = ", holds the interpreter" if thread.holds_interpreter else ""
            lines.append(f"  {thread.name}{holds}" + ("" if frames else ": waits for calls"))
            lines += [f"    {frame_text(frame)}" for frame in frames]
        if colour:
            lines[0] = f"\033[1m{lines[0]}\033[0m"
        blocks.append("\n".join(lines) + "\n")
    return "\n".join(blocks)


def _own_frames(thread: ThreadStack) -> Sequence[Frame] | None:
    """The frames of the job's code and the call of roost or Ray that it waits in; None for a thread of roost or Ray."""
    if thread.name.startswith(_SYSTEM_THREADS):
        return None
    frames = list(thread.frames)
    while frames and frames[-1].file.replace("\\", "/").endswith(_CALLERS):
        frames.pop()
    while len(frames) > 1 and all(_of_a_library(frame) for frame in frames[:2]):
        frames.pop(0)
    return frames


def _of_a_library(frame: Frame) -> bool:
    return any(folder in frame.file.replace("\\", "/") for folder in _LIBRARIES)


def _title(process: StartedProcess, state: str, how: str) -> str:
    where = f"node {process.node} ({process.host})" if process.node >= 0 else process.host
    name = process.name if process.component != "(driver)" else "the driver"
    return f"{name}  {where}  pid {process.pid}  {state}" + (f"  read by {how}" if how else "")


def frame_text(frame: Frame) -> str:
    return f"{frame.function} ({frame.file}:{frame.line})"
