"""The plan as a value, what it advises, and the file it is saved in."""

from __future__ import annotations

import json
import os
import socket
import stat
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

import roost
from roost import Inventory, load_plan, save_plan
from roost.config.document import parse
from roost.config.job import read_job
from roost.planning.explanation import explain
from roost.planning.planner import plan_one
from roost.planning.saved_format import Damage, from_plain_data

CANARY = "canary-5a1f"
SECRETIVE = f"""
cluster:
  component_placement:
    actor: {{node_group: g, placement: 0-3}}
    env: {{node_group: arms, placement: 0}}
  node_groups:
    - label: g
      node_ranks: 0
      env_configs:
        - node_ranks: 0
          env_vars: {{HF_TOKEN: {CANARY}, PLAIN: visible, TOKENIZERS_PARALLELISM: "false"}}
    - label: arms
      node_ranks: 0
      hardware: {{type: Arm, configs: [{{node_rank: 0, password: {CANARY}, ip: 10.0.0.9}}]}}
"""


def planned(placement: Any, shape: str | Inventory = "2x8", **cluster: Any) -> roost.Plan:
    inventory = Inventory.parse(shape) if isinstance(shape, str) else shape
    rules = placement if isinstance(placement, dict) else {"w": placement}
    return roost.plan({"cluster": {"component_placement": rules, **cluster}}, inventory)


def advice(plan: roost.Plan) -> dict[str, str]:
    return {finding.code: finding.what for finding in plan.findings}


# -- a value ---------------------------------------------------------------------------------------------


def test_a_shape_is_an_inventory() -> None:
    job = {"cluster": {"component_placement": {"actor": "0-15"}}}
    assert roost.plan(job, "2x8") == roost.plan(job, Inventory.parse("2x8"))
    layout = roost.Layout(colocate=True)
    assert roost.plan(layout, "2x8") == roost.plan(layout, Inventory.parse("2x8"))
    assert len(roost.PackedPlacementStrategy(0, 3).get_placement("1x4")) == 4


@pytest.mark.parametrize(
    ("inventory", "code", "says"),
    [
        (None, "RC103", "None is neither a cluster nor an inventory"),
        ({"api_key": "canary"}, "RC103", "a value of type dict is neither a cluster nor an inventory"),
        ("two nodes", "RI101", "'two nodes'"),
    ],
)
@pytest.mark.parametrize("job", [roost.Layout(colocate=True), {"cluster": {"component_placement": {"a": 0}}}])
def test_what_is_no_inventory(job: Any, inventory: Any, code: str, says: str) -> None:
    with pytest.raises(roost.ConfigurationError) as caught:
        roost.plan(job, inventory)
    assert caught.value.codes == (code,)
    assert says in str(caught.value)
    assert "canary" not in str(caught.value)


def test_a_plan_cannot_be_changed() -> None:
    plan = planned("0-3")
    with pytest.raises(AttributeError):
        plan.inventory = Inventory.parse("1x1")  # type: ignore[misc]
    with pytest.raises(TypeError):
        plan.components["x"] = plan.components["w"]  # type: ignore[index]
    for part in (plan.occupancy, plan.shared, plan.charges, plan.shares):
        assert not hasattr(part, "clear")
    plan.components["w"].placements.clear()  # a copy
    assert plan.components["w"].world_size == 4


def test_equal_plans_hash_alike() -> None:
    one, two = planned("0-3"), planned(" 0 - 3 ")
    assert one == two
    assert len({one, two}) == 1
    assert one != planned("0-4")


def test_the_digest_tells_decisions_not_words() -> None:
    base = planned("0-3")
    assert base.digest.startswith("sha256:")
    assert planned("0-1,2-3").digest == planned("0-3:0-3").digest == base.digest
    assert planned("1-4").digest != base.digest
    assert planned("0-3", "3x8").digest != base.digest
    assert planned({"x": "0-3"}).digest != base.digest


