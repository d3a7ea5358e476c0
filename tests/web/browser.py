"""Headless Chromium, spoken to through its debugging pipe: no package, and no port that others could reach."""

from __future__ import annotations

import base64
import itertools
import json
import os
import select
import shutil
import subprocess
import tempfile
import time
from pathlib import Path
from typing import Any

OPTIONS = (
    "--headless",
    "--no-sandbox",
    "--disable-gpu",
    "--disable-background-networking",
    "--disable-dev-shm-usage",
    "--no-first-run",
    "--remote-debugging-pipe",
)


class Browser:
    """One page."""

    def __init__(self) -> None:
        self._folder = tempfile.TemporaryDirectory(prefix="roost-browser-", ignore_cleanup_errors=True)
        theirs_in, self._out = os.pipe()
        self._in, theirs_out = os.pipe()

        def as_descriptors() -> None:  # Chromium reads from 3 and writes to 4
            spare_in, spare_out = os.dup(theirs_in), os.dup(theirs_out)
            os.dup2(spare_in, 3)
            os.dup2(spare_out, 4)

        self._process = subprocess.Popen(
            [_program(), *OPTIONS, f"--user-data-dir={self._folder.name}", "about:blank"],
            preexec_fn=as_descriptors,
            pass_fds=(3, 4, theirs_in, theirs_out),
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
        )
        os.close(theirs_in)
        os.close(theirs_out)
        self._numbers, self._buffer, self._session = itertools.count(1), b"", ""
        self._loads = 0
        self.errors: list[str] = []  # what the page wrote to its console, or its policy refused
        target = self._ask("Target.createTarget", url="about:blank")["targetId"]
        self._session = self._ask("Target.attachToTarget", targetId=target, flatten=True)["sessionId"]
        for domain in ("Page", "Runtime", "Log"):
            self._ask(f"{domain}.enable")

    def _ask(self, method: str, within: float = 120.0, **params: Any) -> dict[str, Any]:
        number, deadline = next(self._numbers), time.monotonic() + within
        message = {"id": number, "method": method, "params": params}
        if self._session:
            message["sessionId"] = self._session
        os.write(self._out, json.dumps(message).encode() + b"\0")
        while True:
            answer = self._message(deadline, method)
            if answer.get("id") == number:
                assert "error" not in answer, answer
                return dict(answer["result"])

    def _message(self, deadline: float, what: str) -> dict[str, Any]:
        while b"\0" not in self._buffer:
            ready, _, _ = select.select([self._in], [], [], max(0.0, deadline - time.monotonic()))
            assert ready, f"the browser does not answer: {what}"
            piece = os.read(self._in, 1 << 20)
            assert piece, f"the browser has ended: {what}"
            self._buffer += piece
        raw, _, self._buffer = self._buffer.partition(b"\0")
        message: dict[str, Any] = json.loads(raw)
        if message.get("method") in ("Runtime.exceptionThrown", "Log.entryAdded"):
            self.errors.append(json.dumps(message["params"]))
        self._loads += message.get("method") == "Page.loadEventFired"
        return message

    def open(self, address: str, within: float = 120.0) -> None:
        """Go there, and wait until the page is loaded."""
        before, deadline = self._loads, time.monotonic() + within
        self._ask("Page.navigate", url=address)
        while self._loads == before:
            self._message(deadline, f"loading {address}")

    def value(self, expression: str) -> Any:
        found = self._ask("Runtime.evaluate", expression=expression, returnByValue=True)
        assert "exceptionDetails" not in found, found
        return found["result"].get("value")

    def dark(self, on: bool) -> None:
        scheme = {"name": "prefers-color-scheme", "value": "dark" if on else "light"}
        self._ask("Emulation.setEmulatedMedia", features=[scheme])

    def screenshot(self, path: Path, width: int = 1_100, height: int = 1_400) -> None:
        size = {"width": width, "height": height, "deviceScaleFactor": 1, "mobile": False}
        self._ask("Emulation.setDeviceMetricsOverride", **size)
        path.write_bytes(base64.b64decode(self._ask("Page.captureScreenshot")["data"]))

    def close(self) -> None:
        self._process.kill()
        self._process.wait()
        os.close(self._in)
        os.close(self._out)
        self._folder.cleanup()


def _program() -> str:
    found = next(filter(None, map(shutil.which, ("chromium", "chromium-browser", "google-chrome"))), None)
    assert found, "these tests need Chromium: apt-get install chromium"
    return found
