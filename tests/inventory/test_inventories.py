"""Inventories: shapes, files, dicts, and what their ranks count."""

from __future__ import annotations

import json
import os
import pickle
from pathlib import Path
from typing import Any

import pytest

import roost
from roost import Inventory
from roost.inventory import reading
from roost.inventory.accelerators import accelerator_kind, register_accelerator
from roost.inventory.nodes import Accelerators, Node


def counts(inventory: Inventory) -> list[tuple[int, str]]:
    return [(node.accelerators.count, node.accelerators.model) for node in inventory.nodes]


# -- shapes ----------------------------------------------------------------------------------------------


def test_a_shape() -> None:
    inventory = Inventory.parse("4x8")
    assert counts(inventory) == [(8, "")] * 4
    assert [node.rank for node in inventory.nodes] == [0, 1, 2, 3]
    assert str(inventory) == "4 nodes, 32 accelerators"
    assert str(Inventory.parse("1x1")) == "1 node, 1 accelerator"


@pytest.mark.parametrize("text", ["1x0:robot", "2x8:A800, 1x0:robot"])
def test_a_model_of_no_accelerators(text: str) -> None:
    with pytest.raises(roost.ConfigurationError) as caught:
        Inventory.parse(text)
    (finding,) = caught.value.findings
    assert finding.code == "RI101"
    assert finding.what == "'1x0:robot' names a model, but a node without accelerators has none"
    assert "write 1x0" in finding.remedy
    assert "a node group with `hardware`" in finding.remedy


def test_a_mixed_shape() -> None:
    inventory = Inventory.parse("2x8:A800,1x4:4090,2x0")
    assert counts(inventory) == [(8, "A800"), (8, "A800"), (4, "4090"), (0, ""), (0, "")]
    assert [node.accelerators.type for node in inventory.nodes] == ["nvidia_gpu"] * 3 + ["none"] * 2
    assert Inventory.parse(" 2X8 : A800 , 1 x 4:4090, 2x0") == inventory


@pytest.mark.parametrize(
    "text",
    [
        "",
        "4",
        "x8",
        "4x",
        "4x8x2",
        "0x8",
        "-1x8",
        "4x8:",
        "4x8,,1x1",
        "٤x8",
        "200001x1",
        "99999999x1",
        "4x8:" + "A" * 41,
    ],
)
def test_no_shape(text: str) -> None:
    with pytest.raises(roost.ConfigurationError) as caught:
        Inventory.parse(text)
    assert caught.value.codes == ("RI101",)
    assert caught.value.findings[0].remedy


def test_uniform() -> None:
    inventory = Inventory.uniform(2, 4, type="ascend_npu", model="910B", memory_gib=64, cpus=96)
    assert inventory.nodes[1] == Node(
        rank=1, cpus=96, accelerators=Accelerators(count=4, type="ascend_npu", model="910B", memory_gib=64)
    )
    for wrong in ((0, 8), (1, -1), ("2", 8), (2, None)):
        with pytest.raises(roost.ConfigurationError):
            Inventory.uniform(*wrong)  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("more", "code"),
    [
        ({"cpus": "a"}, "RC103"),
        ({"cpus": 4.5}, "RC103"),
        ({"cpus": 0}, "RC104"),
        ({"memory_gib": -3}, "RC104"),
        ({"model": 4.5}, "RC103"),
        ({"type": "nvidia"}, "RI101"),
    ],
)
def test_a_uniform_cluster_is_checked_as_a_file_is(more: dict[str, Any], code: str) -> None:
    with pytest.raises(roost.ConfigurationError) as caught:
        Inventory.uniform(2, 4, **more)
    assert caught.value.codes == (code,)


def test_an_accelerator_nobody_registered_can_be_planned_for() -> None:
    inventory = Inventory.from_dict({"nodes": [{"accelerators": {"type": "my_npu", "count": 2}}]})
    place = roost.PackedPlacementStrategy(0, 1).get_placement(inventory)[1]
    assert (place.accelerator_type, place.visible_accelerators) == ("my_npu", ["1"])


def test_a_model_may_be_written_as_a_number() -> None:
    plan = roost.plan({"cluster": {"component_placement": {"a": 0}}}, Inventory.uniform(2, 4, model=4090))
    assert roost.Plan.from_dict(json.loads(json.dumps(plan.to_dict()))) == plan
    assert plan.inventory.nodes[0].accelerators.model == "4090"


