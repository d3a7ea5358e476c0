"""Layouts: the six modes, engines on nodes, and what does not fit."""

from __future__ import annotations

import pickle
import re
from argparse import Namespace
from dataclasses import fields, replace
from types import SimpleNamespace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from omegaconf import OmegaConf

import roost
from roost import EngineGroup, Inventory, Layout, LayoutMode, Server
from roost.config.document import parse
from roost.config.job import read_job
from roost.config.layout_section import EngineSlice
from roost.config.schema import ClusterConfig
from roost.errors import render

TRAIN = LayoutMode.DEBUG_TRAIN_ONLY
EXTERNAL_DEBUG = LayoutMode.EXTERNAL_DEBUG_ROLLOUT_ONLY
EXTERNAL = LayoutMode.EXTERNAL
ROLLOUT = LayoutMode.DEBUG_ROLLOUT_ONLY
COLOCATE = LayoutMode.COLOCATE
APART = LayoutMode.DISAGGREGATED


def sized(actor: int, rollout: int | None, **more: Any) -> Layout:
    return Layout(actor_num_gpus_per_node=actor, rollout_num_gpus=rollout, **more)


def group(num_gpus: int, kind: str = "regular", gpus_per_engine: int | None = None) -> EngineGroup:
    return EngineGroup(kind=kind, num_gpus=num_gpus, gpus_per_engine=gpus_per_engine)


def rules(job: Any, on: str | Inventory = "2x8") -> dict[str, str]:
    inventory = Inventory.parse(on) if isinstance(on, str) else on
    return {name: part.rule for name, part in roost.plan(job, inventory).components.items()}


def refusal(job: Any, on: str = "2x8") -> roost.ConfigurationError:
    with pytest.raises(roost.ConfigurationError) as caught:
        roost.plan(job, Inventory.parse(on))
    return caught.value


# -- the table -------------------------------------------------------------------------------------------

FLAGS = ("debug_train_only", "rollout_external", "debug_rollout_only", "colocate")


def flags(*names: str) -> dict[str, bool]:
    return dict.fromkeys(names, True)


@pytest.mark.parametrize(
    ("actor", "rollout", "on", "mode", "reserved", "offset", "actors", "rollouts"),
    [
        (8, 4, ["debug_train_only"], TRAIN, 8, 0, range(8), range(8)),
        (8, 4, FLAGS, TRAIN, 8, 0, range(8), range(8)),
        (8, 4, ["rollout_external", "debug_rollout_only"], EXTERNAL_DEBUG, 8, 0, range(8), range(8)),
        (8, 4, FLAGS[1:], EXTERNAL_DEBUG, 8, 0, range(8), range(8)),
        (8, 4, ["rollout_external"], EXTERNAL, 8, 8, range(8), range(8, 8)),
        (8, 4, ["rollout_external", "colocate"], EXTERNAL, 8, 8, range(8), range(8, 8)),
        (8, 4, ["debug_rollout_only"], ROLLOUT, 4, 0, range(4), range(4)),
        (4, 8, ["debug_rollout_only", "colocate"], ROLLOUT, 8, 0, range(4), range(8)),
        (8, 4, ["colocate"], COLOCATE, 8, 0, range(8), range(4)),
        (4, 8, ["colocate"], COLOCATE, 8, 0, range(4), range(8)),
        (8, 4, [], APART, 12, 8, range(8), range(8, 12)),
        (8, 0, [], APART, 8, 8, range(8), range(8, 8)),
        (0, 8, [], APART, 8, 0, range(0), range(8)),
        (0, 0, [], APART, 0, 0, range(0), range(0)),
        (0, 0, ["colocate"], COLOCATE, 0, 0, range(0), range(0)),
        (8, 0, ["debug_rollout_only"], ROLLOUT, 0, 0, range(0), range(0)),
    ],
)
def test_the_first_mode_that_applies(
    actor: int,
    rollout: int,
    on: list[str],
    mode: LayoutMode,
    reserved: int,
    offset: int,
    actors: range,
    rollouts: range,
) -> None:
    layout = sized(actor, rollout, **flags(*on))
    assert (layout.mode, layout.reserved, layout.rollout_offset) == (mode, reserved, offset)
    assert layout.slices() == {"actor": actors, "rollout": rollouts}
    with_critic = replace(layout, use_critic=True)
    assert with_critic.slices() == {"actor": actors, "critic": actors, "rollout": rollouts}


