"""`roost launch`: inside the test process where no Ray is needed, else as a process of its own."""

from __future__ import annotations

import io
import json
import os
import re
import signal
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from roost.cli.interrupts import interrupts
from roost.cli.launch_progress import LaunchProgress
from roost.engine.backend import Progress

SCRIPT = Path(sys.executable).parent / "roost"
JOB = """\
cluster: {num_nodes: 1, component_placement: {actor: 0-1, rollout: 2-3:0}}
trainer: {steps: 3}
workers:
  actor: {class: program:Actor, args: {scale: "${trainer.steps}", folder: FOLDER}}
  rollout: program:Rollout
driver: program:main
"""
PROGRAM = """\
import os, sys, threading, time
from pathlib import Path
import roost

class Actor(roost.Worker):
    def __init__(self, scale, folder, how="fine"):
        super().__init__()
        self.scale = scale
        Path(folder, f"pid-{self.group_name}-{self.rank}").write_text(str(os.getpid()))
        if how == "blocked":
            threading.Event().wait()
        if how == "failing" and self.rank == 1:
            raise RuntimeError("no weights here")

    def step(self, values):
        return self.rank * self.scale + sum(values)

    def variable(self, name):
        return os.environ.get(name)

    def wait(self):
        threading.Event().wait()

    def say(self):
        print(f"built by {self.rank}", flush=True)

class Rollout(roost.Worker):
    def generate(self):
        return self.placement.local_hardware_ranks

class Plain(roost.Worker):
    def __init__(self):
        super().__init__()

class NotAWorker:
    pass

number = 7

def main(run, config):
    print(run["actor"].step(run["rollout"].generate().wait(timeout=60)[0]).wait(timeout=60))
    return config.trainer.get("returns")

def exits(run, config):
    sys.exit(config.trainer["exits"])

def raises(run, config):
    print("so far", end="")
    raise KeyError("no such prompt")

async def awaits(run, config):
    return len(await run["actor"].step([1]))

def closes_output(run, config):
    sys.stdout.close()
    return 4

def has_no_output(run, config):
    sys.stdout = sys.stderr = None
    return 4

def ends_strangely(run, config):
    raise GeneratorExit("strange")

def generator(run, config):
    yield 1

async def async_generator(run, config):
    yield 1

def takes_one(run):
    pass

def interrupted(run, config):
    print("driving", flush=True)
    try:
        run["actor"].wait().wait()
    finally:
        print("tidied", flush=True)

def stubborn(run, config):
    try:
        interrupted(run, config)
    except KeyboardInterrupt:
        print("going on", flush=True)
        threading.Event().wait()

def waits_for_a_file(run, config):
    print("driving", flush=True)
    run["actor"].say().wait(timeout=60)
    while not os.path.exists("go"):
        time.sleep(0.1)

def shows_variable(run, config):
    print(run["actor"].variable("HF_TOKEN").wait(timeout=60))
    return 7
"""


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    (tmp_path / "job.yaml").write_text(JOB.replace("FOLDER", str(tmp_path)))
    (tmp_path / "program.py").write_text(PROGRAM)
    return tmp_path


