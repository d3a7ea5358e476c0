"""`roost up` as a user meets it."""

from __future__ import annotations

import shlex
import stat
from pathlib import Path
from typing import Any

import pytest


def test_a_script_is_printed_or_saved_and_readable_by_its_owner_only(cli: Any) -> None:
    printed = cli("up", "slurm", "job.yaml", "--on", "2x8", "--time", "1:00:00")
    assert printed.code == 0
    assert "#SBATCH --time=1:00:00\n" in printed.out
    assert "\n    roost launch job.yaml --timeout 300\n" in printed.out
    saved = cli("up", "slurm", "job.yaml", "--on", "2x8", "--time", "1:00:00", "-o", "job.sbatch")
    assert (saved.code, saved.out, saved.err) == (0, "", "saved to job.sbatch\n")
    assert Path("job.sbatch").read_text() == printed.out
    assert stat.S_IMODE(Path("job.sbatch").stat().st_mode) == 0o600
    assert (
        cli("up", "slurm", "job.yaml", "--on", "2x8", "--time", "1:00:00", "--json").data["text"]
        == printed.out
    )


@pytest.mark.installed
def test_a_saved_plan(cli: Any) -> None:
    assert cli("plan", "job.yaml", "--on", "2x8", "-o", "plan.json").code == 0
    done = cli("up", "hosts", "job.yaml", "--plan", "plan.json", "--head", "h0", "--json")
    assert done.code == 0
    assert [node["rank"] for node in done.data["nodes"]] == [0, 1]
    assert done.data["run"].endswith("roost launch job.yaml --plan plan.json --timeout 300")
    alone = cli("up", "kubernetes", "plan.json", "--run", "python train.py", "--image", "i", "--json")
    assert alone.data["plan"] == done.data["plan"]
    entrypoint = alone.data["manifest"]["spec"]["entrypoint"]
    assert entrypoint == "roost up wait --nodes 2 --timeout 300 && python train.py"


def test_a_job_that_does_not_say_how_many_nodes_waits_for_all_that_were_started(cli: Any) -> None:
    Path("job.yaml").write_text("cluster: {component_placement: {actor: all}}\n")
    done = cli("up", "slurm", "job.yaml", "--on", "3x8")
    assert "roost up wait --nodes 3 --timeout 300 && roost launch job.yaml" in done.out


def test_the_name_of_a_file_becomes_a_word(cli: Any) -> None:
    Path("job.yaml").rename("my job.yaml")
    assert "#SBATCH --job-name=my-job\n" in cli("up", "slurm", "my job.yaml", "--on", "2x8").out


def test_a_job_that_hydra_composes_is_launched_so(cli: Any) -> None:
    Path("conf").mkdir()
    Path("job.yaml").rename("conf/base.yaml")
    Path("conf/main.yaml").write_text("defaults: [base, _self_]\n")
    for words in (
        ("conf/main.yaml", "--config-dir", "conf"),
        ("--config-dir", "conf", "--config-name", "main"),
    ):
        done = cli("up", "hosts", *words, "cluster.num_nodes=2", "--on", "2x8", "--head", "h", "--json")
        assert done.code == 0, done.err
        assert done.data["run"].endswith(
            "roost launch conf/main.yaml cluster.num_nodes=2 --config-dir conf --timeout 300"
        )


@pytest.mark.parametrize(
    ("arguments", "code", "said"),
    [
        (["slurm", "job.yaml"], 2, "which nodes? Say it with --on 2x8"),
        (["slurm", "job.yaml", "--plan", "p.json", "--on", "2x8"], 2, "--on has no meaning"),
        (["slurm", "plan.json"], 2, "a saved plan does not say what to run"),
        (["slurm", "job.yaml", "--on", "2x8", "--submit"], 2, "say which with -o"),
        (["slurm", "job.yaml", "--on", "2x8", "--setup", "a\nb"], 2, "is not one line"),
        (["slurm", "job.yaml", "--on", "2x8", "--time", "5x"], 2, "write a time of Slurm"),
        (
            ["slurm", "job.yaml", "--on", "2x8", "--partition", "a b"],
            2,
            "--partition': 'a b': write one word",
        ),
        (["slurm", "job.yaml", "--on", "2x8", "--account", ""], 2, "write one word"),
        (["slurm", "job.yaml", "--on", "2x8", "--gres", "gpu\n"], 2, "write one word"),
        (["kubernetes", "job.yaml", "--on", "2x8", "--image", "i", "--memory", "lots"], 2, "such as 64Gi"),
        (["kubernetes", "job.yaml", "--on", "2x8", "--image", "i", "--memory", "64m"], 2, "such as 64Gi"),
        (
            ["kubernetes", "job.yaml", "--on", "2x8", "--image", "i", "--namespace", "A_b"],
            2,
            "use small letters",
        ),
        (["kubernetes", "job.yaml", "--on", "2x8", "--image", "i j"], 2, "write one word"),
        (["hosts", "job.yaml", "--on", "2x8", "--head", "1.2.3.4;rm"], 2, "write a host's name or address"),
        (["hosts", "job.yaml", "--on", "2x8", "--head", "1.2.3.4:6379"], 2, "without a port"),
        (["slurm", "job.yaml", "--on", "2x8", "-o", "job.yaml"], 2, "would be replaced"),
        (["slurm", "job.yaml", "--on", "2x8", "--select", "A800"], 2, "write NAME=VALUE"),
        (["slurm", "job.yaml", "--on", "2x8", "--select", "A800=x"], 1, "error[RI103]"),
        (["slurm", "job.yaml", "--on", "1x8"], 3, "error[RI108]"),
        (["slurm", "absent.yaml", "--on", "2x8"], 1, "absent.yaml: cannot be read"),
        (["kubernetes", "job.yaml", "--on", "2x8"], 2, "Missing option '--image'"),
        (["kubernetes", "job.yaml", "--on", "2x8", "--image", "i", "--select", "a=b"], 2, "NAME=LABEL=VALUE"),
        (["hosts", "job.yaml", "--on", "2x8"], 2, "which address has node 0?"),
        (["hosts", "-", "--on", "2x8", "--head", "h"], 2, "a pipe is gone by then"),
        (["hosts", "job.yaml", "--plan", "/dev/fd/0", "--head", "h"], 2, "a pipe is gone by then"),
        (["slurm", "job.yaml", "--on", "2x8", "--name", "a\nb"], 2, "use letters, digits"),
        (
            ["kubernetes", "job.yaml", "--on", "2x8", "--image", "i", "--setup", "x"],
            2,
            "No such option",
        ),
        (["wait"], 2, "Missing option '--nodes'"),
        (["cloud"], 2, "No such command 'cloud'"),
    ],
)
def test_what_is_refused(cli: Any, arguments: list[str], code: int, said: str) -> None:
    done = cli("up", *arguments)
    assert (done.code, done.out) == (code, "")
    assert said in done.err


