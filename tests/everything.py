"""Runs the tests in two processes side by side: most of the engine's, which often wait for Ray, and the rest.

python tests/everything.py [pytest options]
"""

from __future__ import annotations

import subprocess
import sys
import threading
from pathlib import Path

TESTS = Path(__file__).parent
# It has hosts of its own, so it may as well run beside the others.
APART = [TESTS / "engine" / "test_hosts.py"]
HALVES = {
    "engine": [path for path in sorted((TESTS / "engine").glob("test_*.py")) if path not in APART],
    "rest": [
        *(path for path in sorted(TESTS.glob("test_*.py"))),
        *(path for path in sorted(TESTS.iterdir()) if path.is_dir() and any(path.glob("test_*.py"))),
        *APART,
    ],
}
HALVES["rest"].remove(TESTS / "engine")


def passed_on(name: str, process: subprocess.Popen[str]) -> None:
    """Line by line, so that the two do not mix within one."""
    assert process.stdout
    for line in process.stdout:
        print(f"{name:>6} | {line}", end="", flush=True)


def main(options: list[str]) -> int:
    running = {
        name: subprocess.Popen(
            [sys.executable, "-m", "pytest", "-m", "not torch and not slow", *map(str, where), *options],
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
        )
        for name, where in HALVES.items()
    }
    readers = [threading.Thread(target=passed_on, args=half) for half in running.items()]
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