@pytest.fixture
def inline(cli: Any, folder: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[..., Any]:
    """`roost launch job.yaml` in this process, with workers in it too."""
    monkeypatch.setenv("ROOST_INLINE", "1x4")
    monkeypatch.setattr(sys, "path", list(sys.path))
    monkeypatch.delitem(sys.modules, "program", raising=False)

    def launch(*arguments: str) -> Any:
        done = cli("launch", "job.yaml", *arguments)
        sys.modules.pop("program", None)
        assert "roost has a bug" not in done.err
        return done

    return launch


def offline(inline: Callable[..., Any], *arguments: str) -> str:
    """What is said about a job that is refused with exit code 1 before any process starts."""
    done = inline(*arguments)
    assert (done.code, done.out) == (1, ""), done.err
    assert "nodes: 1 of" not in done.err
    return str(done.err)


# -- the driver ------------------------------------------------------------------------------------------------


def test_the_map_and_the_phases_go_to_stderr_and_stdout_is_the_drivers(inline: Callable[..., Any]) -> None:
    done = inline("--job", "demo")
    assert (done.code, done.out) == (0, "[5, 8]\n")
    assert done.err.startswith("nodes: 1 of 1, for job demo\n")
    assert "0     nvidia_gpu  A0 A1 R0 R0" in done.err
    assert done.err.splitlines()[-7:] == [
        "reserved: 4 accelerators on 1 node",
        "processes: 1 of 3 ready",
        "processes: 2 of 3 ready",
        "processes: 3 of 3 ready",
        "verified: every process is where the plan has it",
        "running",
        "ended",
    ]


@pytest.mark.parametrize(
    ("arguments", "code", "out"),
    [
        (["+trainer.returns=7"], 7, "[5, 8]\n"),
        (["+trainer.returns=true"], 0, "[5, 8]\n"),
        (["+trainer.returns={reward: 1}"], 0, "[5, 8]\n"),
        (["driver=program:exits", "+trainer.exits=4"], 4, ""),
        (["driver=program:exits", "+trainer.exits=null"], 0, ""),
        (["driver=program:exits", "+trainer.exits=no more prompts"], 1, ""),
        (["driver=program:awaits"], 2, ""),
        (["driver=program:raises"], 5, "so far"),
    ],
)
def test_exit_codes_of_the_driver(
    inline: Callable[..., Any], arguments: list[str], code: int, out: str
) -> None:
    done = inline(*arguments)
    assert (done.code, done.out) == (code, out), done.err
    assert done.err.endswith(f"ended with exit code {code}\n" if code else "ended\n")
    assert ("no more prompts\n" in done.err) == (arguments[-1] == "+trainer.exits=no more prompts")


@pytest.mark.parametrize("driver", ["closes_output", "has_no_output"])
def test_a_driver_may_close_its_output(folder: Path, driver: str) -> None:
    done = subprocess.run(  # a process of its own, whose output it is
        [SCRIPT, "launch", "job.yaml", f"driver=program:{driver}"],
        cwd=folder,
        env={**os.environ, "ROOST_INLINE": "1x4"},
        capture_output=True,
        text=True,
    )
    assert done.returncode == 4, done.stderr
    assert "roost has a bug" not in done.stderr


def test_a_driver_that_ends_strangely_has_failed(inline: Callable[..., Any]) -> None:
    done = inline("driver=program:ends_strangely")
    assert done.code == 5
    assert "roost/cli" not in done.err
    assert done.err.endswith("GeneratorExit: strange\nended with exit code 5\n")


@pytest.mark.parametrize("driver", ["generator", "async_generator"])
def test_a_driver_that_would_run_nothing_is_refused(inline: Callable[..., Any], driver: str) -> None:
    err = offline(inline, f"driver=program:{driver}")
    assert f"error[RC107]: program:{driver} cannot be called as a driver" in err
    assert "it has a `yield`, so a call would run nothing of it" in err


def test_the_traceback_of_the_driver_is_the_users(inline: Callable[..., Any]) -> None:
    err = inline("driver=program:raises").err
    trace = err[err.index("Traceback") :].splitlines()
    assert re.fullmatch(r'  File ".*program.py", line \d+, in raises', trace[1])
    assert trace[-2:] == ["KeyError: 'no such prompt'", "ended with exit code 5"]
    assert "driver.py" not in err


def test_a_last_line_of_json(inline: Callable[..., Any]) -> None:
    done = inline("+trainer.returns=7", "--job", "demo", "--json")
    said = json.loads(done.out.splitlines()[-1])
    assert said.pop("plan").startswith("sha256:")
    assert said == {"format_version": 1, "job": "demo", "processes": 3, "exit_code": 7}
    said = json.loads(inline("workers=3", "--json").out)
    assert (said["exit_code"], [found["code"] for found in said["findings"]]) == (1, ["RC103"])


def test_a_skipped_component_runs_nothing(inline: Callable[..., Any]) -> None:
    done = inline("--skip", "rollout", "driver=program:awaits", "workers.rollout=nowhere:Nothing")
    assert done.code == 2, done.err
    assert "processes: 2 of 2 ready" in done.err
    done = inline("--skip", "rolout")
    assert (done.code, done.out) == (2, "")
    assert "did you mean 'rollout'?" in done.err


# -- what is refused before anything starts ------------------------------------------------------------------


def test_what_is_wrong_with_a_class_of_several_components_is_said_once(inline: Callable[..., Any]) -> None:
    rules = "cluster: {component_placement: {a: 0, b: 1, c: 2}}\n"
    Path("job.yaml").write_text(rules + "workers: {'a,b,c': program:Acto}\ndriver: program:main\n")
    assert offline(inline).count("program has no 'Acto'") == 1


def test_every_problem_of_the_code_at_once(inline: Callable[..., Any]) -> None:
    Path("job.yaml").write_text(
        "cluster: {component_placement: {a: 0, b: 1, c: 2, d: 3, e: 0, f: 1, g: 2}}\n"
        "workers:\n"
        "  a: progam:Actor\n"
        "  b: program:Acto\n"
        "  c: program:NotAWorker\n"
        "  d: {class: program:Actor, args: {scale: 1, folde: .}}\n"
        "  e: {class: program:Actor}\n"
        "  f: {class: program:number}\n"
        "  g: {class: program:Plain, args: {scale: 1}}\n"
        "driver: program:takes_one\n"
    )
    err = offline(inline)
    assert re.findall(r"error\[(\w+)\]: (.*)\n  --> job.yaml:(\d+):(\d+)\n", err) == [
        ("RC107", "there is no module 'progam'", "3", "6"),
        ("RC107", "program has no 'Acto'", "4", "6"),
        ("RC107", "program:NotAWorker is not a subclass of roost.Worker", "5", "6"),
        ("RC107", "d: Actor cannot be made with these arguments", "6", "35"),
        ("RC107", "e: Actor cannot be made with these arguments", "7", "14"),
        ("RC107", "program:number is not a subclass of roost.Worker", "8", "14"),
        ("RC107", "g: Plain cannot be made with these arguments", "9", "35"),
        ("RC107", "program:takes_one cannot be called as a driver", "10", "9"),
    ]
    for said in (
        "did you mean 'program'?",
        "did you mean 'Actor'? known: Actor, Plain, Rollout",
        "it takes (scale, folder, how=...)",
        "it takes ()",
    ):
        assert said in err


def test_a_module_of_that_name_from_elsewhere_is_told(inline: Callable[..., Any]) -> None:
    assert f"= why: it was imported from {json.__file__}" in offline(inline, "workers.rollout=json:Rollout")


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("import no_such_package\n", "ModuleNotFoundError: No module named 'no_such_package'"),
        ("import sys\nsys.exit('run me otherwise')\n", "SystemExit: run me otherwise"),
        ("def broken(:\n", "SyntaxError: invalid syntax"),
        ("1 / 0\n", "ZeroDivisionError: division by zero"),
    ],
)
def test_a_module_that_raises_shows_its_own_traceback(
    inline: Callable[..., Any], text: str, said: str
) -> None:
    Path("program.py").write_text(text)
    err = offline(inline)
    assert err.count("Traceback" if "Syntax" not in said else 'program.py", line 1') == 1
    assert 'program.py", line ' in err
    assert "importlib" not in err
    assert f"= why: {said}" in err
    assert err.count("error[RC107]: program cannot be imported") == 1  # not once for each name in it