def test_there_are_six_modes() -> None:
    assert {mode: (mode.value, mode.trains, mode.serves, mode.is_external) for mode in LayoutMode} == {
        TRAIN: ("debug_train_only", True, False, False),
        EXTERNAL_DEBUG: ("rollout_external and debug_rollout_only", True, False, True),
        EXTERNAL: ("rollout_external", True, False, True),
        ROLLOUT: ("debug_rollout_only", False, True, False),
        COLOCATE: ("colocate", True, True, False),
        APART: ("disaggregated", True, True, False),
    }
    assert [pickle.loads(pickle.dumps(mode)) for mode in LayoutMode] == list(LayoutMode)


@pytest.mark.parametrize(
    ("on", "expected"),
    [
        (["debug_train_only"], {"actor": "0-7", "critic": "0-7"}),
        (["rollout_external", "debug_rollout_only"], {"actor": "0-7", "critic": "0-7"}),
        (["rollout_external"], {"actor": "0-7", "critic": "0-7"}),
        (["debug_rollout_only"], {"rollout": "0-3:0-1"}),
        (["colocate"], {"actor": "0-7", "critic": "0-7", "rollout": "0-3:0-1"}),
        ([], {"actor": "0-7", "critic": "0-7", "rollout": "8-11:0-1"}),
    ],
)
def test_the_plan_holds_what_runs(on: list[str], expected: dict[str, str]) -> None:
    layout = sized(8, 4, rollout_num_gpus_per_engine=2, use_critic=True, **flags(*on))
    assert rules(layout) == expected
    assert layout.components == list(expected)


@pytest.mark.parametrize(
    ("more", "rollout"),
    [
        ({"colocate": True}, 8),
        ({"colocate": True, "debug_rollout_only": True}, 8),
        ({"debug_train_only": True}, 0),
        ({"rollout_external": True}, 0),
        ({"servers": (Server(groups=(group(3), group(2, "placeholder"))),)}, 5),
        ({"colocate": True, "servers": (Server(groups=(group(3),)),)}, 3),
    ],
)
def test_rollout_that_is_not_given(more: dict[str, Any], rollout: int) -> None:
    assert Layout(**more).num_rollout == rollout


def test_rollout_that_must_be_given() -> None:
    with pytest.raises(roost.ConfigurationError, match="'rollout_num_gpus' is missing") as caught:
        Layout()
    assert caught.value.codes == ("RC102",)


@pytest.mark.parametrize("shape", ["2x8", "2x0"])
@pytest.mark.parametrize(
    "job", [sized(0, 0), {"cluster": {"layout": {"actor_num_nodes": 0, "rollout_num_gpus": 0}}}]
)
def test_an_empty_pool_is_an_empty_plan(job: Any, shape: str) -> None:
    plan = roost.plan(job, Inventory.parse(shape))
    assert not plan.components
    assert not plan.charges
    assert roost.Plan.from_dict(plan.to_dict()) == plan
    assert roost.ComponentPlacement(job, Inventory.parse(shape)).components == []
    assert roost.ComponentPlacement(job, Inventory.parse(shape)).placement_mode


