"""Requests per second through the router, against asking the engines directly, in one run. Needs sglang-router.

    python benchmarks/router.py [--requests 2000] [--clients 8] [--rounds 3]

Then once more through the router while one engine is killed, another one is stopped, and both are recovered:
how many requests had an answer and how many an error. All must have one of the two.
"""

from __future__ import annotations

import argparse
import os
import signal
import statistics
import sys
import threading
import time
from pathlib import Path

sys.path.append(str(Path(__file__).parents[1] / "tests" / "rl"))
from engines import COMMAND
from routed_requests import Answer, ask_many, prompt

import roost


def per_second(urls: list[str], requests: int, clients: int) -> float:
    began = time.perf_counter()
    answers = ask_many(*urls, requests=requests, clients=clients)
    assert all(one.error is None for one in answers)
    return requests / (time.perf_counter() - began)


def disturbed(rollout: roost.RolloutManager, requests: int, clients: int) -> list[Answer]:
    """Requests during which one engine dies, one hangs, and both come back."""
    workers = rollout.groups["rollout"].workers
    assert workers is not None
    dead, hanging, _ = workers.pid().wait(timeout=60)
    answers, under_way = list[Answer](), threading.Event()

    def progress(done: int) -> None:
        if done == requests // 4:
            under_way.set()

    def send() -> None:
        answers.extend(ask_many(rollout.router.url, requests=requests, clients=clients, progress=progress))

    sending = threading.Thread(target=send)
    sending.start()
    under_way.wait(300)
    os.kill(dead, signal.SIGKILL)
    os.kill(hanging, signal.SIGSTOP)
    rollout.recover()
    sending.join(600)
    return answers


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--requests", type=int, default=2000)
    parser.add_argument("--clients", type=int, default=8)
    parser.add_argument("--rounds", type=int, default=3)
    arguments = parser.parse_args()
    requests, clients = arguments.requests, arguments.clients
    rates: dict[str, list[float]] = {"router": [], "direct": []}
    with (
        roost.embedded("1x3") as address,
        roost.Cluster(num_nodes=1, address=address, job="bench") as cluster,
        cluster.pool(roost.Layout(actor_num_nodes=0, rollout_num_gpus=3)) as pool,
        roost.RolloutManager(pool, roost.CommandLine(COMMAND), router=True) as rollout,
    ):
        engines = [one.url for one in rollout.endpoints()]
        for number in range(arguments.rounds):
            for way in ("router", "direct") if number % 2 else ("direct", "router"):
                urls = [rollout.router.url] if way == "router" else engines
                rates[way].append(per_second(urls, requests, clients))
        ratio = statistics.median(rates["router"]) / statistics.median(rates["direct"])
        print(
            f"requests per second, router / direct: {ratio:.2f} "
            f"({statistics.median(rates['router']):.0f} / {statistics.median(rates['direct']):.0f}, "
            f"medians of {arguments.rounds} rounds of {requests}, {clients} clients, 3 engines)"
        )
        answers = disturbed(rollout, requests, clients)
        right = sum(one.text == prompt(one.number) for one in answers)
        errors = [one.error for one in answers if one.error]
        after = {one.pid for one in ask_many(rollout.router.url, requests=400, clients=clients)}
        print(
            f"one engine killed, one stopped, both recovered: {requests} requests, "
            f"{right} right answers, {len(errors)} errors; {len(after)} engines answer afterwards"
        )
    lost = requests - right - len(errors)
    return 0 if not lost and len(after) == 3 else 1


if __name__ == "__main__":
    sys.exit(main())
