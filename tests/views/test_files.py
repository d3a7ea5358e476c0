"""The picture and the page: complete, well formed, safe to open, and the same plan as everywhere else."""

from __future__ import annotations

import re
from datetime import date
from html import escape
from html.parser import HTMLParser
from pathlib import Path
from typing import Any
from xml.etree import ElementTree

import pytest
from test_plan_pictures import EXAMPLES, PICTURES, job, motley, plan_of_picture

import roost
from roost.placement.placement import Device
from roost.planning.preflight import Holder
from roost.views.page import render_page
from roost.views.svg import MAX_BANDS, render_svg

SVG = "{http://www.w3.org/2000/svg}"
DOCS = Path(__file__).parents[2] / "docs"
PLANS = sorted(PICTURES)


def plan_of(source: Any, shape: str) -> roost.Plan:
    return roost.plan(source, roost.Inventory.parse(shape))


def heterogeneous() -> roost.Plan:
    inventory = roost.Inventory.load(EXAMPLES / "heterogeneous_cluster.yaml")
    return roost.plan(EXAMPLES / "heterogeneous.yaml", inventory)


def titles(svg: str) -> list[str]:
    return [title.text or "" for title in ElementTree.fromstring(svg).iter(f"{SVG}title")]


class Tags(HTMLParser):
    """Fails on a page whose elements are not closed in the order they were opened."""

    EMPTY = ("meta", "br", "rect")

    def __init__(self) -> None:
        super().__init__()
        self.open: list[str] = []
        self.seen: list[str] = []
        self.attributes: list[tuple[str, str | None]] = []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.seen.append(tag)
        self.attributes += attrs
        if tag not in self.EMPTY:
            self.open.append(tag)

    def handle_endtag(self, tag: str) -> None:
        if tag not in self.EMPTY:
            assert self.open.pop() == tag


def tags(page: str) -> Tags:
    found = Tags()
    found.feed(page)
    found.close()
    assert not found.open
    return found


def test_the_picture_in_the_docs_is_what_is_drawn(same_as_before: Any) -> None:
    same_as_before(DOCS / "heterogeneous.svg", render_svg(heterogeneous()))


@pytest.mark.parametrize("name", PLANS)
def test_every_accelerator_is_in_the_picture(name: str) -> None:
    plan = plan_of_picture(name)
    shown: set[tuple[int, int]] = set()
    for title in titles(render_svg(plan, show_all=True)):
        if where := re.fullmatch(r"node (\d+)(?:-(\d+) x\d+)?, accelerator (\d+): (.+)", title):
            first, last = int(where[1]), int(where[2] or where[1])
            for node in range(first, last + 1):
                device = (node, int(where[3]))
                shown.add(device)
                uses = plan.occupancy.get(Device(node, "accelerator", "", device[1]), ())
                names = re.sub(r" [\d,-]+(?=,|$)", "", where[4]).split(", ")
                assert names == ([use.component for use in uses] or ["idle"])
    there = {(node.rank, index) for node in plan.inventory.nodes for index in range(node.accelerators.count)}
    assert shown == there


@pytest.mark.parametrize("name", PLANS)
def test_every_shape_has_a_plain_colour(name: str) -> None:
    """Renderers such as librsvg know no CSS variables, and draw in black what has no other colour."""
    held = [Holder(name="job 'other'", node=0, count=1)]
    svg = render_svg(plan_of_picture(name), job="job.yaml", day=date(2026, 11, 17), held=held)
    assert "var(" not in svg
    colour = re.compile(r"none|#[0-9a-f]{6}|url\(#roost-held\)")
    shapes = [one for one in ElementTree.fromstring(svg).iter() if one.tag in DRAWN]
    assert len(shapes) > 5
    for one in shapes:
        assert colour.fullmatch(one.get("fill", "")), ElementTree.tostring(one)
        assert one.get("fill") != "none" or colour.fullmatch(one.get("stroke", ""))
    assert ElementTree.fromstring(svg).get("font-family")


DRAWN = {
    f"{SVG}{tag}" for tag in ("rect", "text", "path", "line", "circle", "polygon", "polyline", "ellipse")
}


@pytest.mark.parametrize(
    ("named", "title"),
    [
        ({"job": "job.yaml", "day": date(2026, 11, 17)}, "job.yaml on 2 nodes x 8 (nvidia_gpu), 2026-11-17"),
        ({"job": "a <b>.yaml"}, "a <b>.yaml on 2 nodes x 8 (nvidia_gpu)"),
        ({"day": date(2026, 11, 17)}, "2 nodes x 8 (nvidia_gpu), 2026-11-17"),
    ],
)
def test_job_cluster_and_date_are_the_heading(named: dict[str, Any], title: str) -> None:
    plan = plan_of(job({"actor": "all"}), "2x8")
    svg, page = render_svg(plan, **named), render_page(plan, **named)
    assert titles(svg)[0] == title
    assert next(text.text for text in ElementTree.fromstring(svg).iter(f"{SVG}text")) == title
    assert f"<title>{escape(title)}</title>" in page
    assert f"<h1>{escape(title)}</h1>" in page
    assert plan.short_digest in svg
    assert plan.short_digest in page


