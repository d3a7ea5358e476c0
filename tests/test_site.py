"""The site: every page reachable, every link right, nothing fetched."""

from __future__ import annotations

from html.parser import HTMLParser
from pathlib import Path
from urllib.parse import unquote, urldefrag

import pytest
import site_pages
from site_pages import BrokenSite, all_pages, build, navigation, read_page, resolve


class Links(HTMLParser):
    def __init__(self, text: str) -> None:
        super().__init__()
        self.links: list[str] = []
        self.loaded: list[str] = []
        self.names: set[str] = set()
        self.feed(text)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        for name, value in attrs:
            if name == "id" and value:
                self.names.add(value)
            if value and name in ("href", "src"):
                (self.links if tag == "a" else self.loaded).append(value)


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Path:
    out = tmp_path_factory.mktemp("site")
    assert build(out) > 70
    return out


def test_every_page_is_reached_from_the_first_one_and_every_link_leads_somewhere(site: Path) -> None:
    pages = {path: Links(path.read_text("utf-8")) for path in site.rglob("*.html")}
    reached, waiting = set(), [site / "index.html"]
    while waiting:
        page = waiting.pop()
        if page in reached:
            continue
        reached.add(page)
        for link in pages[page].links:
            if link.startswith("https://"):
                continue
            path, anchor = urldefrag(link)
            target = (page.parent / unquote(path)).resolve() if path else page
            assert target.is_file(), f"{page}: {link}"
            if target in pages:
                assert not anchor or unquote(anchor) in pages[target].names, f"{page}: {link}"
                waiting.append(target)
    assert reached == set(pages)


def test_nothing_is_fetched_from_elsewhere(site: Path) -> None:
    for page in site.rglob("*.html"):
        for source in Links(page.read_text("utf-8")).loaded:
            assert (page.parent / source).is_file(), f"{page}: {source}"
    assert "http" not in (site / "page.css").read_text("utf-8")


def test_broken_links_and_pages_that_are_not_listed_are_told() -> None:
    pages = all_pages()
    listed = {source for links in navigation(pages["README.md"]).values() for _, source in links}
    extra = read_page("docs/extra.md", "# Extra\n[a](missing.md) [b](plan.md#nothing) [c](plan.md)\n")
    with pytest.raises(BrokenSite) as caught:
        resolve({**pages, extra.source: extra}, listed)
    assert str(caught.value).splitlines() == [
        "docs/extra.md: missing.md leads nowhere",
        "docs/extra.md: docs/plan.md has no heading #nothing",
        "docs/extra.md: no page leads to it",
        "docs/extra.md: the README's list of documentation lacks it",
    ]


def test_headings_have_the_anchors_that_github_gives_them() -> None:
    page = read_page("x.md", "# A\n## `roost plan CONFIG [KEY=VALUE]...`\n## A\n## What's 6.1, here?\n")
    assert page.anchors == {"a", "roost-plan-config-keyvalue", "a-1", "whats-61-here"}
    assert page.title == "A"


def test_the_navigation_is_the_list_of_the_readme() -> None:
    entries = navigation(all_pages()["README.md"])
    assert list(entries)[:2] == ["Start", "Guides"]
    assert ("Coming from slime", "docs/from-slime.md") in entries["Guides"]
    assert ("Why things are as they are", f"{site_pages.DECISIONS}/index.md") in entries["Explanation"]
