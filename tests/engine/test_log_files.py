"""Reading log files in pieces, and from their last lines on."""

from __future__ import annotations

import os
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from roost.engine.job.job_folder import StartedProcess
from roost.engine.processes import log_files
from roost.engine.processes.log_files import LineCutter, LogPosition, logs_of, read_logs

texts = st.lists(st.sampled_from([b"a", b"bc", b"", b"\xff"]), max_size=12).map(b"\n".join)


@pytest.fixture
def small(monkeypatch: pytest.MonkeyPatch) -> None:
    for name, size in (("PIECE", 3), ("ANSWER", 5), ("_BLOCK", 2)):
        monkeypatch.setattr(log_files, name, size)


@pytest.mark.usefixtures("small")
@given(content=texts)
def test_pieces_add_up_to_the_file(tmp_path_factory: pytest.TempPathFactory, content: bytes) -> None:
    file = tmp_path_factory.mktemp("logs") / "one.out"
    file.write_bytes(content)
    position, found = LogPosition(path=str(file)), b""
    while True:
        (piece,) = read_logs([position])
        assert len(piece.data) <= 3
        found, position = found + piece.data, piece.next
        if position.offset >= piece.size:
            break
    assert found == content


def test_a_log_that_ray_has_moved_is_read_on(tmp_path: Path) -> None:
    file = tmp_path / "one.out"
    file.write_bytes(b"first\n")
    (piece,) = read_logs([LogPosition(path=str(file))])
    with file.open("ab") as more:
        more.write(b"last\n")
    (tmp_path / "old").mkdir()
    file.rename(tmp_path / "old" / "one.out")
    (rest,) = read_logs([piece.next])
    assert (rest.data, rest.problem) == (b"last\n", "")
    (none,) = read_logs([LogPosition(path=str(tmp_path / "two.out"))])
    assert none.problem == "No such file or directory"


@pytest.mark.usefixtures("small")
@given(content=texts, lines=st.integers(0, 14))
def test_the_last_lines(tmp_path_factory: pytest.TempPathFactory, content: bytes, lines: int) -> None:
    file = tmp_path_factory.mktemp("logs") / "one.out"
    file.write_bytes(content)
    (piece,) = read_logs([LogPosition(path=str(file), tail=lines)])
    start = piece.next.offset - len(piece.data)
    expected = content.split(b"\n")
    if expected[-1] == b"":
        expected.pop()
    kept = expected[len(expected) - lines :] if lines < len(expected) else expected
    shown = content[start:].split(b"\n")
    if shown[-1] == b"":
        shown.pop()
    assert shown == (kept if lines else [])


@pytest.mark.usefixtures("small")
def test_an_answer_is_bounded_and_unreadable_files_are_named(tmp_path: Path) -> None:
    files = [tmp_path / name for name in ("a", "b", "c")]
    for file in files:
        file.write_bytes(b"0123456789")
    pieces = read_logs([LogPosition(path=str(file)) for file in files])
    assert [piece.data for piece in pieces] == [b"012", b"01", b""]
    (missing,) = read_logs([LogPosition(path=str(tmp_path / "none"))])
    assert (missing.data, missing.problem) == (b"", "No such file or directory")
    (emptied,) = read_logs([LogPosition(path=str(files[0]), offset=99)])
    assert emptied.data == b"012", "a file that was emptied is read from its start"


@pytest.mark.parametrize("kind", ["named pipe", "device"])
def test_what_is_no_file_is_no_log(tmp_path: Path, kind: str) -> None:
    """The agent of a node would wait in it for ever."""
    place = "/dev/null" if kind == "device" else str(tmp_path / "pipe")
    if kind == "named pipe":
        os.mkfifo(place)
    opened, kept = os.open(place, os.O_RDWR), os.dup(2)
    log = tmp_path / f"worker-aa-01-{os.getpid()}.err"
    log.touch()
    try:
        os.dup2(opened, 2)
        assert logs_of(os.getpid(), str(tmp_path))[0] == str(log)
    finally:
        os.dup2(kept, 2)
        os.close(kept)
        os.close(opened)


def test_the_logs_of_a_process_by_its_descriptors_or_its_number(tmp_path: Path) -> None:
    (tmp_path / "worker-aa-01-7.out").write_text("")
    (tmp_path / f"worker-aa-01-{os.getpid()}.err").write_text("")
    assert logs_of(7_000_000, str(tmp_path)) == ("", "")
    reading, writing = os.pipe()
    kept = os.dup(2)
    try:
        os.dup2(writing, 2)  # as Ray does where it rotates logs
        assert logs_of(os.getpid(), str(tmp_path))[0] == str(tmp_path / f"worker-aa-01-{os.getpid()}.err")
    finally:
        os.dup2(kept, 2)
        for one in (kept, reading, writing):
            os.close(one)


@given(content=texts, cuts=st.lists(st.integers(0, 30), max_size=4))
def test_lines_are_whole_whatever_the_pieces(content: bytes, cuts: list[int]) -> None:
    cutter, last = LineCutter(), 0
    found: list[str] = []
    for cut in [*sorted(cuts), len(content)]:
        found += cutter.lines(content[last:cut])
        last = max(last, min(cut, len(content)))
    found += cutter.rest()
    expected = content.decode(errors="replace").split("\n")
    assert found == (expected if expected[-1] else expected[:-1])


def test_lines_that_ray_writes_for_itself_are_left_out() -> None:
    cutter = LineCutter()
    assert list(cutter.lines(b":job_id:01000000\n:actor_name:Trainer\nmine\r\n")) == ["mine"]


def test_the_name_of_a_process_says_how_often_it_was_restarted() -> None:
    facts = {"component": "actor", "rank": 3, "node": 0, "node_id": "n", "host": "h", "pid": 1, "started": 2}
    first, again = (StartedProcess(generation=number, **facts) for number in (0, 1))  # type: ignore[arg-type]
    assert (first.name, again.name) == ("actor:3", "actor:3+1")
    assert StartedProcess.from_dict(again.to_dict()) == again
