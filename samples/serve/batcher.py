"""Requests that wait at the same time become one call of a model."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

Arrays = Sequence[np.ndarray[Any, Any]]


class Overloaded(Exception):
    """More rows wait than the batcher holds."""


@dataclass(frozen=True)
class _Request:
    arrays: Arrays
    rows: int
    joins: bool
    answer: asyncio.Future[Arrays]

    @property
    def kind(self) -> Any:
        """Requests of one kind go into one call."""
        return tuple((array.dtype, array.shape[1:]) for array in self.arrays)


class Batcher:
    """Calls `run` with arrays that are joined along dim 0, at most `max_batch` rows. A call that
    fails is made again for each of its requests, so a bad one fails alone.

    No request waits longer than `max_delay` seconds for others; `max_waiting` rows may wait.
    """

    def __init__(
        self, run: Callable[[Arrays], Arrays], max_batch: int, max_delay: float, max_waiting: int
    ) -> None:
        self._run = run
        self._max_batch, self._max_delay, self._max_waiting = max_batch, max_delay, max_waiting
        self._waiting: list[_Request] = []
        self._task: asyncio.Task[None] | None = None

    async def submit(self, arrays: Arrays, joins: bool) -> Arrays:
        """The results for these arrays, whose rows may be joined with those of others.
        Overloaded; else raises as `run`."""
        counts = {len(array) for array in arrays if array.ndim}
        joins = joins and len(counts) == 1 and all(array.ndim for array in arrays)
        rows = counts.pop() if joins else 1
        if sum(request.rows for request in self._waiting) + rows > self._max_waiting:
            raise Overloaded(f"{self._max_waiting} rows wait already; send the request again later")
        request = _Request(arrays, rows, joins, asyncio.get_running_loop().create_future())
        self._waiting.append(request)
        if self._task is None or self._task.done():
            self._task = asyncio.create_task(self._work())
        return await request.answer

    async def _work(self) -> None:
        await asyncio.sleep(self._max_delay)
        while self._waiting:
            batch = self._take()
            try:
                await asyncio.to_thread(self._answer, batch, asyncio.get_running_loop())
            except BaseException:  # the server ends
                for request in (*batch, *self._waiting):
                    request.answer.cancel()
                self._waiting = []
                raise

    def _take(self) -> list[_Request]:
        """The oldest request and those that fit to it."""
        batch, rows, left = self._waiting[:1], self._waiting[0].rows, []
        for request in self._waiting[1:]:
            fits = rows + request.rows <= self._max_batch
            if fits and request.joins and batch[0].joins and request.kind == batch[0].kind:
                batch.append(request)
                rows += request.rows
            else:
                left.append(request)
        self._waiting = left
        return batch

    def _answer(self, batch: list[_Request], loop: asyncio.AbstractEventLoop) -> None:
        """On a thread of its own: run the batch, and hand out what it gave."""
        arrays = batch[0].arrays
        if len(batch) > 1:
            columns = zip(*(request.arrays for request in batch), strict=True)
            arrays = [np.concatenate(parts) for parts in columns]
        try:
            results = self._run(arrays)
        except Exception as error:
            if len(batch) > 1:
                for request in batch:
                    self._answer([request], loop)
            else:
                loop.call_soon_threadsafe(_settle, batch[0].answer, None, error)
            return
        end = 0
        for request in batch:
            end += request.rows
            part = [result[end - request.rows : end] for result in results]
            part = part if request.joins else results
            loop.call_soon_threadsafe(_settle, request.answer, part, None)


def _settle(answer: asyncio.Future[Arrays], arrays: Any, error: Exception | None) -> None:
    if answer.done():  # the client has gone
        return
    if error is not None:
        answer.set_exception(error)
    else:
        answer.set_result(arrays)
