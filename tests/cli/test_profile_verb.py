"""`roost profile`, inline: what it measures is the subject, not where."""

from __future__ import annotations

import json
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import jsonschema
import pytest
import yaml

from roost.cli.output_schemas import output_schema
from roost.suggesting.profile import read_profile

JOB = """\
cluster: {num_nodes: 1, component_placement: {"actor,rollout": 0-3:0-1, reward: {node_group: node, placement: 0}}}
steps: 5
workers: {"actor,rollout,reward": "measured_program:Part"}
driver: measured_program:main
profile:
  iteration: actor.train
  batch: 8
  flow: {rollout: [], reward: [rollout], actor: [reward]}
  components: {rollout: {calls: [load, play], streams: true}, actor: {accelerators_per_process: 1}}
"""
PROGRAM = """\
import roost

class Part(roost.Worker):
    def load(self): return self.rank
    def play(self): return self.rank
    def train(self): return self.rank

def main(run, config):
    for step in range(config.steps):
        run["rollout"].load().wait()
        run["rollout"].play().wait()
        run["reward"].play().wait()
        run["actor"].train().wait()
"""


@pytest.fixture
def job(cli: Callable[..., Any], monkeypatch: pytest.MonkeyPatch) -> Callable[..., Any]:
    Path("measured.yaml").write_text(JOB)
    Path("measured_program.py").write_text(PROGRAM)
    monkeypatch.setenv("ROOST_INLINE", "1x4")
    monkeypatch.syspath_prepend(str(Path.cwd()))
    sys.modules.pop("measured_program", None)
    return lambda *more: cli("profile", "measured.yaml", "--on", "1x4", *more)


def test_sizes_are_measured_and_merged_into_a_profile(job: Callable[..., Any]) -> None:
    done = job("--sizes", "actor=1,2", "--sizes", "rollout=2,4", "-o", "out.yaml")
    assert done.code == 0, done.err
    read = read_profile("out.yaml")
    assert list(read.components["actor"].measured[""]) == [1, 2]
    assert list(read.components["rollout"].measured[""]) == [2, 4]
    # The job gives two accelerators to each process of the two; the section says otherwise for one of them.
    assert (read.components["rollout"].width, read.components["rollout"].streams) == (2, True)
    assert read.components["actor"].width == 1
    assert read.components["reward"].seconds > 0
    assert not read.components["reward"].measured
    assert (read.batch, yaml.safe_load(done.out)) == (8, yaml.safe_load(Path("out.yaml").read_text()))
    assert "an iteration takes" in done.err

    assert job("--sizes", "actor=4", "-o", "out.yaml").code == 0  # sizes that were measured before are kept
    assert list(read_profile("out.yaml").components["actor"].measured[""]) == [1, 2, 4]


@pytest.mark.parametrize(
    ("arguments", "code", "words"),
    [
        (["--sizes", "actor"], 2, "write NAMES=A,B,C"),
        (["--sizes", "actor=1", "--timeout", "nan"], 2, "is not a number of seconds"),
        (["--sizes", "actor=0"], 2, "write NAMES=A,B,C"),
        (["--sizes", "acter=1"], 1, "did you mean 'actor'?"),
        (["--sizes", "rollout=3"], 1, "not a multiple of what a process holds, 2"),
        (["--sizes", "actor=1", "profile.iteration=actor"], 1, "does not say what an iteration is"),
        (["--sizes", "actor=1", "steps=2"], 1, "too few calls of actor.train"),
        (["--sizes", "actor=1", "profile.flow.actor=[critic]"], 1, "there is no component 'critic'"),
        (["--sizes", "actor=5"], 3, "accelerator 4 does not exist"),
        (["--sizes", "actor=1", "~cluster"], 1, "RC102"),
        (["--sizes", "actor=1", "profile.components=5"], 1, "components: `5` does not fit"),
        (["--sizes", "actor=1", "+profile.components.actor.calls=5"], 1, "calls: `5` does not fit"),
        (
            ["--sizes", "actor=1", "profile.components.actor.accelerators_per_process=two"],
            1,
            "`two` does not fit",
        ),
        (
            ["--sizes", "actor=1", "profile.components.actor.accelerators_per_process=0"],
            1,
            "0 is out of range",
        ),
        (["--sizes", "actor=1", "~profile.batch"], 1, "'batch' is missing"),
        (["--sizes", "actor=1", "profile.iteration=acter.train"], 1, "did you mean 'actor'?"),
    ],
)
def test_what_cannot_be_measured(
    job: Callable[..., Any], arguments: list[str], code: int, words: str
) -> None:
    done = job(*arguments)
    assert (done.code, words in done.err) == (code, True), done.err
    assert ("measuring" in done.err) == ("too few calls" in words), (
        done.err
    )  # else it is known before any run


