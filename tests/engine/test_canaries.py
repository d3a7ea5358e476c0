"""Canaries in the driver's environment and in the config turn up where they were sent, and nowhere else."""

from __future__ import annotations

import contextlib
import json
import secrets
import tempfile
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import psutil
import pytest
from remains import descendants
from running import Program, new_job

from roost.engine.connection.embedded import environment_for_nodes

pytestmark = pytest.mark.ray

OURS, THEIRS = f"canary{secrets.token_hex(8)}", f"canary{secrets.token_hex(8)}"
IN_THE_ENVIRONMENT = ("MY_API_KEY", "HF_TOKEN", "AWS_SECRET_ACCESS_KEY", "NCCL_AUTH_TOKEN", "PLAIN_SETTING")
PASSED_ON = "a setting that is passed on"
CONFIG = f"""
cluster:
  num_nodes: 1
  node_groups:
    - label: kept
      node_ranks: 0
      env_configs:
        - node_ranks: 0
          env_vars:
            - SERVICE_TOKEN: {THEIRS}
            - PYTHON_PACKAGE_API_KEY: {THEIRS}
            - PYTHONHASHSEED: "7"
  component_placement:
    keeper: {{node_group: kept, placement: 0}}
"""


@dataclass(frozen=True)
class Run:
    """What one job said, printed and wrote, and what its processes were started with."""

    seen: dict[str, Any]
    files: dict[str, bytes]
    environments: list[dict[str, str]]
    program: Program


def written_below(directory: Path) -> dict[str, bytes]:
    files = {}
    for path in directory.rglob("*"):
        with contextlib.suppress(FileNotFoundError):  # it was a temporary one
            if path.is_file():
                files[str(path)] = path.read_bytes()
    return files


def started_with(processes: list[psutil.Process]) -> list[dict[str, str]]:
    environments = []
    for process in processes:
        with contextlib.suppress(psutil.NoSuchProcess):  # it has ended
            environments.append(process.environ())
    return environments


@pytest.fixture(scope="module")
def job(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Run]:
    config = tmp_path_factory.mktemp("config") / "job.yaml"
    config.write_text(CONFIG)
    with tempfile.TemporaryDirectory(prefix="re-") as place:
        env = {
            **dict.fromkeys(IN_THE_ENVIRONMENT, OURS),
            "NCCL_DEBUG_FILE": PASSED_ON,
            **{"RAY_ADDRESS": None, "ROOST_EMBEDDED": "1x2", "RAY_TMPDIR": place, "TMPDIR": place},
        }
        program = Program("keeping", str(config), new_job(), OURS[::-1], THEIRS[::-1], env=env)
        try:
            seen = program.answer(within=120)
            run = Run(
                seen, written_below(Path(place)), started_with(descendants(program.process.pid)), program
            )
            program.tell("end")
            assert program.answer() == "ended"
            assert program.end() == 0
        finally:
            program.kill()
        yield run


@pytest.fixture(params=[OURS, THEIRS], ids=["of the environment", "of the config"])
def canary(request: pytest.FixtureRequest) -> str:
    return str(request.param)


def test_nothing_of_the_drivers_environment_reaches_a_worker(job: Run) -> None:
    assert job.seen["holding ours"] == [[], []]


def test_what_the_config_says_reaches_its_workers(job: Run) -> None:
    configured = ["PYTHON_PACKAGE_API_KEY", "SERVICE_TOKEN"]
    assert job.seen["holding theirs"] == [configured, ["DATABASE_PASSWORD"]]


def test_what_a_command_line_says_reaches_its_server(job: Run) -> None:
    assert job.seen["servers"] == 1  # it is healthy only with it
    kind, text, *_ = job.seen["server refused"]
    assert kind == "ServerFailed"
    assert f"a token of {len(THEIRS)} letters is refused" in text
    assert any(b"a line of the server" in content for content in job.files.values())


def test_what_takes_a_new_process_goes_through_ray_unless_it_is_a_secret(job: Run) -> None:
    assert [json.loads(text)["env_vars"] for text in job.seen["runtime_env"]] == [{"PYTHONHASHSEED": "7"}]


def test_no_file_of_ray_holds_a_canary(job: Run, canary: str) -> None:
    assert any(b"a line of the worker" in content for content in job.files.values())
    assert [name for name, content in job.files.items() if canary.encode() in content] == []


def test_no_process_of_ray_is_started_with_a_canary(job: Run, canary: str) -> None:
    assert any(PASSED_ON in environ.values() for environ in job.environments)
    assert [environ for environ in job.environments if canary in str(environ)] == []


def test_nothing_that_is_printed_holds_a_canary(job: Run, canary: str) -> None:
    assert "a line of the worker" in job.program.output
    assert canary not in job.program.output


def test_no_error_record_or_plan_holds_a_canary(job: Run, canary: str) -> None:
    kinds = [job.seen[name][0] for name in ("raised", "not started", "died")]
    assert kinds == ["WorkerRaised[LookupError]", "LaunchError", "WorkerDied"]
    assert "SERVICE_TOKEN" in job.seen["plan"]
    assert [name for name, text in job.seen.items() if canary in str(text)] == []


def test_an_embedded_ray_inherits_how_the_machine_is_set_up() -> None:
    machine = {"PATH": "/bin", "LC_ALL": "C", "LD_PRELOAD": "x.so", "CUDA_HOME": "/c", "RAY_x": "1"}
    needed = {"ROOST_ACCELERATOR_TYPE": "amd_gpu", "RAY_AUTH_TOKEN_PATH": "/t", "RAY_AUTH_MODE": "token"}
    left_out = dict.fromkeys(
        ("DATABASE_URL", "https_proxy", "RAY_API_KEY", "RAY_ADDRESS", "ROOST_JOB", "ROOST_NODE_RANK"), "x"
    )
    made = environment_for_nodes({**machine, **needed, **left_out, "RAY_TMPDIR": "/elsewhere"}, "/own")
    for setting in (
        "RAY_raylet_start_wait_time_s",
        "RAY_worker_register_timeout_seconds",
        "RAY_event_stats",
        "RAY_LOG_MONITOR_MANY_FILES_THRESHOLD",
    ):
        assert made.pop(setting)
    assert made == {**machine, **needed, "RAY_TMPDIR": "/own"}
