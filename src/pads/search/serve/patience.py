"""How long the server waits: whoever sends half of a request, or does not take an answer, must not keep others from theirs."""

from __future__ import annotations

import asyncio
from typing import Any

from uvicorn.protocols.http.auto import AutoHTTPProtocol

from pads.search.serve.guard import BODY_SECONDS

HEADER_SECONDS = 10.0
"""For all headers of a request, from the first byte or the connection on."""
MOST_HEADER_BYTES = 2**16
MOST_WAITING = 200
"""Connections that have not sent a whole request, upload included: one more, and the oldest is closed."""
GRACE_SECONDS = 0.2
"""Before that, in which whoever means it has sent a request: hundreds of connections may be accepted at once."""
SEND_SECONDS = 120.0
"""For an answer to be taken."""
MOST_UNSENT = 256_000_000
"""Bytes of answers that nobody has taken yet: one more, and the connection that has waited longest is closed."""

waiting: dict[ImpatientProtocol, asyncio.TimerHandle] = {}
"""Connections whose request is not whole yet, the oldest first."""
sending: dict[ImpatientProtocol, asyncio.TimerHandle] = {}
"""Connections that have not taken all of an answer, the oldest first."""


class ImpatientProtocol(AutoHTTPProtocol):  # type: ignore[misc, valid-type]
    """Close connections that do not come to the end of their request, or do not take the answer."""

    num_bytes = 0
    """Of the headers so far."""
    has_headers = False

    # -- a request that comes slowly -----------------------------------------------------------------------------------

    def connection_made(self, transport: Any) -> None:
        super().connection_made(transport)
        self.begin_waiting()

    def data_received(self, data: bytes) -> None:
        super().data_received(data)
        is_begun = self.cycle is not None and not self.cycle.response_complete
        if is_begun and not self.cycle.more_body:
            self.end_waiting()
        elif is_begun and self in waiting and not self.has_headers:
            self.begin_upload()
        elif self not in waiting:  # the beginning of the next request
            self.begin_waiting()
        if not is_begun:
            self.num_bytes += len(data)
            if self.num_bytes > MOST_HEADER_BYTES:
                self.give_up()

    def connection_lost(self, exc: Exception | None) -> None:
        self.end_waiting()
        self.end_sending()
        super().connection_lost(exc)

    def begin_waiting(self) -> None:
        self.num_bytes, self.has_headers = 0, False
        loop = asyncio.get_running_loop()
        waiting[self] = loop.call_later(HEADER_SECONDS, self.give_up)
        if len(waiting) > MOST_WAITING:
            loop.call_later(GRACE_SECONDS, give_up_oldest)

    def begin_upload(self) -> None:
        """Wait longer for what follows the headers; whoever asks for the place is let in all the same."""
        self.has_headers = True
        waiting[self].cancel()
        # a little more than the guard, which says why
        waiting[self] = asyncio.get_running_loop().call_later(BODY_SECONDS + 5, self.give_up)

    def end_waiting(self) -> None:
        timer = waiting.pop(self, None)
        if timer is not None:
            timer.cancel()

    def give_up(self) -> None:
        self.end_waiting()
        self.end_sending()
        self.transport.abort()

    # -- an answer that is not taken -----------------------------------------------------------------------------------

    def on_response_complete(self) -> None:
        super().on_response_complete()
        self.end_waiting()  # of an upload that was refused before its end
        if self.num_unsent() and self not in sending:
            sending[self] = asyncio.get_running_loop().call_later(SEND_SECONDS, self.check_sent)
        while sum(each.num_unsent() for each in sending) > MOST_UNSENT:
            next(iter(sending)).give_up()

    def resume_writing(self) -> None:
        super().resume_writing()
        self.end_sending()

    def end_sending(self) -> None:
        timer = sending.pop(self, None)
        if timer is not None:
            timer.cancel()

    def check_sent(self) -> None:
        self.end_sending()
        if self.num_unsent():
            self.transport.abort()

    def num_unsent(self) -> int:
        return self.transport.get_write_buffer_size()


def give_up_oldest() -> None:
    """Close the connection that has waited longest, if there are still too many."""
    if len(waiting) > MOST_WAITING:
        next(iter(waiting)).give_up()
