"""Programs of the older system run as they were written, imports aside."""

from __future__ import annotations

from collections.abc import Callable

import pytest
from running import Program, new_job

pytestmark = [pytest.mark.ray, pytest.mark.slow]


def test_they_answer_what_their_documents_promise(run: Callable[..., Program]) -> None:
    program = run("older_programs", new_job("older"))
    said = {name: rest for name, *rest in (program.answer(within=90) for _ in range(8))}
    assert program.end() == 0
    assert said["config"] == [[None, None, None, None]]
    assert said["flexible"] == [[2, 1, 1]]
    assert said["packed"] == [[1, 1, 1, 1]]
    assert said["chunked"] == [[2, 2]]
    assert said["strided"] == [[2, 2]]
    assert said["node"] == [[0, 1, 2, 3]]
    assert said["allocate"] == [["positional", "keyword", "2", "0"]]
    assert said["attach"] == [True, True, True, 4, True]
