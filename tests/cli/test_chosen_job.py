"""Where verbs read a job from: pipes, and the config directory of a Hydra project."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

import roost
from roost.config import text_files

SCRIPT = Path(sys.executable).parent / "roost"
JOB = "cluster: {component_placement: {actor: %s}}\n"


def shell(command: str, **more: Any) -> str:
    """What the command prints. `roost` is this environment's, where Ray, torch and Hydra are not needed."""
    path = f"{SCRIPT.parent}{os.pathsep}{os.environ['PATH']}"
    done = subprocess.run(
        ["bash", "-c", command],
        env={**os.environ, "PATH": path, "NO_COLOR": "1"},
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        **more,
    )
    return done.stdout


def test_pipes_are_read(tmp_path: Path) -> None:
    (tmp_path / "job.yaml").write_text(JOB % "0-7")
    said = shell(
        "roost plan - < job.yaml --on 1x8 | tail -1; cat job.yaml | roost plan /dev/stdin --on 1x8 | tail -1;"
        "roost plan <(cat job.yaml) --inventory <(echo 'nodes: [{accelerators: 8}]') | tail -1",
        cwd=tmp_path,
    ).splitlines()
    assert len(said) == 3
    assert all(line.startswith("1 node, 8 accelerators: 8 used") for line in said), said
    wrong = shell(f"echo '{JOB % '7-0'}' | roost validate - job.yaml", cwd=tmp_path)
    assert "--> <stdin>:1:" in wrong
    assert wrong.endswith("<stdin>: 1 error\njob.yaml: fine\n")
    huge = shell("yes | roost plan - --on 1x8")
    assert "error[RC004]: <stdin>: larger than" in huge


def test_a_saved_plan_may_come_from_a_pipe(cli: Any) -> None:
    cli("plan", "job.yaml", "--on", "2x8", "-o", "plan.json")
    for words in (["diff", None, "plan.json"], ["diff", "plan.json", None], ["explain", None, "actor:3"]):
        with Path("plan.json").open() as file:
            done = cli(*(word or f"/dev/fd/{file.fileno()}" for word in words))
        assert done.code == 0, done.err


def test_a_silent_pipe(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(text_files, "MAX_SILENCE", 0.01)
    read, write = os.pipe()
    try:
        with pytest.raises(roost.ConfigurationError, match="nothing came from it for 0 seconds"):
            roost.plan(f"/dev/fd/{read}", "1x8")
    finally:
        os.close(read)
        os.close(write)


def test_the_config_directory(cli: Any) -> None:
    files = {
        "conf/train.yaml": "defaults: [{cluster: one}, _self_]\n",
        "conf/cluster/one.yaml": "component_placement: {actor: 0-7}\n",
        "more/cluster/two.yaml": "component_placement: {actor: 0-15}\n",
        "conf/plain.yaml": "cluster: {component_placement: {actor: 7-0}}\n",
    }
    for name, text in files.items():
        Path(name).parent.mkdir(parents=True, exist_ok=True)
        Path(name).write_text(text)
    by_name = ("--config-dir", "conf", "--config-name")
    assert cli("plan", *by_name, "train", "--on", "1x8").code == 0
    assert (
        cli("plan", *by_name, "train.yaml", "cluster.component_placement.actor=0-3", "--on", "1x4").code == 0
    )
    assert cli("plan", "conf/train.yaml", "--config-dir", "more", "cluster=two", "--on", "2x8").code == 0
    done = cli("validate", *by_name, "plain", "+cluster=one")
    assert (done.code, done.out) == (0, "conf/plain.yaml: fine\n")
    done = cli("validate", *by_name, "plain", "conf/train.yaml")
    assert (done.code, done.out) == (1, "conf/train.yaml: fine\nconf/plain.yaml: 1 error\n")
    assert cli("plan", *by_name, "absent", "--on", "1x8").err.startswith(
        "error[RC001]: conf/absent.yaml: cannot"
    )
    with Path("conf/train.yaml").open() as file:
        piped = f"/dev/fd/{file.fileno()}"
        assert "= help: name it with --config-dir" in cli("plan", piped, "--on", "1x8").err
        assert cli("plan", piped, "--config-dir", "conf", "--on", "1x8").code == 0
    done = cli("validate", "conf/train.yaml", "--config-dir", "nope")
    assert (done.code, "nope: there is no such directory" in done.err) == (1, True)
    assert "Missing argument 'CONFIG'" in cli("plan", "--on", "1x8").err
    profile = ("--profile", "conf/plain.yaml", "--on", "1x8", "--write")
    assert "which is a pipe here" in cli("suggest", "-", *profile).err
