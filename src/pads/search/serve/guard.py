"""What stands before the application: who may ask, how much they may send, and what a browser may do with the answer."""

from __future__ import annotations

import asyncio
import hmac
import ipaddress
import re
import secrets
import socket

from starlette.datastructures import Headers, MutableHeaders
from starlette.exceptions import HTTPException
from starlette.requests import HTTPConnection
from starlette.responses import JSONResponse
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from pads.errors import UserError

MAX_BYTES = 25_000_000
"""Of a request."""
BODY_SECONDS = 60.0
"""For all of an upload."""
COOKIE = "pads-token"
HOST = re.compile(r"(?:\[([0-9a-f:.]+)\]|([a-z0-9_.-]+))(?::[0-9]{1,5})?", re.IGNORECASE)
"""A Host header: an address of IPv6 in brackets or a name, and perhaps a port; nothing before or behind."""
LOOPBACK = frozenset({"localhost", "127.0.0.1", "::1"})
EVERYWHERE = frozenset({"0.0.0.0", "::", ""})

HEADERS = {
    "Content-Security-Policy": (
        "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self' blob:; connect-src 'self'; "
        "base-uri 'none'; form-action 'none'; frame-ancestors 'none'"
    ),
    "X-Content-Type-Options": "nosniff",
    "X-Frame-Options": "DENY",
    "Referrer-Policy": "no-referrer",
    "Cross-Origin-Resource-Policy": "same-origin",
    "Cross-Origin-Opener-Policy": "same-origin",
    "Cache-Control": "no-cache",
}
"""Of every answer that does not bring its own."""


class Guard:
    """Refuses strangers and floods in front of an application, and puts the headers on every answer."""

    def __init__(self, app: ASGIApp, host: str, token: str | None = None) -> None:
        self.app, self.host, self.token = app, host, token

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            await self.app(scope, receive, send)
            return

        async def send_with_headers(message: Message) -> None:
            if message["type"] == "http.response.start":
                headers = MutableHeaders(scope=message)
                for name, value in HEADERS.items():
                    headers.setdefault(name, value)
            await send(message)

        refusal = self.refusal(Headers(scope=scope)) or self.refusal_without_token(HTTPConnection(scope))
        if refusal is not None:
            await refusal(scope, receive, send_with_headers)
        else:
            await self.app(scope, limited(receive), send_with_headers)

    def refusal(self, headers: Headers) -> JSONResponse | None:
        """The answer to a request that goes no further."""
        host, origin = headers.get("host", ""), headers.get("origin")
        if not is_allowed(host_name(host), self.host):
            # A stranger's name that leads here (DNS rebinding) would make this server part of the stranger's site.
            return refused(403, f"this server does not go by the name {host!r}; name it with --host, or use localhost.")
        if origin is not None and origin.lower() not in (f"http://{host.lower()}", f"https://{host.lower()}"):
            return refused(403, "pages of other sites may not ask this server.")
        length = headers.get("content-length", "")
        if length.isdecimal() and (len(length) > 18 or int(length) > MAX_BYTES):
            return refused(413, too_large())
        return None

    def refusal_without_token(self, request: HTTPConnection) -> JSONResponse | None:
        """The answer to whoever does not know the token; the page itself, which asks for it, is for all."""
        is_open = not request.scope["path"].startswith("/api/") and request.scope["path"] != "/report"
        if self.token is None or is_open:
            return None
        scheme, _, given = request.headers.get("authorization", "").partition(" ")
        tokens = [given.strip() if scheme.lower() == "bearer" else "", request.cookies.get(COOKIE, "")]
        if any(hmac.compare_digest(each.encode(), self.token.encode()) for each in tokens):
            return None
        return refused(
            401,
            "this server asks for its token: open the address that it printed, or send `Authorization: Bearer TOKEN`.",
        )


def pick_token(host: str, token: str | None, no_token: bool) -> str | None:
    """The token that is asked for: a new one for "", none on loopback unless it was named; elsewhere it must be said."""
    if no_token and token is not None:
        raise UserError("--token and --no-token exclude each other: give one of them.")
    if token is None and not no_token and not is_loopback(host):
        raise UserError(
            f"--host {host}: whoever reaches this port could see the images. Ask them for a token with --token, or say "
            "--no-token."
        )
    if token and not re.fullmatch(r"[\w.~-]{8,}", token, re.ASCII):
        raise UserError("--token: at least 8 letters, digits or signs of -._~, or leave it empty for a new one.")
    return secrets.token_urlsafe(24) if token == "" else token


def limited(receive: Receive) -> Receive:
    """Whatever the headers say, no more than MAX_BYTES come in, and not for ever."""
    num_bytes, is_whole = 0, False
    deadline = asyncio.get_running_loop().time() + BODY_SECONDS

    async def receive_counted() -> Message:
        nonlocal num_bytes, is_whole
        try:
            async with asyncio.timeout_at(None if is_whole else deadline):
                message = await receive()
        except TimeoutError as error:
            raise HTTPException(408, f"the upload took more than {BODY_SECONDS:.0f} seconds: try again.") from error
        is_whole = message["type"] != "http.request" or not message.get("more_body", False)
        num_bytes += len(message.get("body", b""))
        if num_bytes > MAX_BYTES:
            raise HTTPException(413, too_large())
        return message

    return receive_counted


def refused(status: int, sentence: str) -> JSONResponse:
    return JSONResponse({"error": sentence}, status, headers={"Connection": "close"})


def too_large() -> str:
    return f"an upload may have {MAX_BYTES // 1_000_000} MB at most: send a smaller image."


def host_name(header: str) -> str:
    """The name in a Host header, without port and brackets; none if that is not all there is."""
    match = HOST.fullmatch(header)
    return "" if match is None else (match[1] or match[2]).lower()


def is_allowed(name: str, host: str) -> bool:
    """Whether a server bound to host answers to the name. Everywhere: to addresses, and to the machine's own name."""
    if name in LOOPBACK or name == host.lower():
        return bool(name)
    return host in EVERYWHERE and (is_address(name) or name == socket.gethostname().lower())


def is_address(name: str) -> bool:
    try:
        ipaddress.ip_address(name)
    except ValueError:
        return False
    return True


def is_loopback(host: str) -> bool:
    return host in LOOPBACK or (is_address(host) and ipaddress.ip_address(host).is_loopback)