# -- dicts and files -------------------------------------------------------------------------------------

DATA = {
    "nodes": [
        {"ip": "10.0.0.1", "cpus": 32, "accelerators": 8},
        {
            "ip": "10.0.0.2",
            "hostname": "b",
            "accelerators": {"type": "amd_gpu", "model": "MI300", "count": 4, "memory_gib": 192},
        },
        {},
    ]
}


def test_a_dict() -> None:
    one, two, three = Inventory.from_dict(DATA).nodes
    assert (one.ip, one.cpus, one.accelerators.count, one.accelerators.type) == (
        "10.0.0.1",
        32,
        8,
        "nvidia_gpu",
    )
    assert two.accelerators == Accelerators(count=4, type="amd_gpu", model="MI300", memory_gib=192.0)
    assert (three.accelerators.count, three.accelerators.type, three.cpus) == (0, "none", None)
    assert [str(node) for node in (one, three)] == ["node 0 (10.0.0.1)", "node 2"]


def test_files(tmp_path: Path) -> None:
    (tmp_path / "i.json").write_text(json.dumps(DATA))
    (tmp_path / "bom.json").write_text("\ufeff" + json.dumps(DATA))
    (tmp_path / "i.yaml").write_text(
        "nodes:\n"
        "  - {ip: 10.0.0.1, cpus: 32, accelerators: 8}\n"
        "  - {ip: 10.0.0.2, hostname: b, accelerators: {type: amd_gpu, model: MI300, count: 4, memory_gib: 192}}\n"
        "  - {}\n"
    )
    expected = Inventory.from_dict(DATA)
    for name in ("i.json", "bom.json", "i.yaml"):
        assert Inventory.load(tmp_path / name) == expected
        assert Inventory.load(str(tmp_path / name)) == expected


@pytest.mark.parametrize(
    ("data", "code"),
    [
        ({}, "RC102"),
        ({"nodes": []}, "RI101"),
        ({"nodes": [{"acelerators": 8}]}, "RC101"),
        ({"nodes": [{"accelerators": -1}]}, "RC104"),
        ({"nodes": [{"accelerators": 5000}]}, "RC104"),
        ({"nodes": [{"accelerators": True}]}, "RC103"),
        ({"nodes": [{"accelerators": {"model": "A"}}]}, "RC102"),
        ({"nodes": [{"accelerators": {"count": 1, "memory_gib": float("nan")}}]}, "RC103"),
        ({"nodes": [{"accelerators": {"count": 1, "memory_gib": 0}}]}, "RC104"),
        ({"nodes": [{"cpus": 0}]}, "RC104"),
        ({"nodes": 3}, "RC103"),
        ({"nodes": [{"ip": ["10.0.0.1"]}]}, "RC103"),
        ({"nodes": [{"accelerators": {"count": 1, "type": "nvidia"}}] * 2}, "RI101"),
        ({"nodes": [{"accelerators": {"count": 1, "type": "none"}}]}, "RI101"),
        ({"nodes": [{}], "format_version": 2}, "RI101"),
        ([], "RI101"),
        (None, "RI101"),
    ],
)
def test_wrong_dicts(data: Any, code: str) -> None:
    with pytest.raises(roost.ConfigurationError) as caught:
        Inventory.from_dict(data)
    assert caught.value.codes == (code,)


@pytest.mark.parametrize(
    ("data", "remedy"),
    [
        ({}, "add `nodes: [{accelerators: 8}]`"),
        ({"nodes": [{"accelerators": {}}]}, "add `count: 8`"),
        ({"nodes": [{"gpus": 8}]}, "did you mean 'accelerators'?"),
        ({"nodes": [{"num_gpus": 8}]}, "did you mean 'accelerators'?"),
        ({"nodes": [{"cpu": 8}]}, "did you mean 'cpus'? known: accelerators, cpus, hostname, ip"),
    ],
)
def test_remedies(data: Any, remedy: str) -> None:
    with pytest.raises(roost.ConfigurationError) as caught:
        Inventory.from_dict(data)
    assert [finding.remedy for finding in caught.value.findings] == [remedy]


