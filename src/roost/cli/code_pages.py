"""The pages about codes: what each means, an example that produces it, and the fix. Their text is code_pages.yaml."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import asdict, dataclass, field
from functools import cache
from importlib.resources import files
from textwrap import indent, wrap
from typing import Any

import yaml

from roost.codes import CODES

_WIDTH = 96


@dataclass(frozen=True, slots=True, kw_only=True)
class CodePage:
    code: str
    means: str
    fix: str
    files: Mapping[str, str] = field(default_factory=dict)  # of the example, by name
    run: str = ""  # the command of the example
    python: str = ""  # the program of the example
    when: str = ""  # what happens on a live cluster, where no small example produces it

    @property
    def title(self) -> str:
        return CODES[self.code].title

    def to_dict(self) -> dict[str, Any]:
        meaning = CODES[self.code]
        return {**asdict(self), "title": meaning.title, "kind": meaning.kind, "severity": meaning.severity}

    def example(self) -> Iterator[tuple[str, str]]:
        """Headings and texts."""
        yield from self.files.items()
        if self.python:
            yield ("Python", self.python)
        if self.run:
            yield ("command", f"$ {self.run}\n")


def code_page(code: str) -> CodePage:
    written = dict(_pages()[code])
    job = written.pop("job", None)
    files = {**({"job.yaml": job} if job else {}), **written.pop("files", {})}
    return CodePage(code=code, files=files, **written)


@cache
def _pages() -> dict[str, dict[str, Any]]:
    text = files("roost.cli").joinpath("code_pages.yaml").read_text("utf-8")
    pages: dict[str, dict[str, Any]] = yaml.load(text, getattr(yaml, "CSafeLoader", yaml.SafeLoader))
    return pages


def render_code_page(page: CodePage) -> str:
    kind = CODES[page.code].severity
    parts = [f"{kind}[{page.code}]: {page.title}\n", _wrapped(page.means)]
    if page.when:
        parts.append(f"When, for example:\n{indent(_wrapped(page.when), '  ')}")
    else:
        blocks = "".join(f"  {head}:\n{indent(text, '    ')}" for head, text in page.example())
        parts.append(f"An example that produces it:\n{blocks}")
    return "\n".join([*parts, f"Fix:\n{indent(_wrapped(page.fix), '  ')}"])


def _wrapped(text: str) -> str:
    return "\n".join(wrap(text, _WIDTH)) + "\n"