def test_a_heading_names_a_mixed_cluster_in_few_words() -> None:
    plan = plan_of(job({"actor": "all"}), "2x8:A800,1x4:4090,3x0,1x2:B,1x3:C,2x8:A800")
    assert titles(render_svg(plan, job="job.yaml"))[0] == (
        "job.yaml on 4 nodes x 8 (A800), 1 node x 4 (4090), 3 nodes without accelerators, 2 more kinds of nodes"
    )


def test_a_long_heading_does_not_widen_the_picture() -> None:
    svg = render_svg(plan_of(job({"actor": "all"}), "2x8"), job=f"{'long-' * 50}name.yaml")
    assert float(re.findall(r'<svg[^>]* width="([\d.]+)"', svg)[0]) < 1_200


@pytest.mark.parametrize("name", PLANS)
def test_every_component_and_finding_is_on_the_page(name: str) -> None:
    plan = plan_of_picture(name)
    page = render_page(plan)
    tags(page)
    assert plan.short_digest in page
    for component in plan.components:
        assert component in page
    for finding in plan.findings:
        assert f"<code>{finding.code}</code>" in page


def test_the_page_lists_every_process() -> None:
    page = render_page(heterogeneous())
    rows = re.findall(r"<tr><td class=\"number\">(\d+)</td><td class=\"number\">(\d+)</td>(.*)</tr>", page)
    assert len(rows) == 16 + 4 + 2 + 4 + 200
    assert rows[16] == ("0", "2", "<td>10.0.0.3</td><td>accelerators 0-1</td>")
    assert rows[-1] == ("199", "5", "<td>10.0.0.6</td><td></td>")


def test_a_page_loads_nothing_and_runs_nothing() -> None:
    found = tags(render_page(heterogeneous()))
    assert not {"script", "link", "img", "iframe", "object", "a", "form"} & set(found.seen)
    assert not [name for name, _ in found.attributes if name.startswith("on") or name in ("src", "href")]
    assert ("content", "default-src 'none'; style-src 'unsafe-inline'") in found.attributes
    assert set(re.findall(r"https?://[^\"' ]+", render_svg(heterogeneous()))) == {
        "http://www.w3.org/2000/svg"
    }


HOSTILE = "<script>alert(1)</script>\"'&\x1b[2J\x00\ufffe"


def test_names_from_files_stay_words() -> None:
    held = {"count": 2, "model": HOSTILE}
    inventory = roost.Inventory.from_dict({"nodes": [{"ip": HOSTILE, "accelerators": held}]})
    plan = roost.plan(job({"actor": "all"}), inventory)
    svg, page = render_svg(plan), render_page(plan)
    for text in (svg, page):
        assert "script>alert" not in text.replace("&lt;script&gt;alert", "")
        assert "\x1b" not in text
        assert "\x00" not in text
    words = [text.text for text in ElementTree.fromstring(svg).iter(f"{SVG}text")]
    assert any(word and word.startswith("<script>alert(1)</script>\"'&") for word in words)
    assert "script" not in tags(page).seen


def test_no_secret_is_drawn() -> None:
    settings = {"node_ranks": 0, "env_vars": {"API_TOKEN": "canary-7531"}}
    group = {"label": "a", "node_ranks": 0, "env_configs": [settings]}
    plan = plan_of(job({"actor": {"node_group": "a", "placement": "all"}}, node_groups=[group]), "1x2")
    assert "canary" not in render_svg(plan) + render_page(plan)


def test_a_long_finding_does_not_widen_the_picture() -> None:
    shape = ",".join(f"1x1:M{number}" for number in range(60))
    svg = render_svg(plan_of(job({"actor": "all"}), shape))
    assert float(re.findall(r'<svg[^>]* width="([\d.]+)"', svg)[0]) < 1_200
    assert "56 models more" in svg


def test_large_plans_make_small_files() -> None:
    plan = plan_of_picture("16384_nodes")
    assert len(render_svg(plan)) < 20_000
    page = render_page(plan)
    assert len(page) < 30_000
    assert "524,288 processes are too many for a page" in page


def test_a_long_map_says_what_it_leaves_out() -> None:
    plan = plan_of(motley(600), "600x10")
    assert "344 rows left out (nodes 252-595); --all shows them" in render_svg(plan)
    everything = render_svg(plan, show_all=True)
    assert "left out" not in everything
    assert len([title for title in titles(everything) if title.startswith("node ")]) == 600 * 10


def test_more_components_than_a_cell_can_show() -> None:
    names = [f"part{number}" for number in range(MAX_BANDS + 3)]
    svg = render_svg(plan_of(job({",".join(names): "all"}), "1x1"))
    assert ">+4<" in svg
    assert f"node 0, accelerator 0: {', '.join(f'{name} 0' for name in names)}" in titles(svg)
