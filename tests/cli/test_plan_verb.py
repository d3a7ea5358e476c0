from __future__ import annotations

import json
import os
import re
import stat
import subprocess
import sys
from datetime import date
from pathlib import Path
from typing import Any

import click
import pytest

import roost
from roost.cli.plan_output import check_files
from roost.views.page import render_page
from roost.views.svg import render_svg
from roost.views.terminal import render_plan


def test_the_picture_goes_to_stdout_and_nothing_else_anywhere(cli: Any) -> None:
    done = cli("plan", "job.yaml", "--on", "2x8")
    plan = roost.plan("job.yaml", roost.Inventory.parse("2x8"))
    assert (done.code, done.out, done.err) == (0, render_plan(plan), "")


def test_warnings_go_to_stderr_and_are_no_failure(cli: Any) -> None:
    done = cli("plan", "job.yaml", "cluster.component_placement.actor=0-7", "--on", "2x8")
    assert done.code == 0
    assert done.err.startswith("warning[RW102]: 8 of 16 accelerators are idle\n")
    assert "RW102" not in done.out


def test_an_inventory_file(cli: Any, examples: Path) -> None:
    cluster = examples / "heterogeneous_cluster.yaml"
    done = cli("plan", examples / "heterogeneous.yaml", "--inventory", cluster)
    assert done.code == 0
    assert "Franka 0: E0-1" in done.out


def test_model_parallel(cli: Any, examples: Path) -> None:
    done = cli("plan", examples / "model_parallel.yaml", "--on", "1x8", "--model-parallel", "--json")
    placements = done.data["components"]["rollout"]["placements"]
    held = [placement["local_hardware_ranks"] for placement in placements]
    assert held == [[0, 2], [1, 3], [4, 6], [5, 7]]


def test_json_is_the_plan(cli: Any) -> None:
    done = cli("plan", "job.yaml", "--on", "2x8", "--json")
    assert done.code == 0
    assert done.data["format_version"] == 2
    assert roost.Plan.from_dict(done.data) == roost.plan("job.yaml", roost.Inventory.parse("2x8"))


def test_json_of_a_job_that_is_wrong(cli: Any) -> None:
    done = cli("plan", "job.yaml", "cluster.component_placement.actor=7-0", "--on", "2x8", "--json")
    assert done.code == 1
    assert done.data["format_version"] == 1
    assert [finding["code"] for finding in done.data["findings"]] == ["RL102"]
    assert done.err.startswith("error[RL102]")


def test_a_saved_plan_comes_back_the_same(cli: Any) -> None:
    done = cli("plan", "job.yaml", "--on", "2x8", "-o", "plan.json")
    assert (done.code, done.err) == (0, "saved to plan.json\n")
    assert roost.load_plan("plan.json") == roost.plan("job.yaml", roost.Inventory.parse("2x8"))
    assert stat.S_IMODE(Path("plan.json").stat().st_mode) == 0o600


def test_a_picture_and_a_page_are_saved_beside_it(cli: Any) -> None:
    done = cli(
        "plan", "job.yaml", "--on", "2x8", "-o", "plan.json", "--svg", "plan.svg", "--html", "plan.html"
    )
    assert (done.code, done.err) == (0, "saved to plan.json\nsaved to plan.svg\nsaved to plan.html\n")
    plan = roost.load_plan("plan.json")
    named = re.search(
        r"<title>job\.yaml on 2 nodes x 8 \(nvidia_gpu\), (.+)</title>", Path("plan.svg").read_text()
    )
    assert named is not None
    shown: Any = {"job": "job.yaml", "day": date.fromisoformat(named[1])}
    assert Path("plan.svg").read_text() == render_svg(plan, **shown)
    assert Path("plan.html").read_text() == render_page(plan, **shown)


@pytest.mark.parametrize(("umask", "mode"), [(0o022, 0o644), (0o027, 0o640), (0o002, 0o664)])
def test_pictures_have_ordinary_modes_and_plans_are_private(cli: Any, umask: int, mode: int) -> None:
    before = os.umask(umask)
    try:
        for _ in range(2):  # new files, then replaced ones
            cli("plan", "job.yaml", "--on", "2x8", "-o", "p.json", "--svg", "p.svg", "--html", "p.html")
    finally:
        os.umask(before)
    modes = {path.name: stat.S_IMODE(path.stat().st_mode) for path in Path().glob("[.p]*")}
    assert modes == {"p.json": 0o600, "p.svg": mode, "p.html": mode}


