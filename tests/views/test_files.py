"""The picture and the page: complete, well formed, safe to open, and the same plan as everywhere else."""

from __future__ import annotations

import re
from base64 import b64encode
from dataclasses import replace
from datetime import date
from functools import cache
from hashlib import sha256
from html import escape
from html.parser import HTMLParser
from pathlib import Path
from typing import Any
from xml.etree import ElementTree

import pytest
from test_plan_pictures import EXAMPLES, PICTURES, job, motley, plan_of_picture

import roost
from roost.placement.placement import Device
from roost.planning.component_plan import Engines
from roost.planning.preflight import Holder
from roost.views.components import component_rows
from roost.views.map_picture import MAX_BANDS
from roost.views.page import render_page
from roost.views.process_search import holds, search_data
from roost.views.svg import render_svg

SVG = "{http://www.w3.org/2000/svg}"
DOCS = Path(__file__).parents[2] / "docs"
PLANS = sorted(PICTURES)
SMALLER = [name for name in PLANS if name != "16384_nodes"]  # that one is drawn folded


def plan_of(source: Any, shape: str) -> roost.Plan:
    return roost.plan(source, roost.Inventory.parse(shape))


@cache
def page_of_picture(name: str) -> str:
    return render_page(plan_of_picture(name))


def heterogeneous() -> roost.Plan:
    inventory = roost.Inventory.load(EXAMPLES / "heterogeneous_cluster.yaml")
    return roost.plan(EXAMPLES / "heterogeneous.yaml", inventory)


def titles(svg: str) -> list[str]:
    return [title.text or "" for title in ElementTree.fromstring(svg).iter(f"{SVG}title")]


class Tags(HTMLParser):
    """Fails on a page whose elements are not closed in the order they were opened."""

    EMPTY = ("meta", "br", "rect", "input")

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


def test_the_page_is_as_before(same_as_before: Any) -> None:
    page = render_page(heterogeneous(), job="heterogeneous.yaml", day=date(2026, 11, 17))
    same_as_before("heterogeneous.html", page)


@pytest.mark.parametrize("name", SMALLER)
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
                names = re.sub(r" [\d,-]+( of engine \d+)?(?=,|$)", "", where[4]).split(", ")
                assert names == ([use.component for use in uses] or ["idle"])
    there = {(node.rank, index) for node in plan.inventory.nodes for index in range(node.accelerators.count)}
    assert shown == there


@pytest.mark.parametrize("name", SMALLER)
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
    plan, page = plan_of_picture(name), page_of_picture(name)
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


def test_a_page_loads_nothing_and_runs_its_search_only() -> None:
    page = render_page(heterogeneous())
    found = tags(page)
    assert not {"link", "img", "iframe", "object", "a", "form"} & set(found.seen)
    assert not [name for name, _ in found.attributes if name.startswith("on") or name in ("src", "href")]
    data, program = re.findall(r"<script([^>]*)>(.*?)</script>", page, re.DOTALL)
    assert data[0] == ' type="application/json" id="plan"'
    hashed = b64encode(sha256(program[1].encode()).digest()).decode()
    allowed = f"default-src 'none'; style-src 'unsafe-inline'; script-src 'sha256-{hashed}'"
    assert ("content", allowed) in found.attributes
    svg = render_svg(heterogeneous())
    assert "<script" not in svg
    assert set(re.findall(r"https?://[^\"' ]+", svg)) == {"http://www.w3.org/2000/svg"}


@pytest.mark.parametrize("name", [*PLANS, "strided"])
def test_the_search_of_a_page_knows_every_process(name: str) -> None:
    plan = plan_of_picture(name) if name in PLANS else strided()
    data = search_data([plan])
    for part, component in zip(data["components"], plan.components.values(), strict=True):
        places = [
            (first + at * len(pattern) + index, node + at, held)
            for first, node, nodes, number in part["runs"]
            for pattern in [data["patterns"][number]]
            for at in range(nodes)
            for index, held in enumerate(pattern)
        ]
        assert places == [(p.rank, p.cluster_node_rank, holds(p)) for p in component.members]


