"""A job that reserves what it is told to, one line at a time: `reserve NODE:DEVICE,... `, `release`, `end`."""

from __future__ import annotations

import sys
import time

from saying import say

import roost


def main() -> None:
    with roost.Cluster(num_nodes=3, job=sys.argv[1], timeout=60) as cluster:
        say("ready")
        for line in sys.stdin:
            verb, *rest = line.split()
            if verb == "end":
                break
            if verb == "release":
                cluster._backend.reservation.release()
                say("released")
                continue
            needs: dict[int, set[int]] = {}
            for part in rest:
                node, _, devices = part.partition(":")
                needs[int(node)] = {int(device) for device in devices.split(",")}
            began = time.monotonic()
            try:
                cluster._backend.reservation.ensure(needs)
            except roost.ReservationError as error:
                say({"refused": str(error), "seconds": time.monotonic() - began})
            else:
                names = {
                    node: cluster._backend.reservation.device_names(node, sorted(wanted))
                    for node, wanted in needs.items()
                }
                say({"held": names})


main()
