"""Access to the pages: a request needs the token, in a header, in a cookie, or once in the address."""

from __future__ import annotations

import secrets
from collections.abc import Mapping
from hmac import compare_digest

VARIABLE = "ROOST_WEB_TOKEN"  # a token of the user's own, for programs that read metrics


class PageAccess:
    def __init__(self, token: str = "") -> None:
        self.token = token or secrets.token_urlsafe(24)

    def cookie_name(self, port: int) -> str:
        """Browsers send a cookie to all ports of a host, so each server has its own."""
        return f"roost-{port}"

    def allows(self, headers: Mapping[str, str], cookies: Mapping[str, str], port: int) -> bool:
        scheme, _, bearer = headers.get("authorization", "").partition(" ")
        given = bearer.strip() if scheme.lower() == "bearer" else cookies.get(self.cookie_name(port), "")
        return self.fits(given)

    def fits(self, given: str) -> bool:
        return compare_digest(given.encode(), self.token.encode())

    def __repr__(self) -> str:
        return "PageAccess(...)"
