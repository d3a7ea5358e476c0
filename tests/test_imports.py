"""Planning needs neither Ray nor torch nor Hydra, not even installed."""

from __future__ import annotations

import ast
import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from versions import LEFT_OUT

SOURCE = Path(__file__).parents[1] / "src"

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
assert "numpy" not in sys.modules
print(loaded())
"""

COMMANDS = """
import contextlib, io, pathlib, tempfile
from roost.cli import main

with tempfile.TemporaryDirectory() as place:
    job = pathlib.Path(place, "job.yaml")
    job.write_text("cluster: {component_placement: {actor: 0-7}}\\n")
    for arguments in (["plan", str(job), "--on", "1x8"], ["validate", str(job)]):
        with contextlib.redirect_stdout(io.StringIO()):
            try:
                code = main(arguments)
            except SystemExit as ended:
                code = ended.code
        assert not code, (arguments, code)
        assert arguments[0] == "validate" or "omegaconf" not in sys.modules
assert "numpy" not in sys.modules
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


def test_only_tests_that_need_ray_import_it() -> None:
    """The others run with every promised version of what planning needs, where Ray is not installed."""
    here = Path(__file__).parent
    left_out = [here.parent / path for path in LEFT_OUT]
    imports = re.compile(r"^(import|from) ray\b", re.MULTILINE)
    assert not [
        str(path)
        for path in here.rglob("*.py")
        if not any(path.is_relative_to(one) for one in left_out) and imports.search(path.read_text())
    ]


# Imports inside functions. A module of roost may be imported late only because it loads Ray.
LATE = {
    "roost.cli.chosen_cluster": {"roost.engine.reservation.cluster_snapshot"},  # for --live
    "roost.cli.doctor": {"roost.engine.operating.cluster_inspection"},  # for a cluster
    "roost.cli.down": {"roost.engine.operating.job_access", "roost.engine.operating.taking_down"},
    "roost.cli.logs": {"roost.engine.operating.job_access", "roost.engine.operating.job_logs"},
    "roost.cli.stacks": {"roost.engine.operating.job_access", "roost.engine.operating.job_stacks"},
    "roost.cli.launch": {"roost.engine.connection.ray_connection"},
    "roost.cli.running_job": {
        "roost.engine.connection.cluster_watch",
        "roost.engine.connection.ray_connection",
    },
    "roost.cli.status": {"roost.engine.job.job_reader"},
    "roost.cli.up": {  # for `up wait`
        "roost.engine.connection.discovery",
        "roost.engine.connection.ray_connection",
    },
    "roost.engine.channel": {"roost.engine.job.ray_channel"},  # inline programs do without Ray
    "roost.engine.backends": {"roost.engine.ray_backend.ray_backend"},  # inline mode needs no Ray
    "roost.engine.connection.embedded": {
        "ray._private",
        "ray._private.node",
        "ray.cluster_utils",
    },  # only its child process runs Ray
    "roost.engine.data_buffer": {"roost.engine.job.ray_buffer"},
    "roost.engine.here": {"roost.engine.ray_backend.own_node"},
    "roost.engine.placement_groups": {"ray.util.scheduling_strategies"},
}
OPTIONAL = {
    "roost.cli.live_page": {"roost.web.page_server"},  # imports starlette and uvicorn
}
# OmegaConf takes a tenth of the time of `roost plan`, and few jobs have interpolations.
RARE = {
    "roost.config.document": {"roost.config.hydra_composition", "roost.config.interpolation"},
    "roost.config.plain_data": {"omegaconf"},
}


def module_name(file: Path) -> str:
    return ".".join(file.relative_to(SOURCE).with_suffix("").parts).removesuffix(".__init__")


TREES = {module_name(file): ast.parse(file.read_text()) for file in sorted(SOURCE.rglob("*.py"))}


def imports(node: ast.AST, inside: bool = False) -> Iterator[tuple[str, bool]]:
    """Every module that is imported, but for type checkers, and whether a function imports it."""
    for child in ast.iter_child_nodes(node):
        if isinstance(child, ast.If) and ast.unparse(child.test) == "TYPE_CHECKING":
            continue
        if isinstance(child, ast.Import):
            yield from ((alias.name, inside) for alias in child.names)
        elif isinstance(child, ast.ImportFrom):
            assert child.module is not None, "no relative imports"
            full = [f"{child.module}.{alias.name}" for alias in child.names]
            yield from ((name if name in TREES else child.module, inside) for name in full)
        else:
            yield from imports(child, inside or isinstance(child, (ast.FunctionDef, ast.AsyncFunctionDef)))


def loads_ray(module: str) -> bool:
    """Whether importing the module imports Ray, itself or through others."""
    seen, following = set(), [module]
    while following:
        name = following.pop()
        if name.partition(".")[0] == "ray":
            return True
        if name in TREES and name not in seen:
            seen.add(name)
            following += [imported for imported, inside in imports(TREES[name]) if not inside]
    return False


def test_functions_import_only_what_is_heavy() -> None:
    found: dict[str, set[str]] = {}
    for module, tree in TREES.items():
        for imported, inside in imports(tree):
            if inside:
                found.setdefault(module, set()).add(imported)
    assert found == {**LATE, **OPTIONAL, **RARE}


def test_late_imports_keep_ray_out() -> None:
    assert [module for module in LATE if loads_ray(module)] == []
    assert [name for names in LATE.values() for name in names if not loads_ray(name)] == []


PROCESSES = (
    "roost.engine.ray_backend.worker_host",
    "roost.engine.job.node_agent",
    "roost.engine.job.channel_host",
    "roost.engine.job.managers",
    "roost.engine.job.ray_buffer",
    "roost.engine.reservation.measuring",
    # A job's managers unpickle these.
    "roost.engine.reservation.held_accelerator",
    "roost.inventory.ordering",
    "roost.inventory.groups",
)


@pytest.mark.ray
def test_processes_of_a_job_load_little() -> None:
    """Every one of them pays for what its module imports: pydantic alone is a third of a start."""
    program = (
        "import importlib, sys, ray\nheavy = {'pydantic', 'yaml', 'omegaconf', 'rich'} - set(sys.modules)\n"
        f"for module in {PROCESSES}:\n    importlib.import_module(module)\n"
        "    print(module, sorted(heavy & set(sys.modules)))"
    )
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    assert done.stdout.splitlines() == [f"{module} []" for module in PROCESSES]
