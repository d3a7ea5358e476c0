"""A router that only keeps its list of engines, as sglang-router does it, and notes what happened to the list.

`/history` has each change of the list, and whether the engine answered at that moment. An engine that does not
answer /health is not taken.
"""

from __future__ import annotations

import json
import os
import sys
import urllib.request
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

FLAGS = dict(zip(sys.argv[1::2], sys.argv[2::2], strict=True))
WORKERS: dict[str, dict[str, object]] = {}
REFUSED: dict[str, dict[str, object]] = {}
HISTORY: list[list[object]] = []


def answers(url: str) -> bool:
    try:
        opener = urllib.request.build_opener(urllib.request.ProxyHandler({}))
        return bool(opener.open(f"{url}/health", timeout=2).status == 200)
    except OSError:
        return False


class Handler(BaseHTTPRequestHandler):
    def do_GET(self) -> None:
        number = self.path.removeprefix("/workers/")
        if self.path == "/workers":
            self.say(200, {"workers": list(WORKERS.values())})
        elif number in REFUSED:
            self.say(200, REFUSED[number])
        elif self.path == "/history":
            self.say(200, {"history": HISTORY, "flags": FLAGS, "pid": os.getpid()})
        else:
            self.say(200 if self.path == "/health" else 404, {})

    def do_POST(self) -> None:
        body = json.loads(self.rfile.read(int(self.headers["content-length"])))
        number = f"number-{len(HISTORY)}"
        fine = answers(body["url"])
        HISTORY.append(["add", body["url"], fine])
        if fine:
            WORKERS[number] = {**body, "id": number, "is_healthy": True}
        else:
            REFUSED[number] = {"job_status": {"status": "failed", "message": "nobody answers /health"}}
        self.say(202, {"worker_id": number})

    def do_DELETE(self) -> None:
        gone = WORKERS.pop(self.path.removeprefix("/workers/"))
        HISTORY.append(["remove", gone["url"], answers(str(gone["url"]))])
        self.say(202, {})

    def say(self, status: int, body: object) -> None:
        self.send_response(status)
        self.end_headers()
        self.wfile.write(json.dumps(body).encode())

    def log_message(self, *args: object) -> None:
        pass


ThreadingHTTPServer((FLAGS["--host"], int(FLAGS["--port"])), Handler).serve_forever()
