"""Writes the reference pages from the code: keys of a job, Python names, commands, codes, and forms of placements.

`pages()` has the text of each. `tests/test_reference.py` compares them with the files, and rewrites those with
ROOST_UPDATE_SNAPSHOTS=1.
"""

from __future__ import annotations

import ast
import inspect
from collections.abc import Iterator
from enum import EnumMeta
from importlib import import_module
from pathlib import Path
from typing import Any

import click

import roost
from roost.cli.code_pages import CodePage, code_page
from roost.cli.verbs import VERBS
from roost.config.job_schema import job_schema
from roost.errors import CODES

DOCS = Path(__file__).parents[1]
WRITTEN = "<!-- generated: edit the code, then run the tests with ROOST_UPDATE_SNAPSHOTS=1 -->\n"
WIDTH = 96


def pages() -> dict[Path, str]:
    """The reference pages by path. A page with a text by hand keeps what stands before the mark."""
    return {
        DOCS / "reference" / "configuration.md": configuration(),
        DOCS / "reference" / "python.md": python_names(),
        DOCS / "reference" / "commands.md": commands(),
        DOCS / "errors.md": after_mark(DOCS / "errors.md", codes()),
        DOCS / "placement-language.md": after_mark(DOCS / "placement-language.md", placement_forms()),
    }


def after_mark(page: Path, text: str) -> str:
    head, mark, _ = page.read_text("utf-8").partition(WRITTEN)
    assert mark, f"{page} lacks the line {WRITTEN}"
    return head + mark + text


def cell(text: str) -> str:
    return text.replace("|", "\\|").replace("\n", " ")


# -- the keys of a job --------------------------------------------------------------------------------------


def configuration() -> str:
    schema = job_schema()
    parts = [
        "# Keys of a job file\n",
        WRITTEN,
        "Every key that roost reads. [Configuration](../configuration.md) says what they mean and shows them in use. "
        "Any value may also be an interpolation such as `${nodes}`. Sections that are not listed belong to your program.\n",
        "## The file\n",
        keys(dict(schema, required=["cluster"]), schema),
        "## `cluster`\n",
        keys(object_in(schema["properties"]["cluster"]), schema),
    ]
    for name in ("supervise", "workers"):
        section = schema["properties"][name] if name == "supervise" else schema["then"]["properties"][name]
        parts.append(f"## `{name}`\n\nA mapping of component to {words(values_of(section), schema)}.\n")
    for name, definition in schema["$defs"].items():
        if "properties" in definition:
            about = f"{definition['description']}\n\n" if "description" in definition else ""
            parts.append(f"## {name}\n\n{about}{keys(definition, schema)}")
    return "\n".join(parts)


def object_in(part: dict[str, Any]) -> dict[str, Any]:
    """The member of a union that has keys."""
    return next(one for one in [part, *part.get("anyOf", ())] if one.get("type") == "object")


def values_of(part: dict[str, Any]) -> dict[str, Any]:
    inner = object_in(next((one for one in part.get("anyOf", ()) if "anyOf" in one), part))
    found: dict[str, Any] = inner["additionalProperties"]
    return found


def keys(section: dict[str, Any], schema: dict[str, Any]) -> str:
    rows = ["| key | value | default | |", "|---|---|---|---|"]
    required = section.get("required", ())
    for name, part in section["properties"].items():
        kind = words(
            schema.get("then", {}).get("properties", {}).get(name, part) if not part.get("anyOf") else part,
            schema,
        )
        default = (
            "required" if name in required else f"`{plain(part['default'])}`" if "default" in part else ""
        )
        if part.get("deprecated"):
            kind = "anything"
        rows.append(f"| `{name}` | {cell(kind)} | {default} | {cell(part.get('description', ''))} |")
    return "\n".join([*rows, ""])


def plain(value: Any) -> str:
    return str(value).lower() if isinstance(value, bool) else str(value)


