"""The server of the live page: it sends pages, their changes as server-sent events, and metrics."""

from __future__ import annotations

import asyncio
import html
import json
import socket
from collections.abc import AsyncIterator, Callable
from contextlib import suppress
from types import FrameType
from typing import Any

import uvicorn
from starlette.applications import Starlette
from starlette.concurrency import run_in_threadpool
from starlette.requests import Request
from starlette.responses import HTMLResponse, PlainTextResponse, RedirectResponse, Response, StreamingResponse
from starlette.routing import Route

from roost.views.job_page import changed_parts, job_page, jobs_page
from roost.views.metrics_text import CONTENT_TYPE
from roost.web.live_jobs import EVERY, LiveJobs
from roost.web.page_access import PageAccess

KEEP_ALIVE = 15.0  # seconds without changes after which a page is sent a comment
_HEADERS = {
    "Cache-Control": "no-store",
    "Referrer-Policy": "no-referrer",
    "X-Content-Type-Options": "nosniff",
    "X-Frame-Options": "DENY",
}


class PageServer:
    """Serves the page of one job, or of all jobs."""

    def __init__(self, live: LiveJobs, access: PageAccess, only: str | None = None) -> None:
        self._live, self._access, self._only = live, access, only
        self._closing = asyncio.Event()

    def app(self) -> Starlette:
        guarded = self._guarded
        return Starlette(
            routes=[
                Route("/favicon.ico", _no_icon),
                Route("/", guarded(self._start)),
                Route("/job/{job}", guarded(self._job)),
                Route("/events", guarded(self._events)),
                Route("/events/{job}", guarded(self._events)),
                Route("/metrics", guarded(self._metrics)),
            ]
        )

    def close(self) -> None:
        """End the open connections of pages."""
        self._closing.set()

    def _guarded(self, answer: Callable[[Request], Any]) -> Callable[[Request], Any]:
        async def answered(request: Request) -> Response:
            port = request.url.port or 80
            if "token" in request.query_params:  # moved from the address into a cookie, for this browser only
                if not self._access.fits(request.query_params["token"]):
                    return _refused()
                moved = RedirectResponse(request.url.path, status_code=303, headers=_HEADERS)
                moved.set_cookie(
                    self._access.cookie_name(port), self._access.token, httponly=True, samesite="strict"
                )
                return moved
            if not self._access.allows(request.headers, request.cookies, port):
                return _refused()
            response: Response = await answer(request)
            response.headers.update(_HEADERS)
            return response

        return answered

    async def _start(self, request: Request) -> Response:
        if self._only is not None:
            return await self._page_of(self._only, "")
        jobs = await run_in_threadpool(self._live.jobs)
        return HTMLResponse(jobs_page(jobs, "/events"))

    async def _job(self, request: Request) -> Response:
        return await self._page_of(request.path_params["job"], "" if self._only else "/")

    async def _page_of(self, job: str, back: str) -> Response:
        found = await run_in_threadpool(self._live.job, job)
        if found is None:
            return PlainTextResponse(f"no job {job!r}\n", status_code=404)
        page = await run_in_threadpool(job_page, found, f"/events/{job}", back)
        return HTMLResponse(page)

    async def _metrics(self, request: Request) -> Response:
        return Response(await run_in_threadpool(self._live.metrics), media_type=CONTENT_TYPE)

    async def _events(self, request: Request) -> Response:
        changes = self._changes(request.path_params.get("job"))
        return StreamingResponse(changes, media_type="text/event-stream")

    async def _changes(self, job: str | None) -> AsyncIterator[str]:
        """All parts of the page once, and then the parts that have changed."""
        shown: dict[str, str] = {}
        quiet = 0.0
        while not self._closing.is_set():
            parts = await run_in_threadpool(self._live.parts, job)
            changed, quiet = changed_parts(shown, parts), quiet + EVERY
            if changed:
                yield f"data: {json.dumps(changed)}\n\n"
                shown, quiet = parts, 0.0
            elif quiet >= KEEP_ALIVE:
                yield ": still here\n\n"
                quiet = 0.0
            with suppress(asyncio.TimeoutError):
                await asyncio.wait_for(self._closing.wait(), EVERY)


async def _no_icon(request: Request) -> Response:
    return Response(status_code=204)  # browsers ask for one by themselves


def _refused() -> Response:
    words = "This page needs the token of the address that `roost status --web` printed."
    return HTMLResponse(f"<!DOCTYPE html><p>{html.escape(words)}</p>\n", status_code=403, headers=_HEADERS)


def listening_socket(host: str, port: int) -> socket.socket:
    """A listening socket; port 0 takes a free port."""
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    return socket.create_server((host, port), family=family)


def serve(live: LiveJobs, access: PageAccess, only: str | None, listening: socket.socket) -> None:
    """Serve until Ctrl-C. Logs no addresses: they may hold the token."""
    pages = PageServer(live, access, only)
    config = uvicorn.Config(
        pages.app(), log_level="error", access_log=False, lifespan="off", timeout_graceful_shutdown=2
    )
    ServerOfPages(config, pages).run(sockets=[listening])


class ServerOfPages(uvicorn.Server):
    """A server that closes the connections of open pages at a signal to end: they would last for ever."""

    def __init__(self, config: uvicorn.Config, pages: PageServer) -> None:
        super().__init__(config)
        self._pages = pages

    def handle_exit(self, sig: int, frame: FrameType | None) -> None:
        self._pages.close()
        super().handle_exit(sig, frame)
