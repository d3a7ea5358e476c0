"""How fast failures are seen and mended, with the load of the machine.

python benchmarks/faults.py [deaths] [hangs] [nodes] [head] [NUMBER OF DEATHS]
"""

from __future__ import annotations

import ctypes
import os
import signal
import statistics
import subprocess
import sys
import time
from collections.abc import Callable
from typing import Any

import roost
from roost.testing.faults import Faults

os.environ.setdefault("ROOST_FORKED_WORKERS", "0")  # processes start as on other clusters

NUMBERS = [argument for argument in sys.argv[1:] if argument.isdecimal()]
PARTS = [argument for argument in sys.argv[1:] if not argument.isdecimal()]
DEATHS = int(NUMBERS[0]) if NUMBERS else 100
PING = 1.0  # seconds
# Ray tries to start moved ranks on the lost node until it has noticed itself: after half a minute by its defaults.
SHORT_CHECKS = {
    "RAY_health_check_initial_delay_ms": "0",
    "RAY_health_check_period_ms": "1000",
    "RAY_health_check_timeout_ms": "1000",
    "RAY_health_check_failure_threshold": "3",
}


class Victim(roost.Worker):
    def pid(self) -> int:
        return os.getpid()

    def sleeps(self) -> None:
        time.sleep(600)

    def holds_the_interpreter(self) -> None:
        ctypes.PyDLL(None).sleep(600)


def until(check: Callable[[], Any], within: float = 60.0) -> Any:
    deadline = time.monotonic() + within
    while not (found := check()):
        if time.monotonic() > deadline:
            raise TimeoutError
        time.sleep(0.002)
    return found


def load() -> str:
    return f"load {os.getloadavg()[0]:.0f} on {os.cpu_count()} cores"


def of(times: list[float]) -> str:
    ordered = sorted(times)
    last = ordered[max(0, round(0.99 * len(ordered)) - 1)]
    return (
        f"median {statistics.median(ordered):.3f} s, 99th percentile {last:.3f} s, worst {ordered[-1]:.3f} s"
    )


POLICY = {"victim": {"policy": "one_for_one", "restarts": 100_000, "ping": f"{PING:g}s"}}


def failures(run: roost.Run) -> list[roost.Event]:
    return [event for event in run.events if event.action == "restarting"]


def deaths(cluster: roost.Cluster) -> None:
    """Each death is seen with the right rank and cause; then the rank comes back."""
    plan = roost.plan({"cluster": {"component_placement": {"victim": "0-1"}}}, cluster)
    launches = []
    for _ in range(5):
        began = time.monotonic()
        with Victim.create_group().launch(cluster, roost.PackedPlacementStrategy(2, 2), name="plain"):
            launches.append(time.monotonic() - began)
    run = cluster.launch(plan, {"victim": Victim}, supervise=POLICY)
    seen, back, wrong, first = [], [], 0, time.monotonic()
    for number in range(DEATHS):
        if time.monotonic() - first > 180:  # on a machine that is too busy, fewer must do
            break
        rank, busy = number % 2, number % 4 > 1
        if busy:
            run["victim"].execute_on(rank).sleeps()
        pid, count = run.status()[rank].pid, len(failures(run))
        assert pid is not None
        began = time.monotonic()
        os.kill(pid, signal.SIGKILL)
        event = until(lambda count=count: failures(run)[count:])[0]  # type: ignore[misc]
        seen.append(time.monotonic() - began)
        wrong += (event.rank, event.cause) != (rank, "crash")
        run["victim"].wait_recovered(60)
        back.append(time.monotonic() - began)
    print(f"{len(seen)} x SIGKILL, idle and busy, seen: {of(seen)}; wrong rank or cause: {wrong}; {load()}")
    plain = statistics.median(launches)
    again = statistics.median(back)
    print(
        f"back after: {of(back)}; a plain launch of one worker takes {plain:.3f} s, "
        f"so {again / plain:.2f} times that; {load()}"
    )
    run.shutdown()