# -- engines ---------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("layout", "on", "rule"),
    [
        (sized(4, 12, rollout_num_gpus_per_engine=4), "2x8", "4-15:0-2"),
        (sized(8, 32, rollout_num_gpus_per_engine=16), "5x8", "8-39:0-3"),
        (sized(8, 8, rollout_num_gpus_per_engine=8), "2x8", "8-15:0"),
        (sized(8, 24, rollout_num_gpus_per_engine=8), "1x8,1x16,1x8", "8-31:0-2"),
        # Nodes of other sizes, but each engine on two of them, or each on one.
        (sized(0, 24, rollout_num_gpus_per_engine=8), "1x8,1x16", "0-23:0-2"),
        (
            sized(0, 32, rollout_num_gpus_per_engine=16, accelerators="0-15,32-47"),
            "2x8,1x16,2x8",
            "0-15:0-1,32-47:2-3",
        ),
        (sized(3, 5), "1x8", "3-7"),
        (sized(4, 8, rollout_num_gpus_per_engine=4, accelerators="4-7,8-15"), "2x8", "8-15:0-1"),
        (sized(4, 8, rollout_num_gpus_per_engine=4, accelerators="4-7,12-19"), "3x8", "12-19:0-1"),
        # The two nodes of an engine need not be neighbours.
        (
            sized(4, 16, rollout_num_gpus_per_engine=16, accelerators="0-3,8-15,24-31"),
            "4x8",
            "8-15:0,24-31:1",
        ),
        (sized(2, 4, rollout_num_gpus_per_engine=2, accelerators="0-1,4-5,8-9"), "2x8", "4-5:0,8-9:1"),
    ],
)
def test_engines_tile_the_nodes(layout: Layout, on: str, rule: str) -> None:
    assert rules(layout, on)["rollout"] == rule


def test_an_engine_has_the_node_it_is_on() -> None:
    """With 4 + 12 accelerators, ranks divided by engines to a node would name the wrong ones."""
    plan = roost.plan(sized(4, 12, rollout_num_gpus_per_engine=4), Inventory.parse("2x8"))
    places = plan.components["rollout"].placements
    assert [(place.cluster_node_rank, place.local_hardware_ranks) for place in places] == [
        (0, [4, 5, 6, 7]),
        (1, [0, 1, 2, 3]),
        (1, [4, 5, 6, 7]),
    ]


def test_wide_engines_after_a_group_of_odd_size() -> None:
    """Three small engines, then two engines of two nodes: their first nodes are 1 and 3."""
    servers = (Server(groups=(group(3, "prefill"), group(5, "placeholder"), group(32, "decode", 16))),)
    plan = roost.plan(Layout(actor_num_nodes=0, servers=servers), Inventory.parse("5x8"))
    assert plan.components["rollout.prefill"].rule == "0-2"
    places = plan.components["rollout.decode"].placements
    assert [place.cluster_node_rank for place in places] == [1, 2, 3, 4]
    assert all(len(place.local_hardware_ranks) == 8 for place in places)


def test_actors_sit_where_the_pool_is() -> None:
    layout = sized(6, 2, accelerators="2-5,10-13")
    assert rules(layout) == {"actor": "2-5,10-11", "rollout": "12-13"}
    layout = sized(8, None, colocate=True, accelerators="4-11")
    plan = roost.plan(layout, Inventory.parse("2x8"))
    assert [place.cluster_node_rank for place in plan.components["actor"].placements] == [0] * 4 + [1] * 4


def test_a_pool_of_a_node_group() -> None:
    job = {
        "cluster": {
            "layout": {"node_group": "b,a", "colocate": True, "actor_num_gpus_per_node": 10},
            "node_groups": [{"label": "a", "node_ranks": 0}, {"label": "b", "node_ranks": 1}],
        }
    }
    plan = roost.plan(job, Inventory.parse("3x8"))
    assert plan.components["actor"].nodes == [1, 0]
    grouped = Inventory.parse("3x8").grouped(job["cluster"]["node_groups"])
    layout = sized(10, None, colocate=True, node_group=("b", "a"))
    assert roost.plan(layout, grouped).digest == plan.digest


UNEVEN = """\
error[RP110]: rollout: engine 1 would lie on node 2, engine 0 on nodes 0 and 1
  --> cluster.layout.rollout_num_gpus_per_engine
  = why: the engines of a group span the same number of nodes; these nodes have 8 and 16 accelerators
  = help: put the engines from 1 on into another group of `servers` (groups of 16 and 16 accelerators), or use 4 or 8 accelerators per engine"""
UNEVEN_LATER = """\
error[RP110]: rollout: engine 2 would lie on nodes 1 and 2, engine 0 on node 0
  --> cluster.layout.rollout_num_gpus_per_engine
  = why: the engines of a group span the same number of nodes; these nodes have 8 and 32 accelerators
  = help: put the engines from 2 on into another group of `servers` (groups of 32 and 16 accelerators), or use 4, 8 or 32 accelerators per engine (rollout_num_gpus must be a multiple of it)"""
