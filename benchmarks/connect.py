"""How long connecting takes and how many processes it starts, against `ray.init` and one bare actor per node.

    python benchmarks/connect.py [--on 4x2] [--rounds 7] [--check]

Each connection is made by a fresh driver process. The two kinds take turns on one embedded Ray, and which of them
comes first changes every round; medians are compared. The processes are those that actors live in: one agent per
node and three managers for roost.
"""

from __future__ import annotations

import argparse
import contextlib
import os
import statistics
import subprocess
import sys
import time

import psutil

os.environ.setdefault("ROOST_FORKED_WORKERS", "0")  # processes start as on other clusters

MANAGERS = 3
AT_MOST = 1.5


def bare(address: str, nodes: int) -> None:
    import ray
    from ray.util.scheduling_strategies import NodeAffinitySchedulingStrategy

    class Plain:
        def ping(self) -> int:
            return 1

    began = time.perf_counter()
    ray.init(address=address, logging_level="WARNING")
    actor = ray.remote(num_cpus=0)(Plain)
    handles = [
        actor.options(scheduling_strategy=NodeAffinitySchedulingStrategy(node["NodeID"], soft=False)).remote()
        for node in ray.nodes()
    ]
    assert ray.get([handle.ping.remote() for handle in handles]) == [1] * nodes
    seconds = time.perf_counter() - began
    tell(seconds, seconds)
    ray.shutdown()


def with_roost(address: str, nodes: int) -> None:
    import ray  # noqa: F401  neither kind pays for importing Ray

    import roost

    connect = roost.Cluster  # loads the engine
    began = time.perf_counter()
    cluster = connect(num_nodes=nodes, address=address, job="bench")
    seconds = time.perf_counter() - began
    roost.NodeManager.get_proxy().get_nodes()
    roost.WorkerManager.get_proxy().list_groups()
    roost.CollectiveManager.get_proxy().list()
    tell(seconds, time.perf_counter() - began)
    cluster.shutdown()


def tell(connected: float, complete: float) -> None:
    """Say when it was connected and when every process answered, and stay until the processes were counted."""
    print(connected, complete, flush=True)
    sys.stdin.readline()


def connection(kind: str, address: str, nodes: int) -> tuple[float, float, int]:
    """Let a fresh driver connect. Returns what it told, and how many processes its actors have."""
    others = actor_processes()  # agents of Ray itself
    with subprocess.Popen(
        [sys.executable, __file__, "--as", kind, address, str(nodes)],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    ) as driver:
        assert driver.stdin
        assert driver.stdout
        connected, complete = map(float, driver.stdout.readline().split())
        started = len(actor_processes() - others)
        driver.stdin.write("\n")
        driver.stdin.flush()
    deadline = time.monotonic() + 60
    while actor_processes() - others and time.monotonic() < deadline:
        time.sleep(0.1)
    time.sleep(1.0)
    return connected, complete, started


def actor_processes() -> set[int]:
    """The processes that are not idle. Ray keeps idle ones for tasks to come, for every driver alike."""
    found = set()
    for process in psutil.Process().children(recursive=True):
        with contextlib.suppress(psutil.Error):
            title = " ".join(process.cmdline())
            if title.startswith("ray::") and not title.startswith("ray::IDLE"):
                found.add(process.pid)
    return found


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--on", default="4x2")
    parser.add_argument("--rounds", type=int, default=7)
    parser.add_argument("--check", action="store_true", help="fail when a number is out of bounds")
    parser.add_argument("--as", dest="driver", nargs=3, help=argparse.SUPPRESS)
    arguments = parser.parse_args()
    ways = {"bare": bare, "roost": with_roost}
    if arguments.driver:
        kind, address, count = arguments.driver
        ways[kind](address, int(count))
        return 0

    import roost

    nodes = int(arguments.on.split("x")[0])
    times: dict[str, list[tuple[float, float]]] = {kind: [] for kind in ways}
    processes = dict.fromkeys(ways, 0)
    with roost.embedded(arguments.on) as address:
        for number in range(-1, arguments.rounds):  # the first round fills caches
            for kind in ways if number % 2 else reversed(ways):
                connected, complete, started = connection(kind, address, nodes)
                processes[kind] = max(processes[kind], started)
                if number >= 0:
                    times[kind].append((connected, complete))
    bare_time = statistics.median(connected for connected, _ in times["bare"])
    ratio = statistics.median(connected for connected, _ in times["roost"]) / bare_time
    complete_ratio = statistics.median(complete for _, complete in times["roost"]) / bare_time
    print(
        f"connecting to {nodes} nodes: {ratio:.2f} times ray.init and one bare actor per node, "
        f"{complete_ratio:.2f} until the managers answer too (medians, {arguments.rounds} rounds)"
    )
    print(f"processes started: {processes['roost']} by roost, {processes['bare']} bare actors")
    fine = ratio <= AT_MOST and processes["roost"] <= nodes + MANAGERS
    return 0 if fine or not arguments.check else 1


if __name__ == "__main__":
    sys.exit(main())
