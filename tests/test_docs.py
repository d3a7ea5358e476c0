"""Runs every example of the README and the docs, page by page, in a directory that holds the examples.

- `yaml`: a job, or an inventory when it has `nodes`; it must be fine. A first line `# name.yaml` also
  writes it to that file, for the blocks that follow; `# name.yaml (wrong)` says that it must not be fine.
  `# folder/name.yaml` only writes it: it may be a part of a Hydra project.
- `python`: run in one namespace a page; `>>>` sessions must print what they show. A first line `# name.py`
  writes it to that file instead.
- `console`: `$ roost ...` (and `cat`, `echo`) must print what follows, stdout and stderr together.
- `sh`: `make` targets that exist. `text`: not run.

ROOST_UPDATE_SNAPSHOTS=1 writes what the `console` blocks print back into the pages.
"""

from __future__ import annotations

import doctest
import os
import re
import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

import roost
from roost.cli.validate import problems_of
from roost.cli.verbs import VERBS

ROOT = Path(__file__).parents[1]
PAGES = [ROOT / "README.md", ROOT / "CONTRIBUTING.md", *sorted((ROOT / "docs").rglob("*.md"))]
EXAMPLES = [path for path in (ROOT / "examples").rglob("*") if path.suffix in (".py", ".yaml")]
BLOCK = re.compile(r"^```(\w*)\n(.*?)^```$", re.MULTILINE | re.DOTALL)
UPDATE = os.environ.get("ROOST_UPDATE_SNAPSHOTS") == "1"


def name_of(page: Path) -> str:
    return str(page.relative_to(ROOT))


