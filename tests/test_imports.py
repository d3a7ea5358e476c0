"""Planning needs neither Ray nor torch nor Hydra, not even installed."""

from __future__ import annotations

import subprocess
import sys

import pytest

PROLOGUE = """
import sys

HEAVY = {"ray", "torch", "hydra"}

class Refusing:
    def find_spec(self, name, path=None, target=None):
        if name.partition(".")[0] in HEAVY:
            raise ImportError(f"{name} is not installed here")

if "refuse" in sys.argv:
    sys.meta_path.insert(0, Refusing())

def loaded():
    return sorted(HEAVY & {name.partition(".")[0] for name in sys.modules})
"""

PLANNING = """
import json
import roost
from roost.config.job import read_job
from roost.config.document import parse

assert loaded() == [], loaded()
inventory = roost.Inventory.parse("2x8:A800,1x0")
text = "n: 7\\ncluster:\\n  component_placement:\\n    actor: 0-${n}\\n    rollout: 8-15\\n"
plan = roost.plan(parse(text), inventory)
assert plan.components["actor"].world_size == 8
both = roost.ModelParallelComponentPlacement(parse(text), inventory)
assert both.is_disaggregated
assert roost.Plan.from_dict(json.loads(json.dumps(plan.to_dict()))) == plan
job, findings = read_job({"cluster": {"component_placement": {"actor": "3-1"}}})
assert [finding.code for finding in findings] == ["RL102"]
print(loaded())
"""

COMMANDS = """
import contextlib, io, pathlib, tempfile
from roost.cli import main

with tempfile.TemporaryDirectory() as place:
    job = pathlib.Path(place, "job.yaml")
    job.write_text("cluster: {component_placement: {actor: 0-7}}\\n")
    for arguments in (["validate", str(job)], ["plan", str(job), "--on", "1x8"]):
        with contextlib.redirect_stdout(io.StringIO()):
            try:
                code = main(arguments)
            except SystemExit as ended:
                code = ended.code
        assert not code, (arguments, code)
print(loaded())
"""


@pytest.mark.parametrize("ray", ["installed", "refuse"])
@pytest.mark.parametrize("program", [PLANNING, COMMANDS], ids=["library", "commands"])
def test_planning_loads_nothing_heavy(program: str, ray: str) -> None:
    done = subprocess.run(
        [sys.executable, "-c", PROLOGUE + program, ray], capture_output=True, text=True, check=False
    )
    assert (done.returncode, done.stderr) == (0, "")
    assert done.stdout.splitlines()[-1] == "[]"


def test_importing_roost_loads_little() -> None:
    program = PROLOGUE + "import roost\nprint([name for name in sys.modules if name.startswith('roost.')])"
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"


def test_every_exported_name_can_be_had() -> None:
    program = PROLOGUE + (
        "import roost\n"
        "light = [n for n in roost.__all__ if not roost._HOME[n].startswith('roost.engine')]\n"
        "assert light and set(light) <= set(dir(roost))\n"
        "assert all(getattr(roost, name) is not None for name in light)\n"
        "print(loaded())\n"
    )
    done = subprocess.run(
        [sys.executable, "-c", program, "refuse"], capture_output=True, text=True, check=False
    )
    assert (done.stdout.strip(), done.stderr) == ("[]", "")


def test_an_unknown_name_is_an_attribute_error() -> None:
    import roost

    with pytest.raises(AttributeError, match="no attribute 'Inventry'"):
        roost.Inventry  # noqa: B018
