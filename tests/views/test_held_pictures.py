"""Accelerators that others hold, in the map, the picture and the page."""

from __future__ import annotations

from xml.etree import ElementTree

import pytest
from test_files import SVG, tags
from test_plan_pictures import job

import roost
from roost.planning.preflight import Holder
from roost.views.captions import held_lines
from roost.views.page import render_page
from roost.views.svg import render_svg
from roost.views.terminal import render_plan

HELD = [
    Holder(name="work outside placement groups", node=1, count=3),
    Holder(name="job 'other'", node=0, count=2, devices=frozenset({6, 7})),
]
LINES = ["held: node 0: 6-7 by job 'other'", "held: node 1: 3 of 8 by work outside placement groups"]


def planned(rule: str = "0-5,8-11", shape: str = "2x8") -> roost.Plan:
    return roost.plan(job({"actor": rule}), roost.Inventory.parse(shape))


def test_the_map_shows_them_and_their_holders() -> None:
    lines = render_plan(planned(), held=HELD).splitlines()
    assert lines[1:5] == [
        "0     nvidia_gpu  A0 A1 A2 A3 A4 A5 #  #",
        "1     nvidia_gpu  A6 A7 A8 A9 ?  ?  ?  ?",
        *LINES,
    ]
    assert lines[-1].startswith(
        "2 nodes, 16 accelerators: 10 used, 5 held by others, 1 idle, 0 shared  plan "
    )


def test_a_map_in_letters_shows_them_too() -> None:
    text = render_plan(planned("0-63", "9x8"), held=[Holder(name="x", node=8, count=8)], ascii_only=True)
    assert "\n8       nvidia_gpu  # # # # # # # #\n" in text
    runs = render_plan(planned("0-70", "1x72"), held=[Holder(name="x", node=0, count=1)], width=60)
    assert "0-70 A  71 #\n" in runs


def test_the_plan_of_a_held_accelerator_stays_visible() -> None:
    """The shortage is among the findings; the map still answers where the component would sit."""
    held = [Holder(name="x", node=0, count=8, devices=frozenset(range(8)))]
    text = render_plan(planned(), held=held)
    assert "A0 A1 A2 A3 A4 A5 #  #" in text
    assert "held: node 0: 0-7 by x\n" in text


def test_the_picture_and_the_page_show_them() -> None:
    plan = planned()
    svg, page = render_svg(plan, held=HELD), render_page(plan, held=HELD)
    cells = {
        (title.text or "").partition(", accelerator ")[2]: shape.get("fill")
        for shape in ElementTree.fromstring(svg).iter(f"{SVG}rect")
        for title in shape.iter(f"{SVG}title")
    }
    assert cells == {
        "6: held by job 'other'": "url(#roost-held)",
        "7: held by job 'other'": "url(#roost-held)",
        **{f"{number}: perhaps held": "none" for number in range(4, 8)},
    }
    words = [text.text for text in ElementTree.fromstring(svg).iter(f"{SVG}text")]
    assert [word for word in words if word in LINES] == LINES
    assert words.count("?") == 4
    tags(page)
    for text in (svg, page):
        assert text.count('id="roost-held"') == 1
        assert "10 used, 5 held by others, 1 idle" in text


def test_without_holders_nothing_changes() -> None:
    plan = planned()
    assert render_plan(plan, held=[]) == render_plan(plan)
    assert "held" not in render_svg(plan) + render_page(plan) + render_plan(plan)


def test_nodes_that_are_held_alike_are_one_row_whoever_holds_them() -> None:
    plan = planned("0", "400x8")
    held = [
        Holder(name=f"job '{node % 2}'", node=node, count=8, devices=frozenset(range(8)))
        for node in range(1, 400)
    ]
    assert "\n1-399 x399  nvidia_gpu  # # # # # # # #\n" in render_plan(plan, held=held)
    assert "accelerator 0: held by job &#x27;1&#x27;, job &#x27;0&#x27;<" in render_svg(plan, held=held)
    assert held_lines(plan, held) == [
        "held: nodes 1, 3, 5, 197 more: 0-7 by job '1'",
        "held: nodes 2, 4, 6, 196 more: 0-7 by job '0'",
    ]
    assert "397, 399: 0-7" in held_lines(plan, held, show_all=True)[0]


def test_many_holders_are_cut_short() -> None:
    held = [Holder(name=f"job '{node}'", node=node, count=1) for node in range(20)]
    plan = planned("0", "20x8")
    assert held_lines(plan, held)[6:] == ["held: node 6: 1 of 8 by job '6'", "held: ... 13 more"]
    assert len(held_lines(plan, held, show_all=True)) == 20


def test_holders_on_nodes_the_plan_does_not_have() -> None:
    held = [Holder(name="x", node=2, count=8)]
    assert "held" not in render_plan(planned(), held=held)


@pytest.mark.parametrize("name", ["\x1b[2Jx", "<script>alert(1)</script>"])
def test_names_of_holders_stay_words(name: str) -> None:
    plan, held = planned(), [Holder(name=name, node=0, count=2, devices=frozenset({6, 7}))]
    assert "\x1b" not in render_plan(plan, held=held)
    for text in (render_svg(plan, held=held), render_page(plan, held=held)):
        assert "\x1b" not in text
        assert tags(text).seen.count("script") == (2 if "<html" in text else 0)  # the page's own