def test_workers_and_components_must_match(inline: Callable[..., Any]) -> None:
    err = offline(inline, "~workers.rollout", "+workers.rolout=program:Rollout")
    assert "error[RE122]: no worker for component 'rollout'\n  --> job.yaml:3:1\n" in err
    assert "error[RE122]: there is no component 'rolout'" in err
    assert "the job has actor, rollout; workers are given for actor, rolout" in err


def test_a_warning_of_the_file_is_said_once(
    inline: Callable[..., Any], caplog: pytest.LogCaptureFixture
) -> None:
    done = inline("+cluster.profiling=1")
    assert done.code == 0, done.err
    assert (done.err + caplog.text).count("`profiling` belongs to the older system") == 1


def test_a_warning_of_the_node_groups_is_said_once(
    inline: Callable[..., Any], caplog: pytest.LogCaptureFixture
) -> None:
    twice = "[{node_rank: 0, ip: 10.0.0.1}, {node_rank: 0, ip: 10.0.0.1}]"
    arms = f"{{label: arms, node_ranks: 0, hardware: {{type: Arm, configs: {twice}}}}}"
    done = inline(f"+cluster.node_groups=[{arms}]")
    assert done.code == 0, done.err
    assert (done.err + caplog.text).count("RW111") == 1


def test_a_failing_constructor_shows_its_line(inline: Callable[..., Any]) -> None:
    done = inline("+workers.actor.args.how=failing")
    assert done.code == 5, done.err
    assert 'raise RuntimeError("no weights here")' in done.err
    assert "src/roost" not in done.err


