"""Running jobs as text, as parts of a page, and as metrics."""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from dataclasses import replace

import pytest
from running_jobs import NOW, ended_job, job_plan, running_job, seen

import roost
from roost.engine.events import Event
from roost.engine.job_snapshot import JobSnapshot
from roost.engine.status import absent_status
from roost.views.job_page import changed_parts, job_page, job_parts, jobs_page, recent_use
from roost.views.job_text import render_changes, render_job, render_jobs
from roost.views.job_words import duration
from roost.views.metrics_text import CallCounts, render_metrics

PICTURES = {
    "job_on_1_node": (1, False, 100),
    "job_on_1_node_with_faults": (1, True, 80),
    "job_on_4_nodes_with_faults": (4, True, 100),
    "job_on_64_nodes_with_faults": (64, True, 100),
    "job_on_1024_nodes": (1024, False, 100),
}


@pytest.mark.parametrize("name", PICTURES)
def test_the_text_of_a_job_is_as_before(name: str, same_as_before: Callable[[str, str], None]) -> None:
    nodes, faults, width = PICTURES[name]
    same_as_before(name, render_job(running_job(nodes, faults), width=width))


def test_jobs_side_by_side_are_as_before(same_as_before: Callable[[str, str], None]) -> None:
    jobs = [running_job(1), running_job(4, faults=True, job="other"), ended_job()]
    same_as_before("jobs_side_by_side", render_jobs(jobs))
    assert render_jobs([]) == "no job is running\n"


def test_everything_is_shown_if_wanted() -> None:
    shown = render_job(running_job(64), show_all=True)
    assert (
        len(re.findall(r"^(?:actor|rollout|agent|reward):\d+ ", shown, re.MULTILINE)) == 256 + 128 + 128 + 1
    )
    assert "\n63    10.0.0.63  up " in shown
    assert "--all" not in shown


def test_colour_only_where_wanted() -> None:
    assert "\033[1;31m" in render_job(running_job(1, faults=True), colour=True)
    assert "\033" not in render_job(running_job(1, faults=True))


def test_changes_are_lines() -> None:
    before, after = running_job(1), running_job(1, faults=True)
    assert render_changes(before, before) == []
    told = render_changes(before, after)
    assert told[0] == "actor:0 node 0: busy -> hung, last train returned"
    assert "rollout:0 node 0: busy -> dead, generation 2, last generate returned" in told
    assert "driver: running -> stopped" in told
    assert told[-1].startswith(
        "event 2027-01-15T07:59:29.000+00:00 rollout rank 0 on node 0: restarted (crash)"
    )
    assert render_changes(before, replace(before, state="ended")) == ["job night-run: running -> ended"]


def test_of_many_processes_only_trouble_is_told() -> None:
    before = running_job(64)
    place = before.plans[0].components["actor"].members[1]
    idle_to_busy = replace(
        before,
        processes=tuple(replace(one, state="busy", calls_in_flight=("train",)) for one in before.processes),
    )
    assert render_changes(before, idle_to_busy) == []
    dead = seen("actor", place, "dead")
    with_dead = tuple(dead if (one.component, one.rank) == ("actor", 1) else one for one in before.processes)
    assert [line[:30] for line in render_changes(before, replace(before, processes=with_dead))] == [
        "actor:1 node 0: idle -> dead, "
    ]


@pytest.mark.parametrize(
    ("seconds", "words"),
    [
        (-1, "0.0 s"),
        (9.94, "9.9 s"),
        (9.96, "10 s"),
        (60, "1 min"),
        (192, "3 min 12 s"),
        (7_500, "2 h 5 min"),
        (90_061, "1 d 1 h"),
    ],
)
def test_durations_are_short(seconds: float, words: str) -> None:
    assert duration(seconds) == words


# -- the page ---------------------------------------------------------------------------------------------


def bands(html: str, state: str) -> int:
    return len(re.findall(rf'<g class="band c\d+ is-{state}"', html))


