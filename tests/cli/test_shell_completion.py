"""Shell completion of what job files hold, and the hook for pre-commit."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from click.shell_completion import ShellComplete

from roost.cli.verbs import roost

JOB = """\
cluster:
  num_nodes: 2
  component_placement:
    actor,critic: 0-7
    rollout: {node_group: a, placement: "8-15:0-3"}
  node_groups: [{label: a, node_ranks: all, env_configs: [{node_ranks: 0, env_vars: {A: canary}}]}]
actor: {model: {tensor_model_parallel_size: 2}, api_key: canary}
"""


def offers(*arguments: str, incomplete: str = "") -> list[str]:
    completing = ShellComplete(roost, {}, "roost", "_ROOST_COMPLETE")
    return [one.value for one in completing.get_completions(list(arguments), incomplete)]


@pytest.fixture(autouse=True)
def job(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    Path("job.yaml").write_text(JOB)


@pytest.mark.parametrize("verb", ["plan", "launch", "suggest"])
def test_override_keys_come_with_their_present_values(verb: str) -> None:
    assert offers(verb, "job.yaml") == [
        "cluster.num_nodes=2",
        "cluster.component_placement.actor,critic=0-7",
        "cluster.component_placement.rollout.node_group=a",
        "cluster.component_placement.rollout.placement=8-15:0-3",
        "cluster.node_groups[0].label=a",
        "cluster.node_groups[0].node_ranks=all",
        "cluster.node_groups[0].env_configs[0].node_ranks=0",
        "actor.model.tensor_model_parallel_size=2",
    ]
    assert offers(verb, "job.yaml", incomplete="cluster.num") == ["cluster.num_nodes=2"]
    assert offers(verb, "job.yaml", incomplete="~cluster.num") == ["~cluster.num_nodes"]
    assert offers(verb, "missing.yaml") == [""]  # the shell completes files


def test_targets_of_up_complete_overrides_too() -> None:
    assert offers("up", "slurm", "job.yaml", incomplete="cluster.num") == ["cluster.num_nodes=2"]


def test_components_and_codes(cli: Any) -> None:
    Path("job.yaml").write_text(JOB)
    assert offers("explain", "job.yaml") == ["actor", "critic", "rollout"]
    assert offers("explain", "job.yaml", incomplete="ro") == ["rollout"]
    assert offers("launch", "job.yaml", "--skip") == ["actor", "critic", "rollout"]
    assert offers("explain", "job.yaml", "rollout:1", incomplete="cluster.num") == ["cluster.num_nodes=2"]
    cli("plan", "job.yaml", "--on", "2x8", "-o", "plan.json")
    assert offers("explain", "plan.json", incomplete="c") == ["critic"]
    assert offers("explain", incomplete="RP10")[:2] == ["RP101", "RP102"]
    assert offers("explain", incomplete="jo") == ["jo"]  # the shell completes the file


@pytest.mark.installed
def test_the_hook_for_pre_commit_is_well_formed() -> None:
    from pre_commit.clientlib import load_manifest

    [hook] = load_manifest(Path(__file__).parents[2] / ".pre-commit-hooks.yaml")
    assert (hook["id"], hook["entry"], hook["types"]) == ("roost-validate", "roost validate", ["yaml"])
