"""Typical mistakes, each with everything roost says about it.

The table is data/mistakes.txt. After a change of wording, `python tests/test_mistakes.py` writes what roost
says now; read the difference as a stranger would before committing it.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

import pytest

import roost
from roost.config.document import parse
from roost.errors import render

TABLE = Path(__file__).parent / "data/mistakes.txt"
HEAD, RULE = "#### ", "----\n"


@dataclass(frozen=True)
class Mistake:
    name: str
    settings: tuple[str, ...]
    job: str
    says: str

    def setting(self, key: str) -> list[str]:
        return [line.removeprefix(key).strip() for line in self.settings if line.startswith(key)]

    def findings(self) -> tuple[roost.Finding, ...]:
        document = parse(self.job, "job.yaml")
        kind = roost.ComponentPlacement
        if "model-parallel" in self.settings:
            kind = roost.ModelParallelComponentPlacement
        source = document.data if "as a dict" in self.settings else document
        inventory = roost.Inventory.parse(self.setting("on ")[0])
        roost.plan(source, inventory, overrides=self.setting("override "), placement=kind)
        return ()

    def outcome(self) -> str:
        try:
            self.findings()
        except roost.ConfigurationError as error:
            return render(error.findings) + "\n"
        return "no error\n"

    def block(self, says: str) -> str:
        settings = "".join(f"{line}\n" for line in self.settings)
        return f"{HEAD}{self.name}\n{settings}{RULE}{self.job}{RULE}{says}"


def read_table() -> list[Mistake]:
    mistakes = []
    for block in TABLE.read_text("utf-8").split(HEAD)[1:]:
        head, job, says = block.split(RULE)
        name, *settings = head.splitlines()
        mistakes.append(Mistake(name, tuple(settings), job, says.rstrip("\n") + "\n"))
    return mistakes


MISTAKES = read_table()


@pytest.mark.parametrize("mistake", MISTAKES, ids=lambda mistake: mistake.name.replace(" ", "_"))
def test_mistake(mistake: Mistake) -> None:
    assert mistake.outcome() == mistake.says


def test_the_table_is_large_and_names_are_unique() -> None:
    names = [mistake.name for mistake in MISTAKES]
    assert len(names) == len(set(names)) > 100


@pytest.mark.parametrize("mistake", MISTAKES, ids=lambda mistake: mistake.name.replace(" ", "_"))
def test_every_error_says_what_to_do(mistake: Mistake) -> None:
    with pytest.raises(roost.ConfigurationError) as caught:
        mistake.findings()
    errors = [finding for finding in caught.value.findings if finding.severity == "error"]
    assert errors
    assert all(finding.remedy for finding in errors)
    # A position where there is a text, otherwise the path.
    assert all(finding.where or finding.path for finding in errors)


if __name__ == "__main__":
    TABLE.write_text("\n".join(mistake.block(mistake.outcome()) for mistake in MISTAKES), "utf-8")
