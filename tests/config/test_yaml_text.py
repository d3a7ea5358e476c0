"""YAML as roost reads it: plain data, positions, and bounds."""

from __future__ import annotations

from typing import Any

import pytest

import roost
from roost.config.document import parse
from roost.config.yaml_text import MAX_DEPTH, MAX_VALUES, read_yaml


def data(text: str) -> Any:
    value, _ = read_yaml(text, "x")
    return value


def refused(text: str) -> roost.ConfigurationError:
    with pytest.raises(roost.ConfigurationError) as caught:
        parse(text)
    return caught.value


@pytest.mark.parametrize(
    ("written", "read"),
    [
        *(("1:0", "1:0"), ("4:7", "4:7"), ("1:2:3", "1:2:3"), ("0-7", "0-7"), ("7", 7), ("-3", -3), ("0", 0)),
        *(
            ("010", "010"),
            ("0x10", "0x10"),
            ("0b1", "0b1"),
            ("1_000", "1_000"),
            ("1e3", 1000.0),
            ("1.5", 1.5),
        ),
        *(("true", True), ("yes", True), ("off", False), ("null", None), ("~", None), ("", None)),
        *(("2001-01-01", "2001-01-01"), ("'7'", "7"), ('"off"', "off"), ("=", "="), (".inf", float("inf"))),
        *(("9" * 30, "9" * 30), ("!!str 7", "7"), ("! 7", "7"), ("[1, a]", [1, "a"]), ("{a: 1}", {"a": 1})),
    ],
)
def test_scalars(written: str, read: Any) -> None:
    value = data(f"k: {written}")["k"]
    assert value == read
    assert type(value) is type(read)


def test_keys_are_always_text() -> None:
    assert data("1: a\ntrue: b\nnull: c\n4:7: d\n") == {"1": "a", "true": "b", "null": "c", "4:7": "d"}


def test_anchors_repeat_values() -> None:
    assert data("a: &x {p: 1}\nb: *x\nc: [*x, *x]\n") == {"a": {"p": 1}, "b": {"p": 1}, "c": [{"p": 1}] * 2}


def test_an_anchor_may_be_set_again() -> None:
    assert data("a: &x 1\nb: *x\nc: &x 2\nd: *x\n") == {"a": 1, "b": 1, "c": 2, "d": 2}


def test_merge_keys() -> None:
    text = """
one: &one {a: 1, b: 1}
two: &two {b: 2, c: 2}
merged: {<<: [*one, *two], c: 3, d: 4}
single:
  b: 9
  <<: *one
"""
    assert data(text)["merged"] == {"a": 1, "b": 1, "c": 3, "d": 4}
    assert data(text)["single"] == {"a": 1, "b": 9}
    assert data('"<<": 1') == {"<<": 1}


def test_a_merge_keeps_the_texts_of_what_is_written_here() -> None:
    document = parse('base: &b {X: 010, Y: 020}\nmine: {<<: *b, X: "off"}\n')
    assert document.data["mine"] == {"X": "off", "Y": "020"}
    assert document.text(("mine", "X"), "off") == "off"
    assert document.text(("mine", "Y"), "") == "020"
    span = document.value_span(("mine", "Y"))
    assert span is not None
    assert span.line == 1


def test_positions() -> None:
    document = parse('a:\n  b: [x, "y z"]\n  c: {d: é}\n')

    def at(*path: Any, key: bool = False) -> tuple[int, str]:
        span = document.positions.keys[path] if key else document.positions.values[path]
        return span.line, span.excerpt[span.column - 1 :][: span.length]

    assert at("a", "b", 0) == (2, "x")
    assert at("a", "b", 1) == (2, "y z")
    assert at("a", "b") == (2, '[x, "y z"]')
    assert at("a", "c", "d") == (3, "é")
    assert at("a", "c", "d", key=True) == (3, "d")


@pytest.mark.parametrize(
    ("written", "at"),
    [
        ("k: &a 0-7", (1, "0-7")),
        ("k: !!str &a 0-7", (1, "0-7")),
        ("k: &a !!str '0-7'", (1, "0-7")),
        ("k: [&a x, y]", (1, "[&a x, y]")),
        ("k: &a [x, y]", (1, "[x, y]")),
        ("k: &a\n  0-7", (1, "&a")),
        ("k: |\n  0-7\n", (2, "0-7")),
        ("k: >-\n  0-7", (2, "0-7")),
        ("k: '0-7,\n  9'", (1, "'0-7,")),
        ("k: ''", (1, "''")),
        ("k: [&a , 1]", (1, "[&a , 1]")),
    ],
)
def test_the_position_of_a_value_is_that_of_its_content(written: str, at: tuple[int, str]) -> None:
    span = parse(written).positions.values[("k",)]
    assert (span.line, span.excerpt[span.column - 1 :][: span.length]) == at