def test_sharing_and_idling() -> None:
    plan = planned({"a": "0-1:0-3", "b": "1-2"}, "1x4")
    on = {device.number: [tuple(use) for use in uses] for device, uses in plan.occupancy.items()}
    assert on == {0: [("a", 2)], 1: [("a", 2), ("b", 1)], 2: [("b", 1)]}
    assert sorted(device.number for device in plan.shared) == [0, 1]
    assert [str(device) for device in plan.idle] == ["node 0 accelerator 3"]


# -- advice ----------------------------------------------------------------------------------------------


def test_a_quiet_plan_says_nothing() -> None:
    assert planned("all").findings == ()


def test_uneven_nodes() -> None:
    plan = planned({"agent": {"node_group": "node", "placement": "0-1:0-2"}}, "2x0")
    assert advice(plan) == {"RW101": "agent: 3 processes over 2 nodes are uneven"}
    assert plan.findings[0].why == "the first node takes 2, the rest 1"


def test_idle_accelerators() -> None:
    plan = planned("0-3", "3x8")
    assert advice(plan) == {"RW102": "20 of 24 accelerators are idle"}
    assert plan.findings[0].why == "node 0: 4-7; nodes 1-2: 0-7"


def test_mixed_models() -> None:
    plan = planned("all", "2x8:A800,1x1:4090")
    assert advice(plan) == {
        "RW103": "w: its processes sit on different accelerators (16 on A800, 1 on 4090); rank 16 is alone on 4090"
    }


def test_more_processes_than_cpus() -> None:
    plan = planned("0-3:0-7", Inventory.uniform(1, 4, cpus=6))
    assert advice(plan) == {"RW104": "more processes than CPUs"}
    assert plan.findings[0].why == "node 0: 8 processes, 6 CPUs"


def seams(plan: roost.Plan) -> list[roost.Finding]:
    return [finding for finding in plan.findings if finding.code == "RW108"]


@pytest.mark.parametrize(
    ("rules", "what", "remedy"),
    [
        (
            {"actor": "0-8", "rollout": "8-15"},
            "actor (0-8) and rollout (8-15) share accelerator 8 and nothing else",
            "0-7 and 8-15, or 0-8 and 9-15, would be apart",
        ),
        (
            {"rollout": "8-15", "env,actor": "0-4:0-4,5-9:5-9"},
            "env, actor (0-9) and rollout (8-15) share accelerators 8-9 and nothing else",
            "0-7 and 8-15, or 0-9 and 10-15, would be apart",
        ),
        (
            {"actor": {"node_group": "cluster", "placement": "0-3"}, "rollout": "3-15:0-12"},
            "actor (0-3) and rollout (3-15) share accelerator 3 and nothing else",
            "0-2 and 3-15, or 0-3 and 4-15, would be apart",
        ),
    ],
)
def test_ranges_that_meet_in_one_accelerator(rules: Any, what: str, remedy: str) -> None:
    found = seams(planned(rules))
    assert [(finding.what, finding.remedy) for finding in found] == [(what, remedy)]
    assert found[0].path == ("cluster", "component_placement", "rollout")


@pytest.mark.parametrize(
    "rules",
    [
        {"actor": "0-7", "rollout": "8-15"},
        {"actor": "0-8", "rollout": "0-8"},
        {"actor": "0-15", "rollout": "8-15"},
        {"actor": "0-15", "rollout": "15"},
        {"actor": "0-8", "rollout": "8"},  # one inside the other
        {"actor": "all", "rollout": "8-15"},
        {"actor": "0-10", "rollout": "8-15"},  # three of six
        {"actor": "0-2", "rollout": "2-4"},  # a third of each
        {"actor": "0-8", "rollout": "8-11,14-15"},
        {
            "actor": {"node_group": "node", "placement": "0-1:0-7"},
            "rollout": {"node_group": "node", "placement": "1"},
        },
    ],
)
def test_sharing_on_purpose(rules: Any) -> None:
    assert seams(planned(rules)) == []


