"""An inference server as a command: answers /health and /whoami on the address it is given.

With ENGINE_FAMILY set it has children, one of which calls setsid. With ENGINE_EXIT set it ends at once.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

FLAGS = dict(zip(sys.argv[1::2], sys.argv[2::2], strict=True))
ENVIRONMENT = ("CUDA_VISIBLE_DEVICES", "RANK", "WORLD_SIZE", "MASTER_ADDR", "MASTER_PORT", "ENGINE_NOTE")


class Handler(BaseHTTPRequestHandler):
    def do_GET(self) -> None:
        body = json.dumps(
            {
                "flags": FLAGS,
                "environment": {name: os.environ.get(name) for name in ENVIRONMENT},
                "pid": os.getpid(),
                "children": [child.pid for child in CHILDREN],
            }
        ).encode()
        self.send_response(200 if self.path in ("/health", "/whoami") else 404)
        self.end_headers()
        self.wfile.write(body)

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
ThreadingHTTPServer((FLAGS["--host"], int(FLAGS["--port"])), Handler).serve_forever()
