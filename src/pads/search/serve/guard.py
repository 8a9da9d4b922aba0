"""What stands before the application: who may ask, how much they may send, and what a browser may do with the answer."""

from __future__ import annotations

import ipaddress
import socket
from urllib.parse import urlsplit

from starlette.datastructures import Headers, MutableHeaders
from starlette.exceptions import HTTPException
from starlette.responses import JSONResponse
from starlette.types import ASGIApp, Message, Receive, Scope, Send

MAX_BYTES = 25_000_000
"""Of a request."""
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

    def __init__(self, app: ASGIApp, host: str) -> None:
        self.app, self.host = app, host

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

        refusal = self.refusal(Headers(scope=scope))
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
        if origin is not None and urlsplit(origin).netloc.lower() != host.lower():
            return refused(403, "pages of other sites may not ask this server.")
        length = headers.get("content-length", "")
        if length.isdecimal() and int(length) > MAX_BYTES:
            return refused(413, too_large())
        return None


def limited(receive: Receive) -> Receive:
    """Whatever the headers say, no more than MAX_BYTES come in."""
    num_bytes = 0

    async def receive_counted() -> Message:
        nonlocal num_bytes
        message = await receive()
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
    """The name in a Host header, without port and brackets."""
    if header.startswith("["):
        return header[1:].partition("]")[0].lower()
    return header.partition(":")[0].lower()


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
