"""Node groups: how their nodes, hardware and environments are written and read."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import pytest
from pydantic import BaseModel, Field

import roost
from roost import Inventory
from roost.config.document import parse
from roost.inventory.group_reading import build_groups

CLUSTER = Inventory.parse("4x2")


def group(**config: Any) -> roost.NodeGroup:
    return CLUSTER.grouped([{"label": "g", "node_ranks": "all", **config}]).groups["g"]


def codes(*groups: dict[str, Any]) -> tuple[str, ...]:
    with pytest.raises(roost.ConfigurationError) as caught:
        CLUSTER.grouped(groups)
    return caught.value.codes


@pytest.mark.parametrize(
    ("written", "ranks"),
    [
        (0, (0,)),
        ("2", (2,)),
        ("0-1", (0, 1)),
        ("0,2-3", (0, 2, 3)),
        ("3,1", (1, 3)),
        ([3, 0], (0, 3)),
        (["0-1", 3], (0, 1, 3)),
        ("all", (0, 1, 2, 3)),
        (["all"], (0, 1, 2, 3)),
        (" 0 - 1 , 3 ", (0, 1, 3)),
    ],
)
def test_node_ranks(written: Any, ranks: tuple[int, ...]) -> None:
    assert group(node_ranks=written).node_ranks == ranks


@pytest.mark.parametrize(
    ("written", "code"),
    [
        (4, "RI104"),
        ("2-9", "RI104"),
        ("0,0", "RI109"),
        ([1, "0-1"], "RI109"),
        ([], "RL101"),
        ("", "RL101"),
        ("x", "RL101"),
        ("1-0", "RL102"),
        (-1, "RL101"),
        (None, "RC103"),
        (1.5, "RC103"),
        ({"a": 1}, "RC103"),
        ([[0]], "RC103"),
    ],
)
def test_wrong_node_ranks(written: Any, code: str) -> None:
    assert codes({"label": "g", "node_ranks": written}) == (code,)


@pytest.mark.parametrize("node_group", ["a,b", "a, b", ["a", "b"], ["a,b"], [" a", "b "]])
def test_ways_to_name_groups(node_group: Any) -> None:
    job = {
        "cluster": {
            "component_placement": {"w": {"node_group": node_group, "placement": "all"}},
            "node_groups": [{"label": "a", "node_ranks": 3}, {"label": "b", "node_ranks": 0}],
        }
    }
    component = roost.plan(job, CLUSTER).components["w"]
    assert component.node_groups == ("a", "b")
    assert component.nodes == [3, 0]


def test_labels_may_be_numbers() -> None:
    job = {
        "cluster": {
            "component_placement": {"w": {"node_group": 4090, "placement": 0}},
            "node_groups": [{"label": 4090, "node_ranks": 1}],
        }
    }
    assert roost.plan(job, CLUSTER).components["w"].placements[0].node_group_label == "4090"


@pytest.mark.parametrize("label", ["cluster", "node"])
def test_reserved_labels(label: str) -> None:
    assert codes({"label": label, "node_ranks": 0}) == ("RI102",)


@pytest.mark.parametrize("label", ["a b", "", "ä", "a/b", "x" * 65, "a,b"])
def test_labels_that_are_no_names(label: str) -> None:
    assert codes({"label": label, "node_ranks": 0}) == ("RC105",)


def test_every_problem_of_every_group_is_reported() -> None:
    found = codes(
        {"label": "node", "node_ranks": 0},
        {"label": "a", "node_ranks": 9},
        {"label": "b", "node_ranks": 0, "env_configs": [{"node_ranks": 1}]},
        {"label": "b", "node_ranks": 0},
    )
    assert found == ("RI102", "RI104", "RI105", "RI102")


def test_offline_only_what_does_not_depend_on_the_cluster_is_checked() -> None:
    from roost.config.job import read_job

    text = "cluster: {component_placement: {a: 0}, node_groups: [{label: x, node_ranks: 900}, {label: x, node_ranks: all}]}"
    job, findings = read_job(parse(text))
    _, more = build_groups(job.groups, None, job.document)
    assert findings == []
    assert [finding.code for finding in more] == ["RI102"]


# -- environments ----------------------------------------------------------------------------------------


def test_environments() -> None:
    inventory = CLUSTER.grouped(
        [
            {
                "label": "g",
                "node_ranks": "0-2",
                "env_configs": [
                    {"node_ranks": "all", "env_vars": {"A": "1", "B": 2}},
                    {"node_ranks": 1, "env_vars": [{"C": "x"}, {"D": 1.5}], "python_interpreter_path": "/py"},
                ],
            }
        ]
    )
    here = inventory.environment("g", 1)
    assert dict(here.env_vars) == {"A": "1", "B": "2", "C": "x", "D": "1.5"}
    assert here.python_interpreter_path == "/py"
    assert dict(inventory.environment("g", 0).env_vars) == {"A": "1", "B": "2"}
    assert inventory.environment("g", 3).env_vars == ()
    assert inventory.environment("cluster", 1).env_vars == ()


def test_one_variable_may_differ_from_node_to_node() -> None:
    env = [{"node_ranks": node, "env_vars": {"IFNAME": f"eth{node}"}} for node in range(4)]
    inventory = CLUSTER.grouped([{"label": "g", "node_ranks": "all", "env_configs": env}])
    assert [dict(inventory.environment("g", node).env_vars) for node in range(4)] == [
        {"IFNAME": f"eth{node}"} for node in range(4)
    ]


def test_one_node_may_be_in_groups_with_different_environments() -> None:
    groups = [
        {"label": label, "node_ranks": 0, "env_configs": [{"node_ranks": 0, "env_vars": {"A": label}}]}
        for label in ("x", "y")
    ]
    inventory = CLUSTER.grouped(groups)
    assert [dict(inventory.environment(label, 0).env_vars) for label in ("x", "y")] == [
        {"A": "x"},
        {"A": "y"},
    ]


@pytest.mark.parametrize(
    "variables",
    [
        [{"A": 1}, {"A": 2}],
        [{"A": 1, "B": 2}],
        {"A": None},
        {"A": [1]},
        {"A": {"b": 1}},
        {"": 1},
        {"A=B": 1},
        {"A": "x\0y"},
        "A=1",
        3,
        ["A=1"],
        [["A", 1]],
    ],
)
def test_wrong_variables(variables: Any) -> None:
    env = [{"node_ranks": 0, "env_vars": variables}]
    assert len(codes({"label": "g", "node_ranks": 0, "env_configs": env})) == 1


def test_two_values_on_one_node_clash() -> None:
    env = [{"node_ranks": "0-1", "env_vars": {"A": 1}}, {"node_ranks": "1-2", "env_vars": {"A": 2}}]
    assert codes({"label": "g", "node_ranks": "all", "env_configs": env}) == ("RI106",)


def test_the_same_value_twice_is_no_clash() -> None:
    env = [{"node_ranks": "all", "env_vars": {"A": 1}}, {"node_ranks": 0, "env_vars": {"A": "1"}}]
    assert len(group(env_configs=env).environments) == 2


# -- hardware --------------------------------------------------------------------------------------------


def test_hardware_is_numbered_by_node_and_listing() -> None:
    configs = [{"node_rank": 2, "id": "c"}, {"node_rank": 0, "id": "a"}, {"node_rank": 2, "id": "d"}]
    units = group(hardware={"type": "Arm", "configs": configs}).hardware
    assert [(unit.node_rank, dict(unit.fields)["id"]) for unit in units] == [(0, "a"), (2, "c"), (2, "d")]


def test_ignored_hardware_makes_bare_nodes() -> None:
    ignored = group(hardware={"type": "Arm", "configs": [{"node_rank": 0}]}, ignore_hardware=True)
    assert ignored.hardware_type is None
    job = {
        "cluster": {
            "component_placement": {"w": {"node_group": "g", "placement": "0-3"}},
            "node_groups": [{"label": "g", "node_ranks": "all", "ignore_hardware": True}],
        }
    }
    placements = roost.plan(job, CLUSTER).components["w"].placements
    assert [place.cluster_node_rank for place in placements] == [0, 1, 2, 3]
    assert all(place.local_hardware_ranks == [] for place in placements)


@pytest.mark.parametrize(
    ("hardware", "code"),
    [
        ({"type": "Arm", "configs": [{}]}, "RI107"),
        ({"type": "Arm", "configs": [{"node_rank": "0"}]}, "RI107"),
        ({"type": "Arm", "configs": [{"node_rank": True}]}, "RI107"),
        ({"type": "Arm", "configs": [{"node_rank": -1}]}, "RI107"),
        ({"type": "Arm", "configs": [{"node_rank": 3}]}, "RI105"),
        ({"type": "Arm", "configs": [{"node_rank": 0, "gain": float("nan")}]}, "RI107"),
        ({"type": "Arm", "configs": {"node_rank": 0}}, "RC103"),
        ({"type": ""}, "RC103"),
        ({"configs": []}, "RC102"),
        ("Arm", "RC103"),
    ],
)
def test_wrong_hardware(hardware: Any, code: str) -> None:
    assert codes({"label": "g", "node_ranks": "0-2", "hardware": hardware}) == (code,)


def arm(label: str, *entries: dict[str, Any], kind: str = "Arm", **config: Any) -> dict[str, Any]:
    hardware = {"type": kind, "configs": [{"node_rank": 0, **entry} for entry in entries]}
    return {"label": label, "node_ranks": 0, "hardware": hardware, **config}


def test_a_robot_listed_twice_is_a_warning(caplog: pytest.LogCaptureFixture) -> None:
    entries = {"ip": "a", "port": 1}, {"ip": "b", "port": 1}, {"port": 1, "ip": "a"}
    job = {
        "cluster": {
            "component_placement": {"env": {"node_group": "g", "placement": "0-2"}},
            "node_groups": [arm("g", *entries)],
        }
    }
    planned = roost.plan(job, "1x0")
    (warning,) = planned.findings
    assert (warning.code, warning.severity) == ("RW111", "warning")
    assert warning.path == ("cluster", "node_groups", 0, "hardware", "configs", 2)
    assert "entries 0 and 2 are the same" in warning.why
    assert len(CLUSTER.grouped([arm("g", *entries)]).groups["g"].hardware) == 3
    assert "RW111" in caplog.text


def test_one_robot_in_two_groups_is_an_error_that_names_both() -> None:
    with pytest.raises(roost.ConfigurationError) as caught:
        CLUSTER.grouped([arm("left", {"ip": "a"}), arm("right", {"ip": "b"}, {"ip": "a"})])
    (problem,) = caught.value.findings
    assert problem.code == "RI110"
    assert "'left'" in problem.what
    assert "'right'" in problem.what
    assert problem.path[-4:] == (1, "hardware", "configs", 1)


@pytest.mark.parametrize(
    "groups",
    [
        [arm("x", {}, {}), arm("y", {})],
        [arm("x", {"ip": "a"}), arm("y", {"ip": "b"})],
        [arm("x", {"ip": "a"}), arm("y", {"ip": "a"}, kind="Leg")],
        [arm("x", {"ip": "a"}), arm("y", {"ip": "a"}, ignore_hardware=True)],
        [arm("x", {"ip": "a"}), {**arm("y", {"ip": "a", "node_rank": 1}), "node_ranks": 1}],
    ],
    ids=["no fields", "other fields", "another type", "ignored", "another node"],
)
def test_hardware_that_is_not_the_same(
    groups: list[dict[str, Any]], caplog: pytest.LogCaptureFixture
) -> None:
    assert len(CLUSTER.grouped(groups).groups) == 2
    assert not caplog.text


class FrankaModel(BaseModel):
    robot_ip: str
    port: int = Field(default=9090, ge=1, le=65535)


@dataclass
class GripperClass:
    node_rank: int
    width: float
    name: str = ""


class Grumpy(BaseModel):
    x: int

    def model_post_init(self, context: Any) -> None:
        raise KeyError("a validator that breaks")


def problems(kind: str, **entry: Any) -> list[str]:
    try:
        CLUSTER.grouped(
            [
                {
                    "label": "g",
                    "node_ranks": 0,
                    "hardware": {"type": kind, "configs": [{"node_rank": 0, **entry}]},
                }
            ]
        )
    except roost.ConfigurationError as error:
        return [finding.what.split(": ", 2)[2] for finding in error.findings if finding.code == "RI107"]
    return []


def test_a_registered_pydantic_model() -> None:
    roost.register_hardware("TestFranka", FrankaModel)
    roost.register_hardware("TestFranka", FrankaModel)  # again is fine
    assert problems("TestFranka", robot_ip="10.0.0.1", port=80) == []
    assert problems("TestFranka", robot_op="10.0.0.1") == ["unknown field 'robot_op'"]
    assert problems("TestFranka") == ["robot_ip is missing"]
    assert problems("TestFranka", robot_ip="x", port=0) == [
        "port: Input should be greater than or equal to 1"
    ]
    assert problems("Unregistered", anything=[1, {"a": None}]) == []


def test_a_registered_dataclass() -> None:
    roost.register_hardware("TestGripper", GripperClass)
    assert problems("TestGripper", width=0.5) == []
    assert problems("TestGripper", width="wide", colour=1) == [
        "unknown field 'colour'",
        "width: Input should be a valid number, unable to parse string as a number",
    ]


def test_a_type_is_registered_once() -> None:
    roost.register_hardware("TestOnce", FrankaModel)
    with pytest.raises(roost.ConfigurationError, match="already registered"):
        roost.register_hardware("TestOnce", GripperClass)
    with pytest.raises(roost.ConfigurationError, match="cannot be used"):
        roost.register_hardware("TestNothing", object())


def test_a_schema_that_breaks_is_a_finding() -> None:
    roost.register_hardware("TestGrumpy", Grumpy)
    assert problems("TestGrumpy", x=1) == ["its schema raised KeyError"]


# -- corners ---------------------------------------------------------------------------------------------


def test_groups_end_with_the_first_nodes() -> None:
    arms = {"type": "Arm", "configs": [{"node_rank": 0}, {"node_rank": 2}]}
    env = [{"node_ranks": "1-2", "env_vars": {"A": 1}}]
    groups = [
        {"label": "both", "node_ranks": "0-2", "env_configs": env, "hardware": arms},
        {"label": "late", "node_ranks": 2},
    ]
    inventory = Inventory.parse("3x8").grouped(groups).limited(2)
    assert list(inventory.groups) == ["both"]
    both = inventory.groups["both"]
    assert both.node_ranks == (0, 1)
    assert [unit.node_rank for unit in both.hardware] == [0]
    assert [env.node_ranks for env in both.environments] == [(1,)]


def test_the_nodes_of_all_groups_are_bounded() -> None:
    inventory = Inventory.uniform(16_384, 1)
    groups = [{"label": f"g{n}", "node_ranks": "all"} for n in range(130)]
    env = [{"node_ranks": "all", "env_vars": {f"V{n}": 1 for n in range(130)}}]
    for wrong in (groups, [{**groups[0], "env_configs": env}]):
        with pytest.raises(roost.ConfigurationError) as caught:
            inventory.grouped(wrong)
        assert caught.value.codes == ("RL106",)
    assert len(inventory.grouped(groups[:122]).groups) == 122


@pytest.mark.parametrize(
    ("group", "says"),
    [
        (
            {"node_ranks": "0-8", "hardware": {"type": "Arm", "configs": [{"node_rank": 9}]}},
            "its nodes are 0, 1, 2, 3, 4, 5, 6, 7, ...",
        ),
        ({"node_ranks": "0-1", "env_configs": [{"node_ranks": 2}]}, "its nodes are 0, 1"),
        (
            {"node_ranks": 0, "hardware": {"type": "Arm", "configs": [{"node_rank": "two"}]}},
            "node group 'g': the node_rank of a Arm must be the number of a node",
        ),
    ],
)
def test_what_is_said_about_a_group(group: dict[str, Any], says: str) -> None:
    with pytest.raises(roost.ConfigurationError) as caught:
        Inventory.parse("10x1").grouped([{"label": "g", **group}])
    (finding,) = caught.value.findings
    assert says in (finding.what, finding.why)