def test_the_heading_names_the_file_and_not_its_directory(cli: Any) -> None:
    Path("private").mkdir()
    Path("job.yaml").rename("private/other.yaml")
    cli("plan", "private/other.yaml", "--on", "2x8", "--svg", "plan.svg")
    assert "<title>other.yaml on 2 nodes" in Path("plan.svg").read_text()
    assert "private" not in Path("plan.svg").read_text()


@pytest.mark.parametrize("option", ["-o", "--svg", "--html"])
def test_a_file_that_cannot_be_written(cli: Any, option: str) -> None:
    done = cli("plan", "job.yaml", "--on", "2x8", option, "missing/plan")
    assert (done.code, done.out) == (1, "")
    assert "error[RS102]: missing/plan: cannot be written" in done.err


def test_what_was_saved_before_is_said(cli: Any) -> None:
    done = cli("plan", "job.yaml", "--on", "2x8", "-o", "plan.json", "--svg", "missing/plan.svg")
    assert (done.code, done.out) == (1, "")
    assert done.err.endswith("saved to plan.json\n")


def test_an_override_is_not_repeated_with_its_secret(cli: Any) -> None:
    done = cli("plan", "job.yaml", "x.HF_TOKEN:canary", "--on", "2x8")
    assert done.code == 2
    assert "canary" not in done.err


def test_two_files_of_one_name(cli: Any) -> None:
    done = cli("plan", "job.yaml", "--on", "2x8", "--svg", "plan", "--html", "./plan")
    assert (done.code, done.out) == (2, "")
    assert "give each another name" in done.err
    assert not Path("plan").exists()


@pytest.mark.parametrize("option", ["-o", "--svg", "--html"])
@pytest.mark.parametrize("target", ["job.yaml", "./job.yaml", "link", "cluster.yaml"])
def test_what_is_read_is_not_replaced(cli: Any, option: str, target: str) -> None:
    Path("cluster.yaml").write_text("nodes: [{accelerators: 8}, {accelerators: 8}]\n")
    Path("link").symlink_to("job.yaml")
    job = Path("job.yaml").read_text()
    done = cli("plan", "job.yaml", "--inventory", "cluster.yaml", option, target)
    assert (done.code, done.out) == (2, "")
    assert ".yaml is read, and would be replaced" in done.err
    assert Path("job.yaml").read_text() == job


@pytest.mark.parametrize("option", ["-o", "--svg", "--html"])
def test_files_are_not_written_to_stdout(cli: Any, option: str) -> None:
    done = cli("plan", "job.yaml", "--on", "2x8", option, "-")
    assert (done.code, done.out) == (2, "")
    assert "--json prints the plan" in done.err
    assert not Path("-").exists()


def test_nor_to_its_device() -> None:  # only the check is run: without it, root would replace the device
    with pytest.raises(click.UsageError, match="--json prints the plan"):
        check_files(["job.yaml"], ["/dev/stdout"])


def test_a_problem_in_an_inventory_points_into_it(cli: Any) -> None:
    Path("cluster.json").write_text('{"nodes": [{"accelerators": "many"}]}')
    done = cli("plan", "job.yaml", "--inventory", "cluster.json")
    assert done.code == 1
    assert "--> cluster.json:1:" in done.err


@pytest.mark.parametrize("more", [("--inventory", "cluster.yaml"), ("--live",)])
def test_two_clusters_at_once(cli: Any, more: tuple[str, ...]) -> None:
    done = cli("plan", "job.yaml", "--on", "2x8", *more)
    assert (done.code, done.out) == (2, "")
    assert f"--on and {more[0]} each describe the cluster" in done.err


