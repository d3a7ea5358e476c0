"""Writes the reference pages from the code: keys of a job, Python names, commands, codes, and forms of placements.

`pages()` has the text of each. `tests/test_reference.py` compares them with the files, and rewrites those with
ROOST_UPDATE_SNAPSHOTS=1.
"""

from __future__ import annotations

from importlib import import_module
from pathlib import Path

import click
from key_reference import configuration
from name_reference import python_names
from page_parts import WIDTH, WRITTEN

import roost
from roost.cli.code_pages import CodePage, code_page
from roost.cli.verbs import VERBS
from roost.codes import CODES

DOCS = Path(__file__).parents[1]


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
