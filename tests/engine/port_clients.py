"""Workers that lease ports and lock devices. Importing this costs little, since every worker process does it."""

from __future__ import annotations

import os
import socket
from typing import Any

import roost


class Lessee(roost.Worker):
    def __init__(self) -> None:
        super().__init__()
        self.leases: list[roost.PortLease] = []

    def pid(self) -> int:
        return os.getpid()

    def lease(self, count: int = 1, consecutive: bool = False, timeout: float = 30.0) -> Any:
        self.leases.append(roost.lease_ports(count, consecutive=consecutive, timeout=timeout))
        return self.leases[-1]

    def lease_many(self, times: int) -> list[list[int]]:
        """So many leases, every tenth a block; each port is listened on while it is leased."""
        made = []
        for number in range(times):
            made.append(self.lease(4, consecutive=True) if number % 10 == 9 else self.lease())
            for port in made[-1].ports:
                listen_and_close(port)
        return [lease.ports for lease in made]

    def lease_all(self) -> list[int]:
        """Every port there is, one at a time."""
        ports: list[int] = []
        while True:
            try:
                ports += self.lease().ports
            except roost.ClusterError as error:
                if error.codes == ("RE117",):
                    return sorted(ports)
                raise

    def release(self, which: int = -1) -> list[int]:
        lease = self.leases.pop(which)
        lease.release()
        lease.release()
        return lease.ports

    def release_all(self) -> None:
        while self.leases:
            self.release()


def listen_and_close(port: int) -> None:
    """As servers do."""
    with socket.socket() as server:
        server.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        server.bind(("", port))
        server.listen()


class Locker(roost.Worker):
    """Takes turns on its accelerators with other groups."""

    lock_: roost.DeviceLock

    def pid(self) -> int:
        return os.getpid()

    def lock(self, **options: Any) -> tuple[int, tuple[int | str, ...]]:
        self.lock_ = roost.device_lock(**options)
        return self.lock_.fence, self.lock_.devices

    def lock_by_name(self, **options: Any) -> tuple[int, tuple[int | str, ...]]:
        """As engines know their devices."""
        return self.lock(devices=list(self._context.devices), **options)

    def held(self) -> bool:
        return self.lock_.held

    def check(self) -> None:
        self.lock_.check()

    def check_fence(self, device: int | str, fence: int) -> None:
        roost.check_fence(device, fence)

    def unlock(self) -> None:
        self.lock_.release()

    def let_go(self) -> None:
        """Release its lock, if it ever had one."""
        if hasattr(self, "lock_"):
            self.lock_.release()

    def take_turns(self, times: int, where: str) -> list[int]:
        """The fencing numbers of so many turns. Nobody else is inside during any of them."""
        fences = []
        for _ in range(times):
            with roost.device_lock() as lock:
                inside = os.open(os.path.join(where, "inside"), os.O_CREAT | os.O_EXCL)  # noqa: PTH118
                lock.check()
                fences.append(lock.fence)
                os.close(inside)
                os.unlink(os.path.join(where, "inside"))  # noqa: PTH108, PTH118
        return fences

    def lock_on_node(self, node_rank: int) -> None:
        roost.Cluster().device_lock(node_rank, [0], timeout=1)

    def check_on_node(self, node_rank: int, fence: int) -> None:
        roost.Cluster().check_fence(node_rank, 0, fence)


class LockingEngine(roost.Engine):
    def start(self) -> None:
        self.lock_ = roost.device_lock()

    def locked(self) -> tuple[int | str, ...]:
        return self.lock_.devices
