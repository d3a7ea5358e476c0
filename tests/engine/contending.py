"""Jobs that compete for accelerators. They obey commands: `reserve NODE:DEVICE,... ` or `release`."""

from __future__ import annotations

from typing import Any

import roost


def told(reservation: Any, line: str) -> Any:
    """What a job answers to one line."""
    verb, *rest = line.split()
    if verb == "release":
        reservation.release()
        return "released"
    needs: dict[int, set[int]] = {}
    for part in rest:
        node, _, devices = part.partition(":")
        needs[int(node)] = {int(device) for device in devices.split(",")}
    try:
        reservation.ensure(needs)
    except roost.ReservationError as error:
        return {"refused": str(error)}
    return {
        "held": {str(node): reservation.device_names(node, sorted(wanted)) for node, wanted in needs.items()}
    }
