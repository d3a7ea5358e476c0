"""Builds the site from the README, the pages of docs/ and what they link to: `python docs/site/site_pages.py OUT`.

The navigation is the README's list of documentation, so a page that is not listed there is an error, and so is a
link that leads nowhere. Nothing is fetched, and the result can be opened from a folder, search included.
"""

from __future__ import annotations

import json
import re
import shutil
import sys
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass
from html import escape
from itertools import pairwise
from pathlib import Path
from posixpath import normpath, relpath

from markdown_it import MarkdownIt
from markdown_it.token import Token
from pygments import highlight
from pygments.formatters import HtmlFormatter
from pygments.lexers import get_lexer_by_name

ROOT = Path(__file__).parents[2]
HERE = Path(__file__).parent
NAME = "roost"
START = "README.md"
DECISIONS = "docs/decisions"
LEXERS = {"sh": "bash", "console": "console", "python": "python", "yaml": "yaml"}
OUTSIDE = ("https://", "http://", "mailto:")


class BrokenSite(Exception):
    """Pages that nothing leads to, and links that lead nowhere."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Page:
    source: str  # its path in the repository
    title: str
    tokens: list[Token]
    anchors: frozenset[str]

    @property
    def target(self) -> str:
        return "index.html" if self.source == START else str(Path(self.source).with_suffix(".html"))


def sources() -> list[Path]:
    return [
        ROOT / START,
        ROOT / "CONTRIBUTING.md",
        ROOT / "CHANGELOG.md",
        *sorted((ROOT / "docs").rglob("*.md")),
    ]


def read_page(source: str, text: str) -> Page:
    tokens = MarkdownIt("commonmark").enable("table").parse(text)
    title, anchors, seen = source, set(), Counter[str]()
    for mark, inline in pairwise(tokens):
        if mark.type == "heading_open":
            words = inline_text(inline)
            slug = re.sub(r"[^\w\- ]", "", words.lower()).replace(" ", "-")
            anchor = f"{slug}-{seen[slug]}" if seen[slug] else slug  # as GitHub counts them
            seen[slug] += 1
            mark.attrSet("id", anchor)
            anchors.add(anchor)
            title = words if mark.tag == "h1" else title
    return Page(source=source, title=title, tokens=tokens, anchors=frozenset(anchors))


def inline_text(inline: Token) -> str:
    return "".join(part.content for part in inline.children or () if part.type in ("text", "code_inline"))


def links_of(page: Page) -> Iterator[tuple[Token, str]]:
    """Every link and picture, with the attribute that holds its target."""
    for inline in page.tokens:
        for part in inline.children or ():
            if part.type in ("link_open", "image"):
                yield part, "href" if part.type == "link_open" else "src"


def decisions_page() -> Page:
    lines = ["# Why things are as they are\n"]
    for path in sorted((ROOT / DECISIONS).glob("*.md")):
        title = path.read_text("utf-8").splitlines()[0].removeprefix("# ")
        lines.append(f"- [{title}]({path.name})")
    return read_page(f"{DECISIONS}/index.md", "\n".join(lines))


def all_pages() -> dict[str, Page]:
    pages = [read_page(path.relative_to(ROOT).as_posix(), path.read_text("utf-8")) for path in sources()]
    return {page.source: page for page in [*pages, decisions_page()]}


def navigation(readme: Page) -> dict[str, list[tuple[str, str]]]:
    """By heading under "Documentation" in the README: the text and the source of each page it lists."""
    found: dict[str, list[tuple[str, str]]] = {}
    inside, heading = False, ""
    for mark, inline in pairwise(readme.tokens):
        if mark.type == "heading_open":
            inside = (inside and mark.tag == "h3") or inline_text(inline) == "Documentation"
            heading = inline_text(inline)
        elif inside and mark.type == "paragraph_open":
            children = inline.children or []
            for link, text in pairwise(children):
                if link.type == "link_open" and "#" not in str(link.attrs["href"]):
                    found.setdefault(heading, []).append(
                        (text.content, source_of(str(link.attrs["href"]), START))
                    )
    return found


def source_of(link: str, page: str) -> str:
    """The path in the repository that a link of a page means."""
    path = normpath(f"{Path(page).parent.as_posix()}/{link}")
    return f"{path}/index.md" if (ROOT / path).is_dir() and path == DECISIONS else path


def resolve(pages: dict[str, Page], listed: set[str]) -> set[str]:
    """Turn links to sources into links to the site. Returns the files that must be copied along."""
    problems, files, reached = [], set(), {START}
    for page in pages.values():
        for token, attribute in links_of(page):
            link = str(token.attrs[attribute])
            if link.startswith(OUTSIDE):
                continue
            path, mark, anchor = link.partition("#")
            source = source_of(path, page.source) if path else page.source
            other = pages.get(source)
            if other is None and not (ROOT / source).is_file():
                problems.append(f"{page.source}: {link} leads nowhere")
                continue
            if other is not None and anchor and anchor not in other.anchors:
                problems.append(f"{page.source}: {source} has no heading #{anchor}")
            if other is None:
                files.add(source)
            elif other is not page:
                reached.add(source)
            target = relpath(other.target if other else source, str(Path(page.target).parent))
            token.attrSet(attribute, f"{target}{mark}{anchor}" if path else link)
    problems += [f"{source}: no page leads to it" for source in pages if source not in reached]
    problems += [
        f"{source}: the README's list of documentation lacks it"
        for source in pages
        if source.startswith("docs/") and not source.startswith(DECISIONS) and source not in listed
    ]
    if problems:
        raise BrokenSite("\n".join(problems))
    return files


def rendered(page: Page) -> str:
    """The body of a page. Code is coloured."""
    parser = MarkdownIt("commonmark").enable("table")

    def fence(_: object, tokens: list[Token], index: int, *__: object) -> str:
        token = tokens[index]
        name = "pycon" if token.content.startswith(">>>") else LEXERS.get(token.info)
        if name is None:
            return f"<pre><code>{escape(token.content)}</code></pre>\n"
        return str(highlight(token.content, get_lexer_by_name(name), HtmlFormatter(cssclass="code")))

    parser.add_render_rule("fence", fence)
    text = str(parser.renderer.render(page.tokens, parser.options, {}))
    return text.replace("<table>", '<div class="wide"><table>').replace("</table>", "</table></div>")


def sections(page: Page) -> Iterator[tuple[str, str, str]]:
    """The anchor, heading and text of every section, for the search."""
    anchor, heading = "", page.title
    words: list[str] = []
    for index, token in enumerate(page.tokens):
        if token.type == "heading_open" and token.tag != "h1":
            yield anchor, heading, " ".join(words)
            anchor, heading, words = str(token.attrs["id"]), inline_text(page.tokens[index + 1]), []
        elif token.type == "inline":
            words.append(inline_text(token))
        elif token.type == "fence":
            words.append(token.content)
    yield anchor, heading, " ".join(words)


def menu(entries: dict[str, list[tuple[str, str]]], pages: dict[str, Page], page: Page) -> str:
    here = str(Path(page.target).parent)
    parts = [f'<a class="home" href="{relpath("index.html", here)}">{NAME}</a>']
    parts.append(
        '<input id="search" type="search" placeholder="Search" aria-label="Search" autocomplete="off">'
    )
    parts.append('<div id="found"></div>')
    for heading, links in entries.items():
        parts.append(f"<h2>{escape(heading)}</h2><ul>")
        for text, source in links:
            current = ' aria-current="page"' if source == page.source else ""
            parts.append(
                f'<li><a href="{relpath(pages[source].target, here)}"{current}>{escape(text)}</a></li>'
            )
        parts.append("</ul>")
    return "\n".join(parts)


def build(out: Path) -> int:
    """Write the site, and return how many pages it has."""
    pages = all_pages()
    entries = {
        heading: [(text, source) for text, source in links if source in pages]
        for heading, links in navigation(pages[START]).items()
    }
    files = resolve(pages, {source for links in entries.values() for _, source in links})
    index = [
        [f"{page.target}#{anchor}" if anchor else page.target, page.title, heading, text]
        for page in pages.values()
        for anchor, heading, text in sections(page)
    ]
    for page in pages.values():
        place = out / page.target
        place.parent.mkdir(parents=True, exist_ok=True)
        root = relpath(".", str(Path(page.target).parent))
        place.write_text(
            f'<!DOCTYPE html>\n<html lang="en">\n<head>\n<meta charset="utf-8">\n'
            f'<meta name="viewport" content="width=device-width, initial-scale=1">\n'
            f"<title>{escape(page.title)}{'' if page.title == NAME else f' - {NAME}'}</title>\n"
            f'<link rel="stylesheet" href="{root}/page.css">\n</head>\n<body data-root="{root}">\n'
            f"<nav>\n{menu(entries, pages, page)}\n</nav>\n<main>\n{rendered(page)}</main>\n"
            f'<script src="{root}/index.js"></script>\n<script src="{root}/search.js"></script>\n</body>\n</html>\n',
            "utf-8",
        )
    for source in files:
        (out / source).parent.mkdir(parents=True, exist_ok=True)
        shutil.copy(ROOT / source, out / source)
    (out / "index.js").write_text(f"const PAGES = {json.dumps(index, ensure_ascii=False)};\n", "utf-8")
    shutil.copy(HERE / "search.js", out)
    dark = HtmlFormatter(cssclass="code", style="github-dark").get_style_defs(".code")
    light = HtmlFormatter(cssclass="code", style="default").get_style_defs(".code")
    style = (HERE / "page.css").read_text("utf-8")
    (out / "page.css").write_text(
        f"{light}\n@media (prefers-color-scheme: dark) {{\n{dark}\n}}\n{style}", "utf-8"
    )
    return len(pages)


if __name__ == "__main__":
    try:
        print(f"{build(Path(sys.argv[1]))} pages in {sys.argv[1]}")
    except BrokenSite as error:
        sys.exit(str(error))