REFUSED = """\
error[RP110]: rollout: engine 0 would straddle nodes 1 and 2 (accelerators 0-7 of node 1, 0-3 of node 2)
  --> cluster.layout.rollout_num_gpus_per_engine
  = why: an engine wider than a node fills whole nodes; 12 is not a multiple of 8
  = help: use 4, 8 or 16 accelerators per engine (rollout_num_gpus must be a multiple of it)"""
STRADDLES = """\
error[RP110]: rollout: engine 1 would straddle nodes 0 and 1 (accelerators 6-7 of node 0, 0-1 of node 1)
  --> cluster.layout.rollout_num_gpus_per_engine
  = why: an engine of 4 lies on one node
  = help: use 1 or 2 accelerators per engine, or give the actor 4 accelerators"""


@pytest.mark.parametrize(
    ("layout", "on", "text"),
    [
        (sized(8, 24, rollout_num_gpus_per_engine=12), "4x8", REFUSED),
        (sized(2, 8, rollout_num_gpus_per_engine=4), "2x8", STRADDLES),
        (sized(0, 32, rollout_num_gpus_per_engine=16), "2x8,1x16", UNEVEN),
        (sized(0, 48, rollout_num_gpus_per_engine=16), "1x32,2x8", UNEVEN_LATER),
    ],
)
def test_engines_that_do_not_tile(layout: Layout, on: str, text: str) -> None:
    error = refusal(layout, on)
    assert render(error.findings) == text
    assert isinstance(error, roost.PlacementError)
    assert error.findings[0].kind == "fit"


@pytest.mark.parametrize(
    ("layout", "on", "reason"),
    [
        (sized(0, 12, rollout_num_gpus_per_engine=12), "1x8,1x4", "nodes of equal size; these have 4 and 8"),
        (sized(4, 16, rollout_num_gpus_per_engine=16), "3x8", "from the first accelerator of one"),
        (sized(0, 4, rollout_num_gpus_per_engine=4, accelerators="0-1,4-5"), "1x8", "are consecutive"),
        (sized(0, 8, rollout_num_gpus_per_engine=8, accelerators="0-3,8-11"), "2x8", "lies on one node"),
    ],
)
def test_why_an_engine_does_not_tile(layout: Layout, on: str, reason: str) -> None:
    error = refusal(layout, on)
    assert error.codes == ("RP110",)
    assert reason in error.findings[0].why


def test_the_engine_that_does_not_tile_is_named() -> None:
    """Two engines of 3 fit behind the actor, the third does not."""
    error = refusal(sized(1, 9, rollout_num_gpus_per_engine=3))
    assert error.findings[0].what.startswith("rollout: engine 2 would straddle nodes 0 and 1")


def test_advice_about_a_layout_points_at_it() -> None:
    plan = roost.plan(sized(10, None, colocate=True), Inventory.parse("1x8:A800,1x8:4090"))
    assert {finding.path for finding in plan.findings if finding.code == "RW103"} == {("cluster", "layout")}


def test_suggested_widths_and_sizes_work() -> None:
    layout = sized(2, 8, rollout_num_gpus_per_engine=4)
    inventory = Inventory.parse("2x8")
    for better in (
        replace(layout, rollout_num_gpus_per_engine=1),
        replace(layout, rollout_num_gpus_per_engine=2),
        replace(layout, actor_num_gpus_per_node=4),
    ):
        assert roost.plan(better, inventory).components


def test_engines_over_other_numbers_of_nodes_are_groups_of_their_own() -> None:
    """As the refusal of one group advises."""
    layout = Layout(actor_num_nodes=0, servers=(Server(groups=(group(16), group(16))),))
    layout = replace(layout, rollout_num_gpus_per_engine=16)
    assert rules(layout, "2x8,1x16") == {"rollout.regular": "0-15:0-1", "rollout.regular-1": "16-31:0"}


def test_a_group_that_engines_do_not_divide() -> None:
    with pytest.raises(
        roost.PlacementError, match="10 accelerators cannot be cut into engines of 4"
    ) as caught:
        sized(8, 10, rollout_num_gpus_per_engine=4)
    assert "use 8 or 12 accelerators" in caught.value.findings[0].remedy
    assert sized(8, 10, rollout_num_gpus_per_engine=4, debug_train_only=True).reserved == 8