def test_a_wrong_last_size_is_refused_before_the_first_is_measured(job: Callable[..., Any]) -> None:
    done = job("--sizes", "actor=1,8", "-o", "out.yaml")
    assert (done.code, "RP101" in done.err, "measuring" in done.err) == (3, True, False), done.err


@pytest.mark.parametrize("at", ["at once", "late"])
@pytest.mark.parametrize(("fails", "code"), [("raise MemoryError", 5), ("raise SystemExit(9)", 9)])
def test_what_was_measured_stays_when_a_later_run_fails(
    job: Callable[..., Any], at: str, fails: str, code: int
) -> None:
    lines, fails = PROGRAM.splitlines(), f"    if len(run['actor']) == 2: {fails}"
    lines.insert(len(lines) if at == "late" else lines.index("def main(run, config):") + 1, fails)
    Path("measured_program.py").write_text("\n".join(lines))
    done = job("--sizes", "actor=1,2,4", "-o", "out.yaml", "--json")
    assert done.code == code
    assert f"RF105]: the driver ended with exit code {code}, so this run was not measured" in done.err
    assert "make more iterations" not in done.err
    assert "actor at 4" not in done.err
    assert [found["code"] for found in json.loads(done.out.splitlines()[-1])["findings"]] == ["RF105"]
    assert list(read_profile("out.yaml").components["actor"].measured[""]) == [1]


EARLIER = """\
profile:
  batch: 4
  flow: {rollout: [], reward: [rollout], actor: [reward]}
  weights: {from: actor, to: rollout, together: 1.0, apart: 2.0}
  components:
    actor: {seconds: {a: {2: 9.0}, b: {2: 8.0}}, switch: 2.0, memory_gib: 3.0}
    rollout: {seconds: {a: {4: 7.0}}, accelerators_per_process: 2}
    reward: {seconds: 1.0}
"""


def test_an_earlier_profile_is_merged_with_the_new_sizes(job: Callable[..., Any]) -> None:
    Path("out.yaml").write_text(EARLIER)
    refused = job("--sizes", "actor=1", "-o", "out.yaml")
    assert (refused.code, "out.yaml has the seconds of actor by node group" in refused.err) == (1, True)
    place = (
        "{actor: {node_group: a, placement: 0-3}, rollout: 0-3:0-1, reward: {node_group: node, placement: 0}}"
    )
    groups = "+cluster.node_groups=[{label: a, node_ranks: 0}]"
    done = job("--sizes", "actor=1", "-o", "out.yaml", f"cluster.component_placement={place}", groups)
    assert done.code == 0, done.err
    read = read_profile("out.yaml")
    actor = read.components["actor"]
    assert {group: list(sizes) for group, sizes in actor.measured.items()} == {"a": [1, 2], "b": [2]}
    assert (actor.measured["a"][2], actor.switch, actor.memory_gib) == (9.0, 2.0, 3.0)
    assert read.components["rollout"].measured == {"a": {4: 7.0}}  # measured on no group in particular
    assert (read.batch, read.weights is not None) == (8, True)


def test_a_job_that_hydra_composes_is_measured(job: Callable[..., Any], cli: Callable[..., Any]) -> None:
    Path("parts").mkdir()
    Path("parts/base.yaml").write_text(JOB)
    Path("composed.yaml").write_text("defaults: [parts@_here_: base, _self_]\nsteps: 4\n")
    done = cli("profile", "composed.yaml", "--on", "1x4", "--sizes", "actor=1,2", "--json")
    assert done.code == 0, done.err
    jsonschema.validate(done.data, output_schema("profile"))
    assert list(done.data["profile"]["components"]["actor"]["seconds"]) == ["1", "2"]
