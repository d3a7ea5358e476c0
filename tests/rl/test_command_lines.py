"""Command lines: what is filled in, what is left alone, and everything that is said about a wrong one."""

from __future__ import annotations

import json
import pickle
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from roost.errors import ConfigurationError
from roost.rl.command import PLACEHOLDERS, CommandLine, secret_texts, without_secrets

VALUES = {
    "host": "10.0.0.5",
    "port": 30001,
    "nccl_port": 30002,
    "dist_init_addr": "10.0.0.5:30003",
    "node_rank": 0,
    "num_nodes": 2,
    "devices": ["0", "1"],
    "bootstrap_port": 30010,
    "engine": 3,
    "server": "default",
    "kind": "regular",
    "share": 0.5,
    "metrics_port": 30011,
}
KNOWN = (
    "known: bootstrap_port, devices, dist_init_addr, engine, host, kind, metrics_port, nccl_port, node_rank, "
    "num_nodes, port, server, share"
)


def test_every_placeholder_has_a_value() -> None:
    assert set(VALUES) == PLACEHOLDERS
    words = [f"{{{name}}}" for name in VALUES]
    assert CommandLine(words).fill(VALUES) == [
        *(
            "10.0.0.5",
            "30001",
            "30002",
            "10.0.0.5:30003",
            "0",
            "2",
            "0,1",
            "30010",
            "3",
            "default",
            "regular",
            "0.5",
            "30011",
        ),
    ]
    assert CommandLine(words).placeholders == PLACEHOLDERS


def test_a_text_is_split_and_no_shell_sees_it() -> None:
    command = CommandLine(
        """python -m server --host {host} --name 'my model' --note "$HOME; rm *" --port={port}"""
    )
    assert command.fill(VALUES) == [
        *("python", "-m", "server", "--host", "10.0.0.5", "--name", "my model"),
        *("--note", "$HOME; rm *", "--port=30001"),
    ]


@pytest.mark.parametrize(
    ("word", "filled"),
    [
        ("http://{host}:{port}/v1", "http://10.0.0.5:30001/v1"),
        ("{{port}}", "{port}"),
        ("{{{port}}}", "{30001}"),
        ('{"a": 1}', '{"a": 1}'),
        ('{"a": {"b": {}}}', '{"a": {"b": {}}}'),
        ('{"a": {"port": {port}}}', '{"a": {"port": 30001}}'),
        ('{{"a": {{"port": {port}}}}}', '{"a": {"port": 30001}}'),
        ("{Port} {port2} {} {a b}", "{Port} {port2} {} {a b}"),
        ("}}", "}}"),
        ("", ""),
    ],
)
def test_braces(word: str, filled: str) -> None:
    assert CommandLine(["x", word]).fill(VALUES) == ["x", filled]


@given(
    st.recursive(
        st.none() | st.integers() | st.text(st.characters(exclude_characters="{}\0", codec="utf-8")),
        lambda inner: st.lists(inner) | st.dictionaries(st.text(alphabet="abc port"), inner),
    )
)
def test_json_is_left_alone(value: Any) -> None:
    for text in (json.dumps(value), json.dumps(value, separators=(",", ":"))):
        assert CommandLine(["x", text]).fill(VALUES) == ["x", text]


@given(st.text(st.characters(exclude_characters="\0", codec="utf-8")))
def test_doubled_braces_say_any_text(text: str) -> None:
    doubled = text.replace("{", "{{").replace("}", "}}")
    if "{" in text:  # without one nothing is doubled
        assert CommandLine(["x", doubled]).fill({}) == ["x", text]


def test_values_of_values_are_not_filled_again() -> None:
    assert CommandLine(["x", "{server}{port}"]).fill({**VALUES, "server": "{port}"}) == ["x", "{port}30001"]


def test_the_environment() -> None:
    command = CommandLine("x {port}", env={"ADDR": "{host}:{nccl_port}", "CONFIG": '{"a": {"b": 1}}'})
    assert command.filled_env(VALUES) == {"ADDR": "10.0.0.5:30002", "CONFIG": '{"a": {"b": 1}}'}
    assert command.placeholders == {"port", "host", "nccl_port"}


def test_a_command_is_a_value() -> None:
    words, env = ["x", "{port}"], {"A": "1"}
    command = CommandLine(words, env=env)
    words.append("y")
    env["B"] = "2"
    assert (command.argv, command.env) == (("x", "{port}"), {"A": "1"})
    assert command == CommandLine("x {port}", env={"A": "1"}) == pickle.loads(pickle.dumps(command))
    assert len({command, CommandLine("x {port}", env={"A": "1"})}) == 1
    assert (command.health_path, command.start_within) == ("/health", 600.0)