def test_wrong_files(tmp_path: Path) -> None:
    file = tmp_path / "i.yaml"
    file.write_text("nodes:\n  - {accelerators: 8, cpu: 4}\n")
    with pytest.raises(roost.ConfigurationError) as caught:
        Inventory.load(file)
    assert "i.yaml:2:23" in str(caught.value)
    assert "did you mean 'cpus'" in str(caught.value)
    broken = tmp_path / "i.json"
    for content in ("{", "[1]", '{"nodes": 1}', "[" * 100_000):
        broken.write_text(content)
        with pytest.raises(roost.ConfigurationError):
            Inventory.load(broken)
    with pytest.raises(roost.ConfigurationError, match="cannot be read"):
        Inventory.load(tmp_path / "missing.json")


def loading(file: Path, content: str) -> str:
    file.write_text(content)
    with pytest.raises(roost.ConfigurationError) as caught:
        Inventory.load(file)
    return str(caught.value)


def test_problems_in_json_are_placed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    file = tmp_path / "i.json"
    said = loading(file, '{"nodes": [\n {"accelerators": 8},\n {"acelerators": 8}\n]}')
    assert f"{file}:3:3" in said
    assert "did you mean 'accelerators'" in said
    assert f"{file}:1:15" in loading(file, '{"nodes": [], "nodes": [{}]}')
    monkeypatch.setattr("roost.inventory.reading.MAX_PLACED", 10)
    said = loading(file, '{"nodes": [\n\t{"acelerators": 8}\n]}')
    assert f"{file}:1:1" in said
    assert "nodes[0].acelerators: unknown key 'acelerators'" in said


def test_a_key_written_twice_is_refused(tmp_path: Path) -> None:
    assert "'cpus' is written twice" in loading(tmp_path / "i.json", '{"nodes": [{"cpus": 1, "cpus": 2}]}')


def test_a_list_is_told_what_an_inventory_is(tmp_path: Path) -> None:
    for name in ("i.yaml", "i.json"):
        said = loading(tmp_path / name, "[1]")
        assert "an inventory is a mapping with `nodes`" in said
        assert "cluster:" not in said


@pytest.mark.parametrize("name", ["i.yaml", "i.json"])
def test_only_regular_files_are_read(tmp_path: Path, name: str) -> None:
    os.mkfifo(tmp_path / "pipe")
    (tmp_path / name).symlink_to("pipe")
    with pytest.raises(roost.ConfigurationError, match="it is not a regular file"):
        Inventory.load(tmp_path / name)


def test_a_node_without_accelerators_may_say_none() -> None:
    held = {"count": 0, "type": "none"}
    assert Inventory.from_dict({"nodes": [{"accelerators": held}]}) == Inventory.parse("1x0")


# -- values ----------------------------------------------------------------------------------------------

GROUPS = [
    {"label": "b", "node_ranks": "1-2"},
    {
        "label": "arms",
        "node_ranks": [0, 2],
        "hardware": {"type": "Arm", "configs": [{"node_rank": 2}, {"node_rank": 0}]},
    },
    {"label": "cpu", "node_ranks": 0, "ignore_hardware": True},
]


def test_an_inventory_cannot_be_changed() -> None:
    plain = Inventory.parse("3x2")
    inventory = plain.grouped(GROUPS)
    assert plain.groups == {}
    with pytest.raises(AttributeError):
        inventory.nodes = ()  # type: ignore[misc]
    with pytest.raises(TypeError):
        inventory.groups["x"] = inventory.groups["b"]  # type: ignore[index]
    with pytest.raises(AttributeError):
        inventory.nodes[0].rank = 3  # type: ignore[misc]
    source = dict(inventory.groups)
    copy = Inventory(nodes=inventory.nodes, groups=source)
    source.clear()
    assert copy == inventory


def test_inventories_hash_and_pickle() -> None:
    inventory = Inventory.parse("3x2").grouped(GROUPS)
    again = pickle.loads(pickle.dumps(inventory))
    assert again == inventory
    assert hash(again) == hash(inventory)
    assert inventory != Inventory.parse("3x2")


def test_a_limited_inventory_keeps_what_lies_on_its_nodes() -> None:
    inventory = Inventory.parse("3x2").grouped(GROUPS)
    assert inventory.limited(3) is inventory
    two = inventory.limited(2)
    assert {label: group.node_ranks for label, group in two.groups.items()} == {
        "b": (1,),
        "arms": (0,),
        "cpu": (0,),
    }
    assert [unit.node_rank for unit in two.groups["arms"].hardware] == [0]
    assert "b" not in inventory.limited(1).groups


