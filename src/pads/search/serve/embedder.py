"""Uploads that wait together are embedded together, by one thread: torch gains nothing from more.

Dimensions: B batch, D embedding.
"""

from __future__ import annotations

import asyncio
import functools
import queue
import threading
from concurrent.futures import Future, ThreadPoolExecutor
from typing import NamedTuple

import numpy as np

from pads.model import Model
from pads.search.serve.pictures import NUM_DECODERS, decode_upload

MAX_BATCH = 16


class Waiting(NamedTuple):
    """An upload, decoded."""

    stored: np.ndarray
    size: tuple[int, int]
    vector: Future[np.ndarray]


class Embedder:
    """`await embedder.embed(data)`: the bytes of an image file become a vector."""

    def __init__(self, model: Model) -> None:
        self.model = model
        self.waiting: queue.SimpleQueue[Waiting | None] = queue.SimpleQueue()
        self.decoders = ThreadPoolExecutor(NUM_DECODERS, "decoder")
        self.thread = threading.Thread(target=self._work, name="embedder", daemon=True)
        self.thread.start()

    async def embed(self, data: bytes) -> np.ndarray:
        decode = functools.partial(decode_upload, data, self.model.read)
        stored, original = await asyncio.get_running_loop().run_in_executor(self.decoders, decode)
        upload = Waiting(stored, original, Future())
        self.waiting.put(upload)
        return await asyncio.wrap_future(upload.vector)

    def close(self) -> None:
        self.waiting.put(None)
        self.thread.join()
        self.decoders.shutdown()

    def _work(self) -> None:
        while (batch := self._next_batch()) is not None:
            batch = [upload for upload in batch if upload.vector.set_running_or_notify_cancel()]
            if not batch:  # nobody waits any more
                continue
            try:
                stored, sizes, _ = zip(*batch, strict=True)
                vectors_BD = self.model.embed_stored(stored, sizes).numpy()
            except Exception as error:  # whoever waits is told; the next batch may fare better
                for upload in batch:
                    upload.vector.set_exception(error)
            else:
                for upload, vector_D in zip(batch, vectors_BD, strict=True):
                    upload.vector.set_result(vector_D)

    def _next_batch(self) -> list[Waiting] | None:
        """Waits for one upload, and takes along what else is there; None at the end."""
        batch: list[Waiting] = []
        while not batch or (len(batch) < MAX_BATCH and not self.waiting.empty()):
            upload = self.waiting.get()
            if upload is None:
                return None
            batch.append(upload)
        return batch
