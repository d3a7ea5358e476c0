"""Findings and how they are shown."""

from __future__ import annotations

import pickle

import pytest

import roost
from roost import ConfigurationError, Finding, Inventory, PlacementError, RoostError
from roost.codes import CODES
from roost.config.document import parse
from roost.errors import JobEnded, NoAnswer, Span, close_to, counted, error_for, render, shown
from roost.secret_names import hide_secrets, looks_secret


def caught(text: str) -> RoostError:
    with pytest.raises(RoostError) as raised:
        roost.plan(parse(text, "job.yaml"), Inventory.parse("1x8"))
    return raised.value


def test_errors_survive_pickling() -> None:
    for text in (
        "cluster: {component_placement: {a: 7-0, b: 0-8}}",
        "cluster: [",
        "cluster: {component_placement: {a: 9}}",
    ):
        error = caught(text)
        again = pickle.loads(pickle.dumps(error))
        assert type(again) is type(error)
        assert again.findings == error.findings
        assert str(again) == str(error)


@pytest.mark.parametrize("kind", [JobEnded, NoAnswer])
def test_what_a_job_did_not_answer_survives_pickling(kind: type[RoostError]) -> None:
    error = kind(Finding(code="RE106", what="the manager is gone", why="the job has ended"))
    again = pickle.loads(pickle.dumps(error))
    assert isinstance(again, roost.ClusterError)
    assert (type(again), again.findings) == (kind, error.findings)


def test_older_programs_catch_them() -> None:
    error = caught("cluster: {component_placement: {a: 7-0}}")
    assert isinstance(error, ValueError)
    assert isinstance(error, AssertionError)
    assert isinstance(error, ConfigurationError)
    assert not isinstance(error, PlacementError)
    assert isinstance(caught("cluster: {component_placement: {a: 9}}"), PlacementError)


def test_one_error_for_everything() -> None:
    placing, reading = Finding(code="RP101", what="a"), Finding(code="RC101", what="b")
    advice = Finding(code="RW101", what="c")
    assert type(error_for([placing, advice])) is PlacementError
    assert type(error_for([placing, reading])) is ConfigurationError


def test_errors_come_before_warnings() -> None:
    text = render([Finding(code="RW101", what="later"), Finding(code="RP101", what="first")])
    assert text == "error[RP101]: first\n\nwarning[RW101]: later"


def test_not_everything_is_printed() -> None:
    text = render([Finding(code="RP101", what=str(number)) for number in range(60)])
    assert text.endswith("... and 10 more")


def test_every_code_has_a_title_and_a_kind() -> None:
    assert all(code.title and code.kind for code in CODES.values())
    assert {CODES[name].severity for name in CODES if name.startswith("RW")} == {"warning"}


@pytest.mark.parametrize(
    "name",
    [
        *(
            "API_KEY",
            "OPENAI_API_KEY",
            "apikey",
            "HF_TOKEN",
            "token",
            "GITHUB_TOKEN",
            "db_password",
            "PASSWD",
        ),
        *("AWS_SECRET_ACCESS_KEY", "client_secret", "SSH_KEY", "KEY", "AUTH", "AUTHORIZATION", "credentials"),
        *("private_key", "WANDB_API_KEY", "PassPhrase", "X_AUTH_TOKEN"),
    ],
)
def test_secret_names(name: str) -> None:
    assert looks_secret(name)


@pytest.mark.parametrize(
    "name",
    ["PATH", "TOKENIZERS_PARALLELISM", "NCCL_DEBUG", "author", "AUTHORS", "KEYBOARD", "MONKEY", "robot_ip"],
)
def test_names_that_are_no_secrets(name: str) -> None:
    assert not looks_secret(name)


def test_secrets_are_starred_at_the_same_width() -> None:
    assert hide_secrets("HF_TOKEN: hunter2, b: 1") == "HF_TOKEN: *******, b: 1"
    assert hide_secrets("- {password: 'a b', x: 1}") == "- {password: *****, x: 1}"
    assert hide_secrets('API_KEY="a, b" c') == "API_KEY=****** c"
    assert hide_secrets("password: two words") == "password: *********"


def test_excerpts_never_show_secrets() -> None:
    text = """
cluster:
  component_placement: {a: 7-0}
  node_groups:
    - label: g
      node_ranks: 0
      env_configs:
        - {node_ranks: 0, env_vars: {HF_TOKEN: hunter2, BAD=NAME: 1}, oops: 1}
        - node_ranks: 0
          env_vars:
            API_KEY:
              - hunter2
        - {node_ranks: 0, env_vars: [API_KEY=hunter2, "SECRET: hunter2"]}
      hardware: {type: Arm, configs: ["password=hunter2", {node_rank: 9, password: hunter2}]}
"""
    error = caught(text)
    assert "hunter2" not in str(error)
    assert "hunter2" not in str([finding.to_dict() for finding in error.findings])


def test_control_characters_do_not_reach_the_terminal() -> None:
    finding = Finding(
        code="RC101",
        what="red \x1b[31m text",
        where=Span(source="a\nb", line=1, column=1, length=3, excerpt="\x1b[2J\tx"),
    )
    assert all(ch.isprintable() or ch == "\n" for ch in render([finding]))


def test_long_lines_are_shown_around_the_caret() -> None:
    line = "a" * 300 + "HERE" + "b" * 300
    where = Span(source="x", line=1, column=301, length=4, excerpt=line)
    shown_line, carets = render([Finding(code="RC101", what="w", where=where)]).splitlines()[-2:]
    at = carets.index("^")
    assert shown_line[at : at + 4] == "HERE"
    assert carets.count("^") == 4


@pytest.mark.parametrize(
    ("line", "marked", "carets"),
    [
        ("a: 0-99", "0-99", "   ^^^^"),
        ("\u6f14\u5458: 0-99", "0-99", "      ^^^^"),
        ("a: 0\uff0c9", "0\uff0c9", "   ^^^^"),
        ("e\u0301: 9", "9", "   ^"),
        ("\ta:\t9", "9", "    ^"),
    ],
)
def test_carets_stand_under_what_they_mark(line: str, marked: str, carets: str) -> None:
    where = Span(source="x", line=1, column=line.index(marked) + 1, length=len(marked), excerpt=line)
    text = render([Finding(code="RC101", what="w", where=where)])
    assert text.splitlines()[-1] == f"   | {carets}"


def test_words() -> None:
    assert [counted(number, "process") for number in (0, 1, 2)] == ["0 processes", "1 process", "2 processes"]
    assert counted(1200, "entry") == "1,200 entries"
    assert shown(10**5000) == "a number of many digits"
    assert shown({"a": [10**5000]}) == "a value with a number of many digits"
    assert len(shown("x" * 500)) == 60
    assert close_to("placment", ["placement", "node_group"]) == "placement"
    assert close_to("zzz", ["placement"]) is None


def test_findings_as_data() -> None:
    finding = caught("cluster: {component_placement: {a: 7-0}}").findings[0]
    assert finding.to_dict() == {
        "code": "RL102",
        "severity": "error",
        "what": "a: the range 7-0 runs backwards",
        "why": "",
        "remedy": "write 0-7",
        "path": ["cluster", "component_placement", "a"],
        "where": {"source": "job.yaml", "line": 1, "column": 36, "length": 3},
    }
