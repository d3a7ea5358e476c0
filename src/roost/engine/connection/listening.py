"""Whether something listens at an address. Commands that do without Ray import this."""

from __future__ import annotations

import socket

HELLO = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n" + bytes(
    [0, 0, 0, 4, 0, 0, 0, 0, 0]
)  # a server of gRPC answers it


def reached(address: str, within: float) -> socket.socket:
    """A connection to HOST:PORT. Raises `OSError` or `ValueError` if nothing listens there."""
    host, _, port = address.rpartition(":")
    return socket.create_connection((host.strip("[]"), int(port)), timeout=within)


def listens(address: str, within: float = 2.0) -> bool:
    try:
        reached(address, within).close()
    except (OSError, ValueError):
        return False
    return True


def check_answers(address: str, connect_within: float, answer_within: float) -> None:
    """Raise `OSError` unless the server there answers: a process that is stopped still accepts connections."""
    with reached(address, connect_within) as server:
        server.settimeout(answer_within)
        try:
            server.sendall(HELLO)
            server.recv(1)
        except TimeoutError:
            raise TimeoutError(
                f"it accepts connections, and has not answered in {answer_within:g} s"
            ) from None
        except ConnectionError:  # one that uses TLS refuses the hello
            pass