@pytest.mark.parametrize("time", ["90", "90:00", "8:00:00", "2-00", "2-00:30", "2-00:00:00", "UNLIMITED"])
def test_every_time_of_slurm(cli: Any, time: str) -> None:
    done = cli("up", "slurm", "job.yaml", "--on", "2x8", "--time", time)
    assert f"#SBATCH --time={time}\n" in done.out


@pytest.mark.parametrize("memory", ["64Gi", "1.5Ti", "512M", "68719476736", "64e9", "100k"])
def test_every_size_of_kubernetes(cli: Any, memory: str) -> None:
    done = cli("up", "kubernetes", "job.yaml", "--on", "2x8", "--image", "i", "--memory", memory, "--json")
    spec = done.data["manifest"]["spec"]["rayClusterSpec"]["headGroupSpec"]["template"]["spec"]
    assert spec["containers"][0]["resources"]["limits"]["memory"] == memory


@pytest.mark.parametrize(
    ("head", "address"),
    [
        ("node-0.example", "node-0.example:6379"),
        ("10.0.0.1", "10.0.0.1:6379"),
        ("fd00::1", "[fd00::1]:6379"),
        ("[fd00::1]", "[fd00::1]:6379"),
    ],
)
def test_every_spelling_of_a_head(cli: Any, head: str, address: str) -> None:
    done = cli("up", "hosts", "job.yaml", "--on", "2x8", "--head", head, "--json")
    assert done.data["address"] == address


def test_submitting(cli: Any, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """With sbatch what it prints is printed; without it, or when it refuses, the exit code says so."""
    bin_folder = tmp_path / "bin"
    bin_folder.mkdir()
    monkeypatch.setenv("PATH", str(bin_folder))
    words = ("up", "slurm", "job.yaml", "--on", "2x8", "-o", "job.sbatch", "--submit")
    done = cli(*words)
    assert done.code == 4
    assert "sbatch is not on this machine: run `sbatch job.sbatch` where it is" in done.err
    program = bin_folder / "sbatch"
    program.write_text('#!/bin/sh\necho "Submitted $1"\n')
    program.chmod(0o755)
    assert cli(*words).out == "Submitted job.sbatch\n"
    assert cli(*words, "--json").data["submitted"] == "Submitted job.sbatch\n"
    program.write_text("#!/bin/sh\necho 'no such partition' >&2\nexit 1\n")
    done = cli(*words)
    assert done.code == 5
    assert "sbatch refused it: no such partition" in done.err


def test_an_odd_head_stays_one_word(cli: Any) -> None:
    odd = "h; touch taken"
    Path("odd.yaml").write_text(f'nodes: [{{hostname: "{odd}", accelerators: 8}}, {{accelerators: 8}}]')
    told = cli("up", "hosts", "job.yaml", "--inventory", "odd.yaml", "--run", "true").out
    lines = [line for line in told.splitlines() if "touch" in line and line[0] != "#"]
    assert len(lines) == 3
    assert all(any(odd in word for word in shlex.split(line)) for line in lines)
    nodes = r'nodes: [{hostname: "a\ntouch taken", ip: 10.0.0.1, accelerators: 8}]'
    Path("odd.yaml").write_text(nodes)
    small = ["cluster.num_nodes=1", "cluster.component_placement.actor=0-7"]
    told = cli("up", "hosts", "job.yaml", *small, "--inventory", "odd.yaml", "--run", "true")
    assert "# node 0, on a touch taken\n" in told.out, told.err
