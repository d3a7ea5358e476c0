"""Exit codes, and what a stranger is told."""

from __future__ import annotations

import errno
import fcntl
import io
import os
import pty
import struct
import sys
import termios
from pathlib import Path
from typing import Any

import click
import pytest

import roost
from roost.cli.ending import code_for, guarded, wants_colour, width_of
from roost.errors import Finding


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        ([], "Usage: roost VERB"),
        (["plna"], "Did you mean 'plan'?"),
        (
            ["fly"],
            "There are: plan, validate, explain, diff, show, profile, suggest, simulate, launch, status, logs, stacks, down, up, doctor, schema, embedded.",
        ),
        (["plan"], "Missing argument 'CONFIG'"),
        (["plan", "job.yaml"], "which cluster? Say it with --on 2x8, with --inventory FILE, or with --live."),
        (["plan", "job.yaml", "cluster.num_nodes=3"], "--on 3x8"),
        (["plan", "job.yaml", "4x8"], "Did you mean --on 4x8?"),
        (["plan", "job.yaml", "other.yaml", "--on", "2x8"], "'other.yaml' is not an override"),
        (["plan", "job.yaml", "--on", "4by8"], "Invalid value for --on: '4by8' does not describe a cluster"),
        (["plan", "job.yaml", "--on", "2x8", "--inventory", "c.yaml"], "give one of them"),
        (["plan", "job.yaml", "--onn", "2x8"], "--on"),
        (["validate"], "Missing argument 'FILE..."),
    ],
)
def test_wrong_usage_is_2_and_says_what_to_do(cli: Any, arguments: list[str], said: str) -> None:
    done = cli(*arguments)
    assert (done.code, done.out) == (2, "")
    assert said in done.err


@pytest.mark.parametrize(
    ("text", "code"),
    [
        ("cluster: {num_nodes: 2, component_placement: {actor: 7-0}}", 1),
        ("cluster: {num_nodes: 2, component_placement: {actor: 0-7:0-2}}", 3),
        ("cluster: {num_nodes: 9, component_placement: {actor: 0-7}}", 3),
        ("cluster: {num_nodes: 2, component_placement: {actor: 0-99, rollout: 7-0}}", 1),
        ("cluster: [", 1),
        ("", 1),
    ],
)
def test_wrong_jobs(cli: Any, text: str, code: int) -> None:
    Path("job.yaml").write_text(text)
    done = cli("plan", "job.yaml", "--on", "2x8")
    assert (done.code, done.out) == (code, "")
    assert done.err.startswith("error[R")


@pytest.mark.parametrize("option", ["-o", "--svg", "--html"])
def test_a_deleted_working_directory(
    cli: Any, monkeypatch: pytest.MonkeyPatch, tmp_path: Path, option: str
) -> None:
    job, gone = tmp_path / "job.yaml", tmp_path / "gone"
    gone.mkdir()
    monkeypatch.chdir(gone)
    gone.rmdir()
    done = cli("plan", job, "--on", "2x8", option, "file")
    assert (done.code, done.out) == (1, "")
    assert done.err.startswith(
        "error[RS102]: file: cannot be written\n  = why: the working directory was deleted"
    )
    assert cli("plan", job, "--on", "2x8", option, tmp_path / "file").code == 0
    for arguments in (
        ["plan", "job.yaml", "--on", "2x8"],
        ["plan", job, "--inventory", "c.yaml", option, "file"],
    ):
        done = cli(*arguments)
        assert done.code == 1
        assert done.err.startswith("error[RC001]")
    assert cli("validate", "job.yaml").code == 1
    assert cli("validate", job, "--inventory", "cluster.yaml").code == 1


def test_a_missing_job_is_reported_before_a_missing_cluster(cli: Any) -> None:
    done = cli("plan", "absent.yaml")
    assert done.code == 1
    assert "absent.yaml: cannot be read" in done.err


def test_a_broken_inventory(cli: Any) -> None:
    Path("cluster.yaml").write_text("nodes: [{acelerators: 8}]\n")
    done = cli("plan", "job.yaml", "--inventory", "cluster.yaml")
    assert done.code == 1
    assert "did you mean 'accelerators'?" in done.err


def test_a_broken_inventory_is_one_of_the_files_that_are_validated(cli: Any) -> None:
    Path("cluster.json").write_text('{"nodes": [{"acelerators": 8}]}')
    Path("other.yaml").write_text("cluster: {component_placement: {a: 7-0}}\n")
    done = cli("validate", "job.yaml", "other.yaml", "--inventory", "cluster.json", "--json")
    assert done.code == 1
    codes = {entry["file"]: [found["code"] for found in entry["findings"]] for entry in done.data["files"]}
    assert codes == {"cluster.json": ["RC101"], "job.yaml": [], "other.yaml": ["RL102"]}
    assert "--> cluster.json:1:13" in done.err
    done = cli("validate", "job.yaml", "--inventory", "absent.yaml")
    assert (done.code, done.out) == (1, "absent.yaml: 1 error\njob.yaml: fine\n")


