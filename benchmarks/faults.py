"""How fast failures are seen and mended: `python benchmarks/faults.py [DEATHS]`. Prints the load of the machine too."""

from __future__ import annotations

import os
import signal
import statistics
import subprocess
import sys
import time
from collections.abc import Callable
from typing import Any

import roost

ARGUMENTS = [argument for argument in sys.argv[1:] if argument.isdecimal()]
DEATHS = int(ARGUMENTS[0]) if ARGUMENTS else 100


class Victim(roost.Worker):
    def pid(self) -> int:
        return os.getpid()

    def sleeps(self) -> None:
        time.sleep(600)


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


def failures(run: roost.Run) -> list[roost.Event]:
    return [event for event in run.events if event.action == "restarting"]


def deaths(cluster: roost.Cluster) -> None:
    """Each death is seen with the right rank and cause; then the rank comes back."""
    plan = roost.plan({"cluster": {"component_placement": {"victim": "0-1"}}}, cluster)
    policy = {"victim": {"policy": "one_for_one", "restarts": 100_000, "ping": "1s"}}
    launches = []
    for _ in range(5):
        began = time.monotonic()
        with Victim.create_group().launch(cluster, roost.PackedPlacementStrategy(2, 2), name="plain"):
            launches.append(time.monotonic() - began)
    run = cluster.launch(plan, {"victim": Victim}, supervise=policy)
    seen, back, wrong, first = [], [], 0, time.monotonic()
    for number in range(DEATHS):
        if time.monotonic() - first > 300:  # on a machine that is too busy, fewer must do
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
    (pid, _) = run["victim"].pid().wait(timeout=60)
    count, began = len(failures(run)), time.monotonic()
    os.kill(pid, signal.SIGSTOP)
    event = until(lambda: failures(run)[count:])[0]
    print(f"SIGSTOP, pings of 1 s: seen as {event.cause} after {time.monotonic() - began:.2f} s; {load()}")
    run["victim"].wait_recovered(60)
    run.shutdown()


def head_lost() -> None:
    """How long a driver that waits in a call lives on when the head of its Ray is killed."""
    waiting = (
        "import os, sys, roost; sys.path.insert(0, sys.argv[2]); from faults import Victim\n"
        "cluster = roost.Cluster(num_nodes=1, address=sys.argv[1], job=f'gone-{os.getpid()}')\n"
        "group = Victim.create_group().launch(cluster, roost.NodePlacementStrategy([0]), name='one')\n"
        "print('ready', flush=True)\n"
        "try:\n    group.sleeps().wait()\nexcept roost.ClusterError:\n    sys.exit(42)\n"
    )
    ray_here = roost.embedded("1x0")
    command = [sys.executable, "-c", waiting, ray_here.start(), os.path.dirname(__file__)]  # noqa: PTH120
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
        f"head killed under two drivers: both ended after {time.monotonic() - began:.1f} s with {codes}; {load()}"
    )
    ray_here.stop()


def main() -> None:
    with roost.embedded("1x4") as address, roost.Cluster(num_nodes=1, address=address) as cluster:
        deaths(cluster)
    head_lost()


if __name__ == "__main__":
    main()
