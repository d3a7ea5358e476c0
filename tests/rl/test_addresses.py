"""Addresses of engines that run elsewhere, and asking them."""

from __future__ import annotations

import socket
import threading
from collections.abc import Callable, Iterator

import pytest
from hypothesis import given
from hypothesis import strategies as st

from roost.errors import ConfigurationError
from roost.rl.addresses import Address, http_status, parse_addresses

HELP = "  = help: write host:port, such as 10.0.0.1:30000, http://node-1:30000 or [fd00::1]:30000"


def parsed(text: str) -> Address:
    (address,) = parse_addresses([text])
    return address


@pytest.mark.parametrize(
    ("text", "host", "port", "url"),
    [
        ("10.0.0.1:30000", "10.0.0.1", 30000, "http://10.0.0.1:30000"),
        ("http://10.0.0.1:30000", "10.0.0.1", 30000, "http://10.0.0.1:30000"),
        ("HTTP://Node-1.Example:80/", "node-1.example", 80, "http://node-1.example:80"),
        (" engine_0:1 ", "engine_0", 1, "http://engine_0:1"),
        ("[::1]:65535", "::1", 65535, "http://[::1]:65535"),
        ("http://[FD00:0:0::1]:30000/", "fd00::1", 30000, "http://[fd00::1]:30000"),
        ("[fe80::1%eth0]:1", "fe80::1%eth0", 1, "http://[fe80::1%eth0]:1"),
    ],
)
def test_parsing(text: str, host: str, port: int, url: str) -> None:
    address = parsed(text)
    assert address == Address(host, port)
    assert address.url == url
    assert parsed(str(address)) == parsed(address.url) == address


@given(st.ip_addresses().map(str), st.integers(1, 65535))
def test_parsing_what_was_printed(host: str, port: int) -> None:
    address = Address(host, port)
    assert parsed(str(address)) == parsed(address.url) == address


@given(st.text() | st.from_regex(r"(http://)?[\[\]:a-z0-9.@/-]*", fullmatch=True))
def test_any_text_is_an_address_or_a_configuration_error(text: str) -> None:
    try:
        address = parsed(text)
    except ConfigurationError as error:
        assert len(error.findings) == 1  # noqa: PT017
    else:
        assert parsed(str(address)) == address


@pytest.mark.parametrize(
    ("text", "code", "what", "why"),
    [
        ("node-1", "RC102", "'node-1'", "the port is missing"),
        ("[::1]", "RC102", "'[::1]'", "the port is missing"),
        ("", "RC102", "''", "the port is missing"),
        (":80", "RC105", "':80'", "the host is missing"),
        ("node:", "RC104", "'node:'", "a port is a number from 1 to 65535"),
        ("node:0", "RC104", "'node:0'", "a port is a number from 1 to 65535"),
        ("node:65536", "RC104", "'node:65536'", "a port is a number from 1 to 65535"),
        ("node:٣", "RC104", "'node:٣'", "a port is a number from 1 to 65535"),
        ("::1:80", "RC105", "'::1:80'", "IPv6 goes into brackets"),
        ("[node]:80", "RC105", "'[node]:80'", "what is in brackets is not an IPv6 address"),
        ("[::1:80", "RC105", "'[::1:80'", "what is in brackets is not an IPv6 address"),
        ("10.0.0.300:80", "RC105", "'10.0.0.300:80'", "the host is not an IPv4 address"),
        ("no de:80", "RC105", "'no de:80'", "the host is not a name"),
        ("-x:80", "RC105", "'-x:80'", "the host is not a name"),
        ("https://node:80", "RC105", "'https://node:80'", "roost speaks http to engines, not https"),
        ("http://node:80/v1", "RC105", "'http://node:80/v1'", "an address ends with the port"),
        ("node:80?x", "RC105", "'node:80?x'", "an address ends with the port"),
        ("http://me:canary@node:80", "RC105", "a text with a login", "roost asks engines without one"),
        (7, "RC103", "a value of type int", "an address is text"),
    ],
)
def test_mistakes(text: str, code: str, what: str, why: str) -> None:
    with pytest.raises(ConfigurationError) as caught:
        parsed(text)
    assert str(caught.value) == (
        f"error[{code}]: {what} is not the address of an engine\n  = why: {why}\n{HELP}"
    )


