"""The facts of a machine in which `roost doctor` finds nothing."""

from __future__ import annotations

from roost.engine.health.machine_facts import MachineFacts

MACHINE = MachineFacts(
    host="10.0.0.1",
    hostname="a",
    machine="boot-a",
    python="3.11.7",
    ray="2.60.0",
    roost="0.1.0",
    open_files=(65_536, 65_536),
    shared_memory=64 << 30,
)