# -- names -----------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("servers", "names"),
    [
        ([], ["rollout"]),
        ([Server(groups=(group(4),))], ["rollout"]),
        ([Server(name="policy", groups=(group(4),))], ["rollout.policy"]),
        ([Server(groups=(group(4, "placeholder"),))], ["rollout.default"]),
        ([Server(groups=(group(2, "prefill"), group(2, "decode")))], ["rollout.prefill", "rollout.decode"]),
        (
            [Server(groups=(group(1, "decode"), group(1), group(1, "decode"), group(1, "decode")))],
            ["rollout.decode", "rollout.regular", "rollout.decode-1", "rollout.decode-2"],
        ),
        (
            [Server(groups=(group(1),)), Server(name="b", groups=(group(1, "prefill"), group(2, "decode")))],
            ["rollout.default", "rollout.b.prefill", "rollout.b.decode"],
        ),
        ([Server(groups=(group(4, "decode"), group(0, "prefill")))], ["rollout.decode"]),
    ],
)
def test_names_of_components(servers: list[Server], names: list[str]) -> None:
    layout = sized(4, 4, servers=tuple(servers))
    assert [part.component for part in layout.engine_groups()] == names
    assert list(rules(layout, "1x8")) == ["actor", *names]


def test_groups_follow_each_other_in_the_pool() -> None:
    servers = (
        Server(name="a", groups=(group(4, "prefill"), group(2, "placeholder"))),
        Server(name="b", groups=(group(2, gpus_per_engine=1),)),
    )
    layout = sized(8, 8, rollout_num_gpus_per_engine=2, servers=servers)
    prefill, placeholder, regular = layout.engine_groups()
    assert prefill == EngineSlice(
        component="rollout.a.prefill",
        server="a",
        kind="prefill",
        positions=range(8, 12),
        gpus_per_engine=2,
        path=("servers", 0, "groups", 0),
    )
    assert prefill.num_engines == 2
    assert (placeholder.positions, placeholder.kind) == (range(12, 14), "placeholder")
    assert (regular.positions, regular.gpus_per_engine, regular.server) == (range(14, 16), 1, "b")
    assert rules(layout)["rollout.a.placeholder"] == "12-13"


# -- where layouts come from -----------------------------------------------------------------------------

ARGS = {
    "actor_num_nodes": 2,
    "actor_num_gpus_per_node": 4,
    "rollout_num_gpus": 8,
    "rollout_num_gpus_per_engine": 2,
    "colocate": True,
    "use_critic": None,
    "num_gpus_per_actor": 0.7,
    "num_gpus_per_engine": 0.3,
    "lr": 1e-6,
}
YAML = """
cluster:
  num_nodes: 1
  layout:
    actor_num_nodes: 2
    actor_num_gpus_per_node: 4
    rollout_num_gpus: 8
    rollout_num_gpus_per_engine: 2
    colocate: true
  shares: {actor: 0.7, rollout: 0.3}
"""


@pytest.mark.parametrize("args", [ARGS, Namespace(**ARGS), SimpleNamespace(**ARGS), OmegaConf.create(ARGS)])
def test_from_args(args: Any) -> None:
    layout = Layout.from_args(args)
    assert layout == sized(
        4,
        8,
        actor_num_nodes=2,
        rollout_num_gpus_per_engine=2,
        colocate=True,
        shares={"actor": 0.7, "rollout": 0.3},
    )
    inventory = Inventory.parse("1x8")
    assert roost.plan(layout, inventory) == roost.plan(parse(YAML), inventory)
    assert roost.plan(layout.as_job(num_nodes=1), inventory) == roost.plan(layout, inventory)


def test_missing_flags_take_defaults() -> None:
    assert Layout.from_args(Namespace(rollout_num_gpus=8)) == Layout(rollout_num_gpus=8)
    assert Layout.from_args({"rollout_num_gpus": None, "colocate": True}) == Layout(colocate=True)


