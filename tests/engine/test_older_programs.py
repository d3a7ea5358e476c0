"""Programs of the older system run as they were written, imports aside."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path

import pytest
from running import PROGRAMS, Program, module_path, new_job

pytestmark = pytest.mark.ray


def test_they_answer_what_their_documents_promise(run: Callable[..., Program], tmp_path: Path) -> None:
    paths = os.pathsep.join([module_path(), str(PROGRAMS / "standins")])
    # Other jobs run on this Ray too. Hydra writes what it was called with into a folder.
    environ = {"PYTHONPATH": paths, "ROOST_JOB": new_job("older")}
    program = run("older_programs", f"hydra.run.dir={tmp_path}", env=environ)
    said = {name: rest for name, *rest in (program.answer() for _ in range(10))}
    assert program.end() == 0
    assert said["config"] == [[None, None, None, None]]
    assert "Hello from TestWorker rank" in program.output  # Ray shows one of lines that are alike
    assert said["flexible"] == [[2, 1, 1]]
    assert said["packed"] == [[1, 1, 1, 1]]
    assert said["chunked"] == [[2, 2]]
    assert said["strided"] == [[2, 2]]
    assert said["node"] == [[0, 1, 2, 3]]
    assert said["allocate"] == [["positional", "keyword", "2", "0"]]
    assert said["found"] == said["allocate"]
    assert said["attach"] == [True, True, True, 4, True]
    everything = "0,1,2,3"
    assert said["older"] == [[1, 2], [everything, everything], [[0, 0], [1, 0]]]
    assert "[older:1] INFO rank 1 of 2" in program.output
