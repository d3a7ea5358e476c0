"""What a plan looks like on a terminal, kept as exact text."""

from __future__ import annotations

import re
from functools import cache
from pathlib import Path
from typing import Any

import pytest

import roost
from roost.config.ranks import ranges
from roost.views.coloured_findings import render_findings
from roost.views.terminal import render_plan

EXAMPLES = Path(__file__).parents[2] / "examples"


def job(placement: dict[str, Any], **more: Any) -> dict[str, Any]:
    return {"cluster": {"component_placement": placement, **more}}


def big(nodes: int) -> dict[str, Any]:
    half = 4 * nodes
    return job({"actor,rollout": f"0-{8 * nodes - 1}", "env": f"0-{half - 1}:0-{4 * half - 1}"})


def mixed(nodes: int) -> dict[str, Any]:
    """Every second node is used, so that no two neighbours look the same."""
    ranks = ",".join(f"{8 * node}-{8 * node + 7}" for node in range(0, nodes, 2))
    return job({"actor": ranks})


def motley(nodes: int) -> dict[str, Any]:
    """On nodes of 10: no two look the same."""
    held = [10 * node + bit for node in range(nodes) for bit in range(10) if (node + 1) >> bit & 1]
    return job({"actor": ranges(held)})


ROBOTS = {
    "label": "robot",
    "node_ranks": "1-2",
    "hardware": {"type": "Franka", "configs": [{"node_rank": 1}, {"node_rank": 1}, {"node_rank": 2}]},
}
SERVERS = (
    roost.Server(
        name="policy",
        groups=(
            roost.EngineGroup(kind="prefill", num_gpus=4),
            roost.EngineGroup(kind="decode", num_gpus=16, gpus_per_engine=16),
        ),
    ),
    roost.Server(name="judge", groups=(roost.EngineGroup(kind="placeholder", num_gpus=3),)),
)
PICTURES: dict[str, tuple[Any, str, int]] = {
    "layout_apart": (roost.Layout(actor_num_gpus_per_node=12, servers=SERVERS), "5x8", 100),
    "layout_colocated": (
        roost.Layout(colocate=True, use_critic=True, rollout_num_gpus=16, rollout_num_gpus_per_engine=4),
        "2x8",
        100,
    ),
    "layout_colocated_at_60": (
        roost.Layout(colocate=True, rollout_num_gpus=16, shares={"actor": 0.65}),
        "2x8",
        60,
    ),
    "layout_of_nothing": (roost.Layout(actor_num_nodes=0, rollout_num_gpus=0), "2x8,1x0", 80),
    "1x8_colocated": (job({"actor,rollout,reward": "all"}), "1x8", 100),
    "1x8_colocated_narrow": (job({"actor,rollout,reward": "all"}), "1x8", 60),
    "4_nodes": (job({"actor": "0-15", "rollout": "16-27:0-5", "env": "16-19:0-15"}), "4x8", 100),
    "4_nodes_at_80": (job({"actor": "0-15", "rollout": "16-27:0-5", "env": "16-19:0-15"}), "4x8", 80),
    "400_nodes": (big(400), "400x8", 100),
    "16384_nodes": (big(16384), "16384x8", 100),
    "400_nodes_mixed": (mixed(400), "400x8", 100),
    "2_nodes_of_72": (job({"actor": "0-71", "rollout": "72-127:0-13", "reward": "64-71"}), "2x72", 100),
    "2_nodes_of_16": (job({"actor,reference": "0-7,16-23", "rollout": "8-15,24-30"}), "2x16", 60),
    "twelve_colocated": (job({",".join(f"part{letter}" for letter in "abcdefghijkl"): "all"}), "4x8", 100),
    "uneven_bare_nodes": (job({"agent": "0-1:0-200,2-3:201-511"}), "4x0", 80),
    "uneven_bare_nodes_of_400": (job({"agent": "all:0-999"}), "400x0", 80),
    "robots": (
        job(
            {"actor": "0-7", "env": {"node_group": "robot", "placement": "0-1:0-3"}},
            node_groups=[ROBOTS],
        ),
        "1x8:A800,2x0",
        80,
    ),
}


@cache
def plan_of_picture(name: str) -> roost.Plan:
    """Planned once: the largest takes seconds, and several tests look at it."""
    source, shape, _ = PICTURES[name]
    return roost.plan(source, roost.Inventory.parse(shape))


