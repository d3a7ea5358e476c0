"""A secret of the driver is nowhere; one that the config gives a worker is only there."""

from __future__ import annotations

from pathlib import Path

import pytest
from running import Program

pytestmark = pytest.mark.ray
CANARY = "canary-4f1d9c62aa"  # in the driver's environment
CONFIGURED = "configured-8e77b03d51"  # in the config, for workers


def files_with(directory: Path, *values: str) -> tuple[int, list[str]]:
    """How many files were searched, and which of them hold one of the values."""
    searched, found = 0, []
    for path in directory.rglob("*"):
        if path.is_file() and not path.is_symlink():
            searched += 1
            content = path.read_bytes()
            if any(value.encode() in content for value in values):
                found.append(str(path))
    return searched, found


def test_secrets_are_nowhere_ray_and_roost_write(tmp_path: Path) -> None:
    """Pitfall: all of the driver's environment, API keys included, is copied where the dashboard shows it."""
    program = Program(
        "secretive",
        env={
            "RAY_ADDRESS": None,
            "RAY_TMPDIR": str(tmp_path),
            "ROOST_EMBEDDED": "1x2",
            "MY_API_KEY": CANARY,
            "HF_TOKEN": CANARY,
            "SECRET_PLACE": CANARY,
            "NCCL_AUTH_TOKEN": CANARY,
            "AN_ORDINARY_NAME": CANARY,
        },
    )
    try:
        program.tell(CONFIGURED)
        said = program.answer(within=120)
        assert said["shown"] == 0
        assert said["state"] == 0
        assert said["inherited"] == 0
        assert said["reached"] == [True, True, True]
        searched, found = files_with(Path(said["directory"]), CANARY, CONFIGURED)
        assert searched > 10
        assert found == []
        program.tell("end")
        assert program.end() == 0
        assert CANARY not in program.output
        assert CONFIGURED not in program.output
    finally:
        program.kill()
    assert files_with(tmp_path, CANARY, CONFIGURED)[1] == []
