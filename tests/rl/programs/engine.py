"""An engine that starts children of many kinds. Each notes its number under the name of its kind."""

from __future__ import annotations

import json
import os
import resource
import subprocess
import sys
import time
from pathlib import Path

from roost.engine.processes.confinement import confine

NOTES = sys.argv[1]


def leaf(kind: str, prepare: str = "") -> list[str]:
    words = f'{prepare} echo $$ > "$0.part"; mv "$0.part" "$0"; sleep 100; :'
    return ["/bin/sh", "-c", words, f"{NOTES}/{kind}"]


def note(kind: str) -> None:
    part = Path(NOTES, f"{kind}.part")
    part.write_text(str(os.getpid()))
    part.rename(Path(NOTES, kind))


def daemonise() -> bool:
    """Twice forked, in a session of its own. True in the daemon."""
    if child := os.fork():
        os.waitpid(child, 0)
        return False
    os.setsid()
    if os.fork():
        os._exit(0)
    return True


def forget_marks() -> None:
    resource.setrlimit(resource.RLIMIT_RTTIME, (resource.RLIM_INFINITY, resource.RLIM_INFINITY))


def start(kind: str) -> None:
    if kind == "plain":
        subprocess.Popen(leaf(kind))
    elif kind == "session":
        subprocess.Popen(leaf(kind), start_new_session=True)
    elif kind == "deaf":
        subprocess.Popen(leaf(kind, "trap '' TERM HUP INT;"))
    elif kind == "grandchild":
        subprocess.Popen(["/bin/sh", "-c", '"$@" & wait', "sh", *leaf(kind)])
    elif kind == "cleared":
        subprocess.Popen(leaf(kind), env={})
    elif kind == "cleared-daemon":
        if daemonise():
            os.execve("/bin/sh", leaf(kind), {})
    elif kind == "daemon":
        if daemonise():
            os.execv("/bin/sh", leaf(kind))
    elif kind == "forked-daemon":  # of a program that was started before there was a mark
        if daemonise():
            note(kind)
            time.sleep(100)
            os._exit(0)
    elif kind == "unmarked":
        if daemonise():
            forget_marks()
            os.execve("/bin/sh", leaf(kind), {})
    elif kind == "mother":  # has ever more children
        words = 'echo $$ > "$0"; while :; do sh -c "sleep 30; :" "$0" & sleep 0.05; done'
        subprocess.Popen(["/bin/sh", "-c", words, f"{NOTES}/{kind}"])
    elif kind == "runaway":  # is never the same process for long
        if daemonise():
            note(kind)
            until = time.monotonic() + 20
            while time.monotonic() < until:
                if os.fork():
                    break
                time.sleep(0.002)
            os._exit(0)
    else:
        raise ValueError(kind)


def main() -> None:
    confine()
    confine()
    print(json.dumps("ready"), flush=True)
    for line in sys.stdin:
        match line.split():
            case ["start", kind]:
                start(kind)
                print(json.dumps("started"), flush=True)
            case ["collect"]:  # waits for its children as an engine would
                print(json.dumps(subprocess.run(["/bin/sh", "-c", "exit 7"]).returncode), flush=True)
            case ["exit", code]:
                sys.exit(int(code))
            case ["raise"]:
                raise SystemError("an engine that fails")
            case ["abort"]:
                os.abort()


main()
