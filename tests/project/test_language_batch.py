"""Several texts at once: what each prompt gives alone, whatever comes and goes beside it."""

from __future__ import annotations

import threading
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import ingot
from ingot.hal.device import open_device
from ingot.language.pages import Pages
from tests.support.language import KEYS, write_model
from tests.support.language_shapes import Shape

SHAPE = Shape(layers=1, width=32, heads=2, kv_heads=1, feed=48, vocabulary=264, context=256)
PROMPTS = ["hello", "it's 12 345", "a", "hello world, hello you", "\u4e16\u754c"]


@pytest.fixture(scope="module")
def path(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("models") / "model.gguf"
    write_model(path, SHAPE, tokenizer=KEYS)
    return path


@pytest.fixture(scope="module")
def batch(path: Path) -> ingot.LanguageBatch:
    """Room for three texts, of 192 tokens at most, in four pages of 64 tokens."""
    return ingot.LanguageBatch(
        path, sequences=3, capacity=192, cache_tokens=250, chunk=8, threads=1
    )


@pytest.fixture(scope="module")
def alone(path: Path) -> ingot.LanguageModel:
    return ingot.LanguageModel(path, capacity=192, device=open_device("cpu", threads=1))


def _alone(model: ingot.LanguageModel, prompt: Any, **options: Any) -> tuple[str, list[int]]:
    text = "".join(model.generate(prompt, **options))
    return text, list(model.ids)


def _is_idle(batch: ingot.LanguageBatch) -> bool:
    pages = batch.pages
    return not batch.step() and len(pages.free) == len(pages.owners) and not any(pages.owners)


@pytest.mark.parametrize("temperature", [0.0, 1.2])
def test_texts_are_those_of_each_prompt_alone(
    batch: ingot.LanguageBatch, alone: ingot.LanguageModel, temperature: float
) -> None:
    sampling = {"temperature": temperature, "repetition_penalty": 1.3, "max_tokens": 12}
    texts = [""] * len(PROMPTS)
    for number, piece in ingot.generate(batch, PROMPTS, seed=3, **sampling):
        texts[number] += piece
    for number, prompt in enumerate(PROMPTS):
        assert texts[number] == _alone(alone, prompt, seed=3 + number, **sampling)[0]
    assert _is_idle(batch)


def test_texts_that_need_more_pages_than_there_are_wait_for_one_another(
    batch: ingot.LanguageBatch, alone: ingot.LanguageModel
) -> None:
    """Three of 130 tokens would have nine pages, of which there are four."""
    random = np.random.default_rng(5)
    prompts = [random.integers(65, 250, 60).tolist() for _ in range(3)]
    streams = [batch.submit(ids, max_tokens=70, temperature=0.0) for ids in prompts]
    for stream in streams:
        for _ in stream:
            pass
    for stream, ids in zip(streams, prompts, strict=True):
        assert stream.ids == _alone(alone, ids, max_tokens=70, temperature=0.0)[1]
    assert _is_idle(batch)


def test_a_fork_shares_what_both_have(
    batch: ingot.LanguageBatch, alone: ingot.LanguageModel
) -> None:
    options = {"temperature": 1.0, "max_tokens": 8}
    parent = batch.submit("hello world", seed=1, **options)
    next(parent)
    ids = list(parent.ids)
    used = len(batch.pages.owners) - len(batch.pages.free)
    child = parent.fork(seed=2, **options)
    assert len(batch.pages.owners) - len(batch.pages.free) == used
    others = [child.fork(seed=3, **options) for _ in range(3)]  # more than there are places
    expected = _alone(alone, ids, seed=2, **options)
    assert "".join(child) == expected[0]
    assert child.ids == expected[1]
    for each in others:
        assert "".join(each) == _alone(alone, ids, seed=3, **options)[0]
    assert parent.is_done
    assert _is_idle(batch)


def test_threads_and_texts_that_end_early(
    batch: ingot.LanguageBatch, alone: ingot.LanguageModel
) -> None:
    texts: dict[str, str] = {}

    def write(prompt: str) -> None:
        texts[prompt] = "".join(batch.submit(prompt, max_tokens=6, temperature=0.0))

    closed = batch.submit("never", max_tokens=100)
    next(closed)
    threads = [threading.Thread(target=write, args=(prompt,)) for prompt in PROMPTS]
    for thread in threads:
        thread.start()
    closed.close()
    for thread in threads:
        thread.join()
    for prompt in PROMPTS:
        assert texts[prompt] == _alone(alone, prompt, max_tokens=6, temperature=0.0)[0]
    assert list(batch.submit("x", max_tokens=0)) == []
    several = batch.generate(PROMPTS, max_tokens=50)
    next(several)
    several.close()  # type: ignore[attr-defined]
    assert _is_idle(batch)


def test_a_step_that_fails_loses_no_text(
    batch: ingot.LanguageBatch, alone: ingot.LanguageModel, monkeypatch: pytest.MonkeyPatch
) -> None:
    stream = batch.submit("hello", max_tokens=8, temperature=0.0)
    pieces = next(stream)

    def interrupted(*_: object) -> None:
        raise KeyboardInterrupt

    with monkeypatch.context() as patch:
        patch.setattr(batch, "_decode", interrupted)
        with pytest.raises(KeyboardInterrupt):
            batch.step()
    pieces += "".join(stream)
    assert pieces == _alone(alone, "hello", max_tokens=8, temperature=0.0)[0]


def test_what_cannot_be_is_refused(batch: ingot.LanguageBatch, alone: ingot.LanguageModel) -> None:
    with pytest.raises(ingot.InvalidArgument, match="the prompt has no tokens"):
        batch.submit([])
    with pytest.raises(ingot.InvalidArgument, match="the prompt has no tokens"):
        next(ingot.generate(batch, ["a", []]))  # type: ignore[call-overload]
    assert _is_idle(batch)
    with pytest.raises(ingot.OutOfRange, match="has 193 tokens, but the cache has room for 192"):
        batch.submit([65] * 193)
    with pytest.raises(ingot.InvalidArgument, match="temperature is -1"):
        batch.submit("x", temperature=-1)
    with pytest.raises(ingot.InvalidArgument, match="for several prompts make a LanguageBatch"):
        ingot.generate(alone, ["a", "b"])
    with pytest.raises(ingot.InvalidArgument, match="a draft for several prompts is compiled"):
        ingot.generate("model.gguf", ["a", "b"], draft=alone)
    with pytest.raises(ingot.InvalidArgument, match="chunk is 0, expected at least 1"):
        ingot.LanguageBatch("model.gguf", chunk=0)
    with pytest.raises(ingot.CompileError, match="are for several texts in the cache of a"):
        ingot.compile("module {}", sequences=2)
    for slots, error in (([5], "index 5"), ([0, 1, 2, 0], "is 4")):
        with pytest.raises(ingot.Error, match=error):
            batch.model.decode(np.int64(slots), np.zeros(len(slots), np.int32))
    with pytest.raises(ingot.OutOfRange, match="'slot' is 3"):
        batch.model.place(3, 0, np.zeros(3, np.int32))
    for counts, error in (([2, 2], "sum of 'counts', for so many 'ids', is 4"), ([3, 0], "is 0")):
        with pytest.raises(ingot.OutOfRange, match=error):
            batch.model.prefill(np.int64([0, 1]), np.int64(counts), np.zeros(3, np.int32))
    batch.model.place(0, 192, np.zeros(3, np.int32))
    with pytest.raises(ingot.OutOfRange, match=r"the length of a text \(capacity 192\) is 193"):
        batch.model.decode(np.int64([0]), np.int32([1]))


@pytest.fixture(scope="module")
def drafted(path: Path, tmp_path_factory: pytest.TempPathFactory) -> ingot.LanguageBatch:
    """As `batch`, with a draft of which few tokens stay."""
    draft = tmp_path_factory.mktemp("drafts") / "draft.gguf"
    write_model(draft, replace(SHAPE, heads=1), tokenizer=KEYS)
    return ingot.LanguageBatch(
        path,
        sequences=3,
        capacity=192,
        cache_tokens=250,
        chunk=8,
        threads=1,
        draft=draft,
        draft_tokens=3,
    )


@pytest.mark.parametrize("temperature", [0.0, 1.2])
def test_texts_with_a_draft_are_those_without(
    drafted: ingot.LanguageBatch, alone: ingot.LanguageModel, temperature: float
) -> None:
    sampling = {"temperature": temperature, "repetition_penalty": 1.3, "max_tokens": 11}
    texts = [""] * len(PROMPTS)
    for number, piece in drafted.generate(PROMPTS, seed=3, **sampling):
        texts[number] += piece
    for number, prompt in enumerate(PROMPTS):
        assert texts[number] == _alone(alone, prompt, seed=3 + number, **sampling)[0]
    assert drafted.draft is not None
    assert drafted.draft.accepted < drafted.draft.proposed
    assert _is_idle(drafted)


def test_a_draft_goes_along_with_pages_forks_and_failures(
    drafted: ingot.LanguageBatch, alone: ingot.LanguageModel, monkeypatch: pytest.MonkeyPatch
) -> None:
    options = {"temperature": 0.0, "max_tokens": 60}
    prompts = [np.random.default_rng(n).integers(65, 250, 60).tolist() for n in range(3)]
    streams = [drafted.submit(ids, **options) for ids in prompts]
    next(streams[0])
    ids = list(streams[0].ids)
    child = streams[0].fork(seed=2, temperature=0.9, max_tokens=12)
    with monkeypatch.context() as patch:
        patch.setattr(drafted, "_check_drafted", lambda *_: 1 / 0)
        with pytest.raises(ZeroDivisionError):
            drafted.step()
    for stream, prompt in zip(streams, prompts, strict=True):
        for _ in stream:
            pass
        assert stream.ids == _alone(alone, prompt, **options)[1]
    for _ in child:
        pass
    assert child.ids == _alone(alone, ids, seed=2, temperature=0.9, max_tokens=12)[1]
    assert _is_idle(drafted)


def test_all_tokens_of_a_draft_that_is_the_model_itself_stay(path: Path) -> None:
    same = ingot.LanguageBatch(
        path, sequences=3, capacity=192, cache_tokens=250, threads=1, draft=path, draft_tokens=3
    )
    texts = dict.fromkeys(range(2), "")
    for number, piece in same.generate(["hello", "x"], max_tokens=12, temperature=0.0):
        texts[number] += piece
    assert same.draft is not None
    assert same.draft.accepted == same.draft.proposed > 12


def test_pages_are_free_when_the_last_owner_gives_them_back() -> None:
    pages = Pages(3, 4)
    assert [pages.needed(count) for count in (0, 1, 4, 5)] == [0, 1, 1, 2]
    taken = [pages.take(), pages.take()]
    shared = pages.share(taken)
    pages.give_back(taken)
    assert len(pages.free) == 1
    pages.give_back(shared)
    assert sorted(pages.free) == [0, 1, 2]
