"""Who is who in a group of engines: from where the processes are to what each is told."""

from __future__ import annotations

from collections.abc import Sequence

from roost.rl.addresses import Address
from roost.rl.engine import EngineContext, EngineSeat


def engine_contexts(
    ranks: Sequence[int], seats: Sequence[EngineSeat], processes: int, *, server: str, kind: str
) -> list[EngineContext]:
    """For each of these ranks of a group; whole engines, in order.

    Every group counts its own ranks, so an engine's first process is found whatever groups come before it.
    """
    contexts = []
    for position, rank in enumerate(ranks):
        index, node_rank = divmod(rank, processes)
        first = seats[position - node_rank]
        contexts.append(
            EngineContext(
                server=server,
                kind=kind,
                index=index,
                node_rank=node_rank,
                num_nodes=processes,
                host=seats[position].host,
                port=seats[position].port,
                nccl_port=seats[position].nccl_port,
                dist_init_addr=str(Address(first.host, first.dist_init_ports[0])),
                dist_init_ports=first.dist_init_ports,
                bootstrap_port=first.bootstrap_port,
            )
        )
    return contexts
