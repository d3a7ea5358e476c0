"""An inference server as a command: answers /health, /whoami and /generate on the address it is given.

A streamed answer ends after a POST of /release. With ENGINE_FAMILY set it has children, one of which calls setsid. With ENGINE_EXIT set it ends at once.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import threading
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

FLAGS = dict(zip(sys.argv[1::2], sys.argv[2::2], strict=True))
RELEASED = threading.Event()
ENVIRONMENT = ("CUDA_VISIBLE_DEVICES", "RANK", "WORLD_SIZE", "MASTER_ADDR", "MASTER_PORT", "ENGINE_NOTE")


class Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    disable_nagle_algorithm = True

    def do_GET(self) -> None:
        body = json.dumps(
            {
                "flags": FLAGS,
                "environment": {name: os.environ.get(name) for name in ENVIRONMENT},
                "pid": os.getpid(),
                "children": [child.pid for child in CHILDREN],
            }
        ).encode()
        self.answer(200 if self.path in ("/health", "/whoami") else 404, body)

    def do_POST(self) -> None:
        asked = json.loads(self.rfile.read(int(self.headers.get("content-length", 0))) or b"{}")
        if self.path == "/release":
            RELEASED.set()
            self.answer(200, b"{}")
        elif asked.get("stream"):
            self.stream(asked["text"])
        else:
            said = {"text": asked.get("text"), "pid": os.getpid(), "asked": asked}
            self.answer(200, json.dumps(said).encode())

    def answer(self, status: int, body: bytes) -> None:
        self.send_response(status)
        self.send_header("content-type", "application/json")
        self.send_header("content-length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def stream(self, text: str) -> None:
        self.send_response(200)
        self.send_header("content-type", "text/event-stream")
        self.send_header("transfer-encoding", "chunked")
        self.end_headers()
        for number in range(2):
            event = b"data: " + json.dumps({"text": text, "number": number}).encode() + b"\n\n"
            self.wfile.write(b"%x\r\n%s\r\n" % (len(event), event))
            if number == 0:
                RELEASED.wait(60)
        self.wfile.write(b"0\r\n\r\n")

    def log_message(self, *args: object) -> None:
        pass


if code := os.environ.get("ENGINE_EXIT"):
    print("CUDA out of memory", file=sys.stderr, flush=True)
    sys.exit(int(code))
CHILDREN = []
if os.environ.get("ENGINE_FAMILY"):
    CHILDREN = [
        subprocess.Popen(["sleep", "300"]),
        subprocess.Popen(["sleep", "300"], start_new_session=True),
    ]


class Server(ThreadingHTTPServer):
    request_queue_size = 128


Server((FLAGS["--host"], int(FLAGS["--port"])), Handler).serve_forever()
