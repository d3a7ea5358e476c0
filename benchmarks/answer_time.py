"""How long `roost plan` takes on 1,024 nodes, against `roost --version` and the planning alone.

python benchmarks/answer_time.py [--check] [--rounds 9]

CPU seconds of processes that run one after the other, in turns; medians. Python's bytecode is cached first, as it is
for an installed package. The ratio is plan / (version + planning), and at most 3 with --check.
"""

from __future__ import annotations

import argparse
import os
import subprocess
import sys
import tempfile
from pathlib import Path
from statistics import median

JOB = "cluster: {component_placement: {'actor,rollout': 0-8191, env: '0-4095:0-16383'}}\n"
SHAPE = "1024x8"
PLANNING = f"""
import time, roost
inventory = roost.Inventory.parse("{SHAPE}")
roost.plan("job.yaml", "1024x8")
start = time.process_time()
roost.plan("job.yaml", inventory)
print(time.process_time() - start)
"""
MOST = 3.0


def cpu_seconds(words: list[str], folder: Path, environment: dict[str, str]) -> float:
    before = os.times()
    subprocess.run(
        words, cwd=folder, env=environment, check=True, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL
    )
    after = os.times()
    return after.children_user + after.children_system - before.children_user - before.children_system


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--check", action="store_true")
    parser.add_argument("--rounds", type=int, default=9)
    options = parser.parse_args()
    roost = [sys.executable, "-c", "from roost.cli import main; main()"]
    taken: dict[str, list[float]] = {"version": [], "planning": [], "plan": []}
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        (folder / "job.yaml").write_text(JOB)
        environment = {**os.environ, "PYTHONPYCACHEPREFIX": str(folder / "bytecode")}
        environment.pop("PYTHONDONTWRITEBYTECODE", None)
        for number in range(options.rounds + 1):
            version = cpu_seconds([*roost, "--version"], folder, environment)
            plan = cpu_seconds([*roost, "plan", "job.yaml", "--on", SHAPE], folder, environment)
            done = subprocess.run(
                [sys.executable, "-c", PLANNING],
                cwd=folder,
                env=environment,
                check=True,
                capture_output=True,
                text=True,
            )
            if number:  # the first round writes the bytecode
                for kind, seconds in (("version", version), ("plan", plan), ("planning", float(done.stdout))):
                    taken[kind].append(seconds)
    found = {kind: median(seconds) for kind, seconds in taken.items()}
    ratio = found["plan"] / (found["version"] + found["planning"])
    print(", ".join(f"{kind} {seconds:.3f} s" for kind, seconds in found.items()))
    print(f"roost plan on {SHAPE} takes {ratio:.2f} times roost --version and planning together")
    return 1 if options.check and ratio > MOST else 0


if __name__ == "__main__":
    sys.exit(main())
