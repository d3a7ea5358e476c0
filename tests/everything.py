"""Runs the linters, and all tests in five processes, side by side.

Three of them often wait for Ray. The other two, with the tests that need no Ray, have a low priority and fill the
pauses, so two cores are enough.

python tests/everything.py [pytest options]
"""

from __future__ import annotations

import os
import re
import subprocess
import sys
import threading
from pathlib import Path

TESTS = Path(__file__).parent
# These start Rays or hosts of their own. Their process starts no Ray for the session.
OWN_RAYS = {
    "cli/test_embedded_verb.py",
    "engine/test_canaries.py",
    "engine/test_cluster_gone.py",
    "engine/test_embedded_fallback.py",
    "engine/test_embedded_start.py",
    "engine/test_hosts.py",
    "engine/test_made_faults.py",
    "rl/test_rollout_hosts.py",
    "test_docs.py",
}
# With the tests of the roles and of the command line, so that each process has about as much to do.
MOVED = {"engine/test_pools.py", "engine/test_reservation.py"}
NOT_HERE = "not torch and not router and not browser and not slow and not soak"
WITHOUT_RAY = f"not ray and not netns and {NOT_HERE}"
WITH_RAY = f"(ray or netns) and {NOT_HERE}"
# Files are looked at before pytest collects their tests, which takes seconds for thousands of tests.
SOME_WITH_RAY = re.compile(r"mark\.(ray|netns)\b")
ALL_WITH_RAY = re.compile(r"^pytestmark = .*mark\.(ray|netns)\b", re.MULTILINE)


def is_of_first_half(name: str) -> bool:
    """Whether a file is of those that take about half of the time of all tests without Ray."""
    return name.startswith("suggesting/") or ("/" not in name and name != "test_docs.py")


def share_of(name: str) -> str:
    """The process that runs the tests of a file that need Ray."""
    if name in OWN_RAYS:
        return "rays"
    return "engine" if name.startswith("engine/") and name not in MOVED else "rest"


def commands(options: list[str]) -> dict[str, list[str]]:
    """The command of each process."""
    files = {path.relative_to(TESTS).as_posix(): path for path in sorted(TESTS.rglob("test_*.py"))}
    if unknown := (OWN_RAYS | MOVED) - files.keys():
        sys.exit(f"{__file__} names files that do not exist: {', '.join(sorted(unknown))}")
    shares: dict[str, list[str]] = {"engine": [], "rays": [], "rest": []}
    halves: dict[str, list[str]] = {"half 1": [], "half 2": []}
    for name, path in files.items():
        text = path.read_text("utf-8")
        if SOME_WITH_RAY.search(text):
            shares[share_of(name)].append(str(path))
        if not ALL_WITH_RAY.search(text):
            halves["half 1" if is_of_first_half(name) else "half 2"].append(str(path))
    pytest, later = [sys.executable, "-m", "pytest", *options, "-m"], ["nice", "-n", "10"]
    return {
        **{name: [*pytest, WITH_RAY, *paths] for name, paths in shares.items()},
        **{name: [*later, *pytest, WITHOUT_RAY, *paths] for name, paths in halves.items()},
        "lint": [*later, "make", "lint"],
    }


def passed_on(name: str, process: subprocess.Popen[str]) -> None:
    """Line by line, so that the lines of several processes do not mix within one."""
    assert process.stdout
    for line in process.stdout:
        print(f"{name:>6} | {line}", end="", flush=True)


def main(options: list[str]) -> int:
    # Hundreds of processes import roost: its modules are compiled once, whatever the shell says.
    environment = {key: value for key, value in os.environ.items() if key != "PYTHONDONTWRITEBYTECODE"}
    running = {
        name: subprocess.Popen(
            command,
            cwd=TESTS.parent,
            env=environment,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
        )
        for name, command in commands(options).items()
    }
    readers = [threading.Thread(target=passed_on, args=share) for share in running.items()]
    for reader in readers:
        reader.start()
    try:
        codes = {name: process.wait() for name, process in running.items()}
    except KeyboardInterrupt:  # pytest was told as well, and ends in order
        codes = {name: process.wait() for name, process in running.items()}
    for reader in readers:
        reader.join()
    print(", ".join(f"{name}: {'passed' if not code else f'exit {code}'}" for name, code in codes.items()))
    return max(codes.values(), key=abs)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
