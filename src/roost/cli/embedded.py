"""`roost embedded`: runs a real Ray on this machine until it is interrupted."""

from __future__ import annotations

import signal
import threading

import click

from roost.cli.ending import FINE, emit, emit_result, tell
from roost.engine.connection.embedded import embedded


@click.command("embedded")
@click.argument("shape")
@click.option("--json", "as_json", is_flag=True, help="Print the address as JSON.")
def command(shape: str, as_json: bool) -> int:
    """Keep a real Ray of several nodes running on this machine, with virtual accelerators.

    SHAPE is NODESxACCELERATORS, such as 2x4. The address is printed when it is ready; programs reach it through
    RAY_ADDRESS or Cluster(address=...). Ctrl-C or SIGTERM ends it and everything in it.
    """
    nodes, ended = embedded(shape), threading.Event()
    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, lambda *_: ended.set())
    with nodes as address:
        if as_json:
            emit_result(address=address)
        else:
            emit(f"{address}\n")
        tell("running; Ctrl-C ends it")
        ended.wait()
    return FINE
