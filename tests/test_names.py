"""A name stands for one thing: no two modules and no two classes share one, and exports are listed once."""

from __future__ import annotations

import ast
from pathlib import Path

from roost.cli.verbs import VERBS

PACKAGE = Path(__file__).parents[1] / "src" / "roost"
FILES = sorted(PACKAGE.rglob("*.py"))


def shared(places: dict[str, list[str]]) -> dict[str, list[str]]:
    return {name: found for name, found in places.items() if len(found) > 1}


def test_modules_have_names_of_their_own() -> None:
    places: dict[str, list[str]] = {}
    for file in FILES:
        path = file.relative_to(PACKAGE)
        a_verb = path.parent == Path("cli") and path.stem in VERBS  # `roost plan` is in cli/plan.py
        if path.stem != "__init__" and not a_verb:
            places.setdefault(path.stem, []).append(str(path))
    assert shared(places) == {}


def test_classes_have_names_of_their_own() -> None:
    places: dict[str, list[str]] = {}
    for file in FILES:
        for node in ast.walk(ast.parse(file.read_text())):
            if isinstance(node, ast.ClassDef):
                places.setdefault(node.name, []).append(str(file.relative_to(PACKAGE)))
    assert shared(places) == {}


def test_exported_names_are_listed_once() -> None:
    listed = ast.parse(PACKAGE.joinpath("__init__.pyi").read_text())
    names = [alias.name for node in listed.body if isinstance(node, ast.ImportFrom) for alias in node.names]
    assert sorted(names) == sorted(set(names))
    lists = [
        str(file.relative_to(PACKAGE))
        for file in FILES
        for node in ast.walk(ast.parse(file.read_text()))
        if isinstance(node, ast.Assign) and any(ast.unparse(target) == "__all__" for target in node.targets)
    ]
    assert lists == ["__init__.py"]  # made from `__init__.pyi`