def test_all_mistakes_of_a_list() -> None:
    with pytest.raises(ConfigurationError) as caught:
        parse_addresses(["a:1", "b", "http://A:1/", "c:0"])
    assert str(caught.value) == (
        "error[RC102]: 'b' is not the address of an engine\n"
        f"  --> [1]\n  = why: the port is missing\n{HELP}\n\n"
        "error[RC105]: a:1 is listed twice\n"
        "  --> [2]\n  = help: list each engine once\n\n"
        "error[RC104]: 'c:0' is not the address of an engine\n"
        f"  --> [3]\n  = why: a port is a number from 1 to 65535\n{HELP}"
    )
    assert parse_addresses(["b:2", "a:1"]) == (Address("b", 2), Address("a", 1))
    assert parse_addresses([]) == ()


@pytest.fixture
def answering() -> Iterator[Callable[[bytes | None], str]]:
    """Servers that give one connection after the other these bytes; None: they accept and say nothing."""
    listeners: list[socket.socket] = []
    held: list[socket.socket] = []

    def serve(listener: socket.socket, answer: bytes | None) -> None:
        while True:
            try:
                connection, _ = listener.accept()
            except OSError:
                return
            connection.recv(65536)
            if answer is None:
                held.append(connection)
                continue
            connection.sendall(answer)
            connection.close()

    def make(answer: bytes | None) -> str:
        listener = socket.create_server(("127.0.0.1", 0))
        listeners.append(listener)
        threading.Thread(target=serve, args=(listener, answer), daemon=True).start()
        return f"http://127.0.0.1:{listener.getsockname()[1]}"

    yield make
    for one in listeners:
        one.shutdown(socket.SHUT_RDWR)
        one.close()
    for one in held:
        one.close()


@pytest.mark.parametrize(
    ("answer", "status"),
    [
        (b"HTTP/1.1 200 OK\r\n\r\n", 200),
        (b"HTTP/1.0 503 Busy\r\nContent-Length: 100\r\n\r\n", 503),
        (b"HTTP/1.1 302 Found\r\nLocation: http://127.0.0.1:1/\r\n\r\n", 302),
        (b"SSH-2.0-x\r\n", "an answer that is not HTTP"),
        (b"", "connection closed"),
        (None, "no answer in 0.1 s"),
    ],
)
def test_asking(answering: Callable[[bytes | None], str], answer: bytes | None, status: int | str) -> None:
    assert http_status(answering(answer) + "/health", 0.1 if answer is None else 30) == status


def test_asking_where_nobody_listens(monkeypatch: pytest.MonkeyPatch) -> None:
    with socket.socket() as bound:
        bound.bind(("127.0.0.1", 0))
        assert http_status(f"http://127.0.0.1:{bound.getsockname()[1]}/health", 30) == "connection refused"

    def unknown(*_: object, **__: object) -> None:
        raise socket.gaierror(socket.EAI_NONAME, "Name or service not known")

    monkeypatch.setattr(socket, "getaddrinfo", unknown)
    assert http_status("http://no-such-host.invalid:1/", 30) == "unknown host no-such-host.invalid"


def test_proxies_of_the_environment_are_not_asked(
    answering: Callable[[bytes | None], str], monkeypatch: pytest.MonkeyPatch
) -> None:
    proxy = answering(b"HTTP/1.1 418 Proxy\r\n\r\n")
    for name in ("http_proxy", "HTTP_PROXY", "all_proxy", "ALL_PROXY"):
        monkeypatch.setenv(name, proxy)
    assert http_status(answering(b"HTTP/1.1 204 Fine\r\n\r\n"), 30) == 204
