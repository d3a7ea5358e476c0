"""Runs the command line inside the test process."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from roost.cli import main

EXAMPLES = Path(__file__).parents[2] / "examples"
FINE = "cluster: {num_nodes: 2, component_placement: {actor: 0-15}}\n"


@dataclass(frozen=True)
class Done:
    code: int
    out: str
    err: str

    @property
    def data(self) -> Any:
        return json.loads(self.out)


@pytest.fixture
def cli(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> Callable[..., Done]:
    """`cli("plan", "job.yaml")` in an empty directory, where job.yaml is a fine job for 2x8."""
    for name in ("COLUMNS", "NO_COLOR", "ROOST_DEBUG"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.chdir(tmp_path)
    Path("job.yaml").write_text(FINE)

    def run(*arguments: str | Path) -> Done:
        with pytest.raises(SystemExit) as end:
            main(list(map(str, arguments)))
        output = capsys.readouterr()
        assert isinstance(end.value.code, int)
        return Done(end.value.code, output.out, output.err)

    return run


@pytest.fixture
def examples() -> Path:
    return EXAMPLES
