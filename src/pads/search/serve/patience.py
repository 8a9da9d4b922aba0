"""How long the server waits for a request: somebody who sends half of one must not keep others from being answered."""

from __future__ import annotations

import asyncio
from typing import Any

from uvicorn.protocols.http.auto import AutoHTTPProtocol

HEADER_SECONDS = 10.0
"""For all headers of a request, from the first byte or the connection on."""
MOST_WAITING = 200
"""Connections that have not sent a whole request: one more, and the oldest is closed."""
GRACE_SECONDS = 0.2
"""Before that, in which whoever means it has sent a request: hundreds of connections may be accepted at once."""

waiting: dict[ImpatientProtocol, asyncio.TimerHandle] = {}
"""Connections whose request is not whole yet, the oldest first."""


class ImpatientProtocol(AutoHTTPProtocol):  # type: ignore[misc, valid-type]
    """Close connections that do not come to the end of their headers."""

    def connection_made(self, transport: Any) -> None:
        super().connection_made(transport)
        self.begin_waiting()

    def data_received(self, data: bytes) -> None:
        super().data_received(data)
        if self.cycle is not None and not self.cycle.response_complete:
            self.end_waiting()
        elif self not in waiting:  # the beginning of the next request
            self.begin_waiting()

    def connection_lost(self, exc: Exception | None) -> None:
        self.end_waiting()
        super().connection_lost(exc)

    def begin_waiting(self) -> None:
        loop = asyncio.get_running_loop()
        waiting[self] = loop.call_later(HEADER_SECONDS, self.give_up)
        if len(waiting) > MOST_WAITING:
            loop.call_later(GRACE_SECONDS, give_up_oldest)

    def end_waiting(self) -> None:
        timer = waiting.pop(self, None)
        if timer is not None:
            timer.cancel()

    def give_up(self) -> None:
        self.end_waiting()
        self.transport.abort()


def give_up_oldest() -> None:
    """Closes the connection that has waited longest, if there are still too many."""
    if len(waiting) > MOST_WAITING:
        next(iter(waiting)).give_up()
