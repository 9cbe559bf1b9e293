"""Several texts at once: `LanguageBatch("model.gguf")` gives a stream for each prompt.

All streams that have a place in the cache get their next token in one call; where one ends, the
next prompt takes its place. Long prompts are put into the cache in parts, between which the other
streams go on. Each text is that which `LanguageModel` writes alone for its prompt and seed.
"""

from __future__ import annotations

import os
import threading
from collections import deque
from collections.abc import Iterator, Sequence
from dataclasses import asdict
from typing import Any

import numpy as np

from ingot.hal.errors import CompileError, InvalidArgument
from ingot.hal.options import checked_options
from ingot.language.batch_draft import BatchDraft, Wanted
from ingot.language.draft import check_count, check_vocabulary, check_words
from ingot.language.loading import TYPES, check_prompt, load_language_model
from ingot.language.pages import Pages, Seat
from ingot.language.sampling import Sampling

__all__ = ["LanguageBatch", "Stream"]


class Stream:
    """The text behind one prompt, an iterator of pieces as they are made. `ids`: its tokens so far,
    those of the prompt first. Asking for a piece lets all streams of the batch go on."""

    def __init__(
        self, batch: LanguageBatch, ids: list[int], start: int, left: int, options: Any
    ) -> None:
        self.ids, self.start, self.options = ids, start, options
        self.seat: Seat | None = None
        self.is_done = left < 1
        self.known: list[int] = []  # with drafts: chosen already, not in the cache yet
        self._batch, self.left = batch, left
        self._piece = batch.tokenizer.stream()
        for id in ids[start:]:
            self._piece(id)
        self._pieces: deque[str] = deque()

    def __iter__(self) -> Iterator[str]:
        return self

    def __next__(self) -> str:
        while True:
            is_done = self.is_done  # what another thread adds after this is not the end
            if piece := self.taken():
                return piece
            if is_done:
                raise StopIteration
            self._batch.step()

    def fork(self, *, max_tokens: int | None = None, **sampling: Any) -> Stream:
        """Another stream that goes on from the same tokens, with options of its own. What both
        have of the cache is there once. InvalidArgument: wrong options."""
        return self._batch.fork(self, max_tokens, sampling)

    def close(self) -> None:
        """Ends the text here."""
        self._batch.end(self)

    def taken(self) -> str:
        """The next piece that is made already, or "" without one."""
        return self._pieces.popleft() if self._pieces else ""

    def take(self, id: int, ends: frozenset[int]) -> None:
        """The text goes on with this token; for the batch."""
        self.ids.append(id)
        self.left -= 1
        is_done = id in ends or self.left < 1
        if text := self._piece(id) + (self._piece.end() if is_done else ""):
            self._pieces.append(text)
        self.is_done = is_done


