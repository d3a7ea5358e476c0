"""`roost explain`: of processes, and of every code."""

from __future__ import annotations

import logging
import shlex
from pathlib import Path
from typing import Any

import pytest

from roost.cli.code_pages import CodePage, code_page
from roost.codes import CODES
from roost.errors import RoostError

PAGES = [code_page(code) for code in CODES]


def said_by(page: CodePage, cli: Any, caplog: pytest.LogCaptureFixture) -> str:
    """All that the example of a code says."""
    Path("job.yaml").unlink()
    for name, text in page.files.items():
        Path(name).write_text(text)
    if page.run:
        verb, *arguments = shlex.split(page.run)
        assert verb == "roost"
        done = cli(*arguments)
        return str(done.out + done.err)
    with caplog.at_level(logging.WARNING, "roost"):
        try:
            exec(page.python, {"__name__": "example"})
        except RoostError as error:
            return str(error)
    return caplog.text


@pytest.mark.parametrize("page", [page for page in PAGES if not page.when], ids=lambda page: page.code)
def test_the_example_of_a_code_produces_it(
    page: CodePage, cli: Any, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("ROOST_INLINE", "")  # an example may set it
    assert f"[{page.code}]" in said_by(page, cli, caplog)


def test_only_what_needs_a_live_cluster_has_no_example_that_runs() -> None:
    for page in PAGES:
        assert bool(page.when) != bool(page.run or page.python), page.code
        assert not page.when or page.code.startswith(("RE", "RW2")), page.code
        assert page.means.endswith("."), page.code


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.code)
def test_every_code_is_explained(page: CodePage, cli: Any) -> None:
    done = cli("explain", page.code.lower())
    assert (done.code, done.err) == (0, "")
    assert done.out.startswith(f"{CODES[page.code].severity}[{page.code}]: {page.title}\n\n")
    assert "\nFix:\n" in done.out
    data = cli("explain", page.code, "--json").data
    assert (data["format_version"], data["page"]["code"], data["page"]["fix"]) == (1, page.code, page.fix)


JOB = """\
cluster:
  num_nodes: 3
  component_placement:
    actor,critic: 0-7
    rollout:
      node_group: big,small
      placement: 0-3:0-1,8-15:2-5,16-19
    agent: {node_group: node, placement: "0-1:0-4"}
  node_groups:
    - {label: big, node_ranks: 0-1, env_configs: [{node_ranks: 0, env_vars: {A: 1, HF_TOKEN: canary-7531}}]}
    - {label: small, node_ranks: 2}
"""


def test_a_process(cli: Any) -> None:
    Path("job.yaml").write_text(JOB)
    done = cli("explain", "job.yaml", "rollout:1", "--on", "3x8")
    assert (done.code, done.err) == (0, "")
    assert (
        done.out
        == """\
rollout:1 of 10 sits on node 0, accelerators 2-3

rule: 0-3:0-1,8-15:2-5,16-19, through big, small
  --> job.yaml:7:18
   |
 7 |       placement: 0-3:0-1,8-15:2-5,16-19
   |                  ^^^^^^^

how ranks were counted:
  groups big and small together have 24 accelerators (0-23)
  big has 0-15 on nodes 0-1; small has 16-23 on node 2
  `0-3:0-1` puts processes 0-1 on accelerators 0-3: 2 accelerators each
  process 1 has ranks 2-3: accelerators 2-3 of node 0

also on the same devices:
  accelerator 2: actor 2, charged 0.3333
  accelerator 2: critic 2, charged 0.3333
  accelerator 3: actor 3, charged 0.3333
  accelerator 3: critic 3, charged 0.3333
  it is charged 0.3333 of each

environment:
  RANK=1 WORLD_SIZE=10 LOCAL_RANK=1 LOCAL_WORLD_SIZE=2 NODE_RANK=0 CLUSTER_NODE_RANK=0 CUDA_VISIBLE_DEVICES=2,3
  and what the job sets on node 0 for group big: A, HF_TOKEN
"""
    )


def test_a_saved_plan_tells_the_same_without_positions(cli: Any) -> None:
    Path("job.yaml").write_text(JOB)
    cli("plan", "job.yaml", "--on", "3x8", "-o", "plan.json")
    for process in ("rollout:9", "rollout", "critic:7", "agent:3"):
        fresh = cli("explain", "job.yaml", process, "--on", "3x8", "--json").data["explanation"]
        saved = cli("explain", "plan.json", process, "--json").data["explanation"]
        assert fresh.pop("where")["line"] in (4, 7, 8)
        assert fresh.pop("path")[:2] == ["cluster", "component_placement"]
        assert (saved.pop("where"), saved.pop("path")) == (None, [])
        assert saved == fresh
    assert "in job.yaml, of which a saved plan keeps no positions" in cli("explain", "plan.json", "agent").out


def test_a_component_as_a_whole(cli: Any) -> None:
    Path("job.yaml").write_text(JOB)
    lines = cli("explain", "job.yaml", "agent", "--on", "3x8").out.splitlines()
    assert lines[0] == "agent: 5 processes"
    assert lines[-1] == "  `0-1:0-4` puts processes 0-4 on nodes 0-1: 2 or 3 processes on each node"
    lines = cli("explain", "job.yaml", "rollout", "--on", "3x8").out.splitlines()
    assert lines[0] == "rollout: 10 processes, on devices that actor, critic use too"
    assert lines[-1] == "  `16-19` puts processes 6-9 on accelerators 16-19: one each"


def test_an_engine_of_a_layout(cli: Any) -> None:
    Path("job.yaml").write_text(
        "cluster:\n  layout: {rollout_num_gpus: 16, rollout_num_gpus_per_engine: 16}\n"
    )
    done = cli("explain", "job.yaml", "rollout:1", "--on", "3x8")
    assert "rule: 8-23:0-1\n  --> job.yaml:2:3\n" in done.out
    assert "the layout (disaggregated) reserves 24 accelerators" in done.out
    assert "engine 0 of 1 (regular, server default): processes 0-1\n" in done.out


def test_no_secret_is_told(cli: Any) -> None:
    Path("job.yaml").write_text(JOB)
    for more in ((), ("--json",)):
        assert "canary" not in cli("explain", "job.yaml", "rollout:0", "--on", "3x8", *more).out


@pytest.mark.parametrize(
    ("arguments", "code", "said"),
    [
        (["job.yaml"], 2, "which process? Name one such as rollout:3"),
        (["RP999"], 2, "there is no code RP999; did you mean 'RP10"),
        (["job.yaml", "actor:x", "--on", "2x8"], 2, "'actor:x' is no process"),
        (["job.yaml", "actor:16", "--on", "2x8"], 2, "actor has ranks 0-15, and no 16"),
        (["job.yaml", "actor:0"], 2, "which cluster? Say it with --on 2x8"),
        (["job.yaml", "cluster.num_nodes=3"], 2, "is no process"),
        (["job.yaml", "actr:0", "--on", "2x8"], 1, "did you mean 'actor'?"),
        (["job.yaml", "actor:0", "--on", "1x8"], 3, "error[RI108]"),
        (["job.yaml", "actor:00000000000016", "--on", "2x8"], 2, "actor has ranks 0-15, and no 16"),
        (["missing.yaml", "actor:0", "--on", "1x8"], 1, "error[RC001]"),
    ],
)
def test_what_cannot_be_explained(cli: Any, arguments: list[str], code: int, said: str) -> None:
    done = cli("explain", *arguments)
    assert (done.code, done.out) == (code, "")
    assert said in done.err
