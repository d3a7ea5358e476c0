"""`roost status --web`: serves the live page."""

from __future__ import annotations

import ipaddress
import os
import tempfile
import webbrowser
from collections.abc import Iterator
from contextlib import contextmanager
from html import escape
from importlib.util import find_spec
from pathlib import Path

from roost.cli.ending import tell
from roost.errors import ConfigurationError
from roost.web.live_jobs import LiveJobs, Read
from roost.web.page_access import VARIABLE, PageAccess

LOOPBACK = "127.0.0.1"
_NEEDED = ("starlette", "uvicorn")


def check_web() -> None:
    """Refuse to go on without the packages of the extra."""
    missing = [name for name in _NEEDED if find_spec(name) is None]
    if missing:
        raise ConfigurationError(
            code="RE140",
            what="the live page needs packages that are not installed",
            why=f"missing: {', '.join(missing)}",
            remedy="pip install 'roost[web]'",
        )


def serve_jobs(read: Read, job: str | None, host: str, port: int, opens: bool) -> None:
    """Serve the page of a job, or of all jobs, until Ctrl-C."""
    from roost.web.page_server import listening_socket, serve

    live = LiveJobs(read)
    access = PageAccess(os.environ.get(VARIABLE, ""))
    try:
        listening = listening_socket(host, port)
    except OSError as error:
        raise ConfigurationError(
            code="RE140",
            what=f"the page cannot be served at {host}:{port}",
            why=error.strerror or str(error),
            remedy="choose another --host or --port",
        ) from None
    where = f"http://{f'[{host}]' if ':' in host else host}:{listening.getsockname()[1]}"
    if not _is_loopback(host):
        tell("The page goes over the network unencrypted: whoever sees the traffic has its token.")
    tell(f"{where}/?token={access.token}")
    tell(f"Metrics for Prometheus: {where}/metrics, with the token as bearer token. Ctrl-C ends this.")
    with _opened(f"{where}/?token={access.token}", opens):
        serve(live, access, job, listening)


def _is_loopback(host: str) -> bool:
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return host == "localhost"


@contextmanager
def _opened(address: str, opens: bool) -> Iterator[None]:
    """Opens a browser through a file that only this user reads: everyone sees the arguments of a browser's process."""
    if not opens:
        yield
        return
    with tempfile.TemporaryDirectory(prefix="roost-page-") as folder:
        page = Path(folder, "open.html")
        page.write_text(f'<meta http-equiv="refresh" content="0; url={escape(address)}">\n', "utf-8")
        page.chmod(0o600)
        webbrowser.open(page.as_uri())
        yield
