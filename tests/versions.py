"""Runs the tests that need no Ray with the lowest and the newest versions that pyproject.toml promises.

python tests/versions.py [3.10-lowest 3.13-newest ...]

Without arguments, both for each interpreter that is at hand. Ray is not installed, so that nothing here can
come to need it. The newest Hydra is that of its next release, also before it is released.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

from packaging.requirements import Requirement

if sys.version_info >= (3, 11):
    import tomllib
else:
    import tomli as tomllib

ROOT = Path(__file__).parents[1]
PLACE = ROOT / ".venv-versions"
INTERPRETERS = ("3.10", "3.11", "3.12", "3.13")
ENDS = ("lowest", "newest")
TOOLS = ("hypothesis", "jsonschema", "psutil", "pytest")  # what the tests themselves import
MARKS = "not ray and not netns and not torch and not router and not browser and not slow and not installed"
NEXT_HYDRA = "hydra-core>=1.4.0rc1"  # 1.3 refuses the newest OmegaConf
# The engine imports Ray. Placement's arithmetic and the handling of processes use no dependency.
LEFT_OUT = (
    *("tests/engine", "tests/rl", "tests/soak", "tests/torch", "tests/placement"),
    *("tests/test_properties.py", "tests/test_golden.py", "tests/cli/test_job_verbs.py"),
)


def project() -> dict[str, Any]:
    text = (ROOT / "pyproject.toml").read_text("utf-8")
    found: dict[str, Any] = tomllib.loads(text)["project"]
    return found


def requirements(interpreter: str, end: str) -> list[str]:
    """What pip is asked for: every dependency but Ray, those of the page, Hydra, and tools of tests."""
    wanted, extras = [], project()["optional-dependencies"]
    hydra = extras["hydra"] if end == "lowest" else [NEXT_HYDRA]
    for dependency in map(Requirement, [*project()["dependencies"], *hydra, *extras["web"]]):
        applies = dependency.marker is None or dependency.marker.evaluate({"python_version": interpreter})
        if applies and dependency.name != "ray":
            lowest = [bound.version for bound in dependency.specifier if bound.operator == ">="]
            wanted.append(
                f"{dependency.name}=={lowest[0]}"
                if end == "lowest"
                else f"{dependency.name}{dependency.specifier}"
            )
    tools = map(Requirement, extras["dev"])
    return [*wanted, *(str(tool) for tool in tools if tool.name in TOOLS)]


def interpreter_at_hand(version: str) -> str | None:
    """A Python of this version that really runs: one on the path may be a stub of a version manager."""
    pyenv = Path(os.environ.get("PYENV_ROOT") or Path.home() / ".pyenv")
    candidates = [
        sys.executable,
        shutil.which(f"python{version}"),
        *map(str, pyenv.glob(f"versions/{version}.*/bin/python")),
    ]
    ask = "import sys, venv; print('%d.%d' % sys.version_info[:2])"
    for candidate in filter(None, candidates):
        asked = subprocess.run([candidate, "-c", ask], capture_output=True, text=True)
        if asked.stdout.strip() == version:
            return candidate
    return None


def installed(name: str, python: str, wanted: list[str]) -> Path:
    """The interpreter of a virtual environment that has what is wanted, and this roost."""
    place = PLACE / name
    own = place / "bin" / "python"
    if not own.exists():
        subprocess.run([python, "-m", "venv", place], check=True)
    pip = [own, "-m", "pip", "install", "--quiet", "--disable-pip-version-check"]
    subprocess.run([*pip, "--upgrade", *wanted], check=True)
    subprocess.run([*pip, "--no-deps", "--editable", ROOT], check=True)
    return own


def tested(name: str, python: str, wanted: list[str]) -> bool:
    print(f"{name}: {', '.join(wanted)}", flush=True)
    start = time.monotonic()
    environment = {key: value for key, value in os.environ.items() if key != "PYTHONPATH"}
    try:
        own = installed(name, python, wanted)
    except subprocess.CalledProcessError:
        print(f"{name}: these cannot be installed", flush=True)
        return False
    ready = time.monotonic()
    ignored = [f"--ignore={ROOT / path}" for path in LEFT_OUT]
    done = subprocess.run(
        [own, "-m", "pytest", "-m", MARKS, *ignored],
        cwd=ROOT,
        env={**environment, "ROOST_BATCH": "50", "ROOST_EXAMPLES": "5"},
    )
    verdict = "passed" if done.returncode == 0 else f"failed (pytest says {done.returncode})"
    print(
        f"{name}: {verdict}, {ready - start:.0f} s to install and {time.monotonic() - ready:.0f} s to test\n",
        flush=True,
    )
    return done.returncode == 0


def main(asked: list[str]) -> int:
    every = [f"{version}-{end}" for version in INTERPRETERS for end in ENDS]
    strange = [name for name in asked if name not in every]
    if strange:
        print(f"there is no {', '.join(strange)}; there are {', '.join(every)}", file=sys.stderr)
        return 2
    chosen = asked or every
    pythons = {version: interpreter_at_hand(version) for version in INTERPRETERS}
    passed = {}
    for name in chosen:
        version, _, end = name.partition("-")
        python = pythons[version]
        if python is not None:
            passed[name] = tested(name, python, requirements(version, end))
        elif asked:
            print(f"{name}: no Python {version} at hand", file=sys.stderr)
            passed[name] = False
    for name in chosen:
        print(f"{name}: {'not at hand' if name not in passed else 'passed' if passed[name] else 'FAILED'}")
    return 0 if passed and all(passed.values()) else 1


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
