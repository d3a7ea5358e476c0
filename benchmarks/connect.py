"""How long connecting takes and how many processes it starts, against `ray.init` and one bare actor per node.

    python benchmarks/connect.py [--on 4x2] [--rounds 7] [--check]

Each connection is made by a fresh driver process. The two kinds take turns on one embedded Ray, and which of them
comes first changes every round; medians are compared. The processes are those that actors live in: one agent per
node and three managers for roost.
"""

from __future__ import annotations

import argparse
import contextlib
import statistics
import subprocess
import sys
import time

import psutil

MANAGERS = 3
# No more than what starting as many bare actors as roost has processes may take.
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
    tell(time.perf_counter() - began)
    ray.shutdown()


def with_roost(address: str, nodes: int) -> None:
    import ray  # noqa: F401  neither kind pays for importing Ray

    import roost

    connect = roost.Cluster  # loaded here, as Ray is
    began = time.perf_counter()
    cluster = connect(num_nodes=nodes, address=address, job="bench")
    tell(time.perf_counter() - began)
    cluster.shutdown()


def tell(seconds: float) -> None:
    """Say how long it took, and stay connected until the processes were counted."""
    print(seconds, flush=True)
    sys.stdin.readline()


def connection(kind: str, address: str, nodes: int) -> tuple[float, list[str]]:
    """Let a fresh driver connect. Returns the seconds it took and the titles of the actors' processes."""
    with subprocess.Popen(
        [sys.executable, __file__, "--as", kind, address, str(nodes)],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    ) as driver:
        assert driver.stdin
        assert driver.stdout
        seconds = float(driver.stdout.readline())
        started = settled_actors()
        driver.stdin.write("\n")
        driver.stdin.flush()
    if driver.returncode:
        raise SystemExit(f"the {kind} driver failed with {driver.returncode}")
    wait_until_gone()
    return seconds, started


def actor_processes() -> tuple[list[str], int]:
    """The titles of processes that an actor lives in, and how many processes are still starting.

    Ray also keeps idle processes, for tasks to come; it starts them for every driver alike.
    """
    titles, starting = [], 0
    for process in psutil.Process().children(recursive=True):
        with contextlib.suppress(psutil.Error):
            title = " ".join(process.cmdline())
            if title.startswith("ray::") and not title.startswith("ray::IDLE"):
                titles.append(title)
            starting += "default_worker.py" in title
    return sorted(titles), starting


def settled_actors() -> list[str]:
    """The processes of actors, once nothing has been starting for two seconds."""
    deadline = time.monotonic() + 60
    found, since = actor_processes(), time.monotonic()
    while time.monotonic() - since < 2.0 and time.monotonic() < deadline:
        time.sleep(0.1)
        now = actor_processes()
        if now[1] or now != found:
            found, since = now, time.monotonic()
    return found[0]


def wait_until_gone() -> None:
    deadline = time.monotonic() + 60
    while actor_processes()[0] and time.monotonic() < deadline:
        time.sleep(0.1)
    time.sleep(1.0)


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--on", default="4x2")
    parser.add_argument("--rounds", type=int, default=7)
    parser.add_argument("--check", action="store_true", help="fail when a number is out of bounds")
    parser.add_argument("--as", dest="kind", nargs=3, help=argparse.SUPPRESS)  # how the drivers are started
    arguments = parser.parse_args()
    ways = {"bare": bare, "roost": with_roost}
    if arguments.kind:
        kind, address, nodes = arguments.kind
        ways[kind](address, int(nodes))
        return 0

    import roost

    nodes = int(arguments.on.split("x")[0])
    times: dict[str, list[float]] = {kind: [] for kind in ways}
    processes: dict[str, int] = dict.fromkeys(ways, 0)
    with roost.embedded(arguments.on) as address:
        for number in range(-1, arguments.rounds):  # the first round fills caches
            for kind in [*ways] if number % 2 else reversed([*ways]):
                seconds, started = connection(kind, address, nodes)
                processes[kind] = max(processes[kind], len(started))
                if number >= 0:
                    times[kind].append(seconds)
    ratio = statistics.median(times["roost"]) / statistics.median(times["bare"])
    print(
        f"connecting to {nodes} nodes: {ratio:.2f} times ray.init and one bare actor per node "
        f"(medians, {arguments.rounds} rounds)"
    )
    print(f"processes started: {processes['roost']} by roost, {processes['bare']} bare actors")
    fine = ratio <= AT_MOST and processes["roost"] <= nodes + MANAGERS
    return 0 if fine or not arguments.check else 1


if __name__ == "__main__":
    sys.exit(main())