def test_secrets_are_not_shown() -> None:
    command = CommandLine(
        "serve --api-key canary-1 --port {port} --auth-token=canary,2 --url http://me:canary-3@host",
        env={"PLAIN": "canary-4"},
    )
    assert repr(command) == (
        "CommandLine(\"serve --api-key '***' --port '{port}' '--auth-token=***' --url 'http://***********@host'\", "
        "health_path='/health', start_within=600)"
    )
    assert without_secrets(["x", "--key", "--port", "1", "token", "2"]) == [
        "x",
        "--key",
        "--port",
        "1",
        "token",
        "2",
    ]
    assert "canary" not in repr(command) + str(command)


MISTAKES: dict[str, tuple[Any, dict[str, Any], str]] = {
    "unknown placeholder": (
        "serve --port {prot}",
        {},
        """\
error[RC101]: word 2 of the command: unknown placeholder {prot}
  --> argv[2]
  = help: did you mean 'port'? KNOWN; for the braces themselves write {{prot}}""",
    ),
    "nothing near": (
        ["serve", "{messages}{messages}"],
        {},
        """\
error[RC101]: word 1 of the command: unknown placeholder {messages}
  --> argv[1]
  = help: KNOWN; for the braces themselves write {{messages}}""",
    ),
    "empty": (
        "  ",
        {},
        """\
error[RC102]: the command names no program
  --> argv
  = help: such as `python -m my_server --port {port}`""",
    ),
    "no words": (
        [],
        {},
        """\
error[RC102]: the command names no program
  --> argv
  = help: such as `python -m my_server --port {port}`""",
    ),
    "an empty program": (
        "'' --port 1",
        {},
        """\
error[RC102]: the command names no program
  --> argv
  = help: such as `python -m my_server --port {port}`""",
    ),
    "quotes": (
        "serve --name 'my model",
        {},
        """\
error[RC103]: the command cannot be split into words
  --> argv
  = why: no closing quotation
  = help: close the quote, or give the words as a list""",
    ),
    "not a command": (
        7,
        {},
        """\
error[RC103]: a command is a text or a list of texts, not int
  --> argv
  = help: such as `python -m my_server --port {port}`""",
    ),
    "bytes": (
        b"serve",
        {},
        """\
error[RC103]: a command is a text or a list of texts, not bytes
  --> argv
  = help: such as `python -m my_server --port {port}`""",
    ),
    "a number as a word": (
        ["serve", "--port", 80],
        {},
        """\
error[RC103]: word 2 of the command is of type int, not text
  --> argv[2]
  = help: put it in quotes""",
    ),
    "a null character": (
        ["serve", "a\0b"],
        {},
        """\
error[RC104]: word 1 of the command holds a null character
  --> argv[1]
  = help: no program can be given one: remove it""",
    ),
    "env is a list": (
        "serve",
        {"env": ["A=1"]},
        """\
error[RC103]: env is a mapping of names to texts, not list
  --> env
  = help: such as {"NCCL_DEBUG": "INFO"}""",
    ),
    "names in env": (
        "serve",
        {"env": {"": "1", "A=B": "2", 3: "4"}},
        """\
error[RC105]: '' is not the name of an environment variable
  --> env
  = help: such as NCCL_DEBUG

error[RC105]: 'A=B' is not the name of an environment variable
  --> env
  = help: such as NCCL_DEBUG

error[RC105]: 3 is not the name of an environment variable
  --> env
  = help: such as NCCL_DEBUG""",
    ),
    "values in env": (
        "serve",
        {"env": {"A": 1, "B": "{hots}"}},
        """\
error[RC103]: env 'A' is of type int, not text
  --> env.A
  = help: put it in quotes

error[RC101]: env 'B': unknown placeholder {hots}
  --> env.B
  = help: did you mean 'host'? KNOWN; for the braces themselves write {{hots}}""",
    ),
    "health path": (
        "serve",
        {"health_path": "health"},
        """\
error[RC104]: 'health' is not a path to ask for health
  --> health_path
  = help: such as "/health", or "" for a server that is healthy as soon as it runs""",
    ),
    "health path with a space": (
        "serve",
        {"health_path": "/a b"},
        """\
error[RC104]: '/a b' is not a path to ask for health
  --> health_path
  = help: such as "/health", or "" for a server that is healthy as soon as it runs""",
    ),
    "health path of another type": (
        "serve",
        {"health_path": None},
        """\
error[RC103]: a value of type NoneType is not a path to ask for health
  --> health_path
  = help: such as "/health", or "" for a server that is healthy as soon as it runs""",
    ),
    "no patience": (
        "serve",
        {"start_within": 0},
        """\
error[RC104]: start_within is a positive number of seconds, not 0
  --> start_within
  = help: such as 600""",
    ),
    "endless patience": (
        "serve",
        {"start_within": float("inf")},
        """\
error[RC104]: start_within is a positive number of seconds, not inf
  --> start_within
  = help: such as 600""",
    ),
    "patience in words": (
        "serve",
        {"start_within": "600"},
        """\
error[RC103]: start_within is a positive number of seconds, not '600'
  --> start_within
  = help: such as 600""",
    ),
    "everything at once": (
        ["serve", "{prt}", None],
        {"env": {"A": 1}, "health_path": "x", "start_within": True},
        """\
error[RC101]: word 1 of the command: unknown placeholder {prt}
  --> argv[1]
  = help: did you mean 'port'? KNOWN; for the braces themselves write {{prt}}

error[RC103]: word 2 of the command is of type NoneType, not text
  --> argv[2]
  = help: put it in quotes

error[RC103]: env 'A' is of type int, not text
  --> env.A
  = help: put it in quotes

error[RC104]: 'x' is not a path to ask for health
  --> health_path
  = help: such as "/health", or "" for a server that is healthy as soon as it runs

error[RC103]: start_within is a positive number of seconds, not True
  --> start_within
  = help: such as 600""",
    ),
}