@pytest.mark.parametrize(
    ("text", "line", "remedy"),
    [
        ("a:\n  b:2\n  c: 3\n", 2, "put a space after `b:`"),
        ("a:\n  c: 3\n  b:2\n", 3, "put a space after `b:`"),
        ("a:\n  b,c:0-7\n\n  d: 3\n", 2, "put a space after `b,c:`"),
        ("a:\n  - b:2\n    c: 3\n", 2, "put a space after `b:`"),
        ("a\uff1a\n  b: 2\n", 1, "write `a:`, with the colon of the keyboard"),
        ("a: {b:{c: 1}}\n", 1, "put a space after it"),
        ("a: {b: ${c}}\n", 1, "put the text with ${...} in quotes"),
        ("a: [0-${c}, 1]\n", 1, "put the text with ${...} in quotes"),
        (
            "# a\r  b: x\r${x}    c: 0-7\r",
            3,
            "check indentation, brackets and quotes here and on the line before",
        ),
        ("a:\n  b: {c: 0.5,", 2, "close it"),
        ("a:\n  b: {c: [0.5, 'x}' # ]", 2, "close it"),
        ("a:\n  - http://x\n    c: 3\n", 3, "check the indentation, or quote the text"),
    ],
)
def test_small_slips_are_found_where_they_are(text: str, line: int, remedy: str) -> None:
    finding = refused(text).findings[0]
    assert finding.remedy == remedy
    assert finding.where is not None
    assert finding.where.line == line


def test_every_repeated_key_is_reported_once() -> None:
    error = refused("a: &x {k: 1, k: 2, k: 3}\nb: *x\nc: 1\nc: 2\n")
    assert error.codes == ("RC003",) * 3
    assert [finding.where.line for finding in error.findings if finding.where] == [1, 1, 4]


@pytest.mark.parametrize(
    ("text", "code"),
    [
        ("a: 1\n---\nb: 2\n", "RC005"),
        ("a: {<<: {b: 1}, <<: {c: 2}}", "RC003"),
        ("a: {'<<': 1, '<<': 2}", "RC003"),
        ("a: !!python/object/apply:os.system [x]", "RC005"),
        ("a: !custom 1", "RC005"),
        ("a: !!binary aGVsbG8=", "RC005"),
        ("a: !!set {x, y}", "RC005"),
        ("[a, b]: 1", "RC005"),
        ("a: *nothing", "RC002"),
        ("a: {<<: 3}", "RC002"),
        ("a: [1", "RC002"),
        ("a: b: c", "RC002"),
        ("a: @x", "RC002"),
        ('a: "\\q"', "RC002"),
        ("a: \x01", "RC002"),
        ("a: \ud800", "RC002"),
        ("just text", "RC103"),
        ("[1, 2]", "RC103"),
        ("a: &x [*x]", "RC004"),
        ("a: " + "[" * (MAX_DEPTH + 5) + "]" * (MAX_DEPTH + 5), "RC004"),
        ("a: [" + "1," * (MAX_VALUES + 5) + "]", "RC004"),
    ],
)
def test_refusals_have_a_position(text: str, code: str) -> None:
    error = refused(text)
    assert error.codes == (code,)
    where = error.findings[0].where
    assert where is not None
    assert where.line == (2 if "---" in text else 1)
    assert error.findings[0].what


def test_an_unreadable_character_is_pointed_at() -> None:
    where = refused("a: 1\nb: x\x00y\n").findings[0].where
    assert where is not None
    assert (where.line, where.column) == (2, 5)


def test_an_empty_text_is_an_empty_job() -> None:
    assert parse("").data == parse("# only a remark\n").data == parse("---\n").data == {}


def test_no_depth_or_size_within_the_bounds_is_refused() -> None:
    assert data("a: " + "[" * (MAX_DEPTH - 2) + "]" * (MAX_DEPTH - 2))
    assert len(data("[" + "1," * (MAX_VALUES - 10) + "]")) == MAX_VALUES - 10
