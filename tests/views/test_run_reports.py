"""Reports of runs, and curves."""

from __future__ import annotations

import re
import xml.etree.ElementTree as ElementTree
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

import roost
from roost.engine.events import Event
from roost.engine.run_record import ProcessRecord, RunRecord
from roost.engine.workers.call_log import Call
from roost.views.curves import curve_lines, curve_picture
from roost.views.drawing import fill_of
from roost.views.run_report import phases
from roost.views.run_timeline import run_timeline, shares_of_time
from roost.views.style import hues
from roost.views.timeline_pictures import bubbles


def call(number: int, method: str, start: float, end: float) -> Call:
    return Call(number=number, method=method, start=start, end=end, outcome="returned")


@pytest.fixture
def record() -> RunRecord:
    """Actor and rollout in turns on accelerator 0, the reward on its own, for 40 s."""
    job = {"cluster": {"component_placement": {"actor,rollout": "0", "reward": "1"}}}
    seats = {
        "rollout": (0, "generate", 0.0, 5.0),
        "actor": (0, "train", 7.0, 9.0),
        "reward": (1, "score", 5.0, 7.0),
    }
    processes = [
        ProcessRecord(
            component=name,
            rank=0,
            generation=0,
            node=0,
            devices=(device,),
            calls=tuple(call(step + 1, method, 10.0 * step + start, 10.0 * step + end) for step in range(4)),
        )
        for name, (device, method, start, end) in seats.items()
    ]
    death = Event(
        action="restarted", component="rollout", rank=0, node=0, cause="crash", detail="<b>", time=20.0
    )
    return RunRecord(
        job="job", plan=roost.plan(job, "1x2"), processes=tuple(processes), events=(death,), until=40.0
    )


def test_a_timeline_names_its_bubbles(record: RunRecord) -> None:
    shown = run_timeline(record, (0.0, 10.0))
    assert [lane.label for lane in shown.lanes] == ["node 0: 0", "node 0: 1"]
    assert [(bar.start, bar.end, bar.component) for bar in shown.lanes[0].bars] == [
        (0, 5, "rollout"),
        (5, 7, ""),
        (7, 9, "actor"),
        (9, 10, ""),
    ]
    assert "node 0: 0 is idle from 5 to 7 s: waits to run actor while reward works" in bubbles(shown)
    assert "node 0: 0 is idle from 9 to 10 s: waits, no call runs" in bubbles(shown)


def test_shares_of_time_and_phases(record: RunRecord) -> None:
    assert shares_of_time(record, (0.0, 40.0)) == [
        ("node 0: 0", {"actor": pytest.approx(0.2), "rollout": pytest.approx(0.5)}),
        ("node 0: 1", {"reward": pytest.approx(0.2)}),
    ]
    assert [(one.component, one.method, one.calls, one.seconds) for one in phases(record)] == [
        ("actor", "train", 4, 8.0),
        ("rollout", "generate", 4, 20.0),
        ("reward", "score", 4, 8.0),
    ]


def test_a_report_is_one_page_that_loads_nothing(
    record: RunRecord, tmp_path: Path, same_as_before: Any
) -> None:
    page = roost.write_report(
        record,
        tmp_path / "new",
        title="a <job>",
        curves={"reward": {"seed <1>": [0.1, 0.5, 0.9]}},
        marks={"reward": {"threshold": 0.7}},
        facts={"weight update": "3 ms"},
    )
    text = page.read_text("utf-8")
    assert sorted(path.name for path in page.parent.iterdir()) == ["report.html", "reward.svg"]
    same_as_before("report.html", text)
    same_as_before("reward.svg", (page.parent / "reward.svg").read_text("utf-8"))
    for words in (
        "a &lt;job&gt;",
        "seed &lt;1&gt;",
        "threshold 0.7",
        "weight update",
        "restarted (crash), &lt;b&gt;",
    ):
        assert words in text
    assert "<job>" not in text
    assert "<script" not in text
    assert "trace.json" not in text  # none was written
    ElementTree.fromstring((page.parent / "reward.svg").read_text("utf-8"))
    (page.parent / "trace.json").write_text("{}")
    assert 'href="trace.json"' in roost.write_report(record, page.parent).read_text("utf-8")


def test_a_report_stays_in_its_folder_and_draws_what_is_a_number(record: RunRecord, tmp_path: Path) -> None:
    for name in ("../reward", "a/b", ".hidden", ""):
        with pytest.raises(roost.ConfigurationError, match="a set of curves cannot be called"):
            roost.write_report(record, tmp_path / "new", curves={name: {"seed 1": [0.1]}})
    assert list(tmp_path.iterdir()) == []
    diverged = {"seed 1": [0.1, float("nan"), 0.3, float("inf")]}
    marks = {"reward": {"best": float("nan"), "most": float("inf")}}
    page = roost.write_report(record, tmp_path, curves={"reward": diverged}, marks=marks)
    assert not re.search("nan|inf", (tmp_path / "reward.svg").read_text("utf-8"))
    assert curve_lines(diverged)[0].count("?") == 2
    colours = hues(record.plan.components)
    legend = re.findall(r'class="chip" style="background:(#\w+)">', page.read_text("utf-8"))
    assert legend == [fill_of(colours[name]) for name in record.plan.components]


@pytest.mark.parametrize("running", [True, False])
def test_a_report_before_the_first_call_tells_the_placement(
    record: RunRecord, tmp_path: Path, running: bool
) -> None:
    processes = tuple(replace(one, calls=()) for one in record.processes) if running else ()
    page = roost.write_report(replace(record, processes=processes), tmp_path).read_text("utf-8")
    assert ("No call was made in this time." in page, "<h2>Phases</h2>" in page) == (True, False)
    assert "<h2>Placement</h2>" in page
    assert "restarted (crash)" in page


def test_curves_of_a_terminal_share_one_scale() -> None:
    low, high = curve_lines({"a": [0.0, 0.1], "bb": [0.0, 0.8]})
    assert (low, high) == ("a   ▁▂  0 to 0.1", "bb  ▁█  0 to 0.8")
    assert curve_lines({"a": [1.0] * 100}, width=10, ascii_only=True) == ["a  @@@@@@@@@@  1 to 1"]
    assert curve_lines({"a": []}) == []
    for curves in ({}, {"a": [3.0]}, {"a": [-1.0, 2.0]}, {"a": [0.0, 0.0]}):
        ElementTree.fromstring(curve_picture(curves).as_svg("curves"))
