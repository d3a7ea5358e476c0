"""A small server: `server.py PORT [WHAT]`. The second argument says what it does."""

from __future__ import annotations

import itertools
import os
import signal
import subprocess
import sys
import time
from http.server import BaseHTTPRequestHandler, HTTPServer

PORT, WHAT = int(sys.argv[1]), sys.argv[2] if len(sys.argv) > 2 else ""
requests = itertools.count()


class Health(BaseHTTPRequestHandler):
    def do_GET(self) -> None:
        busy = WHAT == "always busy" or (WHAT == "busy first" and next(requests) < 3)
        self.send_response(503 if busy else 200 if self.path == "/health" else 404)
        self.end_headers()

    def log_message(self, *args: object) -> None:
        pass


class Server(HTTPServer):
    allow_reuse_address = True  # as every server does; a held port asks for it


def child(*words: str) -> None:
    print(f"child {subprocess.Popen(words, stdout=subprocess.DEVNULL).pid}", file=sys.stderr, flush=True)


if WHAT != "silent":
    print(f"serving on {PORT}, {WHAT or 'as it should'}", file=sys.stderr, flush=True)
if WHAT == "exit":
    print("\x1b[31mValueError\x1b[0m: no such model; api_key=canary", file=sys.stderr, flush=True)
    sys.exit(3)
if WHAT == "tells":  # on both streams, and in colours
    print("on stdout: " + os.environ["HF_TOKEN"], flush=True)
    print(
        f"key in use: \x1b[31m{os.environ['HF_TOKEN'][:4]}\x1b[0m{os.environ['HF_TOKEN'][4:]}!",
        file=sys.stderr,
    )
    print(
        sys.argv[3:], os.environ["DEPLOY_KEY"], os.environ["PLAIN"], os.environ["SHORT_KEY"], file=sys.stderr
    )
    sys.exit(3)
if WHAT == "killed":
    os.kill(os.getpid(), signal.SIGKILL)
if WHAT == "late":
    time.sleep(0.5)
if WHAT == "never":
    time.sleep(100)
if WHAT == "family":
    child("sleep", "100")
    child("sh", "-c", "trap '' TERM; sleep 100 & wait; wait")
    subprocess.run(["sh", "-c", "env -i setsid sleep 100 & echo child $! >&2"])
if WHAT == "deaf":
    signal.signal(signal.SIGTERM, signal.SIG_IGN)
with Server(("", PORT), Health) as server:
    server.serve_forever()