def test_the_map_shows_states() -> None:
    parts = job_parts(running_job(1))
    assert [bands(parts["map"], state) for state in ("busy", "idle", "not-started", "dead")] == [4, 2, 1, 0]
    faults = job_parts(running_job(1, faults=True))
    assert [bands(faults["map"], state) for state in ("hung", "stopped", "dead")] == [1, 1, 1]
    assert "rollout 0 (dead)" in faults["map"]
    changed = changed_parts(parts, faults)
    assert {"map", "head", "processes", "events"} <= changed.keys()
    assert "nodes" not in changed
    assert changed_parts(faults, job_parts(running_job(1, faults=True))) == {}


def two_plans() -> JobSnapshot:
    """A job with a plan for training and one for judging, on the same nodes."""
    first = {"actor": "0-1", "teacher": "2-3", "beta": "4"}
    plans = tuple(
        roost.plan({"cluster": {"component_placement": placement}}, "1x8")
        for placement in (first, {"trainer": "5", "alpha": "6", "teacher": "7"})
    )
    processes = [
        absent_status(name, place, "not started")
        for plan in plans
        for name, part in plan.components.items()
        for place in part.members
    ]
    return replace(running_job(1), plans=plans, processes=tuple(processes))


def test_components_of_several_plans_look_alike_in_maps_tables_and_search() -> None:
    parts = job_parts(two_plans())
    bits = {one["name"]: one["bit"] for one in json.loads(parts["plan"])["components"]}
    assert sorted(bits.values()) == list(range(5))
    drawn = r'<g class="band c(\d+) [^>]*><rect [^>]* fill="(#\w+)"/><text [^>]*>([A-Z])'
    chips = r'class="chip" style="background:(#\w+)">(\w)</span>(\w+)'
    assert {(int(bit), fill, letter) for bit, fill, letter in re.findall(drawn, parts["map"])} == {
        (bits[name], fill, letter) for fill, letter, name in re.findall(chips, parts["components"])
    }
    places = [(one["name"], one["count"]) for one in json.loads(parts["plan"])["components"]]
    assert places.count(("teacher", 2)) == places.count(("teacher", 1)) == places.count(("beta", 1)) == 1


def test_a_search_knows_processes_that_have_moved() -> None:
    before = running_job(4)
    job = {"cluster": {"num_nodes": 4, "component_placement": {"actor": "16-31", "rollout": "0-15:0-7"}}}
    moved = replace(before, plans=(roost.plan(job, before.plans[0].inventory),))
    sent = changed_parts(job_parts(before), job_parts(moved))
    assert sent["plan"] in job_page(moved, "/events/night-run")
    assert json.loads(sent["plan"])["components"][0]["nodes"] == "2-3"


def test_nodes_in_trouble_have_rows_of_their_own() -> None:
    well, faults = job_parts(running_job(1024))["map"], job_parts(running_job(1024, faults=True))["map"]
    rows = re.compile(r'<g class="row([^"]*)" data-nodes="([^"]*)"')
    assert [nodes for _, nodes in rows.findall(well)] == ["0-511", "512-1022", "1023"]
    assert rows.findall(faults) == [
        ("", "0"),
        ("", "1-511"),
        ("", "512"),
        ("", "513-1022"),
        (" is-silent", "1023"),
    ]
    assert bands(faults, "dead") == 1
    assert bands(faults, "unknown") == 4 + 1  # engines, and the agents beside them


def test_a_node_without_accelerators_in_trouble_has_a_row_too() -> None:
    placement = {"agent": {"node_group": "node", "placement": "0-3:0-7"}}
    plan = roost.plan({"cluster": {"component_placement": placement}}, roost.Inventory.parse("4x0"))
    places = plan.components["agent"].members
    processes = tuple(seen("agent", place, "dead" if place.rank == 4 else "running") for place in places)
    drawn = job_parts(replace(running_job(1), plans=(plan,), processes=processes))["map"]
    assert re.findall(r'<g class="row" data-nodes="([^"]*)"', drawn) == ["0-1", "2", "3"]
    assert bands(drawn, "dead") == 1


