"""`roost profile`, inline: what it measures is the subject, not where."""

from __future__ import annotations

import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import yaml

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
        (["--sizes", "actor=0"], 2, "write NAMES=A,B,C"),
        (["--sizes", "acter=1"], 1, "did you mean 'actor'?"),
        (["--sizes", "rollout=3"], 1, "not a multiple of what a process holds, 2"),
        (["--sizes", "actor=1", "profile.iteration=actor"], 1, "does not say what an iteration is"),
        (["--sizes", "actor=1", "steps=2"], 1, "too few calls of actor.train"),
        (["--sizes", "actor=1", "profile.flow.actor=[critic]"], 1, "there is no component 'critic'"),
        (["--sizes", "actor=5"], 3, "accelerator 4 does not exist"),
    ],
)
def test_what_cannot_be_measured(
    job: Callable[..., Any], arguments: list[str], code: int, words: str
) -> None:
    done = job(*arguments)
    assert (done.code, words in done.err) == (code, True), done.err