def test_only_errors_of_fit_make_3() -> None:
    fit, config, advice = (Finding(code=code, what="") for code in ("RP101", "RL101", "RW102"))
    assert code_for([]) == code_for([advice]) == 0
    assert code_for([fit, advice]) == 3
    assert code_for([fit, advice], on_a_cluster=False) == 1
    assert code_for([fit, config]) == 1


def _broken(*_: Any, **__: Any) -> Any:
    raise LookupError("a canary")


def test_a_bug_is_70_and_asks_to_be_reported(cli: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("roost.cli.chosen_plan.plan", _broken)
    done = cli("plan", "job.yaml", "--on", "2x8")
    assert (done.code, done.out) == (70, "")
    assert done.err.startswith("roost has a bug: LookupError in ")
    assert "Please report it" in done.err
    assert "Traceback" not in done.err
    monkeypatch.setenv("ROOST_DEBUG", "1")
    done = cli("plan", "job.yaml", "--on", "2x8")
    assert done.code == 70
    assert "Traceback" in done.err
    assert "a canary" in done.err


@pytest.mark.parametrize("interruption", [KeyboardInterrupt, click.Abort])
def test_an_interruption_is_130(cli: Any, monkeypatch: pytest.MonkeyPatch, interruption: type) -> None:
    def interrupted(*_: Any, **__: Any) -> Any:
        raise interruption

    monkeypatch.setattr("roost.cli.chosen_plan.plan", interrupted)
    done = cli("plan", "job.yaml", "--on", "2x8")
    assert (done.code, done.out) == (130, "")
    assert "Traceback" not in done.err


def test_help_and_version(cli: Any) -> None:
    assert cli("--version").out == f"roost {roost.__version__}\n"
    overview = cli("--help")
    assert overview.code == 0
    assert "plan      Show where every process of a job would run." in overview.out
    assert "_ROOST_COMPLETE=bash_source" in overview.out
    for verb in ("plan", "validate"):
        assert cli(verb, "-h").out.startswith(f"Usage: roost {verb}")


class Full(io.StringIO):
    def write(self, text: str) -> int:
        raise OSError(errno.ENOSPC, "No space left on device")


@pytest.mark.parametrize(
    "arguments",
    [["plan", "job.yaml", "--on", "2x8"], ["plan", "job.yaml", "--on", "2x8", "--json"], ["--help"]],
)
def test_a_full_disk_is_no_bug(cli: Any, monkeypatch: pytest.MonkeyPatch, arguments: list[str]) -> None:
    monkeypatch.setattr(sys, "stdout", Full())
    done = cli(*arguments)
    assert (done.code, done.err) == (1, "the output cannot be written: No space left on device\n")


def test_nobody_to_talk_to_is_no_failure(cli: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "stderr", Full())
    assert cli("plan", "job.yaml", "cluster.component_placement.actor=0-7", "--on", "2x8").code == 0
    assert cli("plan", "absent.yaml", "--on", "2x8").code == 1


class Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


def test_colour_only_on_a_terminal_that_wants_it(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TERM", "xterm-256color")
    monkeypatch.delenv("NO_COLOR", raising=False)
    assert wants_colour(Terminal())
    assert not wants_colour(io.StringIO())
    monkeypatch.setenv("TERM", "dumb")
    assert not wants_colour(Terminal())
    monkeypatch.setenv("TERM", "xterm-256color")
    monkeypatch.setenv("NO_COLOR", "1")
    assert not wants_colour(Terminal())


@pytest.mark.parametrize(("columns", "width"), [("60", 60), ("3", 20), ("", 100), ("wide", 100), ("0", 100)])
def test_the_width_without_a_terminal(monkeypatch: pytest.MonkeyPatch, columns: str, width: int) -> None:
    monkeypatch.setenv("COLUMNS", columns)
    assert width_of(io.StringIO()) == width


@pytest.mark.parametrize(("columns", "width"), [(0, 80), (5, 20), (132, 132)])
def test_the_width_of_a_terminal(monkeypatch: pytest.MonkeyPatch, columns: int, width: int) -> None:
    monkeypatch.delenv("COLUMNS", raising=False)
    leader, follower = pty.openpty()
    fcntl.ioctl(leader, termios.TIOCSWINSZ, struct.pack("4H", 24, columns, 0, 0))
    with os.fdopen(follower, "w") as terminal:
        assert width_of(terminal) == width
    os.close(leader)


def test_a_narrow_encoding_does_not_end_the_run(cli: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    page = io.TextIOWrapper(io.BytesIO(), encoding="ascii")
    monkeypatch.setattr(sys, "stdout", page)
    assert cli("plan", "job.yaml", "cluster.component_placement.actor=0-7", "--on", "2x8").code == 0
    page.seek(0)
    assert " .  .  . " in page.read()


# -- errors of running -----------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("kind", "of", "code"),
    [
        (roost.ClusterError, "RE105", 4),
        (roost.ReservationError, "RE107", 3),
        (roost.LaunchError, "RE107", 5),
        (roost.ConfigurationError, "RC103", 1),
    ],
)
def test_errors_and_their_codes(kind: type[roost.RoostError], of: str, code: int) -> None:
    def run() -> None:
        raise kind(Finding(code=of, what="x"))

    assert guarded(run) == code
