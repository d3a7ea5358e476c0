"""How much of an accelerator each component is charged."""

from __future__ import annotations

import json
import pickle
from typing import Any

import pytest

import roost
from roost import EngineGroup, Inventory, Layout, Server
from roost.placement.placement import Device
from roost.planning.occupancy import Use
from roost.planning.shares import charge


def uses(*names: str) -> tuple[Use, ...]:
    return tuple(Use(name, 1) for name in names)


def planned(rules: dict[str, str], shares: dict[str, float] | None = None, on: str = "1x8") -> roost.Plan:
    cluster: dict[str, Any] = {"component_placement": rules, **({"shares": shares} if shares else {})}
    return roost.plan({"cluster": cluster}, Inventory.parse(on))


@pytest.mark.parametrize(
    ("names", "wishes", "charged"),
    [
        (["actor"], {}, [1]),
        (["actor"], {"actor": 0.3}, [1]),  # alone
        (["actor", "rollout"], {}, [0.8, 0.2]),
        (["rollout", "actor"], {}, [0.2, 0.8]),
        (["critic", "rollout.decode"], {}, [0.8, 0.2]),
        (["actor", "critic"], {}, [0.5, 0.5]),
        (["actor", "rollouts"], {}, [0.5, 0.5]),
        (["actor", "reward"], {}, [0.5, 0.5]),
        (["rollout.a", "rollout.b"], {}, [0.5, 0.5]),
        (["actor", "critic", "rollout"], {}, [0.3333, 0.3333, 0.3333]),
        (["a", "b", "c", "d", "e", "f", "g"], {}, [0.1428] * 7),
        (["actor", "rollout"], {"actor": 0.7, "rollout": 0.29}, [0.7, 0.29]),
        (["actor", "rollout"], {"rollout": 0.3}, [0.7, 0.3]),
        (["actor", "critic", "rollout"], {"actor": 0.4}, [0.4, 0.3, 0.3]),
        (["actor", "rollout"], {"env": 0.9}, [0.8, 0.2]),
        (["a", "b"], {"a": 0.33339}, [0.3333, 0.6667]),
        (["a", "b"], {"a": 0.819}, [0.819, 0.181]),  # as written, although the float times 10,000 lies below
        (["a", "b", "c"], {"a": 0.9999, "b": 0.0001}, None),
        (["a", "b"], {"a": 1}, None),
        (["a", "b"], {"a": 0.6, "b": 0.5}, None),
        (["a", "b", "c"], {"a": 0.9999}, None),  # half of what is left is less than Ray can count
    ],
)
def test_charges_of_one_accelerator(
    names: list[str], wishes: dict[str, float], charged: list[float] | None
) -> None:
    if charged is None:
        with pytest.raises(roost.PlacementError) as caught:
            charge(uses(*names), wishes)
        assert caught.value.codes == ("RP111",)
    else:
        assert charge(uses(*names), wishes) == dict(zip(names, charged, strict=True))


def test_each_accelerator_by_who_sits_there() -> None:
    plan = planned({"actor": "0-3", "rollout": "2-5:0-1", "env": "3:0-7"})
    by_number = {device.number: dict(charged) for device, charged in plan.charges.items()}
    assert by_number == {
        0: {"actor": 1.0},
        1: {"actor": 1.0},
        2: {"actor": 0.8, "rollout": 0.2},
        3: {"actor": 0.3333, "rollout": 0.3333, "env": 0.3333},
        4: {"rollout": 1.0},
        5: {"rollout": 1.0},
    }
    assert plan.share_of("actor", 3) == 0.3333
    assert plan.share_of("rollout", 0) == 0.2  # the least of its two accelerators
    assert plan.share_of("env", 7) == 0.0416  # an eighth of its component's part
    with pytest.raises(roost.PlacementError, match="did you mean 'actor'"):
        plan.share_of("acto", 0)


def test_charges_are_worked_out_when_asked_for_and_once_for_each_situation() -> None:
    plan = planned({"actor,rollout": "all"}, on="4x8")
    assert not {"charges", "occupancy"} & set(vars(plan))
    assert len({id(charged) for charged in plan.charges.values()}) == 1


def test_robots_and_bare_nodes_are_not_charged() -> None:
    arms = {"label": "arms", "node_ranks": 0, "hardware": {"type": "Arm", "configs": [{"node_rank": 0}]}}
    job = {
        "cluster": {
            "component_placement": {
                "env,viewer": {"node_group": "arms", "placement": 0},
                "agent": {"node_group": "node", "placement": 0},
            },
            "node_groups": [arms],
            "shares": {"env": 0.9, "viewer": 0.9},
        }
    }
    plan = roost.plan(job, Inventory.parse("1x8"))
    assert not plan.charges
    assert plan.share_of("env", 0) == plan.share_of("agent", 0) == 0


