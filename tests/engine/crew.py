"""Workers that the tests launch. Importing this costs little, since every worker process does it."""

from __future__ import annotations

import asyncio
import builtins
import ctypes
import os
import signal
import socket
import sys
import threading
import time
from collections.abc import AsyncIterator, Callable, Iterator
from pathlib import Path
from typing import Any

import roost

ENVIRONMENT_AT_IMPORT = dict(os.environ)


class Reporter(roost.Worker):
    """Says where and what it is."""

    def __init__(self, note: Any = None) -> None:
        super().__init__()
        self.note = note
        self.rank_in_constructor = self.rank

    def environment(self, *names: str) -> dict[str, str | None]:
        return {name: os.environ.get(name) for name in names}

    def environment_at_import(self, *names: str) -> dict[str, str | None]:
        return {name: ENVIRONMENT_AT_IMPORT.get(name) for name in names}

    def identity(self) -> dict[str, Any]:
        return {
            "rank": self.rank,
            "world_size": self.world_size,
            "local_rank": self.local_rank,
            "group": self.group_name,
            "placement": self.placement,
            "note": self.note,
            "rank_in_constructor": self.rank_in_constructor,
        }

    def own_share(self) -> float | None:
        return self.share

    def pid(self) -> int:
        return os.getpid()

    def python(self) -> tuple[str, list[str]]:
        return sys.executable, sys.path

    def runtime_env(self) -> dict[str, Any]:
        import ray

        return {
            key: value
            for key, value in ray.get_runtime_context().runtime_env.items()
            if not key.startswith("_")
        }

    def node_id(self) -> str:
        import ray

        return ray.get_runtime_context().get_node_id()

    def whole_environment(self) -> dict[str, str]:
        return dict(os.environ)

    def imports(self, module: str) -> Any:
        from importlib import import_module

        return import_module(module).VALUE

    def stops(self) -> None:
        breakpoint()

    def speaks(self) -> None:
        self.log_info(f"said in plain words by {self.rank}")
        print(f"printed plainly by {self.rank}", flush=True)

    def echo(self, value: Any) -> tuple[int, Any]:
        return self.rank, value

    def size(self, value: Any) -> int:
        return len(value)

    def raises(self, error: BaseException, *ranks: int) -> int:
        if self.rank in ranks:
            raise error
        return self.rank

    def raise_picky(self) -> None:
        if self.rank == 1:
            raise Picky(7, text="picky")

    def raises_at_length(self, where: str) -> None:
        """Raise an error with a long text."""
        long, error = "z" * 5_000_000, ValueError("small")
        if where == "note":
            error.__notes__ = [long]  # type: ignore[attr-defined]
        if where == "group":
            error = builtins.ExceptionGroup("g", [ValueError(long)])  # type: ignore[attr-defined]
        raise error from (KeyError(long) if where == "cause" else None)

    def raise_locked(self) -> None:
        if self.rank == 1:
            raise HoldsALock

    def dies(self, *ranks: int) -> int:
        if self.rank in ranks:
            os._exit(9)
        return self.rank

    def waits_for(self, path: str) -> int:
        deadline = time.monotonic() + 60
        while not os.path.exists(path) and time.monotonic() < deadline:  # noqa: PTH110
            time.sleep(0.01)
        return self.rank

    def listens_on_master_port(self) -> str:
        """Rank 0 listens where the group was told to meet, as a rendezvous does."""
        if self.rank:
            return ""
        with socket.socket() as server:
            server.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            server.bind((os.environ["MASTER_ADDR"], int(os.environ["MASTER_PORT"])))
            server.listen()
            with socket.create_connection(server.getsockname()[:2], timeout=30):
                return str(server.getsockname())

    def accepts_one(self) -> str:
        """Listens where the group was told to meet, until somebody comes; says who."""
        with socket.socket() as server:
            server.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            server.bind((os.environ["MASTER_ADDR"], int(os.environ["MASTER_PORT"])))
            server.listen()
            server.settimeout(30)
            connection, peer = server.accept()
            with connection:
                connection.sendall(f"rank {self.rank}".encode())
            return str(peer[0])

    def meets(self) -> str:
        """Goes where the group was told to meet; says who is there."""
        deadline = time.monotonic() + 30
        while True:
            try:
                where = (os.environ["MASTER_ADDR"], int(os.environ["MASTER_PORT"]))
                with socket.create_connection(where, timeout=30) as client:
                    return client.recv(64).decode()
            except ConnectionRefusedError:
                if time.monotonic() > deadline:
                    raise
                time.sleep(0.05)

    def own_addresses(self) -> list[str]:
        import psutil

        return [
            entry.address
            for entries in psutil.net_if_addrs().values()
            for entry in entries
            if entry.family == socket.AF_INET and not entry.address.startswith("127.")
        ]

    def can_take_port(self, port: int) -> bool:
        """Whether nobody holds the port on this host."""
        with socket.socket() as probe:
            try:
                probe.bind(("", port))
            except OSError:
                return False
        return True

    def attaches(self) -> tuple[str, int, str]:
        """What `Cluster()` sees from inside a worker."""
        cluster = roost.Cluster()
        return cluster.job, cluster.num_nodes, cluster.master_addr

    def calls_group(self, name: str) -> list[Any]:
        return roost.WorkerGroup.attach(name).echo("hello").wait(timeout=30)


