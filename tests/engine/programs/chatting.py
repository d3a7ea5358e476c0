"""A job whose first rank repeats what the program reads, and whose second rank, if there is one, waits."""

from __future__ import annotations

import os
import subprocess
import sys
import threading

from saying import say

import roost


class Chatty(roost.Worker):
    def __init__(self) -> None:
        super().__init__()
        print(f"built {self.rank}", flush=True)
        print(f"warned {self.rank}", file=sys.stderr, flush=True)
        self.child = subprocess.Popen(["sleep", "600"])

    def facts(self) -> tuple[int, int, int]:
        return os.getpid(), self.child.pid, int(os.environ["MASTER_PORT"])

    def repeat(self, words: str) -> None:
        print(words, flush=True)

    def wait_forever(self) -> None:
        threading.Event().wait()


def main(how: str, name: str, devices: str) -> None:
    with roost.Cluster(num_nodes=2, job=name, timeout=60) as cluster:
        places = {"component_placement": {"talker": devices}}
        policy = {"talker": {"policy": "one_for_one", "restarts": 5}}
        plan = roost.plan({"cluster": places, "supervise": policy}, cluster)
        with cluster.launch(plan, {"talker": Chatty}) as run:
            group = run["talker"]
            facts = group.facts().wait(timeout=60)
            pids = [pid for worker, child, _ in facts for pid in (worker, child)]
            ports = [cluster.master_port, facts[0][2]]
            waiting = group.execute_on(len(facts) - 1).wait_forever()
            say({"workers": [one[0] for one in facts], "pids": pids, "ports": ports})
            if how == "waits":
                waiting.wait()
            for line in sys.stdin:
                group.wait_recovered(timeout=60)
                group.execute_on(0).repeat(line.strip()).wait(timeout=60)
                say(line.strip())


main(*sys.argv[1:])