@pytest.mark.parametrize(
    ("nodes", "lanes", "last"),
    [
        (1, 8 + 1, "agent x2"),
        (4, 32 + 1, "agent x8"),
        (64, 32 + 1, "agent x128"),
        (1024, 32 + 1, "agent x2048"),
    ],
)
def test_the_use_of_many_accelerators_is_summed_up(nodes: int, lanes: int, last: str) -> None:
    found = recent_use(running_job(nodes))
    assert (len(found), found[-1].label) == (lanes, last)
    assert all(0 <= share <= 1 for lane in found for shares in lane.shares.values() for share in shares)


def test_pages_load_nothing_and_names_end_no_element() -> None:
    job = replace(running_job(1), events=(Event(action="<script>alert(1)</script>", time=NOW),))
    for page in (job_page(job, "/events/night-run", back="/"), jobs_page([job, ended_job()], "/events")):
        assert "<script>alert" not in page
        assert "connect-src 'self'" in page
        assert not re.findall(r'(?:src|href)="(?!/)', page)
        assert "http://" not in page.replace("http://www.w3.org/2000/svg", "")
    assert 'data-events="/events/night-run"' in job_page(job, "/events/night-run")


# -- metrics ----------------------------------------------------------------------------------------------

LINE = re.compile(r'^([a-z_]+)\{((?:[a-z_]+="(?:[^"\\]|\\.)*",?)*)\} (-?[0-9.e+-]+)$')


def metrics(*snapshots: JobSnapshot, counts: CallCounts | None = None) -> dict[tuple[str, str], float]:
    """Every sample, once each line was seen to be of the format."""
    counts = counts or CallCounts()
    counts.add(snapshots)
    found: dict[tuple[str, str], float] = {}
    typed: set[str] = set()
    for line in render_metrics(list(snapshots), counts).splitlines():
        if line.startswith("# TYPE "):
            typed.add(line.split()[2])
        elif not line.startswith("# HELP "):
            match = LINE.match(line)
            assert match, line
            assert re.sub("_(bucket|sum|count)$", "", match[1]) in typed or match[1] in typed
            assert (match[1], match[2]) not in found, line
            found[match[1], match[2]] = float(match[3])
    return found


def test_metrics_tell_calls_durations_restarts_and_lengths() -> None:
    found = metrics(running_job(1, faults=True), ended_job())
    actor = 'job="night-run",component="actor"'
    assert found["roost_calls_total", f'{actor},method="train",outcome="returned"'] == 4 * 41
    assert found["roost_calls_total", f'{actor},method="train",outcome="raised"'] == 4
    assert found["roost_call_seconds_sum", f'{actor},method="train"'] == 4 * 120.5
    assert found["roost_call_seconds_count", f'{actor},method="train"'] == 4 * 42
    assert found["roost_call_seconds_bucket", f'{actor},method="train",le="1"'] == 4 * 12
    assert found["roost_call_seconds_bucket", f'{actor},method="train",le="+Inf"'] == 4 * 42
    assert found["roost_calls_in_flight", f'{actor},method="train"'] == 2
    assert found["roost_processes", f'{actor},state="hung"'] == 1
    assert found["roost_restarts_total", 'job="night-run",component="rollout"'] == 3
    assert found["roost_channel_length", 'job="night-run",channel="samples"'] == 37
    assert ("roost_channel_length", 'job="night-run",channel="stuck"') not in found
    assert found["roost_nodes", 'job="night-run",state="up"'] == 1
    assert found["roost_job_running", 'job="yesterday"'] == 0


def test_calls_of_a_process_that_was_replaced_still_count() -> None:
    before, counts = running_job(1), CallCounts()
    key = ("roost_calls_total", 'job="night-run",component="rollout",method="generate",outcome="returned"')
    assert metrics(before, counts=counts)[key] == 2 * 41
    place = job_plan(1).components["rollout"].members[0]
    again = seen("rollout", place, generation=1, pid=5_000)
    others = tuple(again if (one.component, one.rank) == ("rollout", 0) else one for one in before.processes)
    assert metrics(replace(before, processes=others), counts=counts)[key] == 3 * 41
    assert key not in metrics(running_job(1, job="next"), counts=counts)  # until its job is gone