def test_a_job_without_workers_hears_what_to_write(inline: Callable[..., Any]) -> None:
    assert "workers: {actor: {class: my.module:Actor}, ...}" in offline(inline, "~workers")


def test_plan_and_validate_leave_other_peoples_workers_alone(cli: Any, folder: Path) -> None:
    Path("other.yaml").write_text("cluster: {component_placement: {actor: 0}}\nworkers: 4\ndriver: osmesa\n")
    assert cli("plan", "other.yaml", "--on", "1x1").code == 0
    assert cli("validate", "other.yaml").code == 0
    assert cli("validate", "job.yaml").code == 0
    for cluster in ([], ["--on", "1x4"], ["--on", "1x1"]):  # 1x1 is too small as well
        done = cli("validate", "job.yaml", "~workers.rollout", *cluster)
        assert done.code == 1
        assert "error[RE122]: no worker for component 'rollout'" in done.err
    assert cli("plan", "job.yaml", "--on", "1x4", "~workers.rollout").code == 0


def test_it_does_not_fit(inline: Callable[..., Any]) -> None:
    done = inline("--on", "1x2")
    assert (done.code, done.out) == (3, "")
    assert "error[RP101]" in done.err


def test_a_plan_for_another_shape_is_refused_before_a_ray_is_started(
    cli: Any, inline: Callable[..., Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    assert cli("plan", "job.yaml", "--on", "2x8", "cluster.num_nodes=2", "-o", "plan.json").code == 0
    monkeypatch.delenv("ROOST_INLINE")
    done = inline("--plan", "plan.json", "--on", "1x4")
    assert (done.code, done.out) == (3, "")
    assert re.findall(r"error\[RE121\]: (.*)", done.err) == [
        "node 0: the plan was made for 8 x nvidia_gpu, this cluster has 4 x nvidia_gpu",
        "node 1: the plan was made for 8 x nvidia_gpu, this cluster has no such node",
    ]


SECRET_GROUP = "{label: g, node_ranks: 0, env_configs: [{node_ranks: 0, env_vars: {HF_TOKEN: %s}}]}"


def secret_job(value: str) -> str:
    groups = f", node_groups: [{SECRET_GROUP % value}]" if value else ""
    return (
        JOB.replace("FOLDER", str(Path.cwd()))
        .replace(
            "actor: 0-1, rollout: 2-3:0}",
            f"actor: {{node_group: g, placement: 0-1}}, rollout: 2-3:0}}{groups}",
        )
        .replace("program:main", "program:shows_variable")
    )


@pytest.fixture
def saved_plan(cli: Any, folder: Path) -> str:
    Path("job.yaml").write_text(secret_job("s3cret"))
    assert cli("plan", "job.yaml", "--on", "1x4", "-o", "plan.json").code == 0
    assert "s3cret" not in Path("plan.json").read_text()
    return "plan.json"


def test_secrets_of_a_saved_plan(
    saved_plan: str, inline: Callable[..., Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("HF_TOKEN", raising=False)
    assert inline("--plan", saved_plan).out == "['s3cret', 's3cret']\n"  # from the job file
    Path("job.yaml").write_text(secret_job("''"))
    err = offline(inline, "--plan", saved_plan)
    assert "error[RS103]: the value of HF_TOKEN is missing, for node group 'g'" in err
    monkeypatch.setenv("HF_TOKEN", "other")
    assert inline("--plan", saved_plan).out == "['other', 'other']\n"


def test_wrong_usage(cli: Any, folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for arguments in (
        ["--on", "1x4", "--address", "127.0.0.2:1"],
        ["--plan", "plan.json", "--model-parallel"],
        ["--on", "1by4"],
        ["--timeout", "0"],
        ["--timeout", "nan"],
        ["--timeout", "inf"],
        ["--timeout", "1e300"],
        ["--on", "1x4", "--job", "../up"],
        ["1x4"],
    ):
        done = cli("launch", "job.yaml", *arguments)
        assert (done.code, done.out) == (2, ""), arguments
    for key in (
        "cluster.component_placement.actor=0",
        "~cluster.component_placement.actor",
        "+cluster.layout.colocate=true",
        "cluster.num_nodes=3",
        "cluster={component_placement: {actor: 0}}",
        "cluster.node_groups=[]",
        "cluster/shape@cluster=big",
        "++supervise.actor.restarts=9",
    ):
        done = cli("launch", "job.yaml", "--plan", "plan.json", key)
        assert done.code == 2
        assert f"so {key} would change nothing" in done.err
    done = cli("launch", "job.yaml", "--plan", "plan.json", "cluster.node_groups.0.env_vars.HF_TOKEN=s3cret")
    assert done.code == 2
    assert "Values of secrets come from the environment." in done.err
    assert "s3cret" not in done.err
    monkeypatch.setenv("ROOST_INLINE", "1x4")
    done = cli("launch", "job.yaml", "--address", "127.0.0.2:1")
    assert (done.code, done.out) == (2, "")
    assert "ROOST_INLINE is set" in done.err


def test_no_ray_to_launch_on(cli: Any, folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "path", list(sys.path))
    monkeypatch.delitem(sys.modules, "program", raising=False)
    monkeypatch.delenv("RAY_ADDRESS", raising=False)
    monkeypatch.setenv("RAY_TMPDIR", str(folder))  # where this user's Ray would be noted
    before = signal.getsignal(signal.SIGINT), signal.getsignal(signal.SIGTERM)
    done = cli("launch", "job.yaml")
    assert (done.code, done.out) == (4, "")
    assert "error[RE101]: there is no Ray to launch the job on" in done.err
    assert "--on 2x4" in done.err
    assert (signal.getsignal(signal.SIGINT), signal.getsignal(signal.SIGTERM)) == before


# -- signals and progress --------------------------------------------------------------------------------------


def test_an_orderly_end_is_not_interrupted_halfway() -> None:
    with interrupts() as signals:
        signals.ending = True
        os.kill(os.getpid(), signal.SIGTERM)  # nothing is raised
        assert signals.exit_code == 143


class Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


def reported(stream: io.StringIO, total: int, monkeypatch: pytest.MonkeyPatch) -> str:
    monkeypatch.setattr(sys, "stderr", stream)
    monkeypatch.setenv("TERM", "xterm")
    progress = LaunchProgress(2)
    progress(Progress(phase="reserved", done=8, total=8))
    progress(Progress(phase="started", done=total, total=total))
    for done in range(1, total + 1):
        progress(Progress(phase="ready", done=done, total=total))
    progress(Progress(phase="verified", done=total, total=total))
    progress.close()
    return stream.getvalue()


def test_hundreds_of_processes_are_a_few_lines(monkeypatch: pytest.MonkeyPatch) -> None:
    assert reported(io.StringIO(), 1_000, monkeypatch).splitlines() == [
        "reserved: 8 accelerators on 2 nodes",
        "processes: 250 of 1,000 ready",
        "processes: 500 of 1,000 ready",
        "processes: 750 of 1,000 ready",
        "processes: 1,000 of 1,000 ready",
        "verified: every process is where the plan has it",
    ]


def test_on_a_terminal_one_line_changes(monkeypatch: pytest.MonkeyPatch) -> None:
    assert reported(Terminal(), 2, monkeypatch) == (
        "reserved: 8 accelerators on 2 nodes\n"
        "\rprocesses: 0 of 2 ready\rprocesses: 1 of 2 ready\rprocesses: 2 of 2 ready\n"
        "verified: every process is where the plan has it\n"
    )


def test_an_error_gets_a_line_of_its_own(monkeypatch: pytest.MonkeyPatch) -> None:
    stream = Terminal()
    monkeypatch.setattr(sys, "stderr", stream)
    monkeypatch.setenv("TERM", "xterm")
    progress = LaunchProgress(1)
    progress(Progress(phase="ready", done=1, total=2))
    progress.close()
    assert stream.getvalue() == "\rprocesses: 1 of 2 ready\n"


# -- as a process of its own, on a real Ray -------------------------------------------------------------------


class Launched:
    """`roost launch` in a folder, and what it has said so far."""

    def __init__(self, folder: Path, *arguments: str, **environment: str) -> None:
        environ = {**os.environ, "PYTHONUNBUFFERED": "1", **environment}
        for name in ("RAY_ADDRESS", "ROOST_JOB", "ROOST_INLINE", "HF_TOKEN"):
            if name not in environment:
                environ.pop(name, None)
        self.said = folder / "said"
        with self.said.open("w") as output:
            self.process = subprocess.Popen(
                [SCRIPT, "launch", "job.yaml", *arguments],
                cwd=folder,
                env=environ,
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=subprocess.STDOUT,
                start_new_session=True,
            )

    @property
    def text(self) -> str:
        return self.said.read_text()

    def until(self, text: str) -> None:
        from running import eventually

        eventually(
            lambda: text in self.text or self.process.poll() is not None, 150, f"{text!r} in:\n{self.text}"
        )
        assert text in self.text, self.text

    def end(self) -> int:
        return self.process.wait(150)

    def kill(self) -> None:
        if self.process.poll() is None:
            os.killpg(self.process.pid, signal.SIGKILL)
            self.process.wait()


@pytest.fixture
def launch(folder: Path) -> Iterator[Callable[..., Launched]]:
    started: list[Launched] = []

    def start(*arguments: str, **environment: str) -> Launched:
        started.append(Launched(folder, *arguments, **environment))
        return started[-1]

    yield start
    for one in started:
        one.kill()


@pytest.fixture
def on_ray(
    launch: Callable[..., Launched], connected: str, folder: Path
) -> Iterator[Callable[..., Launched]]:
    """Launches a job on the session's Ray. Nothing of it is left when it has ended."""
    from remains import assert_gone
    from running import new_job

    job = new_job("launched")

    def start(*arguments: str, **environment: str) -> Launched:
        return launch("--address", connected, "--job", job, *arguments, **environment)

    yield start
    assert_gone(job, [int(file.read_text()) for file in folder.glob("pid-*")], [])


def pids(folder: Path, count: int) -> None:
    """Wait for that many constructors to have run."""
    from running import eventually

    eventually(lambda: len(list(folder.glob("pid-*"))) == count, 150, f"{count} constructors")


def test_without_a_driver_it_runs_until_ctrl_c(launch: Callable[..., Launched]) -> None:
    launched = launch("~driver", ROOST_INLINE="1x4")
    launched.until("running: the job has no `driver`, so its processes run until Ctrl-C")
    launched.process.send_signal(signal.SIGINT)
    assert launched.end() == 130, launched.text


@pytest.mark.ray
def test_an_embedded_cluster_from_a_fresh_folder(launch: Callable[..., Launched], folder: Path) -> None:
    from remains import assert_ended, descendants

    with tempfile.TemporaryDirectory(prefix="rl-") as temporary:
        launched = launch("--on", "2x4", "driver=program:interrupted", TMPDIR=temporary)
        launched.until("driving")
        processes = descendants(launched.process.pid)
        assert len(processes) > 5
        launched.process.send_signal(signal.SIGINT)
        launched.until("tidied")
        assert launched.end() == 130, launched.text
        assert_ended(processes)
        assert list(Path(temporary).iterdir()) == []
    text = launched.text
    phases = ["starting an embedded Ray", "nodes: 1 of 1", "reserved: 4 accelerators on 1 node"]
    phases += ["processes: 3 of 3 ready", "verified", "running", "driving", "ending;", "interrupted"]
    assert [text.index(phase) for phase in phases] == sorted(text.index(phase) for phase in phases)
    assert "Traceback" not in text


@pytest.mark.ray
def test_who_watches_sees_an_embedded_ray_end_without_an_error(
    launch: Callable[..., Launched], folder: Path
) -> None:
    from running import new_job, roost_command

    job = new_job("short")
    launched = launch("--on", "1x4", "--job", job, "driver=program:waits_for_a_file")
    launched.until("driving")
    watches = [
        subprocess.Popen(roost_command(*words), stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
        for words in (["status", job, "--watch", "--every", "0.2"], ["logs", job, "-f"])
    ]
    try:
        for watch in watches:  # each is connected now
            assert watch.stdout is not None
            assert watch.stdout.readline()
        launched.until("built by 0")
        launched.until("built by 1")
        assert "\033[" not in launched.text  # it is no terminal
        (folder / "go").touch()
        assert launched.end() == 0, launched.text
        for watch in watches:
            out, err = watch.communicate(timeout=60)
            assert (watch.returncode, "error[" in err) == (0, False), out + err
    finally:
        for watch in watches:
            watch.kill()


@pytest.mark.ray
def test_a_second_ctrl_c_leaves_nothing_of_an_embedded_cluster(
    launch: Callable[..., Launched], folder: Path
) -> None:
    from remains import assert_ended, descendants

    with tempfile.TemporaryDirectory(prefix="rl-") as temporary:
        launched = launch(
            "--on", "1x4", "driver=program:stubborn", "cluster.component_placement.actor=0", TMPDIR=temporary
        )
        launched.until("driving")
        processes = descendants(launched.process.pid)
        launched.process.send_signal(signal.SIGINT)
        launched.until("going on")
        assert "ending; Ctrl-C again ends at once" in launched.text
        launched.process.send_signal(signal.SIGINT)
        assert launched.end() == 130
        assert_ended(processes)
        assert "Traceback" not in launched.text


@pytest.mark.ray
def test_sigterm_reaches_the_driver(on_ray: Callable[..., Launched]) -> None:
    launched = on_ray("driver=program:interrupted", "cluster.component_placement.actor=0")
    launched.until("driving")
    launched.process.send_signal(signal.SIGTERM)
    assert launched.end() == 143, launched.text
    assert "tidied" in launched.text
    assert launched.text.endswith("terminated\n")
    assert "Traceback" not in launched.text


@pytest.mark.ray
def test_ctrl_c_while_processes_start(on_ray: Callable[..., Launched], folder: Path) -> None:
    launched = on_ray("+workers.actor.args.how=blocked")
    pids(folder, 2)
    launched.process.send_signal(signal.SIGINT)
    assert launched.end() == 130, launched.text
    assert "running" not in launched.text
    assert "Traceback" not in launched.text


@pytest.mark.ray
def test_a_failing_constructor_is_named(on_ray: Callable[..., Launched]) -> None:
    launched = on_ray("+workers.actor.args.how=failing")
    assert launched.end() == 5, launched.text
    assert "error[RE108]: actor rank 1 (node 0 (127.0.0.2), accelerator 1) could not start" in launched.text
    assert 'raise RuntimeError("no weights here")' in launched.text  # the line, from the traceback
    assert "RuntimeError: no weights here" in launched.text
    assert "running" not in launched.text


@pytest.mark.ray
def test_a_saved_plan_on_ray(saved_plan: str, on_ray: Callable[..., Launched], cli: Any) -> None:
    Path("job.yaml").write_text(secret_job("''"))
    launched = on_ray("--plan", saved_plan, HF_TOKEN="from-the-shell")
    assert launched.end() == 7, launched.text
    assert "['from-the-shell', 'from-the-shell']" in launched.text
    assert cli("plan", "job.yaml", "--on", "2x8", "-o", "large.json").code == 0
    launched = on_ray("--plan", "large.json", HF_TOKEN="x")
    assert launched.end() == 3, launched.text
    assert "error[RE121]: node 0: the plan was made for 8 x nvidia_gpu" in launched.text


@pytest.mark.ray
def test_an_address_where_nothing_listens(launch: Callable[..., Launched]) -> None:
    launched = launch("--address", "127.0.0.2:1")
    assert launched.end() == 4, launched.text
    assert "error[RE101]: cannot connect to Ray at 127.0.0.2:1" in launched.text