def words(part: dict[str, Any], schema: dict[str, Any]) -> str:
    """A part of a schema in words, with links to its sections."""
    if "$ref" in part:
        name = part["$ref"].rpartition("/")[2]
        return f"[{name}](#{name.lower()})"
    if "enum" in part:
        return " or ".join(f"`{one}`" for one in part["enum"])
    if "anyOf" in part:
        members = [words(one, schema) for one in part["anyOf"] if not is_aside(one)]
        return " or ".join(dict.fromkeys(members))
    kind = part.get("type")
    if kind == "array":
        return f"list of {words(part.get('items', {}), schema)}"
    if kind == "object":
        inner = part.get("additionalProperties")
        if "properties" in part:
            return "section"
        return f"mapping to {words(inner, schema)}" if isinstance(inner, dict) and inner else "mapping"
    if kind in ("integer", "number"):
        named = {"minimum": "from", "maximum": "to", "exclusiveMinimum": "above"}
        bounds = [f"{word} {part[key]:,}" for key, word in named.items() if key in part]
        return " ".join(["whole number" if kind == "integer" else "number", *bounds])
    if kind == "boolean":
        return "`true` or `false`"
    return "text" if kind == "string" or kind == ["string", "integer"] else "anything"


def is_aside(part: dict[str, Any]) -> bool:
    return part.get("type") == "null" or part.get("$ref", "").endswith("/Interpolation")


# -- Python names -------------------------------------------------------------------------------------------

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


# -- commands -----------------------------------------------------------------------------------------------


def commands() -> str:
    parts = [
        "# Commands\n",
        WRITTEN,
        "What `roost VERB --help` prints, for every verb. [Command line](../command-line.md) shows them in use.\n",
    ]
    for verb in VERBS:
        command = import_module(f"roost.cli.{verb}").command
        parts += [f"## roost {verb}\n", helped(command, f"roost {verb}")]
        if isinstance(command, click.Group):
            for name in sorted(command.commands):
                parts += [
                    f"### roost {verb} {name}\n",
                    helped(command.commands[name], f"roost {verb} {name}"),
                ]
    return "\n".join(parts)


def helped(command: click.Command, name: str) -> str:
    settings = {"help_option_names": ["-h", "--help"], "terminal_width": WIDTH, "max_content_width": WIDTH}
    with click.Context(command, info_name=name, **settings) as context:  # type: ignore[arg-type]
        return f"```text\n{command.get_help(context)}\n```\n"


# -- codes --------------------------------------------------------------------------------------------------


def codes() -> str:
    kinds = {"config": "job", "fit": "fit", "advice": "advice", "run": "run"}
    rows = [
        f"| [`{code}`](#{code.lower()}) | {kinds[meaning.kind]} | {meaning.title} |"
        for code, meaning in CODES.items()
    ]
    table = "\n".join(["| code | kind | meaning |", "|---|---|---|", *rows, ""])
    return table + "".join(about_code(code_page(code)) for code in CODES)


def about_code(page: CodePage) -> str:
    parts = [f"\n## {page.code}\n", page.means.replace("${", "\\${"), ""]
    for heading, text in page.example():
        shown = f"# {heading}\n{text}" if heading in page.files else text
        parts.append(f"```text\n{shown.rstrip()}\n```\n")
    if page.when:
        parts.append(f"For example: {page.when}\n")
    return "\n".join([*parts, f"**Fix:** {page.fix}\n"])


# -- forms of placements ------------------------------------------------------------------------------------

FORMS = (
    "all",
    "3",
    "2-5",
    "0-7:0-3",
    "0-3:0-7",
    "0-1:0-3,3-5",
    "0-3,8-11",
    "0-7:0,8-15:1",
    "0:0-2",
    " 0 - 3 : 0 - 1 ",
)
ON = "2x8"


def placement_forms() -> str:
    rows = ["| placement | resources of each process |", "|---|---|"]
    for form in FORMS:
        job = {"cluster": {"component_placement": {"actor": form}}}
        places = roost.plan(job, ON).components["actor"].placements
        held = ", ".join(f"{place.rank}: {ranks_of(place)}" for place in places)
        rows.append(f"| `{form}` | {held} |")
    refused = [
        f"| [`{code}`](errors.md#{code.lower()}) | {CODES[code].title} |"
        for code in CODES
        if code.startswith("RL")
    ]
    return "\n".join(
        [
            *rows,
            "",
            "What is refused as it stands, whatever the cluster:\n",
            "| | |",
            "|---|---|",
            *refused,
            "",
        ]
    )


def ranks_of(place: roost.Placement) -> str:
    ranks = [place.cluster_node_rank * 8 + one for one in place.local_hardware_ranks]
    return str(ranks[0]) if len(ranks) == 1 else f"{ranks[0]}-{ranks[-1]}"
