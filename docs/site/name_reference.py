"""The names that `import roost` offers, with their signatures and docstrings."""

from __future__ import annotations

import ast
import inspect
from collections.abc import Iterator
from enum import EnumMeta
from typing import Any

from page_parts import WIDTH, WRITTEN, cell

import roost

ROOMS = {  # by package, in the order of the page
    "Planning": ("config", "inventory", "placement", "planning"),
    "Running": ("engine",),
    "Training and rollout": ("rl",),
    "The best placement": ("suggesting", "views"),
    "Errors": ("errors",),
}


def python_names() -> str:
    parts = [
        "# Python names\n",
        WRITTEN,
        "Everything that `import roost` offers; names are loaded on first use. Methods that a class inherits are listed "
        "with the class that has them.\n",
    ]
    strange = {home(name) for name in roost.__all__} - {
        package for room in ROOMS.values() for package in room
    }
    assert not strange, f"no part of the page is for {strange}"
    used: set[str] = set()
    for title, packages in ROOMS.items():
        names = [name for name in roost.__all__ if home(name) in packages]
        parts.append(f"## {title}\n")
        links = []
        for name in names:  # Plan and plan have anchors of their own
            anchor = f"{name.lower()}-1" if name.lower() in used else name.lower()
            used.add(anchor)
            links.append(f"[`{name}`](#{anchor})")
        parts.append(", ".join(links) + "\n")
        parts += [about_name(name) for name in names]
    return "\n".join(parts)


def home(name: str) -> str:
    return str(getattr(roost, name).__module__).split(".")[1]


def about_name(name: str) -> str:
    value = getattr(roost, name)
    parts = [f"### {name}\n"]
    if isinstance(value, EnumMeta):
        members: Any = value
        parts.append(f"```text\n{chr(10).join(f'{name}.{member.name}' for member in members)}\n```\n")
    else:
        parts.append(f"```text\n{signature(name, value)}\n```\n")
    parts.append(f"{documentation(value)}\n")
    if inspect.isclass(value) and (rows := list(members_of(value))):
        parts += ["| | |", "|---|---|", *rows, ""]
    return "\n".join(parts)


def documentation(value: Any) -> str:
    text = inspect.getdoc(value) or ""
    lacks = not text or text.startswith(f"{value.__name__}(")  # as dataclasses write it themselves
    assert not lacks, f"{value.__name__} has no docstring"
    return text


def signature(name: str, value: Any, *, one_line: bool = False, bound: bool = False) -> str:
    """A call as it is written in Python; `bound` leaves the first parameter out."""
    if inspect.isclass(value) and value.__init__ is object.__init__ and "__new__" not in vars(value):
        return f"class {name}"
    try:
        found = inspect.signature(value)
    except ValueError:  # of a built-in base
        return f"class {name}"
    parameters = list(found.parameters.values())[1 if bound else 0 :]
    # Ray gives one of its own to the methods of a class that it has made an actor of.
    parameters = [one for one in parameters if one.name != "_ray_trace_ctx"]
    shown: list[str] = []
    for one in parameters:
        if one.kind is one.KEYWORD_ONLY and not any(part.startswith("*") for part in shown):
            shown.append("*")
        shown.append(parameter(one))
    returned = f" -> {found.return_annotation}" if isinstance(found.return_annotation, str) else ""
    returned = "" if returned == " -> None" else returned
    line = f"{name}({', '.join(shown)}){returned}"
    if one_line or len(line) <= WIDTH:
        return line
    return "\n".join([f"{name}(", *(f"    {one}," for one in shown), f"){returned}"])


def parameter(one: inspect.Parameter) -> str:
    text = str(one).partition(":")[0].partition("=")[0].strip()  # with its stars
    if isinstance(one.annotation, str):
        text += f": {bare(one.annotation)}"
    if one.default is not one.empty:
        made = "<" in repr(one.default)  # a factory, or an object
        text += f" = {'...' if made else repr(one.default)}" if ":" in text else f"={one.default!r}"
    return text


def bare(annotation: str) -> str:
    """Annotated[int, Field(...)] as int."""
    try:
        found = ast.parse(annotation, mode="eval").body
    except SyntaxError:
        return annotation
    if (
        isinstance(found, ast.Subscript)
        and ast.unparse(found.value) == "Annotated"
        and isinstance(found.slice, ast.Tuple)
    ):
        return ast.unparse(found.slice.elts[0])
    return annotation


def members_of(value: type) -> Iterator[str]:
    """Rows about the public methods and properties of a class."""
    for name, member in vars(value).items():
        if name.startswith("_"):
            continue
        read = member.fget if isinstance(member, property) else getattr(member, "func", None)  # if cached
        if read is not None:
            yield f"| `.{name}` | {cell(first_sentence(read if inspect.isfunction(read) else None))} |"
        elif inspect.isroutine(found := getattr(value, name)):
            call = signature(f".{name}", found, one_line=True, bound=inspect.isfunction(member))
            yield f"| `{cell(call)}` | {cell(first_sentence(found))} |"


def first_sentence(function: Any) -> str:
    text = " ".join((function.__doc__ or "").strip().split("\n\n")[0].split()) if function else ""
    head, dot, _ = text.partition(". ")
    return head + dot.strip()
