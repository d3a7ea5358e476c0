from __future__ import annotations

from pathlib import Path
from typing import Any

WRONG_GROUPS = """\
cluster:
  num_nodes: 2
  component_placement:
    actor: {node_group: gpus, placement: 7-0}
  node_groups:
    - {label: gpus, node_ranks: 0-5}
    - {label: gpus, node_ranks: 1}
"""


def test_fine_files(cli: Any, examples: Path) -> None:
    done = cli("validate", "job.yaml", examples / "heterogeneous.yaml")
    assert done.code == 0
    assert done.out == f"job.yaml: fine\n{examples / 'heterogeneous.yaml'}: fine\n"
    assert done.err == ""


def test_every_problem_of_every_file_with_carets(cli: Any) -> None:
    Path("groups.yaml").write_text(WRONG_GROUPS)
    Path("typo.yaml").write_text("cluster: {num_node: 2, component_placement: {actor: 0}}\n")
    done = cli("validate", "groups.yaml", "typo.yaml", "absent.yaml", "job.yaml")
    assert done.code == 1
    assert [line for line in done.err.splitlines() if line.startswith("error[")] == [
        "error[RL102]: gpus: the range 7-0 runs backwards".replace("gpus", "actor"),
        "error[RI104]: node group 'gpus': node 5 does not exist",
        "error[RI102]: node group 'gpus' is declared twice",
        "error[RC101]: unknown key 'num_node'",
        "error[RC001]: absent.yaml: cannot be read",
    ]
    assert " 6 |     - {label: gpus, node_ranks: 0-5}\n   |                                 ^^^\n" in done.err
    assert done.out.splitlines() == [
        "groups.yaml: 3 errors",
        "typo.yaml: 1 error",
        "absent.yaml: 1 error",
        "job.yaml: fine",
    ]


def test_an_override_may_delete(cli: Any) -> None:
    Path("more.yaml").write_text("cluster: {component_placement: {actor: 0, env: 7-0}}\n")
    assert cli("validate", "more.yaml").code == 1
    done = cli("validate", "more.yaml", "~cluster.component_placement.env")
    assert (done.code, done.out) == (0, "more.yaml: fine\n")
    assert "~/absent.yaml: cannot be read" in cli("validate", "~/absent.yaml").err


def test_what_is_missing_names_its_file(cli: Any) -> None:
    Path("empty.yaml").write_text("trainer: {}\n")
    done = cli("validate", "empty.yaml")
    assert done.code == 1
    assert "--> empty.yaml:1:1" in done.err


def test_offline_a_job_that_contradicts_itself_is_wrong_rather_than_too_large(cli: Any) -> None:
    Path("job.yaml").write_text(
        WRONG_GROUPS.replace("7-0", "all").replace("    - {label: gpus, node_ranks: 1}\n", "")
    )
    assert cli("validate", "job.yaml").code == 1


def test_whether_it_fits(cli: Any, examples: Path) -> None:
    assert cli("validate", "job.yaml", "--on", "2x8").code == 0
    done = cli("validate", "job.yaml", "--on", "2x4")
    assert done.code == 3
    assert done.out == "job.yaml: does not fit, 1 error\n"
    cluster = examples / "heterogeneous_cluster.yaml"
    assert cli("validate", examples / "heterogeneous.yaml", "--inventory", cluster).code == 0


def test_a_warning_is_shown_and_fine(cli: Any) -> None:
    done = cli("validate", "job.yaml", "--on", "4x8")
    assert (done.code, done.out) == (0, "job.yaml: fine, 1 warning\n")
    assert "warning[RW105]" in done.err


def test_a_wrong_file_outweighs_one_that_does_not_fit(cli: Any) -> None:
    Path("typo.yaml").write_text("cluster: {num_node: 2, component_placement: {actor: 0}}\n")
    assert cli("validate", "job.yaml", "typo.yaml", "--on", "2x4").code == 1


def test_model_parallel(cli: Any) -> None:
    rules = "actor: 0-7, rollout: 4-11"
    Path("job.yaml").write_text(f"cluster: {{num_nodes: 2, component_placement: {{{rules}}}}}\n")
    assert cli("validate", "job.yaml", "--on", "2x8").code == 0
    done = cli("validate", "job.yaml", "--on", "2x8", "--model-parallel")
    assert done.code == 3
    assert "RM103" in done.err
    assert cli("validate", "job.yaml", "--model-parallel").code == 2


def test_json(cli: Any) -> None:
    Path("typo.yaml").write_text("cluster: {num_node: 2, component_placement: {actor: 0}}\n")
    done = cli("validate", "job.yaml", "typo.yaml", "--json")
    assert done.code == 1
    assert done.data["format_version"] == 1
    fine, typo = done.data["files"]
    assert fine == {"file": "job.yaml", "ok": True, "findings": []}
    assert typo["ok"] is False
    assert typo["findings"][0]["code"] == "RC101"
    assert typo["findings"][0]["where"]["line"] == 1


def test_overrides_apply_to_every_file(cli: Any) -> None:
    assert cli("validate", "job.yaml").code == 0
    done = cli("validate", "job.yaml", "cluster.num_nodes=zero")
    assert done.code == 1
    assert "cluster.num_nodes=zero" in done.err
    assert cli("validate", "cluster.num_nodes=2").code == 2