@pytest.mark.ray
def test_no_live_cluster(cli: Any) -> None:
    program = "from roost.cli import main; main(['plan', 'job.yaml', '--live', '--json'])"
    environ = {**os.environ, "RAY_ADDRESS": "127.0.0.1:1"}  # a process that is connected to no other Ray
    done = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, env=environ, check=False
    )
    assert done.returncode == 4
    assert [finding["code"] for finding in json.loads(done.stdout)["findings"]] == ["RE101"]
    assert "cannot connect to Ray at 127.0.0.1:1" in done.stderr


def test_a_job_that_is_wrong_is_told_before_any_cluster_is_asked(
    cli: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("RAY_ADDRESS", "127.0.0.1:1")
    done = cli("plan", "job.yaml", "cluster.num_nodes=many", "--live")
    assert done.code == 1
    assert done.err.startswith("error[RC103]")


def test_overrides_set_add_and_delete(cli: Any) -> None:
    rules = "cluster.component_placement"
    done = cli(
        "plan",
        "job.yaml",
        f"~{rules}.actor",
        f"+{rules}.env=0-1:0-3",
        "cluster.num_nodes=1",
        "--on",
        "1x8",
        "--json",
    )
    assert done.code == 0
    assert {name: part["rule"] for name, part in done.data["components"].items()} == {"env": "0-1:0-3"}


def test_a_problem_in_an_override_points_into_it(cli: Any) -> None:
    done = cli("plan", "job.yaml", "cluster.component_placement.actor=0-3:1-4", "--on", "2x8")
    assert done.code == 1
    assert "cluster.component_placement.actor=0-3:1-4\n" in done.err
    assert "^^^^^^^" in done.err


@pytest.mark.parametrize("columns", ["60", "80"])
def test_columns_is_obeyed(cli: Any, monkeypatch: pytest.MonkeyPatch, columns: str) -> None:
    monkeypatch.setenv("COLUMNS", columns)
    done = cli("plan", "job.yaml", "--on", "2x8")
    assert max(map(len, done.out.splitlines())) <= int(columns)


def test_all_leaves_nothing_out(cli: Any) -> None:
    ranks = ",".join(str(2 * node) for node in range(40))
    arguments = ("plan", "job.yaml", f"cluster.component_placement.actor='{ranks}'", "--on", "80x1")
    folded, whole = (cli(*arguments, "cluster.num_nodes=80", *more).out for more in ((), ("--all",)))
    assert "\n0,2,4.. x40 " in folded
    assert all(f"\n{node} " in whole for node in range(80))


LAYOUT = "cluster: {layout: {rollout_num_gpus: 24, rollout_num_gpus_per_engine: 4}, shares: {actor: 0.6}}\n"


@pytest.fixture
def layout(cli: Any) -> str:
    Path("layout.yaml").write_text(LAYOUT)
    return "layout.yaml"


def test_a_layout(cli: Any, layout: str) -> None:
    done = cli("plan", layout, "--on", "4x8")
    assert (done.code, done.err) == (0, "")
    assert " share " not in done.out  # nobody does
    done = cli("plan", layout, "--on", "3x8", "cluster.layout.colocate=true")
    assert done.code == 0
    assert "0.4-1" in done.out


def test_the_likely_shape_of_a_layout(cli: Any, layout: str) -> None:
    done = cli("plan", layout)
    assert done.code == 2
    assert "--on 4x8" in done.err


def test_shares_in_json(cli: Any, layout: str) -> None:
    done = cli("plan", layout, "--on", "3x8", "cluster.layout.colocate=true", "--json")
    shares = {name: part["share"] for name, part in done.data["components"].items()}
    assert shares == {"actor": [0.6, 0.6], "rollout": [0.4, 1.0]}
    assert done.data["shares"] == {"actor": 0.6}
    assert roost.Plan.from_dict(done.data).shares == {"actor": 0.6}
    Path("bare.yaml").write_text("cluster: {component_placement: {agent: 0-1}}\n")
    done = cli("plan", "bare.yaml", "--on", "2x0", "--json")
    assert done.data["components"]["agent"]["share"] is None


def test_a_layout_that_does_not_fit(cli: Any, layout: str) -> None:
    done = cli("plan", layout, "--on", "2x8")
    assert done.code == 3
    assert done.err.startswith("error[RP112]: the layout needs 32 accelerators")
    assert cli("validate", layout).code == 0
    assert cli("validate", layout, "--on", "2x8").code == 3
