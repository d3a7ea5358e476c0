"""Snapshots of running jobs, made up: of 1 node to 1,024, with everything well or with faults."""

from __future__ import annotations

import random
from dataclasses import replace

import roost
from roost.engine.events import Event
from roost.engine.job_snapshot import ChannelStatus, DriverStatus, JobSnapshot, NodeStatus
from roost.engine.processes.machine import Machine
from roost.engine.status import ProcessStatus, absent_status, seen_status
from roost.engine.workers.call_log import BOUNDS, CallTotal
from roost.engine.workers.call_summary import COLUMNS, CallInFlight, CallSummary
from roost.placement.placement import Placement
from roost.planning.plan import Plan

NOW = 1_800_000_000.0
MACHINE = Machine(load=3.2, cpus=64, free_gib=410.0, memory_gib=512.0)
METHODS = {"actor": "train", "rollout": "generate", "agent": "act"}
TRAIN = CallTotal(method="train", returned=41, raised=1, seconds=120.5, lasting=(0, 0, 2, 10, 30, 0, 0, 0))


def calls(busy: bool, seed: int, method: str) -> CallSummary:
    """A process that worked in some of the columns."""
    chance = random.Random(seed)
    phase, period = chance.randrange(12), chance.randrange(8, 16)
    use = tuple(1.0 if (column + phase) % period < period * 0.6 else 0.1 for column in range(COLUMNS))
    in_flight = (CallInFlight(method=method, seconds=12.34 + seed % 7),) if busy else ()
    waits = "waits for a channel" if busy and seed % 5 == 4 else ""
    total = replace(TRAIN, method=method)
    return CallSummary(
        in_flight=in_flight, waits=waits, last_call=f"{method} returned", totals=(total,), use=use
    )


def seen(component: str, place: Placement, state: str = "running", **more: object) -> ProcessStatus:
    given = {
        "group": component,
        "node": place.cluster_node_rank,
        "pid": 4_000 + place.rank,
        "generation": 0,
        "visible": ",".join(place.visible_accelerators),
        "calls": calls(state == "running" and place.rank % 3 != 1, place.rank, METHODS[component]),
        **more,
    }
    return seen_status(component, place, state=state, **given)  # type: ignore[arg-type]


def job_plan(nodes: int) -> Plan:
    """The actor on one half, engines of two accelerators on the other, and agents on every node."""
    half = 4 * nodes
    placement = {
        "actor": f"0-{half - 1}",
        "rollout": f"{half}-{2 * half - 1}:0-{half // 2 - 1}",
        "reward": f"{2 * half - 1}",
        "agent": {"node_group": "node", "placement": f"0-{nodes - 1}:0-{2 * nodes - 1}"},
    }
    return replace(
        roost.plan(
            {"cluster": {"num_nodes": nodes, "component_placement": placement}},
            roost.Inventory.from_dict(
                {
                    "nodes": [
                        {"ip": f"10.0.{rank // 256}.{rank % 256}", "accelerators": 8} for rank in range(nodes)
                    ]
                }
            ),
        ),
        job_file="job.yaml",
    )


def running_job(nodes: int, faults: bool = False, job: str = "night-run") -> JobSnapshot:
    plan = job_plan(nodes)
    processes: list[ProcessStatus] = []
    for name, part in plan.components.items():
        for place in part.members:
            if name == "reward":
                processes.append(absent_status(name, place, "not started"))
            else:
                processes.append(seen(name, place))
    states = [
        NodeStatus(
            rank=rank, host=f"10.0.{rank // 256}.{rank % 256}", accelerators=8, state="up", machine=MACHINE
        )
        for rank in range(nodes)
    ]
    events = [
        Event(time=NOW - 192, action="launched", component=name, detail=f"{part.world_size} processes")
        for name, part in plan.components.items()
        if name != "reward"
    ]
    driver, silent = DriverStatus(pid=3_999, node=0, state="running"), ()
    if faults:
        rollout = [index for index, one in enumerate(processes) if one.component == "rollout"]
        places = plan.components["rollout"].members
        processes[0] = seen("actor", plan.components["actor"].members[0], "hung")
        processes[1] = seen("actor", plan.components["actor"].members[1], "stopped")
        processes[rollout[0]] = seen("rollout", places[0], "dead", generation=2)
        processes[rollout[1]] = seen("rollout", places[1], generation=1, node=0, visible="6,7")
        if nodes > 1:
            states[-1] = replace(states[-1], state="silent", machine=None)
            processes = [
                replace(one, state="unknown", calls=CallSummary(), calls_in_flight=(), last_call="")
                if one.planned_node == nodes - 1 and one.is_here
                else one
                for one in processes
            ]
            silent = (f"the agent of node {nodes - 1}",)
        driver = replace(driver, state="stopped")
        events.append(
            Event(
                time=NOW - 31,
                action="restarted",
                component="rollout",
                rank=0,
                node=places[0].cluster_node_rank,
                cause="crash",
                detail="pid 3990 was killed by SIGKILL; restart 2 of 3 took 0.72 s",
            )
        )
    return JobSnapshot(
        job=job,
        time=NOW,
        state="running",
        plans=(plan,),
        driver=driver,
        nodes=tuple(states),
        processes=tuple(processes),
        channels=(
            ChannelStatus(name="samples", length=37, capacity=64, taken=4, waiting_takes=2, put=1_204),
            ChannelStatus(name="stuck", length=None),
        ),
        events=tuple(events),
        silent=silent,
    )


def ended_job(job: str = "yesterday") -> JobSnapshot:
    return JobSnapshot(
        job=job,
        time=NOW,
        state="ended",
        events=(Event(time=NOW - 90_061, action="shut down"),),
    )


assert len(TRAIN.lasting) == len(BOUNDS) + 1