# -- what ranks count ------------------------------------------------------------------------------------


def slots(inventory: Inventory, labels: Any) -> list[tuple[int, str, int, int]]:
    resources = inventory.resources(labels)
    return [(slot.node.rank, slot.kind, slot.first, slot.count) for slot in resources.slots]


def test_ranks_count_accelerators_hardware_or_nodes() -> None:
    inventory = Inventory.parse("2x2,1x0").grouped(GROUPS)
    assert (
        slots(inventory, None)
        == slots(inventory, "cluster")
        == [(0, "accelerator", 0, 2), (1, "accelerator", 2, 2)]
    )
    assert slots(inventory, "node") == [(0, "node", 0, 1), (1, "node", 1, 1), (2, "node", 2, 1)]
    assert slots(inventory, "b") == [(1, "accelerator", 0, 2)]
    assert slots(inventory, "arms") == [(0, "Arm", 0, 1), (2, "Arm", 1, 1)]
    assert slots(inventory, "cpu") == [(0, "node", 0, 1)]
    assert slots(inventory, ["b", "arms"]) == [(1, "accelerator", 0, 2), (0, "Arm", 2, 1), (2, "Arm", 3, 1)]
    assert slots(inventory, "arms, b")[-1] == (1, "accelerator", 2, 2)
    bare = Inventory.parse("2x0")
    assert slots(bare, None) == [(0, "node", 0, 1), (1, "node", 1, 1)]


def test_every_rank_is_found_in_its_slot() -> None:
    resources = Inventory.parse("1x3,1x0,2x2").resources()
    owners = [resources.slot_of(rank).node.rank for rank in range(resources.total)]
    assert owners == [0, 0, 0, 2, 2, 3, 3]


def test_unknown_groups() -> None:
    inventory = Inventory.parse("3x2").grouped(GROUPS)
    with pytest.raises(roost.ConfigurationError, match="did you mean 'arms'"):
        inventory.resources("arm")


def test_how_resources_are_described() -> None:
    inventory = Inventory.parse("2x2,1x0").grouped(GROUPS)
    assert [str(inventory.resources(label)) for label in (None, "arms", "b,arms", "node", "cpu")] == [
        "the cluster has 4 accelerators (0-3)",
        "group arms has 2 Arms (0-1)",
        "groups b and arms together have 4 resources (0-3)",
        "the cluster has 3 nodes (0-2)",
        "group cpu has 1 node (0)",
    ]


# -- kinds of accelerators -------------------------------------------------------------------------------


def test_known_accelerators() -> None:
    variables = {
        name: accelerator_kind(name).visible_variable for name in ("nvidia_gpu", "amd_gpu", "ascend_npu")
    }
    assert variables == {
        "nvidia_gpu": "CUDA_VISIBLE_DEVICES",
        "amd_gpu": "HIP_VISIBLE_DEVICES",
        "ascend_npu": "ASCEND_RT_VISIBLE_DEVICES",
    }
    assert str(roost.AcceleratorType.NV_GPU) == "nvidia_gpu"
    with pytest.raises(roost.ConfigurationError, match="did you mean 'nvidia_gpu'"):
        accelerator_kind("nvidia_gpus")


def test_registering_an_accelerator() -> None:
    kind = register_accelerator("test_tpu", visible_variable="TPU_VISIBLE_CHIPS", ray_resource="TPU")
    assert accelerator_kind("test_tpu") is kind
    assert register_accelerator("test_tpu", visible_variable="TPU_VISIBLE_CHIPS", ray_resource="TPU") == kind
    nodes = [{"accelerators": {"count": 1, "type": "test_tpu"}}]
    assert Inventory.from_dict({"nodes": nodes}).nodes[0].accelerators.type == "test_tpu"
    with pytest.raises(roost.ConfigurationError, match="already registered"):
        register_accelerator("test_tpu", visible_variable="OTHER")


# -- size ------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", ["big.json", "big.yaml"])
def test_files_are_bounded(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, name: str) -> None:
    monkeypatch.setattr(reading, "MAX_FILE_BYTES", 10)
    (tmp_path / name).write_text('{"nodes": [{"accelerators": 8}]}')
    with pytest.raises(roost.ConfigurationError) as caught:
        Inventory.load(tmp_path / name)
    assert caught.value.codes == ("RC004",)