@pytest.mark.parametrize("flag", ["critic_num_nodes", "critic_num_gpus_per_node"])
def test_a_critic_of_another_size(flag: str) -> None:
    args = Namespace(colocate=True, use_critic=True, critic_num_nodes=1, critic_num_gpus_per_node=8)
    assert Layout.from_args(args).use_critic
    setattr(args, flag, 5)
    with pytest.raises(roost.ConfigurationError, match=f"{flag} is 5, actor_.* is") as caught:
        Layout.from_args(args)
    assert caught.value.codes == ("RC104",)


def test_everything_wrong_with_flags_at_once() -> None:
    args = Namespace(
        actor_num_nodes=-1,
        rollout_num_gpus="many",
        rollout_num_gpus_per_engine=0,
        actor_num_gpus_per_node=10**9,
        colocate="perhaps",
        num_gpus_per_actor=1.5,
        critic_num_nodes=3,
    )
    with pytest.raises(roost.ConfigurationError) as caught:
        Layout.from_args(args)
    assert {finding.path[-1] for finding in caught.value.findings} == {
        "actor_num_nodes",
        "rollout_num_gpus",
        "rollout_num_gpus_per_engine",
        "actor_num_gpus_per_node",
        "colocate",
        "actor",
        "critic_num_nodes",
    }
    assert all(finding.remedy for finding in caught.value.findings)


@pytest.mark.parametrize(
    ("more", "codes"),
    [
        ({"servers": (Server(groups=(group(4),)),)}, ("RC104",)),  # 4 of 8
        ({"servers": (Server(groups=()),)}, ("RC103",)),
        ({"servers": (Server(groups=(group(-1),)),)}, ("RC104",)),  # which is not an empty server too
        ({"servers": (Server(groups=(group(8, "prefil"),)),)}, ("RC104",)),
        ({"servers": (Server(name="a b", groups=(group(8),)),)}, ("RC105",)),
        ({"servers": (Server(name="x" * 60, groups=(group(8),)),)}, ("RC105",)),
        (
            {"servers": (Server(name="a", groups=(group(4),)), Server(name="a", groups=(group(4),)))},
            ("RC106",),
        ),
        (
            {
                "servers": (
                    Server(name="a.decode", groups=(group(4),)),
                    Server(name="a", groups=(group(2, "decode"), group(2))),
                )
            },
            ("RC106",),
        ),
        ({"servers": (Server(groups=tuple(group(0) for _ in range(1001))),)}, ("RL106",)),
        ({"accelerators": "0-7:0-3"}, ("RL104",)),
        ({"accelerators": "7-0"}, ("RL102",)),
        ({"accelerators": "8-15,0-7"}, ("RL103",)),
        ({"actor_num_nodes": 10**6, "actor_num_gpus_per_node": 10**6}, ("RL106",)),
        ({"shares": {"actor": 0}}, ("RC104",)),
        ({"shares": {"actor": True}}, ("RC103",)),
        ({"shares": {"actor": float("nan")}}, ("RC104",)),
        ({"colocate": 2}, ("RC103",)),
        ({"node_group": 3.5}, ("RC103",)),
        ({"servers": "policy"}, ("RC103",)),
        ({"servers": ({"name": "a", "grups": []},)}, ("RC101",)),
        ({"actor_num_nodes": object()}, ("RC103",)),
    ],
)
def test_layouts_that_are_refused(more: dict[str, Any], codes: tuple[str, ...]) -> None:
    with pytest.raises(roost.ConfigurationError) as caught:
        Layout(**{"rollout_num_gpus": 8, **more})
    assert caught.value.codes == codes
    assert all(finding.remedy for finding in caught.value.findings)


def test_the_schema_of_a_job_describes_its_layout() -> None:
    known = ClusterConfig.model_json_schema()["$defs"]
    section = known["LayoutSection"]["properties"]
    assert {one.name for one in fields(Layout)} - {"shares"} == set(section)
    assert section["accelerators"]["description"] == "ranks of the pool, such as 4-15; omitted: all"
    assert section["rollout_num_gpus_per_engine"]["default"] == 1
    assert known["Server"]["required"] == ["groups"]
    assert known["EngineGroup"]["properties"]["kind"]["enum"] == [
        "regular",
        "prefill",
        "decode",
        "encoder",
        "placeholder",
    ]