def test_nodes_and_layouts_have_no_seams() -> None:
    nodes = {
        "a": {"node_group": "node", "placement": "0-4"},
        "b": {"node_group": "node", "placement": "4-8"},
    }
    assert seams(planned(nodes, "9x1")) == []
    rules = {
        "cluster": {"layout": {"actor_num_nodes": 1, "actor_num_gpus_per_node": 8, "rollout_num_gpus": 8}}
    }
    rules["cluster"]["component_placement"] = {"env": "7-10:0-3"}
    assert seams(roost.plan(rules, "2x8")) == []


def test_a_robot_shared_at_a_seam() -> None:
    arms = {"type": "Arm", "configs": [{"node_rank": 0} for _ in range(9)]}
    groups = [{"label": "arms", "node_ranks": 0, "hardware": arms}]
    rules = {
        "a": {"node_group": "arms", "placement": "0-4"},
        "b": {"node_group": "arms", "placement": "4-8"},
        "c": "4-7",  # accelerators, not arms
    }
    plan = planned(rules, "1x8", node_groups=groups)
    assert [finding.what for finding in seams(plan)] == ["a (0-4) and b (4-8) share Arm 4 and nothing else"]


def test_many_seams_are_told_in_part() -> None:
    rules = {f"low{number}": f"{number}-100" for number in range(50)}
    rules |= {f"high{number}": f"100-{number + 150}" for number in range(50)}
    assert len(seams(planned(rules, "1x200"))) == 20


def test_nodes_left_over() -> None:
    plan = planned("all", "3x8", num_nodes=1)
    assert advice(plan) == {"RW105": "the job uses 1 of the cluster's 3 nodes"}


@pytest.mark.parametrize("key", ["profiling", "nsight", "tracer", "auto_scheduler", "recreate_nccl_groups"])
def test_older_keys(key: str) -> None:
    plan = planned("all", **{key: {"anything": [1]}})
    assert advice(plan) == {"RW106": f"`{key}` belongs to the older system and does nothing here"}


def test_advice_is_no_error() -> None:
    plan = planned("0-3", "2x8", num_nodes=1, nsight=1)
    assert {finding.severity for finding in plan.findings} == {"warning"}
    assert {finding.kind for finding in plan.findings} == {"advice"}


# -- saved -----------------------------------------------------------------------------------------------


def test_saving_and_loading(tmp_path: Path) -> None:
    file = tmp_path / "plan.json"
    plan = roost.plan(parse(SECRETIVE), Inventory.parse("1x4:A800"))
    save_plan(plan, file)
    assert load_plan(file) == plan.without_secrets() != plan
    assert load_plan(str(file)).digest == plan.digest
    assert stat.S_IMODE(file.stat().st_mode) == 0o600
    assert json.loads(file.read_text())["format_version"] == 2
    assert os.listdir(tmp_path) == ["plan.json"]  # noqa: PTH208


def test_engines_are_decisions() -> None:
    """One engine of 16 over two nodes and two engines of 8 hold the same accelerators by the same processes."""

    def engines_of(width: int) -> roost.Plan:
        layout = roost.Layout(debug_rollout_only=True, rollout_num_gpus=16, rollout_num_gpus_per_engine=width)
        return roost.plan(layout, "2x8")

    one, two = engines_of(16), engines_of(8)
    assert one.components["rollout"].members == two.components["rollout"].members
    assert [plan.components["rollout"].engines.processes for plan in (one, two)] == [2, 1]  # type: ignore[union-attr]
    assert one.digest != two.digest
    assert one.to_dict() != two.to_dict()
    assert roost.Plan.from_dict(one.to_dict()) == one


def test_a_loaded_plan_is_named_in_its_errors(tmp_path: Path) -> None:
    file = tmp_path / "old.json"
    file.write_text('{"format_version": 1}')
    with pytest.raises(roost.ConfigurationError) as caught:
        load_plan(file)
    assert caught.value.findings[0].what == f"{file}: this is not a saved plan of format 2"
    assert caught.value.findings[0].why == "it is of format 1"


def test_a_plan_knows_the_file_of_its_job(tmp_path: Path) -> None:
    file = tmp_path / "job.yaml"
    file.write_text("cluster: {component_placement: {actor: 0-7}}\n")
    plan = roost.plan(file, "1x8")
    assert plan.job_file == "job.yaml"
    assert roost.Plan.from_dict(plan.to_dict()) == plan
    assert planned("0-3").job_file == ""


