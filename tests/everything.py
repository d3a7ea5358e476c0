"""Runs the tests in three processes side by side. They often wait for Ray, so two cores are enough.

python tests/everything.py [pytest options]
"""

from __future__ import annotations

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
    "rl/test_rollout_hosts.py",
    "test_docs.py",
}
# So that all three end at about the same time: tests of the engine that run with the rest, and tests without Ray
# that run with those of own Rays.
MOVED = {"engine/test_pools.py"}
WITHOUT_RAY = ("config/", "views/", "test_hostile.py", "test_properties.py", "test_golden.py")


def share_of(name: str) -> str:
    """The process that runs a file."""
    if name in OWN_RAYS or name.startswith(WITHOUT_RAY):
        return "rays"
    return "engine" if name.startswith(("engine/", "suggesting/")) and name not in MOVED else "rest"


def shares() -> dict[str, list[str]]:
    """The files of each process."""
    files = {path.relative_to(TESTS).as_posix(): path for path in sorted(TESTS.rglob("test_*.py"))}
    if unknown := (OWN_RAYS | MOVED) - files.keys():
        sys.exit(f"{__file__} names files that do not exist: {', '.join(sorted(unknown))}")
    found: dict[str, list[str]] = {"engine": [], "rays": [], "rest": []}
    for name, path in files.items():
        found[share_of(name)].append(str(path))
    return found


def passed_on(name: str, process: subprocess.Popen[str]) -> None:
    """Line by line, so that the lines of several processes do not mix within one."""
    assert process.stdout
    for line in process.stdout:
        print(f"{name:>6} | {line}", end="", flush=True)


def main(options: list[str]) -> int:
    running = {
        name: subprocess.Popen(
            [
                sys.executable,
                "-m",
                "pytest",
                "-m",
                "not torch and not router and not slow and not soak",
                *files,
                *options,
            ],
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
        )
        for name, files in shares().items()
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