def strided() -> roost.Plan:
    job = {
        "cluster": {"component_placement": {"actor,rollout": "all"}},
        "rollout": {"tensor_parallel_size": 2},
    }
    job["actor"] = {"model": {"tensor_model_parallel_size": 4}}
    kind = roost.ModelParallelComponentPlacement
    return roost.plan(job, roost.Inventory.parse("2x8"), placement=kind)


def bands(svg: str) -> list[tuple[float, float, str]]:
    """The x, the width and the label of every band with process ranks."""
    found = []
    for group in ElementTree.fromstring(svg).iter(f"{SVG}g"):
        if group.get("data-ranks"):
            rect, label = group.find(f"{SVG}rect"), group.find(f"{SVG}text")
            assert rect is not None
            assert label is not None
            found.append((float(rect.get("x", "0")), float(rect.get("width", "0")), label.text or ""))
    return found


def test_an_engine_is_one_box_over_its_accelerators() -> None:
    layout = roost.Layout(actor_num_gpus_per_node=4, rollout_num_gpus=12, rollout_num_gpus_per_engine=4)
    drawn = bands(render_svg(plan_of(layout, "2x8")))
    cell = drawn[0][1]
    assert [label for _, _, label in drawn] == ["A0", "A1", "A2", "A3", "R0", "R1", "R2"]
    assert all(width == (cell if label[0] == "A" else 4 * cell + 9) for _, width, label in drawn)
    whole = roost.Layout(
        actor_num_gpus_per_node=4, rollout_num_gpus=4, rollout_num_gpus_per_engine=4, colocate=True
    )
    [*actors, engine] = bands(render_svg(plan_of(whole, "1x4")))
    assert engine[:2] == (actors[0][0], 4 * cell + 9)


def test_an_engine_of_several_processes_is_one_box() -> None:
    plan = plan_of(job({"rollout": "0-3"}), "1x4")
    engines = replace(plan.components["rollout"], engines=Engines(processes=2))
    plan = replace(plan, components={"rollout": engines})
    svg = render_svg(plan)
    assert [label for _, _, label in bands(svg)] == ["R0-1", "R2-3"]
    assert "node 0, accelerator 2: rollout 2 of engine 1" in titles(svg)


def test_the_table_tells_which_processes_are_an_engine() -> None:
    layout = roost.Layout(rollout_num_gpus=32, rollout_num_gpus_per_engine=16)
    rollout = component_rows(roost.plan(layout, roost.Inventory.parse("5x8")))[1]
    assert rollout.places == ("0-3 on nodes 1-4, 1 each", "every 2 ranks are an engine")
    layout = roost.Layout(rollout_num_gpus=32, rollout_num_gpus_per_engine=8)
    assert component_rows(roost.plan(layout, roost.Inventory.parse("5x8")))[1].places == (
        "0-3 on nodes 1-4, 1 each",
    )


def test_an_engine_that_shares_part_of_its_accelerators_is_still_one_box() -> None:
    drawn = bands(render_svg(plan_of(job({"actor": "2-5", "rollout": "0-7:0-1"}), "1x8")))
    assert sorted(label for _, _, label in drawn) == ["A0", "A1", "A2", "A3", "R0", "R1"]
    # Its accelerators are no neighbours, so a process of stride 2 has two boxes.
    labels = [label for _, _, label in bands(render_svg(strided()))]
    assert labels.count("R0") == 2


def test_a_notebook_shows_the_picture() -> None:
    plan = heterogeneous()
    shown = plan._repr_html_()
    assert "<svg" in shown
    assert plan.short_digest in shown
    assert "heterogeneous.yaml on 2 nodes x 8 (A800)" in shown
    assert "<script" not in shown


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
    assert tags(page).seen.count("script") == 2  # the page's own


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
    page = page_of_picture("16384_nodes")
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