def hangs(cluster: roost.Cluster) -> None:
    """A stopped process, and one with a thread that holds the interpreter; another one dies meanwhile."""
    plan = roost.plan({"cluster": {"component_placement": {"victim": "0-2"}}}, cluster)
    for fault in ("SIGSTOP", "a held interpreter"):
        seen: list[float] = []
        deaths: list[float] = []
        with cluster.launch(plan, {"victim": Victim}, supervise=POLICY) as run:
            for _ in range(5):
                pids, count = run["victim"].pid().wait(timeout=60), len(failures(run))
                began = time.monotonic()
                if fault == "SIGSTOP":
                    os.kill(pids[0], signal.SIGSTOP)
                else:
                    run["victim"].execute_on(0).holds_the_interpreter()
                os.kill(pids[1], signal.SIGKILL)
                (death,) = until(lambda count=count: failures(run)[count : count + 1])  # type: ignore[misc]
                deaths.append(time.monotonic() - began)
                assert (death.rank, death.cause) == (1, "crash"), death
                (hang,) = until(lambda count=count: failures(run)[count + 1 :])  # type: ignore[misc]
                seen.append(time.monotonic() - began)
                assert (hang.rank, hang.cause) == (0, "hang"), hang
                run["victim"].wait_recovered(60)
        print(
            f"{fault}, pings of {PING:g} s, a hang each time, seen: {of(seen)}; "
            f"the death of another rank meanwhile: {of(deaths)}; {load()}"
        )


def nodes(shape: str = "3x2") -> None:
    """The process of a Ray node is killed; its ranks are named, and moved to the spare node."""
    job = {
        "cluster": {"component_placement": {"victim": "0-3"}},
        "supervise": {"victim": {"policy": "relocate", "spare_nodes": 2}},
    }
    os.environ.update(SHORT_CHECKS)
    with roost.embedded(shape) as address, roost.Cluster(num_nodes=3, address=address) as cluster:
        run = cluster.launch(roost.plan(job, cluster), {"victim": Victim})
        victim = run.status()[2]
        began = time.monotonic()
        Faults().kill_node(victim)
        lost = until(lambda: [one for one in run.events if one.cause == "node lost"])
        seen = time.monotonic() - began
        run["victim"].wait_recovered(120)
        print(
            f"node killed: ranks {sorted(one.rank for one in lost if one.rank is not None)} seen after "
            f"{seen:.2f} s, moved and back after {time.monotonic() - began:.2f} s; {load()}"
        )


def head_lost(driver_does: str) -> None:
    """How long drivers live on when the head of their Ray is killed: one waits in a call, one is in its own code."""
    program = (
        "import os, sys, time, roost; sys.path.insert(0, sys.argv[2]); from faults import Victim\n"
        "cluster = roost.Cluster(num_nodes=1, address=sys.argv[1], job=f'gone-{os.getpid()}')\n"
        "group = Victim.create_group().launch(cluster, roost.NodePlacementStrategy([0]), name='one')\n"
        "print('ready', flush=True)\n"
        f"try:\n    {driver_does}\nexcept roost.ClusterError:\n    sys.exit(42)\n"
    )
    ray_here = roost.embedded("1x0")
    command = [sys.executable, "-c", program, ray_here.start(), os.path.dirname(__file__)]  # noqa: PTH120
    drivers = [subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL) for _ in range(2)]
    for driver in drivers:
        assert driver.stdout
        assert driver.stdout.readline() == b"ready\n"
    listed = subprocess.run(["ps", "-eo", "pid,args"], capture_output=True, text=True, check=True).stdout
    head = [
        int(line.split()[0])
        for line in listed.splitlines()
        if f"{ray_here._directory}" in line and "gcs_server" in line
    ]
    began = time.monotonic()
    for pid in head:
        os.kill(pid, signal.SIGKILL)
    codes = [driver.wait(120) for driver in drivers]
    print(
        f"head killed under two drivers in {driver_does!r}: both ended after "
        f"{time.monotonic() - began:.1f} s with {codes}; {load()}"
    )
    ray_here.stop()


def main() -> None:
    parts = PARTS or ["deaths", "hangs", "nodes", "head"]
    for part, measure in (("deaths", deaths), ("hangs", hangs)):
        if part in parts:
            with roost.embedded("1x4") as address, roost.Cluster(num_nodes=1, address=address) as cluster:
                measure(cluster)
    if "nodes" in parts:
        nodes()
    if "head" in parts:
        head_lost("group.sleeps().wait()")
        head_lost("time.sleep(600)")


if __name__ == "__main__":
    main()
