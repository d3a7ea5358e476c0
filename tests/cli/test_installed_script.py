"""The installed `roost`, in a process of its own where Ray, torch and Hydra cannot be imported."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

SCRIPT = Path(sys.executable).parent / "roost"
BLOCKED = "import sys\nfor name in ('ray', 'torch', 'hydra'):\n    sys.modules[name] = None\n"


@pytest.fixture
def environment(tmp_path: Path) -> dict[str, str]:
    (tmp_path / "sitecustomize.py").write_text(BLOCKED)
    (tmp_path / "job.yaml").write_text(
        'cluster: {num_nodes: 512, component_placement: {"actor,rollout": all}}\n'
    )
    return {**os.environ, "PYTHONPATH": str(tmp_path), "NO_COLOR": "1"}


def run(environment: dict[str, str], *arguments: str, **more: Any) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [SCRIPT, *arguments],
        env=environment,
        cwd=environment["PYTHONPATH"],
        capture_output=True,
        text=True,
        encoding="utf-8",
        **more,
    )


def test_the_block_works(environment: dict[str, str]) -> None:
    done = subprocess.run(
        [sys.executable, "-c", "import ray"], env=environment, capture_output=True, text=True
    )
    assert "ModuleNotFoundError" in done.stderr


def test_plan_and_validate_need_no_ray(environment: dict[str, str]) -> None:
    files = ("-o", "plan.json", "--svg", "plan.svg", "--html", "plan.html")
    done = run(environment, "plan", "job.yaml", "--on", "512x8", *files, "--json")
    assert (done.returncode, done.stderr) == (0, "".join(f"saved to {name}\n" for name in files[1::2]))
    printed = json.loads(done.stdout)
    shares = {name: part.pop("share") for name, part in printed["components"].items()}
    assert shares == {"actor": [0.8, 0.8], "rollout": [0.2, 0.2]}
    shown = {name: len(part.pop("placements")) for name, part in printed["components"].items()}
    assert shown == {name: len(part["processes"]) for name, part in printed["components"].items()}
    assert printed == json.loads((Path(environment["PYTHONPATH"]) / "plan.json").read_text())
    done = run(environment, "validate", "job.yaml")
    assert (done.returncode, done.stdout) == (0, "job.yaml: fine\n")


def test_a_live_cluster_needs_ray(environment: dict[str, str]) -> None:
    done = run(environment, "plan", "job.yaml", "--live")
    assert (done.returncode, done.stdout) == (4, "")
    assert done.stderr.startswith("error[RE102]: Ray is not installed here\n")


def test_a_reader_that_stops_early_is_no_error(environment: dict[str, str]) -> None:
    with subprocess.Popen(
        [SCRIPT, "plan", "job.yaml", "--on", "512x8", "--json"],
        env=environment,
        cwd=environment["PYTHONPATH"],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
    ) as process:
        assert process.stdout is not None
        assert process.stderr is not None
        assert process.stdout.readline() == b"{\n"
        process.stdout.close()
        assert process.stderr.read() == b""
    assert process.returncode == 0


def test_a_closed_stdout_is_said_and_no_bug(environment: dict[str, str]) -> None:
    for closed, verb in ((">&-", "plan"), (">&-", "validate"), (">&- 2>&-", "plan")):
        script = f'exec "$0" {verb} job.yaml --on 512x8 {closed}'
        done = subprocess.run(
            ["sh", "-c", script, SCRIPT],
            env=environment,
            cwd=environment["PYTHONPATH"],
            capture_output=True,
            text=True,
        )
        said = "the output cannot be written: Bad file descriptor\n" if "2>" not in closed else ""
        assert (done.returncode, done.stdout, done.stderr) == (1, "", said)


def test_a_file_that_may_not_grow(environment: dict[str, str]) -> None:
    environment.pop("PYTHONUNBUFFERED", None)  # Python does not notice then
    script = f'ulimit -f 1; exec "{SCRIPT}" plan job.yaml --on 512x8 --json > out'
    done = subprocess.run(
        ["sh", "-c", script], env=environment, cwd=environment["PYTHONPATH"], capture_output=True, text=True
    )
    assert (done.returncode, done.stderr) == (1, "the output cannot be written: File too large\n")


def test_completion(environment: dict[str, str]) -> None:
    done = run({**environment, "_ROOST_COMPLETE": "bash_source"})
    assert done.returncode == 0
    assert "_roost_completion" in done.stdout
    words = {"_ROOST_COMPLETE": "bash_complete", "COMP_WORDS": "roost val", "COMP_CWORD": "1"}
    assert run({**environment, **words}).stdout == "plain,validate\n"


def test_help_loads_no_heavy_module(environment: dict[str, str]) -> None:
    code = (
        "import sys\nfrom roost.cli import main\ntry: main(['--help'])\nexcept SystemExit: pass\n"
        "print(sorted({'rich', 'pydantic', 'omegaconf', 'yaml'} & set(sys.modules)), file=sys.stderr)"
    )
    done = subprocess.run([sys.executable, "-c", code], env=environment, capture_output=True, text=True)
    assert done.stderr == "[]\n"


def test_an_interruption_while_it_starts_is_130(environment: dict[str, str]) -> None:
    code = (
        "import sys\nfrom roost.cli import main\n"
        "class Early:\n    def find_spec(self, *_):\n        raise KeyboardInterrupt\n"
        "sys.meta_path.insert(0, Early())\nmain(['--help'])"
    )
    done = subprocess.run([sys.executable, "-c", code], env=environment, capture_output=True, text=True)
    assert (done.returncode, done.stderr) == (130, "")