class Overlapping(roost.Worker):
    """Its calls meet: each waits until the other has come."""

    def __init__(self) -> None:
        super().__init__()
        self.came = asyncio.Event()

    async def first(self) -> str:
        await asyncio.wait_for(self.came.wait(), 30)
        return "first"

    async def second(self) -> str:
        self.came.set()
        return "second"

    def plain(self) -> str:
        return threading.current_thread().name


class Unusual(roost.Worker):
    """Methods of other kinds, and unusual ways for them to end."""

    @staticmethod
    def static(value: Any) -> Any:
        return value

    def many(*values: Any) -> int:
        return len(values)

    def plain(self) -> int:
        return self.rank

    def generator(self) -> Iterator[int]:
        yield from (1, 2)

    def generator_expression(self) -> Iterator[int]:
        return (value for value in ())

    def stops(self) -> None:
        raise StopIteration("no more")

    def cancelled(self) -> None:
        raise asyncio.CancelledError("elsewhere")


class UnusualAsync(roost.Worker):
    async def generator(self) -> AsyncIterator[int]:
        yield 1

    async def cancelled(self) -> None:
        raise asyncio.CancelledError("elsewhere")


class FailsToStart(roost.Worker):
    def __init__(self, failing: int, error: Callable[[], BaseException]) -> None:
        super().__init__()
        if self.rank == failing:
            raise error()


class DiesWhileStarting(roost.Worker):
    def __init__(self, failing: int, how: str) -> None:
        super().__init__()
        if self.rank == failing:
            if how == "exit":
                sys.exit(4)
            os.kill(os.getpid(), signal.SIGSEGV if how == "crash" else signal.SIGKILL)


class NeverStarts(roost.Worker):
    """All but rank 0: one waits, one holds the interpreter, one is stopped."""

    def __init__(self, folder: str) -> None:
        super().__init__()
        (Path(folder) / str(os.getpid())).touch()
        if self.rank == 1:
            threading.Event().wait()
        if self.rank == 2:
            ctypes.PyDLL(None).sleep(600)
        if self.rank == 3:
            os.kill(os.getpid(), signal.SIGSTOP)


class Plain:
    """Not a roost worker: for `allocate`."""

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        self.args, self.kwargs = args, kwargs

    def arguments(self) -> tuple[Any, ...]:
        return self.args, self.kwargs

    def environment(self, *names: str) -> dict[str, str | None]:
        return {name: os.environ.get(name) for name in names}

    def environment_at_import(self, *names: str) -> dict[str, str | None]:
        return {name: ENVIRONMENT_AT_IMPORT.get(name) for name in names}

    def pid(self) -> int:
        return os.getpid()

    async def later(self, value: Any) -> Any:
        return value

    def node_id(self) -> str:
        import ray

        return ray.get_runtime_context().get_node_id()


class Picky(Exception):
    """An exception that cannot be made from its `args`."""

    def __init__(self, code: int, *, text: str) -> None:
        super().__init__(f"{code}: {text}")
        self.code = code


class HoldsALock(Exception):
    """An exception that cannot be pickled."""

    def __init__(self) -> None:
        super().__init__("cannot travel")
        self.lock = threading.Lock()