def test_a_group_of_a_layout_is_pointed_at_in_its_list() -> None:
    text = """\
cluster:
  node_groups: [{label: a, node_ranks: 0}]
  layout: {colocate: true, node_group: [a, b]}
"""
    (finding,) = read_job(parse(text))[1]
    assert (finding.what, finding.path[-1]) == ("layout: unknown node group 'b'", 1)
    assert finding.where is not None
    assert (finding.where.line, finding.where.column) == (3, 44)


def test_an_unknown_share() -> None:
    error = refusal(sized(8, None, colocate=True, shares={"actr": 0.5}))
    assert error.codes == ("RP106",)
    assert "did you mean 'actor'?" in error.findings[0].remedy


def test_a_layout_is_a_value() -> None:
    servers = (Server(groups=(group(8),)),)
    one = Layout(servers=servers, shares={"actor": 0.5}, node_group=("cluster",))
    assert one == replace(one)
    assert hash(one) == hash(replace(one))
    assert pickle.loads(pickle.dumps(one)) == one
    assert len({one, replace(one, colocate=True)}) == 2
    with pytest.raises(AttributeError):
        one.colocate = True  # type: ignore[misc]
    with pytest.raises(TypeError):
        one.shares["actor"] = 1.0  # type: ignore[index]


def test_beside_other_components() -> None:
    job = {
        "cluster": {
            "layout": {"actor_num_gpus_per_node": 4, "rollout_num_gpus": 4},
            "component_placement": {"env": {"node_group": "node", "placement": "0-1:0-7"}},
        }
    }
    assert rules(job) == {"actor": "0-3", "rollout": "4-7", "env": "0-1:0-7"}
    job["cluster"]["component_placement"] = {"env": "0", "rollout": "1"}
    error = refusal(job)
    assert error.codes == ("RC106",)
    assert error.findings[0].why == "the layout places it already"


def test_overrides() -> None:
    job = {"cluster": {"layout": {"rollout_num_gpus": 8}}}
    plan = roost.plan(job, Inventory.parse("1x8"), overrides=["cluster.layout.colocate=true"])
    assert plan.components["rollout"].rule == "0-7"
    plan = roost.plan(sized(8, 8), Inventory.parse("1x8"), overrides=["cluster.layout.colocate=true"])
    assert plan.components["rollout"].rule == "0-7"


# -- what does not fit -----------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("layout", "on", "arithmetic", "remedy"),
    [
        (
            sized(8, 16),
            "2x8",
            "disaggregated: A = 1 x 8 = 8, R = 16; G = A + R = 24",
            "give the actor or the rollout 8 fewer, or set colocate: true, or take a larger cluster",
        ),
        (
            sized(8, 24, colocate=True),
            "2x8",
            "colocate: A = 1 x 8 = 8, R = 24; G = the larger = 24",
            "give the rollout 16 at most, or take a larger cluster",
        ),
        (
            sized(8, 24, debug_rollout_only=True),
            "2x8",
            "debug_rollout_only: R = 24; G = R = 24",
            "give the rollout 8 fewer, or take a larger cluster",
        ),
        (
            sized(8, 24, actor_num_nodes=3, rollout_external=True),
            "2x8",
            "rollout_external: A = 3 x 8 = 24; G = A = 24",
            "give the actor 8 fewer, or take a larger cluster",
        ),
        (
            sized(16, 8, accelerators="0-15"),
            "3x8",
            "disaggregated: A = 1 x 16 = 16, R = 8; G = A + R = 24",
            "give the actor or the rollout 8 fewer, or set colocate: true, or list more accelerators",
        ),
    ],
)
def test_too_few_accelerators(layout: Layout, on: str, arithmetic: str, remedy: str) -> None:
    (finding,) = refusal(layout, on).findings
    assert (finding.code, finding.kind) == ("RP112", "fit")
    assert finding.what.startswith("the layout needs 24 accelerators, ")
    assert "16" in finding.what
    assert (finding.why, finding.remedy) == (arithmetic, remedy)


def test_a_cluster_without_accelerators() -> None:
    error = refusal(sized(8, None, colocate=True), "2x0")
    assert error.findings[0].what == "the layout needs 8 accelerators, the cluster has no accelerators"


def test_accelerators_that_are_not_there() -> None:
    assert refusal(sized(8, None, colocate=True, accelerators="4-20")).codes == ("RP101",)