def picture(plan: roost.Plan, width: int) -> str:
    """Its text, less the digest: what that covers is the plan's affair."""
    text = render_plan(plan, width=width)
    assert max(map(len, text.splitlines())) <= width
    digest = plan.digest.removeprefix("sha256:")[:12]
    assert text.endswith(f"{digest}\n")
    return text.replace(digest, "0" * 12)


@pytest.mark.parametrize("name", PICTURES)
def test_picture(name: str, same_as_before: Any) -> None:
    _, _, width = PICTURES[name]
    same_as_before(name, picture(plan_of_picture(name), width))


@pytest.mark.parametrize("width", [60, 80, 100, 140])
def test_the_heterogeneous_example(width: int, same_as_before: Any) -> None:
    inventory = roost.Inventory.load(EXAMPLES / "heterogeneous_cluster.yaml")
    plan = roost.plan(EXAMPLES / "heterogeneous.yaml", inventory)
    same_as_before(f"heterogeneous_at_{width}", picture(plan, width))


def test_all_shows_every_row() -> None:
    plan = roost.plan(motley(400), roost.Inventory.parse("400x10"))
    assert "376 rows left out (nodes 20-395); --all shows them" in render_plan(plan)
    everything = render_plan(plan, show_all=True)
    assert "left out" not in everything
    assert all(f"\n{node} " in everything for node in range(400))


@pytest.mark.parametrize("width", [60, 100])
def test_all_shows_every_node_with_its_ranks(width: int) -> None:
    agent = {"node_group": "node", "placement": "0-1:0-4"}
    plan = roost.plan(job({"actor,critic": "0-79", "agent": agent}), roost.Inventory.parse("12x8"))
    lines = render_plan(plan, width=width, show_all=True).splitlines()
    rows = [line for line in lines if re.match(r"\d+ +nvidia_gpu", line)]
    assert len(rows) == 12
    shown = "A72 C72│A73 C73" if width == 100 else "0-7 A72-79 C72-79"
    assert shown in rows[9]
    assert any("agent x3: 0-2" in line for line in lines)
    assert not any("--all" in line for line in lines)
    assert "--all shows each" in render_plan(plan, width=width)


def test_nodes_that_look_the_same_are_one_row_wherever_they_are() -> None:
    ranks = ranges(rank for node in (*range(0, 90, 3), 95) for rank in range(8 * node, 8 * node + 8))
    plan = roost.plan(job({"actor": "all", "reward": ranks}), roost.Inventory.parse("96x8"))
    lines = render_plan(plan).splitlines()
    assert lines[1].startswith("0,3,6.. x31 ")
    assert lines[2].startswith("1-2,4-5,7-8.. x65 ")
    assert "left out" not in "".join(lines)


def test_colour_changes_nothing_but_colour() -> None:
    from rich.text import Text

    plan = roost.plan(big(4), roost.Inventory.parse("4x8"))
    coloured = render_plan(plan, colour=True)
    assert "\x1b[" in coloured
    lines = [line.rstrip() for line in Text.from_ansi(coloured).plain.splitlines()]
    assert lines == render_plan(plan).rstrip("\n").splitlines()


def test_ascii_only() -> None:
    plan = roost.plan(job({"actor,rollout": "0-3"}), roost.Inventory.parse("1x8"))
    assert render_plan(plan, ascii_only=True).isascii()
    assert not render_plan(plan).isascii()


def test_names_from_files_cannot_drive_the_terminal() -> None:
    nodes = [{"ip": "\x1b[2J10.0.0.1", "accelerators": {"count": 8, "model": "A\x1b]0;800\x07"}}]
    plan = roost.plan(job({"actor": "all"}), roost.Inventory.from_dict({"nodes": nodes}))
    text = render_plan(plan)
    assert "\x1b" not in text
    assert "\x07" not in text


def test_findings_keep_their_words_in_colour() -> None:
    from rich.text import Text

    plan = roost.plan(job({"actor": "0-3"}), roost.Inventory.parse("1x8"))
    assert render_findings(plan.findings).startswith("warning[RW102]: 4 of 8 accelerators are idle\n")
    coloured = render_findings(plan.findings, colour=True)
    assert "\x1b[" in coloured
    assert Text.from_ansi(coloured).plain.rstrip() == render_findings(plan.findings).rstrip()