@pytest.mark.parametrize("name", MISTAKES)
def test_mistakes(name: str) -> None:
    argv, options, says = MISTAKES[name]
    with pytest.raises(ConfigurationError) as caught:
        CommandLine(argv, **options)
    assert str(caught.value) == says.replace("KNOWN", KNOWN)


@pytest.mark.parametrize("path", ["", "/", "/v1/health?ready=1"])
def test_health_paths(path: str) -> None:
    assert CommandLine("serve", health_path=path).health_path == path


def test_an_engine_without_a_bootstrap_port() -> None:
    command = CommandLine("serve --port {port} --bootstrap {bootstrap_port}", env={"B": "{bootstrap_port}"})
    for values in ({**VALUES, "bootstrap_port": None}, {"port": 1}):
        for fill in (command.fill, command.filled_env):
            with pytest.raises(ConfigurationError) as caught:
                fill(values)
            assert str(caught.value) == (
                "error[RC104]: the command uses {bootstrap_port}, and this engine has none\n"
                "  = why: only prefill engines have a bootstrap port\n"
                "  = help: give the prefill engines a command of their own, by their component's name"
            )


def test_values_that_are_missing() -> None:
    with pytest.raises(ConfigurationError) as caught:
        CommandLine("serve {port} {share} {host}").fill({"port": 1, "devices": "0", "host": None})
    assert str(caught.value) == (
        "error[RC104]: the command uses {share}, and this engine has no value for it\n"
        "  = help: use what it has: devices, port\n\n"
        "error[RC104]: the command uses {host}, and this engine has no value for it\n"
        "  = help: use what it has: devices, port"
    )


@pytest.mark.parametrize("values", [None, "port", ["port"]])
@pytest.mark.parametrize("words", ["serve {port}", "serve"])
def test_values_that_are_no_mapping(words: str, values: Any) -> None:
    command = CommandLine(words, env={"A": "1"})
    for fill in (command.fill, command.filled_env):
        with pytest.raises(ConfigurationError, match="values are a mapping of placeholders") as caught:
            fill(values)
        assert caught.value.codes == ("RC103",)


@pytest.mark.parametrize(
    ("words", "env", "texts"),
    [
        (["serve", "--api-key", "sesame", "--port", "30000"], {}, ["sesame"]),
        (["serve", "--api-key=sesame", "--model=llama"], {}, ["sesame"]),
        (["serve", '{"token": "sesame", "model": "llama"}'], {}, ["sesame"]),
        (["serve", "http://user:sesame@host/"], {}, ["user:sesame"]),
        (["serve"], {"HF_TOKEN": "sesame", "HF_HOME": "/models"}, ["sesame"]),
        (["serve"], {"A_KEY": "sesame", "B_KEY": "sesame!", "C_KEY": "abc"}, ["sesame!", "sesame"]),
        (["serve"], {"A_KEY": "first\nsecond one\n"}, ["first\nsecond one", "second one", "first"]),
    ],
)
def test_what_must_not_be_shown(words: list[str], env: dict[str, str], texts: list[str]) -> None:
    assert secret_texts(words, env) == texts