@pytest.mark.parametrize("label", ["robots", "bare", "node"])
def test_groups_without_accelerators_of_their_own(label: str) -> None:
    groups = [
        {"label": "robots", "node_ranks": 0, "hardware": {"type": "Arm", "configs": [{"node_rank": 0}]}},
        {"label": "bare", "node_ranks": 0, "ignore_hardware": True},
    ]
    layout = {"colocate": True, "node_group": label}
    error = refusal({"cluster": {"layout": layout, "node_groups": groups}})
    assert error.codes == ("RP104",)


def test_model_parallel_placement_takes_no_layout() -> None:
    kind = roost.ModelParallelComponentPlacement
    with pytest.raises(roost.PlacementError, match="does not take a layout"):
        roost.plan(Layout(colocate=True), Inventory.parse("1x8"), placement=kind)


def test_flags_that_cannot_be_resolved_are_refused_in_words() -> None:
    flags = OmegaConf.create({"actor_num_gpus_per_node": "${nowhere}", "rollout_num_gpus": 0})
    with pytest.raises(roost.ConfigurationError) as caught:
        Layout.from_args(flags)
    assert caught.value.codes == ("RC006",)
    assert "the layout cannot be resolved" in str(caught.value)
    assert "nowhere" in str(caught.value)


# -- corners ---------------------------------------------------------------------------------------------


@pytest.mark.parametrize("more", [{"rollout_external": True}, {"debug_train_only": True}])
def test_colocated_rollout_that_does_not_run_has_none(more: Any) -> None:
    assert Layout(colocate=True, **more).num_rollout == 0


def test_the_pool_may_be_all() -> None:
    layout = Layout(colocate=True)
    whole = roost.plan(replace(layout, accelerators="all"), "2x8")
    assert whole.digest == roost.plan(layout, "2x8").digest


def test_a_layout_as_a_job_says_how_many_nodes() -> None:
    assert Layout(colocate=True).as_job(2)["cluster"]["num_nodes"] == 2
    assert "num_nodes" not in Layout(colocate=True).as_job()["cluster"]


def test_flags_with_wishes_and_shares_of_the_wrong_form() -> None:
    with pytest.raises(roost.ConfigurationError):
        Layout.from_args(Namespace(colocate=True, shares=3, num_gpus_per_actor=0.5))


def test_a_server_that_is_no_name() -> None:
    with pytest.raises(roost.ConfigurationError, match="'a b' is not a name for a server"):
        Layout(servers=(Server(name="a b", groups=(EngineGroup(num_gpus=1),)),))


def test_an_engine_on_scattered_accelerators() -> None:
    layout = Layout(
        actor_num_nodes=0, rollout_num_gpus=4, rollout_num_gpus_per_engine=4, accelerators="0-1,4-5"
    )
    with pytest.raises(roost.PlacementError, match=r"not consecutive \(0-1 of node 0 and 4-5 of node 0\)"):
        roost.plan(layout, "1x8")


@given(st.integers(1, 8), st.integers(1, 4), st.integers(0, 9), st.integers(1, 20), st.integers(1, 12))
def test_what_a_layout_suggests_works(size: int, nodes: int, actor: int, engines: int, width: int) -> None:
    inventory = Inventory.uniform(nodes, size)
    layout = Layout(
        actor_num_gpus_per_node=actor, rollout_num_gpus=engines * width, rollout_num_gpus_per_engine=width
    )
    try:
        roost.plan(layout, inventory)
        return
    except roost.PlacementError as error:
        (finding,) = error.findings
    if "set colocate" in finding.remedy:
        assert replace(layout, colocate=True).reserved <= inventory.num_accelerators
    if better := re.search(r"give the actor (\d+) accelerator", finding.remedy):
        roost.plan(replace(layout, actor_num_gpus_per_node=int(better[1])), inventory)
    if listed := re.search(r"use ([\d, or]+) accelerators per engine", finding.remedy):
        for other in map(int, re.findall(r"\d+", listed[1])):
            count = max(1, layout.num_rollout // other) * other
            roost.plan(replace(layout, rollout_num_gpus=count, rollout_num_gpus_per_engine=other), inventory)