class LanguageBatch:
    """A language model for several texts at once; see the options of `LanguageModel`.

    `sequences`: how many texts have a place in the cache at a time. `capacity`: tokens of one
    text; `cache_tokens`: of all that have a place, a quarter of what they may have if it is not
    given. Where there is no room for the next token, the youngest text waits, and is computed anew.
    `chunk`: how many tokens of prompts are computed between two tokens of the others. `draft`: the
    path of a smaller model with the same vocabulary, which proposes `draft_tokens` (1 to 32) at a
    time for each text; texts stay the same. Threads may share it.
    """

    @checked_options(InvalidArgument)
    def __init__(
        self,
        path: str | os.PathLike[str],
        *,
        sequences: int = 8,
        capacity: int | None = None,
        cache_tokens: int | None = None,
        chunk: int = 256,
        draft: str | os.PathLike[str] | None = None,
        draft_tokens: int = 4,
        **options: Any,
    ) -> None:
        if chunk < 1:
            raise InvalidArgument(f"chunk is {chunk}, expected at least 1")
        check_count(draft_tokens)
        layout = {"sequences": sequences, "cache_tokens": cache_tokens, "capacity": capacity}
        verify = {"verify": draft is not None}
        self.tokenizer, self.model = load_language_model(path, layout | verify, **options)
        variables = {each.name: each.shape for each in self.model.variables}
        (self.sequences, columns), cache = variables["table"], variables["cache.0.k"]
        self.columns, self.chunk = int(columns), chunk
        self.pages = Pages(int(cache[0]), int(cache[2]))
        self.capacity = int(self.model.capacity())
        self._ends = frozenset(self.tokenizer.ends)
        self.draft: BatchDraft | None = None
        if draft is not None:
            layout["capacity"] = self.capacity
            self.draft = self._smaller(draft, draft_tokens, layout, options)
        self._slots = list(range(int(self.sequences)))[::-1]
        self._waiting: deque[Stream] = deque()
        self._running: list[Stream] = []  # the oldest first
        self._lock = threading.RLock()

    def _smaller(
        self,
        path: str | os.PathLike[str],
        count: int,
        layout: dict[str, Any],
        options: dict[str, Any],
    ) -> BatchDraft:
        """The draft, with as many pages."""
        left_out = {"lora"} if os.path.isdir(path) else {"lora", "weights"}
        options = {name: each for name, each in options.items() if name not in left_out}
        try:
            tokenizer, model = load_language_model(path, layout, **options)
        except CompileError as error:
            raise CompileError(f"the draft '{path}': {error}") from None
        check_vocabulary(tokenizer, self.tokenizer)
        words = [
            next(int(each.shape[-1]) for each in of.variables if each.name == "logits")
            for of in (model, self.model)
        ]
        check_words(*words)
        return BatchDraft(model, count, self._ends)

    @checked_options(InvalidArgument)
    def submit(
        self, prompt: str | Sequence[int], *, max_tokens: int | None = None, **sampling: Any
    ) -> Stream:
        """The text behind a prompt, up to a token that ends texts, to `max_tokens` or to the
        capacity. `sampling`: the fields of `Sampling`. Raises as `LanguageModel.generate`."""
        chosen = _options(sampling)
        ids = self.tokenizer.encode(prompt) if isinstance(prompt, str) else list(prompt)
        check_prompt(ids, self.capacity)
        with self._lock:
            stream = Stream(self, ids, len(ids), self._left(ids, max_tokens), chosen)
            if not stream.is_done:
                self._waiting.append(stream)
        return stream

    @checked_options(InvalidArgument)
    def generate(
        self,
        prompts: Sequence[str | Sequence[int]],
        *,
        max_tokens: int | None = None,
        seed: int = 0,
        **sampling: Any,
    ) -> Iterator[tuple[int, str]]:
        """The texts behind several prompts, as (number of the prompt, piece) in the order in which
        pieces are made. The seed of a text is `seed` and its number."""
        streams: list[Stream] = []
        try:
            for number, prompt in enumerate(prompts):
                own = {"max_tokens": max_tokens, "seed": seed + number, **sampling}
                streams.append(self.submit(prompt, **own))
            is_done = False
            while not is_done:
                self.step()
                is_done = all(each.is_done for each in streams)
                for number, stream in enumerate(streams):
                    while piece := stream.taken():
                        yield number, piece
        finally:
            for stream in streams:
                stream.close()

    def step(self) -> bool:
        """Lets every text that has a place get its next token, and one that is new the next part
        of its prompt. False: there is nothing to do."""
        with self._lock:
            if not self._running and not self._waiting:
                return False
            try:
                self._admit()
                self._prefill()
                self._decode()
            except BaseException:  # the cache may be half changed
                self.model.reset()
                if self.draft is not None:
                    self.draft.reset()
                for stream in self._running[::-1]:
                    self._unseat(stream)
                raise
            return True

    def fork(self, stream: Stream, max_tokens: int | None, sampling: dict[str, Any]) -> Stream:
        """See `Stream.fork`."""
        chosen = _options(sampling)
        with self._lock:
            ids = list(stream.ids)
            made = Stream(self, ids, stream.start, self._left(ids, max_tokens), chosen)
            if made.is_done:
                return made
            if stream.seat is None or not self._slots:
                self._waiting.append(made)
                return made
            pages = stream.seat.pages
            places = stream.seat.slot, self._slots[-1], self._row(pages)
            self.model.copy_slot(*places)
            if self.draft is not None:
                self.draft.fork(*places)
            made.seat = Seat(self._slots.pop(), self.pages.share(pages), stream.seat.length)
            self._running.append(made)
        return made

    def end(self, stream: Stream) -> None:
        """See `Stream.close`."""
        with self._lock:
            stream.is_done = True
            if stream.seat is not None:
                self._free(stream)
            elif stream in self._waiting:
                self._waiting.remove(stream)

    # One step

    def _admit(self) -> None:
        """Gives a place to those that wait, in their order, as far as there is room."""
        while self._waiting and self._slots:
            stream = self._waiting[0]
            needed = self.pages.needed(min(len(stream.ids) + 1, self.capacity))
            if needed > len(self.pages.free):
                return
            stream.seat = Seat(self._slots.pop(), [self.pages.take() for _ in range(needed)])
            self._running.append(self._waiting.popleft())
            self._place(stream.seat)

    def _prefill(self) -> None:
        """Puts the next `chunk` tokens of prompts that are not in the cache there, in one call:
        those of the oldest first."""
        parts: list[tuple[Stream, list[int]]] = []
        left = self.chunk
        for stream in list(self._running):
            if stream.seat is None:  # it waits since an older one took its pages
                continue
            length = stream.seat.length
            part = stream.ids[length : length + left]
            if part and self._owns(stream, length + len(part)):
                parts.append((stream, part))
                left -= len(part)
        if parts:
            streams, ids = zip(*parts, strict=True)
            counts = np.array([len(each) for each in ids], np.int64)
            self.model.prefill(_slots(streams), counts, np.concatenate(ids, dtype=np.int32))
            for stream, part in parts:
                _seat(stream).length += len(part)
            if self.draft is not None:
                self.draft.hold([_held(stream) for stream in streams])

    def _decode(self) -> None:
        """Lets all texts whose tokens are in the cache go on with one, or with those of the draft
        that stay."""
        ready = [each for each in self._running if _seat(each).length == len(each.ids)]
        if self.draft is not None:
            self._check_drafted(ready, self.draft)
            return
        if not ready:
            return
        made = self.model.choose(_slots(ready), *_columns(ready))
        for stream, id in zip(ready, np.asarray(made).tolist(), strict=True):
            self._take(stream, [id])
        for stream in ready:
            if stream.seat is not None:
                self._owns(stream, len(stream.ids))
        going = [each for each in ready if each.seat is not None]
        if going:
            last = np.array([each.ids[-1] for each in going], np.int32)
            self.model.decode(_slots(going), last)
            for stream in going:
                _seat(stream).length += 1

    def _check_drafted(self, ready: list[Stream], draft: BatchDraft) -> None:
        """Lets these texts go on with what the draft proposes, as far as the model chooses it."""
        most: dict[Stream, int] = {}
        for stream in ready:
            if stream.seat is None:  # it waits since an older one took its pages
                continue
            known = stream.known
            ahead = 0 if self._ends & {*known} else min(draft.count, stream.left - len(known))
            if self._owns(stream, len(stream.ids) + len(known) + ahead):
                most[stream] = ahead
        going = [each for each in most if each.seat is not None]
        if not going:
            return
        proposed = draft.propose([self._wanted(each, most[each]) for each in going])
        ids = [each.known + more for each, more in zip(going, proposed, strict=True)]
        counts = np.array([len(each) for each in ids], np.int64)
        flat = np.concatenate(ids, dtype=np.int32)
        kept, following = self.model.verify(_slots(going), counts, flat, *_columns(going))
        results = zip(going, ids, np.asarray(kept).tolist(), np.asarray(following), strict=True)
        for stream, tokens, count, next_id in results:
            draft.accepted += max(count - len(stream.known), 0)
            stream.known = [int(next_id)]
            _seat(stream).length += count
            self._take(stream, tokens[:count])

    def _wanted(self, stream: Stream, most: int) -> Wanted:
        seat, ids = _seat(stream), stream.ids + stream.known
        return Wanted(seat.slot, self._row(seat.pages), ids, seat.length, most, stream.options)

    def _take(self, stream: Stream, ids: Sequence[int]) -> None:
        """A text goes on with these tokens, and gives its place back where it ends."""
        for id in ids:
            stream.take(id, self._ends)
        if stream.is_done:
            self._free(stream)

    # Places and pages

    def _owns(self, stream: Stream, end: int) -> bool:
        """Gives a text pages of its own for what it has not written yet, up to position `end`.
        Where none is free the youngest text loses its place. False: it was this one."""
        seat, changed = _seat(stream), False
        first = seat.length // self.pages.length
        for number in range(first, self.pages.needed(end)):
            is_new = number == len(seat.pages)
            if not is_new and self.pages.owners[seat.pages[number]] == 1:
                continue
            while not self.pages.free:
                youngest = self._running[-1]
                self._unseat(youngest)
                if youngest is stream:
                    return False
            changed, page = True, self.pages.take()
            if is_new:
                seat.pages.append(page)
                continue
            self.model.copy_page(seat.pages[number], page)
            if self.draft is not None:
                self.draft.model.copy_page(seat.pages[number], page)
            self.pages.give_back([seat.pages[number]])
            seat.pages[number] = page
        if changed:
            self._place(seat)
        return True

    def _place(self, seat: Seat) -> None:
        row = self._row(seat.pages)
        self.model.place(seat.slot, seat.length, row)
        if self.draft is not None:
            self.draft.place(seat.slot, seat.length, row)

    def _row(self, pages: Sequence[int]) -> Any:
        """The pages of a text as its row of the table."""
        row = np.zeros(self.columns, np.int32)
        row[: len(pages)] = pages
        return row

    def _free(self, stream: Stream) -> None:
        seat = _seat(stream)
        self.pages.give_back(seat.pages)
        self._slots.append(seat.slot)
        self._running.remove(stream)
        stream.seat, stream.known = None, []

    def _unseat(self, stream: Stream) -> None:
        """Lets a text wait, in front of all others."""
        self._free(stream)
        self._waiting.appendleft(stream)

    def _left(self, ids: Sequence[int], max_tokens: int | None) -> int:
        left = self.capacity - len(ids)
        return left if max_tokens is None else min(left, max_tokens)


_ALONE = ("schema", "grammar", "logit_bias", "stop")


def _options(sampling: dict[str, Any]) -> tuple[Any, ...]:
    wrong = [name for name in _ALONE if name in sampling]
    if wrong:
        raise InvalidArgument(f"{wrong[0]} is for a LanguageModel, which writes one text at a time")
    values = asdict(Sampling(**sampling))
    return tuple(TYPES.get(name, np.float32)(value) for name, value in values.items())


def _columns(streams: Sequence[Stream]) -> list[Any]:
    """The options of texts, one array each."""
    return [np.array(each) for each in zip(*(each.options for each in streams), strict=True)]


def _held(stream: Stream) -> tuple[int, list[int]]:
    """A text's slot, and its tokens in the cache."""
    seat = _seat(stream)
    return seat.slot, stream.ids[: seat.length]


def _seat(stream: Stream) -> Seat:
    assert stream.seat is not None
    return stream.seat


def _slots(streams: Sequence[Stream]) -> Any:
    return np.array([_seat(each).slot for each in streams], np.int64)
