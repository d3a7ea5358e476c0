"""The live page in a real browser, of a real job: opened, a worker killed, the change seen, a wrong token refused."""

from __future__ import annotations

import os
import re
import subprocess
import urllib.request
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import psutil
import pytest
from browser import Browser
from running import eventually, new_job, roost_command

pytestmark = [pytest.mark.ray, pytest.mark.browser]

SHOTS = os.environ.get("ROOST_SCREENSHOTS")  # a folder for pictures to look at


@pytest.fixture
def browser() -> Iterator[Browser]:
    made = Browser()
    yield made
    made.close()


def test_the_page_shows_a_worker_that_is_killed(
    run: Callable[..., Any], address: str, browser: Browser, tmp_path: Path
) -> None:
    job = new_job("seen")
    driver = run("watched", job, str(tmp_path / "gate"))
    pids = driver.answer()["pids"]
    words = roost_command("status", job, "--address", address, "--web")
    serving = subprocess.Popen(words, stderr=subprocess.PIPE, text=True)
    try:
        assert serving.stderr is not None
        where = serving.stderr.readline().strip()
        match = re.fullmatch(r"(http://127\.0\.0\.1:\d+/)\?token=(\S{32})", where)
        assert match, where
        root, token = match.groups()

        for refused in (root, f"{root}?token=wrong"):
            browser.open(refused)
            assert "needs the token" in browser.value("document.body.innerText")
        browser.errors.clear()  # the browser logs a refused page

        browser.open(where)
        count = "document.querySelectorAll('#map .band.is-{}').length"
        eventually(lambda: browser.value(count.format("busy")) == 1, 60, "the busy worker on the map")
        assert browser.value("location.href") == root  # the token is not in the address any more
        assert browser.value("document.cookie") == ""  # no script can read it
        assert browser.value(count.format("idle")) == 3
        assert browser.value(count.format("dead")) == 0
        assert "blocks for" in browser.value("document.getElementById('processes').innerText")
        assert browser.value("document.querySelectorAll('#use path').length") >= 2
        shoot(browser, "live")

        browser.value("window.same = true")  # the page is not loaded again
        psutil.Process(pids[2]).kill()
        eventually(lambda: browser.value(count.format("dead")) == 1, 60, "the dead worker on the map")
        eventually(
            lambda: "crash" in browser.value("document.getElementById('events').innerText"), 60, "the event"
        )
        assert browser.value("window.same") is True
        browser.value(
            "const f = document.getElementById('search'); f.value = 'source:2'; f.dispatchEvent(new Event('input'))"
        )
        assert "source:2 is on node 0" in browser.value("document.getElementById('found').innerText")
        shoot(browser, "killed")
        assert browser.errors == []

        asked = urllib.request.Request(f"{root}metrics", headers={"Authorization": f"Bearer {token}"})
        with urllib.request.urlopen(asked, timeout=60) as answer:
            told = answer.read().decode()
        assert f'roost_processes{{job="{job}",component="source",state="dead"}} 1' in told
        assert f'roost_channel_length{{job="{job}",channel="samples"}} 3' in told

        driver.kill()
        eventually(
            lambda: ": ended" in browser.value("document.querySelector('h1').innerText"), 60, "the end"
        )
        serving.send_signal(2)
        assert serving.wait(60) == 130
        assert token not in serving.stderr.read().replace(where, "")
        eventually(lambda: browser.value("document.getElementById('connection').innerText"), 60, "no server")
    finally:
        serving.kill()
        serving.stderr.close()


def shoot(browser: Browser, name: str) -> None:
    if SHOTS:
        for dark in (False, True):
            browser.dark(dark)
            browser.screenshot(Path(SHOTS, f"{name}_{'dark' if dark else 'light'}.png"))
