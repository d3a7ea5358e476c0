"""The rank language, one segment at a time."""

from __future__ import annotations

import pytest

from roost.config.ranks import MAX_TEXT, Ranks, RankSyntaxError, parse_node_ranks, parse_ranks, ranges


@pytest.mark.parametrize(
    ("text", "canonical"),
    [
        ("0-7", "0-7"),
        ("3", "3"),
        ("3-3", "3"),
        (" 0 - 7 ", "0-7"),
        ("00-07", "0-7"),
        ("all", "all"),
        ("all:0-3", "all:0-3"),
        ("0-1:0-3,3-5,7-10:7-14", "0-1:0-3,3-5,7-10:7-14"),
        ("0 : 0 , 1 : 1 - 2", "0:0,1:1-2"),
        ("0\t-\t1", "0-1"),
    ],
)
def test_canonical_spelling(text: str, canonical: str) -> None:
    assert str(parse_ranks(text)) == canonical


@pytest.mark.parametrize(
    ("text", "code", "culprit"),
    [
        ("", "RL101", ""),
        ("0-3,", "RL101", ","),
        (",0-3", "RL101", ","),
        ("0,,1", "RL101", ","),
        ("0-3:", "RL101", ""),
        (":0-3", "RL101", ":"),
        ("a", "RL101", "a"),
        ("0-3:x", "RL101", "x"),
        ("0:0:0", "RL101", "0:0:0"),
        ("0-٣", "RL101", "0-٣"),
        ("0\xa0-1", "RL101", "0\xa0-1"),
        ("+1", "RL101", "+1"),
        ("-1", "RL101", "-1"),
        ("1.0", "RL101", "1.0"),
        ("3-1", "RL102", "3-1"),
        ("0:3-1", "RL102", "3-1"),
        ("2,1", "RL103", "1"),
        ("0,0", "RL103", "0"),
        ("0-3, 2-5", "RL103", "2-5"),
        ("all,3", "RL103", "all"),
        ("0-3:4-7", "RL104", "0-3:4-7"),
        ("0:0,1:2", "RL104", "1:2"),
        ("0-1,2:0", "RL104", "2:0"),
        ("0-3:all", "RL105", "all"),
        ("0-3: all", "RL105", " all"),
        ("0-3:  x", "RL101", "x"),
        ("0,  3-1", "RL102", "3-1"),
        ("0-1234567890", "RL106", "0-1234567890"),
        ("0," * MAX_TEXT, "RL106", "0"),
    ],
)
def test_mistakes(text: str, code: str, culprit: str) -> None:
    with pytest.raises(RankSyntaxError) as caught:
        parse_ranks(text)
    finding, start, length = caught.value.problems[0]
    assert finding.code == code
    assert text[start : start + length] == culprit


@pytest.mark.parametrize(
    ("text", "remedy"),
    [
        ("0-3\uff0c8-11", "fullwidth comma; write 0-3,8-11"),
        ("0-3\uff1a0-7", "fullwidth colon; write 0-3:0-7"),
        ("0-3,\xa08-11", "no-break space; write 8-11"),
        ("0-3,\u200b8-11", "zero width space; write 8-11"),
        ("0\u22123", "minus sign; write 0-3"),
        ("0\uff5e3", "fullwidth tilde; write 0-3"),
        ("0\u30011", "ideographic comma; write 0,1"),
        ("\uff10-\uff13", "fullwidth digit zero; write 0-3"),
        ("0-\xe9", "latin small letter e with acute; write ranks as"),
        ("0,ALL", "in lower case and alone"),
        ("0-7:2-13,8-15:14-15", "write 0-7:0-11,8-15:12-13"),
        ("0:0,1:2,2,3:5-6", "write 0:0,1:1,2,3:3-4"),
        ("0-3:0,1,2,3,4-7:4,5-7", "write 0-3:0-3,4-7:4-7"),
        ("0,0", "for several processes on one resource"),
        ("1:1,0:0", "start at 0 here"),
    ],
)
def test_remedies(text: str, remedy: str) -> None:
    with pytest.raises(RankSyntaxError) as caught:
        parse_ranks(text)
    found = caught.value.problems[0][0].remedy
    assert remedy in found
    if found.startswith("write 0"):
        assert str(parse_ranks(found.removeprefix("write "))) == found.removeprefix("write ")


@pytest.mark.parametrize(
    ("text", "remedy"),
    [
        ("0,all", "use `all` alone, or name the ranks"),
        ("All", "write `all`, in lower case and alone"),
        ("0\u30011", "it holds U+3001, ideographic comma; write 0,1"),
        ("0\uff1a1", "it holds U+FF1A, fullwidth colon; write 0, 0-3, `0,2` or all"),
    ],
)
def test_remedies_for_node_ranks(text: str, remedy: str) -> None:
    with pytest.raises(RankSyntaxError) as caught:
        parse_node_ranks(text)
    assert caught.value.problems[0][0].remedy == remedy


def test_all_problems_of_a_text_are_reported() -> None:
    with pytest.raises(RankSyntaxError) as caught:
        parse_ranks("x,3-1,0:y,all:all")
    assert [finding.code for finding, _, _ in caught.value.problems] == ["RL101", "RL102", "RL101", "RL105"]


@pytest.mark.parametrize(
    ("text", "expected"),
    [("0", [(0, 0)]), ("0-1", [(0, 1)]), ("0, 2-3", [(0, 0), (2, 3)]), ("3,1", [(3, 3), (1, 1)])],
)
def test_node_ranks(text: str, expected: list[tuple[int, int]]) -> None:
    assert parse_node_ranks(text) == tuple(Ranks(*pair) for pair in expected)


def test_all_nodes() -> None:
    assert parse_node_ranks(" all ") is None


@pytest.mark.parametrize("text", ["", " ", "x", "0-", "1-0", "0,", "-1", "0" * (MAX_TEXT + 1)])
def test_wrong_node_ranks(text: str) -> None:
    with pytest.raises(RankSyntaxError):
        parse_node_ranks(text)


def test_ranges() -> None:
    assert ranges([5, 0, 2, 1]) == "0-2,5"
    assert ranges([]) == ""
    assert ranges([9, 10, 2]) == "2,9-10"


@pytest.mark.parametrize(
    ("text", "remedy"),
    [
        ("8-15:4", "write 8-15:0-3 for 4 processes, or 8-15:0 for one"),
        ("all:4", "write all:0-3 for 4 processes, or all:0 for one"),
        ("8-15:16", "write 8-15:0-15 for 16 processes, or 8-15:0 for one"),
        ("0-7:4,8-15:4", "write 0-7:0-3,8-15:4-7 if the numbers after colons are how many, or 0-7:0,8-15:1"),
        ("0-7,8-15:4", "write 0-7,8-15:8-11 if the numbers after colons are how many, or 0-7,8-15:8"),
        ("8-15:1", "write 8-15:0"),  # one process either way
        ("8-15:3", "write 8-15:0"),  # 3 processes cannot share 8
        ("0:0,1:2", "write 0:0,1:1"),  # the first number is a rank in order, so the second is one too
        ("0-3:4-7", "write 0-3:0-3"),
    ],
)
def test_a_lone_process_may_be_how_many(text: str, remedy: str) -> None:
    with pytest.raises(RankSyntaxError) as caught:
        parse_ranks(text)
    findings = [finding for finding, _, _ in caught.value.problems]
    assert {(finding.code, finding.remedy) for finding in findings} == {("RL104", remedy)}