def test_saving_replaces_as_a_whole(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    file = tmp_path / "plan.json"
    save_plan(planned("0-3"), file)
    before = file.read_bytes()
    file.chmod(0o644)
    inode = file.stat().st_ino
    save_plan(planned("0-7"), file)
    assert file.stat().st_ino != inode  # by rename, so a reader has the old or the new one
    assert stat.S_IMODE(file.stat().st_mode) == 0o600
    now = file.read_bytes()
    assert now != before

    def full(*_: Any) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(os, "fsync", full)
    with pytest.raises(roost.ConfigurationError, match="No space left"):
        save_plan(planned("0-1"), file)
    assert file.read_bytes() == now
    assert [path.name for path in tmp_path.iterdir()] == ["plan.json"]


def test_places_that_cannot_be_written(tmp_path: Path) -> None:
    (tmp_path / "taken").mkdir()
    os.mkfifo(tmp_path / "pipe")
    (tmp_path / "link").symlink_to("pipe")
    (tmp_path / "loop").symlink_to("loop")
    with socket.socket(socket.AF_UNIX) as server:
        server.bind(os.path.relpath(tmp_path / "socket"))
    before = sorted(path.name for path in tmp_path.iterdir())
    for name in ("no/plan.json", "nul\0name", *before):
        with pytest.raises(roost.ConfigurationError) as caught:
            save_plan(planned("0"), tmp_path / name)
        assert caught.value.codes == ("RS102",)
    assert sorted(path.name for path in tmp_path.iterdir()) == before
    assert stat.S_ISFIFO((tmp_path / "pipe").stat().st_mode)


def test_a_link_stays_and_what_it_points_to_is_written(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "there").mkdir()
    link, file = tmp_path / "link", tmp_path / "there/plan.json"
    link.symlink_to("there/plan.json")
    for rule in ("0-3", "0-7"):
        save_plan(planned(rule), link)
        assert link.is_symlink()
        assert load_plan(file) == planned(rule)
    monkeypatch.setattr(os, "geteuid", lambda: os.getuid() + 1)
    with pytest.raises(roost.ConfigurationError, match="a link of another user's"):
        save_plan(planned("0"), link)
    assert load_plan(file) == planned("0-7")


def test_only_regular_files_are_read(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "pipe")
    with pytest.raises(roost.ConfigurationError, match="it is not a regular file") as caught:
        load_plan(tmp_path / "pipe")
    assert caught.value.codes == ("RS101",)


def test_a_key_written_twice_is_refused(tmp_path: Path) -> None:
    file = tmp_path / "plan.json"
    save_plan(planned("0"), file)
    file.write_text(file.read_text().replace('"rank": 0,', '"rank": 0, "rank": 0,', 1))
    with pytest.raises(roost.ConfigurationError, match="'rank' is written twice"):
        load_plan(file)


@pytest.mark.parametrize(
    "content", ["", "{", "[]", "null", "3", '{"format_version": 2}', "[" * 100_000, "9" * 6000]
)
def test_files_that_are_no_plans(tmp_path: Path, content: str) -> None:
    file = tmp_path / "plan.json"
    file.write_text(content)
    with pytest.raises(roost.ConfigurationError) as caught:
        load_plan(file)
    assert caught.value.codes == ("RS101",)


def test_a_plan_that_is_not_there(tmp_path: Path) -> None:
    with pytest.raises(roost.ConfigurationError, match="cannot be read"):
        load_plan(tmp_path / "plan.json")


def first(plan: dict[str, Any]) -> Any:
    return plan["components"]["w"]["processes"][0]


@pytest.mark.parametrize(
    "damage",
    [
        lambda plan: plan.update(format_version=True),
        lambda plan: plan.update(extra=1),
        lambda plan: plan.pop("nodes"),
        lambda plan: plan["nodes"].reverse(),
        lambda plan: plan["nodes"][0].update(cpus="many"),
        lambda plan: plan["nodes"][0]["accelerators"].update(count=10**9),
        lambda plan: plan["components"].update({"a b": plan["components"]["w"]}),
        lambda plan: plan["components"]["w"].update(rule="7-0"),
        lambda plan: plan["components"]["w"].update(node_groups=["x"]),
        lambda plan: plan["components"]["w"]["processes"].clear(),
        lambda plan: plan["components"]["w"]["processes"].reverse(),
        lambda plan: first(plan).update(rank=1),
        lambda plan: first(plan).update(node=9),
        lambda plan: first(plan).update(node=1),
        lambda plan: first(plan).update(devices=[8]),
        lambda plan: first(plan).update(devices=[1]),
        lambda plan: first(plan).update(devices=[]),
        lambda plan: first(plan).update(devices=[float("inf")]),
        lambda plan: first(plan).update(group="x"),
        lambda plan: first(plan).update(group="node"),
        lambda plan: plan["components"]["w"].update(isolate_accelerator=False),
        lambda plan: plan["components"]["w"].update(
            engines={"processes": 1, "server": "s", "kind": "regular"}
        ),
        lambda plan: plan["components"]["w"].update(
            engines={"processes": 3, "server": "s", "kind": "regular"}
        ),
        lambda plan: plan["components"]["w"].update(placements=[]),
        lambda plan: plan["findings"][0].update(code="XX999"),
        lambda plan: plan["findings"][0].update(what=None),
        lambda plan: plan.update(digest="sha256:0"),
        lambda plan: plan.update(
            node_groups=[
                {
                    "label": "node",
                    "node_ranks": [0],
                    "hardware_type": None,
                    "hardware": [],
                    "ignore_hardware": False,
                    "environments": [],
                }
            ]
        ),
        lambda plan: plan.update(
            node_groups=[
                {
                    "label": "g",
                    "node_ranks": [7],
                    "hardware_type": None,
                    "hardware": [],
                    "ignore_hardware": False,
                    "environments": [],
                }
            ]
        ),
    ],
)
def test_damage_is_noticed(damage: Any) -> None:
    data = planned("0-3").to_dict()
    roost.Plan.from_dict(data)
    damage(data)
    with pytest.raises(roost.ConfigurationError) as caught:
        roost.Plan.from_dict(data)
    assert caught.value.codes == ("RS101",)


@pytest.mark.parametrize(
    "edit",
    [
        lambda plan: plan["nodes"][0].update(ip="10.0.0.66"),
        lambda plan: plan["components"]["w"].update(rule="0-1"),
        lambda plan: plan.update(job_file="other.yaml"),
        lambda plan: plan["node_groups"][0]["environments"][0]["env_vars"].update(LD_PRELOAD="/x.so"),
        lambda plan: plan["node_groups"][0]["environments"][0].update(python_interpreter_path="/x"),
        lambda plan: plan["findings"][0].update(severity="error"),
        lambda plan: plan["findings"].clear(),
        lambda plan: plan.update(checksum="sha256:0"),
        lambda plan: plan.update(checksum=None),
        lambda plan: plan.pop("checksum"),
    ],
)
def test_an_edited_plan_is_refused(edit: Any) -> None:
    settings = [{"node_ranks": 0, "env_vars": {"A": 1}}]
    group = {"label": "g", "node_ranks": 0, "env_configs": settings}
    data = planned({"w": {"node_group": "g", "placement": "0-3"}}, node_groups=[group]).to_dict()
    edit(data)
    with pytest.raises(roost.ConfigurationError, match="checksum") as caught:
        roost.Plan.from_dict(data)
    assert caught.value.codes == ("RS101",)


def test_order_and_spacing_are_no_edits() -> None:
    plan = planned("0-3")
    assert roost.Plan.from_dict(json.loads(json.dumps(plan.to_dict(), sort_keys=True))) == plan


# -- secrets ---------------------------------------------------------------------------------------------


def test_secrets_are_in_the_plan_and_not_where_it_is_saved_or_shown(tmp_path: Path) -> None:
    placed = roost.ComponentPlacement(parse(SECRETIVE), Inventory.parse("1x4"))
    plan = roost.plan(parse(SECRETIVE), Inventory.parse("1x4"))
    for inventory in (placed.inventory, plan.inventory):
        assert dict(inventory.environment("g", 0).env_vars)["HF_TOKEN"] == CANARY
    save_plan(plan, tmp_path / "plan.json")
    variables = dict(load_plan(tmp_path / "plan.json").inventory.environment("g", 0).env_vars)
    assert variables == {"HF_TOKEN": None, "PLAIN": "visible", "TOKENIZERS_PARALLELISM": "false"}
    shown = [
        json.dumps(plan.to_dict()),
        (tmp_path / "plan.json").read_text(),
        repr(plan),
        str(plan),
        repr(plan.inventory),
        repr(plan.inventory.groups),
        repr(placed.inventory.groups["g"]),
    ]
    assert all(CANARY not in text for text in shown)


def test_secrets_do_not_show_in_reprs() -> None:
    placed = roost.ComponentPlacement(parse(SECRETIVE), Inventory.parse("1x4"))
    job, _ = read_job(parse(SECRETIVE))
    for thing in (placed.inventory, placed.plan, job, job.document, job.groups):
        assert CANARY not in repr(thing)


def test_secrets_deep_in_hardware_stay_out() -> None:
    camera = {"node_rank": 0, "camera": {"login": [{"password": CANARY, "user": "me"}]}}
    groups = [{"label": "g", "node_ranks": 0, "hardware": {"type": "Arm", "configs": [camera]}}]
    plan = planned({"w": {"node_group": "g", "placement": 0}}, node_groups=groups)
    assert CANARY not in json.dumps(plan.to_dict())
    assert CANARY not in repr(plan)
    saved = plan.to_dict()["node_groups"][0]["hardware"][0]
    assert saved["camera"] == {"login": [{"password": None, "user": "me"}]}
    assert roost.Plan.from_dict(plan.to_dict()) == plan.without_secrets()


def test_findings_of_a_plan_carry_no_source_text() -> None:
    text = "cluster:\n  nsight: 1\n  component_placement: {agent: {node_group: node, placement: '0-1:0-2'}}\n"
    plan = roost.plan(parse(text, "job.yaml"), Inventory.parse("2x0"))
    spans = [finding.where for finding in plan.findings if finding.where]
    assert [(span.source, span.line, span.excerpt) for span in spans] == [
        ("job.yaml", 2, ""),
        ("job.yaml", 3, ""),
    ]


# -- damage that no checksum would hide ------------------------------------------------------------------


RICH = """
cluster:
  component_placement: {w: {node_group: g, placement: 0-3}, env: {node_group: arms, placement: 0-1}}
  node_groups:
    - {label: g, node_ranks: 0-1, env_configs: [{node_ranks: 0-1, env_vars: {A: 1}}]}
    - {label: arms, node_ranks: 1, hardware: {type: Arm, configs: [{node_rank: 1}, {node_rank: 1}]}}
"""


def deep(levels: int) -> Any:
    return 1 if not levels else [deep(levels - 1)]


@pytest.mark.parametrize(
    "damage",
    [
        *(
            lambda plan, ranks=ranks: plan["node_groups"][0].update(node_ranks=ranks)
            for ranks in ([1, 0], [0, 0, 1], [0, 1, 2], [1])
        ),
        lambda plan: plan["node_groups"][0]["environments"][0].update(node_ranks=[2]),
        lambda plan: plan["node_groups"].append(plan["node_groups"][0]),
        *(
            lambda plan, unit=unit: plan["node_groups"][1]["hardware"].append(unit)
            for unit in (
                *({}, {"node_rank": 0}, {"node_rank": 1.0}),
                *(
                    {"node_rank": 1, "x": value}
                    for value in (
                        float("nan"),
                        [float("nan")],
                        {1: 1},
                        {"a": 1, 2: 1},
                        10**18,
                        object(),
                        deep(60),
                    )
                ),
            )
        ),
        *(
            lambda plan, change=change: first(plan).update(change)
            for change in (
                *({"devices": ranks} for ranks in ([8], [1, 0], [0, 0])),
                *({"node": 2}, {"group": "x"}, {"more": 1}),
                *({"group": label} for label in ("arms", "cluster", "node")),
            )
        ),
    ],
)
def test_damage_is_noticed_whatever_the_digest(damage: Any) -> None:
    data = roost.plan(parse(RICH), "2x8").to_dict()
    from_plain_data(data)
    damage(data)
    with pytest.raises(Damage):
        from_plain_data(data)


def test_a_strategy_for_bare_nodes_is_explained_where_only_some_have_accelerators() -> None:
    plan = plan_one("w", roost.NodePlacementStrategy([0, 1]), roost.Inventory.parse("1x2,1x0"))
    counting = ("the cluster has 2 nodes (0-1)", "process 1 has rank 1: node 1")
    assert explain(plan, "w", 1).counting == counting


def job(rules: Any, **cluster: Any) -> dict[str, Any]:
    return {"cluster": {"component_placement": rules, **cluster}}


def test_mixed_models_do_not_matter_to_robots() -> None:
    arms = {"type": "Arm", "configs": [{"node_rank": 0}, {"node_rank": 1}]}
    groups = [{"label": "arms", "node_ranks": "0-1", "hardware": arms}]
    rules = {"w": {"node_group": "arms", "placement": "0-1"}}
    plan = roost.plan(job(rules, node_groups=groups), "1x8:A800,1x8:4090")
    assert [finding.code for finding in plan.findings] == ["RW102"]


@pytest.mark.parametrize(("cpus", "codes"), [(8, []), (7, ["RW104"]), (None, [])])
def test_as_many_processes_as_cpus_are_fine(cpus: int | None, codes: list[str]) -> None:
    plan = roost.plan(job({"w": "all"}), Inventory.uniform(1, 8, cpus=cpus))
    assert [finding.code for finding in plan.findings] == codes


def test_a_plan_and_an_inventory_keep_their_own_tables() -> None:
    plan = roost.plan(job({"w": "0-3"}, node_groups=[{"label": "g", "node_ranks": 0}]), "2x8")
    components, groups, shares = dict(plan.components), dict(plan.inventory.groups), {"w": 0.5}
    inventory = Inventory(nodes=list(plan.inventory.nodes), groups=groups)  # type: ignore[arg-type]
    again = roost.Plan(inventory=inventory, components=components, shares=shares)
    assert hash(inventory) == hash(plan.inventory)
    for table in (components, groups, shares):
        table.clear()
    assert (list(again.components), list(inventory.groups), dict(again.shares)) == (["w"], ["g"], {"w": 0.5})


def test_a_format_of_thousands_of_digits() -> None:
    with pytest.raises(roost.ConfigurationError, match="it is of format a number of many digits"):
        roost.Plan.from_dict({"format_version": 10**5000})


@pytest.mark.parametrize("change", [{"isolate_accelerator": False}, {"visible": ("1", "0")}])
def test_a_plan_that_could_not_be_loaded_is_not_saved(change: dict[str, Any], tmp_path: Path) -> None:
    class Strategy:
        def get_placement(self, inventory: Inventory, isolate_accelerator: bool) -> list[roost.Placement]:
            usual = roost.PackedPlacementStrategy(0, 3).get_placement(inventory, isolate_accelerator)
            return [replace(usual[0], **change), *usual[1:]]

    plan, file = plan_one("own", Strategy(), Inventory.parse("1x4")), tmp_path / "plan.json"
    with pytest.raises(roost.ConfigurationError, match="the placements of 'own' cannot be saved") as caught:
        save_plan(plan, file)
    assert (caught.value.codes, file.exists()) == (("RS102",), False)


@pytest.mark.parametrize("isolate_accelerator", [True, False])
def test_plans_of_strategies_are_saved(isolate_accelerator: bool) -> None:
    strategy = roost.PackedPlacementStrategy(0, 3)
    plan = plan_one("own", strategy, Inventory.parse("1x4"), isolate_accelerator)
    assert roost.Plan.from_dict(plan.to_dict()) == plan