def test_a_placeholder_counts() -> None:
    servers = (Server(groups=(EngineGroup(num_gpus=4), EngineGroup(kind="placeholder", num_gpus=4))),)
    plan = roost.plan(Layout(colocate=True, servers=servers), Inventory.parse("1x8"))
    assert plan.charges[Device(0, "accelerator", "", 7)] == {"actor": 0.8, "rollout.placeholder": 0.2}


def test_a_wish_for_rollout_is_one_for_each_of_its_groups() -> None:
    groups = (EngineGroup(kind="prefill", num_gpus=4), EngineGroup(kind="decode", num_gpus=4))
    layout = Layout(
        colocate=True, servers=(Server(groups=groups),), shares={"rollout": 0.4, "rollout.decode": 0.1}
    )
    plan = roost.plan(layout, Inventory.parse("1x8"))
    assert plan.shares == {"rollout.prefill": 0.4, "rollout.decode": 0.1}
    assert plan.share_of("actor", 0) == 0.6
    assert plan.share_of("actor", 7) == 0.9


def test_wishes_for_what_does_not_run_are_left_out() -> None:
    layout = Layout(debug_train_only=True, colocate=True, shares={"actor": 0.7, "rollout": 0.3})
    plan = roost.plan(layout, Inventory.parse("1x8"))
    assert plan.shares == {"actor": 0.7}
    assert plan.share_of("actor", 0) == 1


def test_shares_that_do_not_add_up_say_where() -> None:
    with pytest.raises(roost.PlacementError) as caught:
        planned({"actor": "0-3", "rollout": "2-5", "env": "5"}, {"actor": 0.9, "rollout": 0.2, "env": 0.9})
    assert [(finding.code, finding.what, finding.why) for finding in caught.value.findings] == [
        ("RP111", "node 0 accelerators 2-3: the shares add up to 1.1", "actor 0.9 + rollout 0.2"),
        ("RP111", "node 0 accelerator 5: the shares add up to 1.1", "rollout 0.2 + env 0.9"),
    ]
    with pytest.raises(roost.PlacementError, match="leave nothing for critic and rollout"):
        planned({"actor,critic,rollout": "0"}, {"actor": 1})


# -- in the saved plan -----------------------------------------------------------------------------------


def test_shares_are_saved() -> None:
    plan = planned({"actor,rollout": "0-7"}, {"actor": 0.7})
    data = json.loads(json.dumps(plan.to_dict()))
    assert data["format_version"] == 2
    assert data["shares"] == {"actor": 0.7}
    assert roost.Plan.from_dict(data) == plan == pickle.loads(pickle.dumps(plan))
    assert roost.Plan.from_dict(data).charges == plan.charges


def test_without_shares_nothing_changes() -> None:
    plan = planned({"actor,rollout": "0-7"})
    assert "shares" not in plan.to_dict()
    assert plan.digest == "sha256:ec14584aa80ebe93f479cd66be0983651968bddfea0a7edb7116e72d10677a02"


def test_shares_are_decisions() -> None:
    plain, one, two = (
        planned({"actor,rollout": "0"}, wish) for wish in (None, {"actor": 0.7}, {"actor": 0.6})
    )
    assert len({plain.digest, one.digest, two.digest}) == 3
    assert one != two
    with pytest.raises(TypeError):
        one.shares["actor"] = 0.1  # type: ignore[index]


@pytest.mark.parametrize(
    "shares", [{"env": 0.5}, {"actor": 0}, {"actor": 2}, {"actor": "x"}, {"actor": 1}, []]
)
def test_damaged_shares(shares: Any) -> None:
    data = planned({"actor,rollout": "0"}, {"actor": 0.7}).to_dict()
    with pytest.raises(roost.ConfigurationError, match="damaged"):
        roost.Plan.from_dict({**data, "shares": shares})
    with pytest.raises(roost.ConfigurationError, match="edited"):
        roost.Plan.from_dict({**data, "shares": {"actor": 0.6}})


def test_what_the_command_line_adds_does_not_matter() -> None:
    plan = planned({"actor": "0"})
    data = plan.to_dict()
    data["components"]["actor"]["share"] = [1.0, 1.0]
    assert roost.Plan.from_dict(data) == plan