@pytest.fixture
def workplace(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    shutil.copytree(ROOT / "examples", tmp_path / "examples")
    monkeypatch.chdir(tmp_path)
    return tmp_path


LIVE = ("README.md", "docs/launch.md")  # these start a real Ray, side by side
# These start one of the same shape in Python. They share it, one page after the other.
SHARED = (
    "docs/channels.md",
    "docs/running.md",
    "docs/ports-and-locks.md",
    "docs/operating.md",
    "docs/pools.md",
    "docs/runs.md",
    "docs/status.md",
)
NEEDING = {
    "docs/router.md": [pytest.mark.router],
}
MARKS = {**{name: [pytest.mark.ray] for name in (*LIVE, *SHARED)}, **NEEDING}


@pytest.fixture(scope="module")
def shared_ray() -> Iterator[Any]:
    """What `roost.embedded` is for the pages that share a Ray."""
    with roost.embedded("2x4") as address:

        class Shared:
            def __init__(self, shape: str) -> None:
                assert shape == "2x4"

            def start(self) -> str:
                return address

            def stop(self) -> None:
                pass

        yield Shared


Programs = dict[str, tuple[subprocess.Popen[bytes], Path]]  # with what each prints


@pytest.fixture(scope="module")
def programs(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Programs]:
    """The pages that start a Ray, each in a process of its own, all at once: they mostly wait."""
    started = {}
    for name in LIVE:
        place = tmp_path_factory.mktemp("page")
        shutil.copytree(ROOT / "examples", place / "examples")
        output = place / "output"
        with output.open("w") as file:
            program = subprocess.Popen(
                [sys.executable, __file__, name],
                cwd=place,
                stdin=subprocess.DEVNULL,
                stdout=file,
                stderr=subprocess.STDOUT,
            )
        started[name] = program, output
    yield started
    for program, _ in started.values():
        program.kill()
        program.wait()


@pytest.mark.parametrize(
    "page",
    [pytest.param(page, marks=MARKS.get(name_of(page), [])) for page in PAGES],
    ids=name_of,
)
def test_examples_of(page: Path, request: pytest.FixtureRequest) -> None:
    if name_of(page) in LIVE:
        program, output = request.getfixturevalue("programs")[name_of(page)]
        assert program.wait(600) == 0, output.read_text()
        return
    request.getfixturevalue("workplace")
    if name_of(page) in SHARED:
        shared = request.getfixturevalue("shared_ray")
        request.getfixturevalue("monkeypatch").setattr(roost, "embedded", shared, raising=False)
    run_examples(page)


def run_examples(page: Path) -> None:
    """Run them in the current directory, which holds the examples."""
    text = page.read_text("utf-8")
    namespace: dict[str, Any] = {"__name__": "example"}
    changed = text
    for kind, body in BLOCK.findall(text):
        if kind == "yaml":
            check_yaml(body)
        elif kind == "python":
            run_python(body, namespace, page)
        elif kind == "console":
            shown = "".join(f"$ {command}\n{run_command(command)}" for command, _ in sessions(body))
            if UPDATE:
                changed = changed.replace(body, shown)
            else:
                assert body == shown, f"it prints:\n{shown}"
        elif kind == "sh":
            check_make(body)
        else:
            assert kind == "text", f"{name_of(page)}: no test runs a block of {kind or 'no language'}"
    if UPDATE:
        page.write_text(changed, "utf-8")


def check_yaml(body: str) -> None:
    named = re.match(r"# ([\w/-]+\.yaml)( \(wrong\))?\n", body)
    path = Path(named[1] if named else "unnamed.yaml")
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(body)
    if "/" in str(path):
        return
    if re.search(r"^nodes:", body, re.MULTILINE):
        assert roost.Inventory.load(path).nodes
    elif re.search(r"^sglang:", body, re.MULTILINE):
        assert roost.Layout.from_args({"sglang_config": path}).servers
    else:
        wrong = [finding.what for finding in problems_of(str(path), None)]
        assert bool(wrong) == bool(named and named[2]), wrong


class WithoutLogs(doctest.OutputChecker):
    """Ray prints what workers log whenever it comes, which may be in the middle of an example."""

    LOGGED = re.compile(r"^\x1b\[\d+m\(.*?pid=\d+.*?\).*\n", re.MULTILINE)

    def check_output(self, want: str, got: str, optionflags: int) -> bool:
        return super().check_output(want, self.LOGGED.sub("", got), optionflags)


def run_python(body: str, namespace: dict[str, Any], page: Path) -> None:
    if named := re.match(r"# ([\w-]+\.py)\n", body):
        Path(named[1]).write_text(body)
        return
    if not body.startswith(">>>"):
        exec(compile(body, name_of(page), "exec"), namespace)
        return
    test = doctest.DocTestParser().get_doctest(body, namespace, name_of(page), name_of(page), 0)
    said: list[str] = []
    runner = doctest.DocTestRunner(
        WithoutLogs(), verbose=False, optionflags=doctest.NORMALIZE_WHITESPACE | doctest.ELLIPSIS
    )
    runner.run(test, out=said.append, clear_globs=False)
    namespace.update(test.globs)
    assert not said, "".join(said)


def sessions(body: str) -> Iterator[tuple[str, str]]:
    for piece in re.split(r"^\$ ", body, flags=re.MULTILINE)[1:]:
        command, _, output = piece.partition("\n")
        yield command, output


def run_command(command: str) -> str:
    assert command.split()[0] in ("roost", "cat", "echo"), command
    environment = {**os.environ, "COLUMNS": "100", "NO_COLOR": "1", "PYTHONIOENCODING": "utf-8"}
    environment["PATH"] = f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}"
    done = subprocess.run(
        command,
        shell=True,
        env=environment,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        encoding="utf-8",
        executable="/bin/bash",
    )
    return done.stdout


def check_make(body: str) -> None:
    targets = re.findall(r"^([\w-]+):", (ROOT / "Makefile").read_text(), re.MULTILINE)
    for line in body.splitlines():
        words = line.split("#")[0].split()
        if words[:1] == ["make"]:
            assert words[1] in targets, line


def test_blocks_that_are_not_run_name_verbs_that_exist() -> None:
    for page in PAGES:
        for kind, body in BLOCK.findall(page.read_text("utf-8")):
            if kind == "text":
                named = re.findall(r"^(?:\$ |\w+=\S+ )*roost ([a-z]+)\b", body, re.MULTILINE)
                assert set(named) <= set(VERBS), f"{name_of(page)}: {named}"


@pytest.mark.parametrize("page", PAGES, ids=name_of)
def test_links_lead_somewhere(page: Path) -> None:
    for target in re.findall(r"\]\(([^)#]+?)(?:#[^)]*)?\)", page.read_text("utf-8")):
        assert target.startswith("https://") or (page.parent / target).exists(), target


def test_the_project_says_nothing_about_the_machine_it_was_written_on() -> None:
    for page in [*PAGES, ROOT / "CHANGELOG.md", *EXAMPLES]:
        assert not re.search(r"/(home|root|tmp|work)/", page.read_text("utf-8")), name_of(page)


if __name__ == "__main__":
    run_examples(ROOT / sys.argv[1])
