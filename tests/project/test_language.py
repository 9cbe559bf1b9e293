"""Texts from language models: tokenizers of GGUF files, generation, and the terminal."""

from __future__ import annotations

import gc
import json
import subprocess
import sys
import threading
import weakref
from dataclasses import replace
from itertools import permutations
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
import tokenizers

import ingot
from ingot.hal.printable import printable
from ingot.language import loading
from ingot.language import model as language_model
from ingot.language.draft import Draft
from ingot.language.folder import FolderTokenizer
from ingot.language.tokenizer import FileTokenizer, Tokenizer
from ingot.module_cache import digest
from tests.support.adapters import merged, random_pairs, write_gguf
from tests.support.language import KEYS, SPECIAL, TEMPLATE, TOKENS, write_model
from tests.support.language_logits import logits
from tests.support.language_shapes import Shape

METADATA = {f"tokenizer.{key}": value for key, value in KEYS.items()}
SHAPE = Shape(layers=1, width=32, heads=2, kv_heads=1, feed=48, vocabulary=264, tied=True)


def test_byte_level_texts_are_merged_and_come_back() -> None:
    tokenizer = FileTokenizer(METADATA)
    texts = [TOKENS[id] for id in tokenizer.encode("hello world<|end|>")]
    assert texts == ["hell", "o", "\u0120w", "o", "r", "l", "d", "<|end|>"]
    text = "caf\u00e9 \u4e16\u754c\n\n it's 12 345"
    assert tokenizer.decode(tokenizer.encode(text)) == text
    assert tokenizer.ends == [260]


@pytest.mark.parametrize("kind", ["gpt2", "llama"])
def test_tokens_that_are_no_text_come_one_by_one(kind: str) -> None:
    """What was given stays, whatever bytes come behind it."""
    letters = ["<unk>", *(f"<0x{byte:02X}>" for byte in range(256)), "\u2581w", "\u4e2d"]
    data = [b"", *(bytes([byte]) for byte in range(256)), b" w", "\u4e2d".encode()]
    if kind == "gpt2":
        order = [*range(0x21, 0x7F), *range(0xA1, 0xAD), *range(0xAE, 0x100)]
        order += [byte for byte in range(256) if byte not in order]
        letters = ["<unk>", *sorted(tokenizers.pre_tokenizers.ByteLevel.alphabet())]
        data = [b"", *(bytes([byte]) for byte in order)]
    keys = {"model": kind, "tokens": letters, "token_type": [2] + [1] * (len(letters) - 1)}
    keys |= {"scores": [0.0] * len(letters), "unknown_token_id": 0, "add_space_prefix": False}
    keys["merges"] = []
    tokenizer = FileTokenizer({f"tokenizer.ggml.{key}": value for key, value in keys.items()})
    random = np.random.default_rng(0)
    for count in range(1, 200):
        ids = random.integers(100, len(letters), count % 12 + 1)
        ids = np.where(random.random(ids.shape) < 0.1, 0, ids).tolist()
        stream = tokenizer.stream()
        given = [*map(stream, ids), stream.end()]
        expected = b"".join(data[id] for id in ids).decode(errors="replace")
        assert "".join(given) == expected == tokenizer.decode(ids)


def test_decoders_of_all_orders_give_what_the_package_gives() -> None:
    """Of whole texts; ids that are none are told as such, whatever the decoder."""
    tokens = ["a", "\u2581b", " c", "<0x20>", "<0xC3>", "<0xA9>", "\u2581\u2581", "##d"]
    made = tokenizers.Tokenizer(
        tokenizers.models.BPE({each: id for id, each in enumerate(tokens)}, [])
    )
    tokenizer = Tokenizer(made, begin=None, adds_begin=False, ends=[], template=None, marks={})
    of = tokenizers.decoders
    steps = [of.Replace("\u2581", " "), of.ByteFallback(), of.Fuse(), of.Strip(" ", 1, 0)]
    orders = [of.Sequence([*each]) for n in range(1, 5) for each in permutations(steps, n)]
    for decoder in (*orders, of.WordPiece(), of.Sequence([of.Fuse(), of.WordPiece()])):
        made.decoder = decoder
        for ids in ([2, 2], [1, 0, 1], [3, 3, 2], [0, 4, 5, 6], [6, 6, 7]):
            assert tokenizer.decode(ids) == made.decode(ids)
        for wrong in ([-1], [1 << 70], ["a"], [[0]], 5):
            with pytest.raises(ingot.InvalidArgument, match="are no ids of tokens"):
                tokenizer.decode(wrong)  # type: ignore[arg-type]


def test_parts_of_an_answer_have_ends_of_their_own() -> None:
    """<|end|> is one where <|return|> and <|call|> are those of the answer."""
    texts = [*TOKENS[:261], "<|return|>", "<|call|>", "<|start|>"]
    changed = {"tokenizer.ggml.tokens": texts, "tokenizer.ggml.eos_token_id": 261}
    assert FileTokenizer(METADATA | changed).ends == [261, 262]


def test_templates_that_fail_are_refused() -> None:
    for template in ("{{ 1 / 0 }}", "{% for i in range(10**9) %}{% endfor %}", "{{ x.y.z }}", "{%"):
        tokenizer = FileTokenizer(METADATA | {"tokenizer.chat_template": template})
        with pytest.raises(ingot.InvalidArgument, match="the model's template"):
            tokenizer.conversation([{"role": "user", "content": "x"}])


def test_pieces_are_merged_by_their_scores() -> None:
    bytes = [f"<0x{byte:02X}>" for byte in range(256)]
    words = ["\u2581", "a", "b", "c", "ab", "bc", "\u2581a", "abc"]
    tokens = ["<unk>", "<s>", "</s>", *bytes, *words]
    scores = [0.0] * 259 + [-9.0, -9.0, -9.0, -9.0, -4.0, -2.0, -3.0, -5.0]
    keys = {"model": "llama", "tokens": tokens, "scores": scores, "bos_token_id": 1}
    keys |= {"token_type": [2, 3, 3] + [6] * 256 + [1] * 8, "eos_token_id": 2}
    tokenizer = FileTokenizer({f"tokenizer.ggml.{key}": value for key, value in keys.items()})
    texts = [tokens[id] for id in tokenizer.encode("abc a\u00e9<unk>")]
    assert texts == ["<s>", "\u2581a", "bc", "\u2581a", "<0xC3>", "<0xA9>", "<unk>"]
    assert tokenizer.decode(tokenizer.encode("abc a\u00e9")) == "abc a\u00e9"
    del keys["scores"]
    keys |= {"model": "gemma4", "merges": ["b c", "a bc"]}
    tokenizer = FileTokenizer({f"tokenizer.ggml.{key}": value for key, value in keys.items()})
    texts = [tokens[id] for id in tokenizer.encode("abc\n a\u00e9b")]
    assert texts == ["<s>", "abc", "<0x0A>", "\u2581", "a", "<0xC3>", "<0xA9>", "b"]
    assert tokenizer.decode(tokenizer.encode(" abc\n a\u00e9")) == " abc\n a\u00e9"


@pytest.mark.parametrize(
    ("changes", "error", "message"),
    [
        ({"tokenizer.ggml.tokens": None}, ingot.NotFound, "the file has no tokenizer"),
        ({"tokenizer.ggml.model": "plamo2"}, ingot.Unsupported, "kind 'plamo2'; known"),
        ({"tokenizer.ggml.model": None}, ingot.NotFound, "ggml.model' is missing"),
        ({"tokenizer.ggml.merges": None}, ingot.NotFound, "ggml.merges' is missing"),
        ({"tokenizer.ggml.token_type": [1]}, ingot.DataLoss, "1 elements, but there are 264 tok"),
        ({"tokenizer.ggml.pre": "x"}, ingot.Unsupported, "cuts texts as 'x'; those that are known"),
        ({"tokenizer.ggml.merges": ["h z1"]}, ingot.DataLoss, "tokenizer is damaged"),
        ({"tokenizer.ggml.merges": ["h h"]}, ingot.DataLoss, "'h'\\) gives no token"),
        ({"tokenizer.ggml.model": "llama"}, ingot.NotFound, "ggml.scores' is missing"),
        ({"tokenizer.ggml.model": ["gpt2"]}, ingot.Unsupported, "kind .*gpt2"),
        ({"tokenizer.ggml.pre": ["x"]}, ingot.DataLoss, "tokenizer is damaged"),
        ({"tokenizer.ggml.token_type": 3}, ingot.DataLoss, "tokenizer is damaged"),
        ({"tokenizer.ggml.add_bos_token": np.ones(2)}, ingot.DataLoss, "tokenizer is damaged"),
        ({"tokenizer.ggml.eos_token_id": -1}, ingot.DataLoss, "eos_token_id' is -1, but there"),
        ({"tokenizer.ggml.bos_token_id": "a"}, ingot.DataLoss, "bos_token_id' is a, but there"),
    ],
)
def test_tokenizers_that_cannot_be_used_are_refused(changes: Any, error: Any, message: str) -> None:
    with pytest.raises(error, match=message):
        FileTokenizer(METADATA | changes)


def test_bytes_that_no_token_stands_for_are_told() -> None:
    tokens = ["<none>" if text in ("!", "\u0120") else text for text in TOKENS]
    tokenizer = FileTokenizer(
        METADATA | {"tokenizer.ggml.tokens": tokens, "tokenizer.ggml.merges": []}
    )
    assert len(tokenizer.encode("hi<|end|>")) == 3
    for text, byte in (("hi!", "0x21"), ("a b<|end|>", "0x20")):
        with pytest.raises(ingot.InvalidArgument, match=f"no token for the byte {byte}"):
            tokenizer.encode(text)


def test_tokens_that_the_model_does_not_know_are_refused(tmp_path: Path) -> None:
    write_model(
        tmp_path / "m.gguf",
        SHAPE,
        tokenizer=KEYS | {"ggml.tokens": [*TOKENS, "zz"], "ggml.token_type": [1] * 265},
    )
    with pytest.raises(ingot.DataLoss, match=r"has 265 tokens, but .* has 264 rows"):
        ingot.LanguageModel(tmp_path / "m.gguf")


def _write_tokenizer(folder: Path) -> None:
    """tokenizer.json with the tokens of METADATA, and what stands beside it."""
    made = tokenizers.Tokenizer(
        tokenizers.models.BPE({text: id for id, text in enumerate(TOKENS)}, [])
    )
    made.add_special_tokens(SPECIAL)
    made.pre_tokenizer = tokenizers.pre_tokenizers.ByteLevel(add_prefix_space=False)
    made.decoder = tokenizers.decoders.ByteLevel()
    made.post_processor = tokenizers.processors.TemplateProcessing(
        single="<|system|> $A <|end|>",
        special_tokens=[("<|system|>", TOKENS.index("<|system|>")), ("<|end|>", 260)],
    )
    made.save(str(folder / "tokenizer.json"))
    config = {"eos_token": {"content": "<|end|>"}, "bos_token": "<|system|>"}
    (folder / "tokenizer_config.json").write_text(json.dumps(config))
    (folder / "chat_template.jinja").write_text("{{ bos_token }}" + TEMPLATE)
    (folder / "generation_config.json").write_text(json.dumps({"eos_token_id": [260, 262]}))


def test_the_tokenizer_of_a_folder(tmp_path: Path) -> None:
    with pytest.raises(ingot.NotFound, match=r"tokenizer.json is missing"):
        FolderTokenizer(tmp_path)
    _write_tokenizer(tmp_path)
    tokenizer = FolderTokenizer(tmp_path)
    assert tokenizer.begin == 263
    assert tokenizer.ends == [260, 262]
    ids = tokenizer.encode("hi \u00e9")
    assert ids[0] == 263  # and no end, behind which nothing comes
    assert tokenizer.decode(ids) == "hi \u00e9"
    assert tokenizer.encode("hi", is_start=False)[0] != 263
    text = tokenizer.conversation([{"role": "user", "content": "hi"}])
    assert text == "<|system|><|user|>hi<|end|><|assistant|>"


@pytest.mark.parametrize(
    ("name", "text", "message"),
    [
        ("tokenizer.json", "{}", "tokenizer.json' is damaged"),
        ("tokenizer_config.json", "[]", "holds no JSON object"),
        ("tokenizer_config.json", '{"eos_token": "</s>"}', "eos_token is '</s>' in"),
        ("tokenizer_config.json", '{"eos_token": "\\udc80"}', "eos_token in .* is damaged"),
        ("generation_config.json", '{"eos_token_id": "x"}', "eos_token_id is x, no token"),
    ],
)
def test_damaged_tokenizers_of_folders(name: str, text: str, message: str, tmp_path: Path) -> None:
    _write_tokenizer(tmp_path)
    (tmp_path / name).write_text(text)
    with pytest.raises(ingot.DataLoss, match=message):
        FolderTokenizer(tmp_path)


def test_what_the_package_tokenizers_panics_over_is_data_loss(tmp_path: Path) -> None:
    _write_tokenizer(tmp_path)
    (tmp_path / "chat_template.jinja").unlink()
    (tmp_path / "tokenizer_config.json").write_text('{"chat_template": [{"name": [], "a": 1}, 3]}')
    data = json.loads((tmp_path / "tokenizer.json").read_text())
    del data["post_processor"]["special_tokens"]["<|end|>"]
    (tmp_path / "tokenizer.json").write_text(json.dumps(data))
    tokenizer = FolderTokenizer(tmp_path)
    assert not tokenizer.has_template
    with pytest.raises(ingot.DataLoss, match="the tokenizer is damaged"):
        tokenizer.encode("hi")
    for text in ("\ud800", 3, None):
        with pytest.raises(ingot.InvalidArgument, match="is no text"):
            tokenizer.encode(text)  # type: ignore[arg-type]
    for id in (-1, 1 << 32, "a"):
        with pytest.raises(ingot.InvalidArgument, match="are no ids of tokens"):
            tokenizer.decode([id])  # type: ignore[list-item]


@pytest.fixture(scope="module")
def path(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("language") / "model.gguf"


@pytest.fixture(scope="module")
def weights(path: Path) -> Any:
    return write_model(path, SHAPE, tokenizer=KEYS)


@pytest.fixture(scope="module")
def model(path: Path, weights: Any) -> ingot.LanguageModel:
    return ingot.LanguageModel(path)


def _greedy(weights: Any, ids: list[int], count: int) -> list[int]:
    """What comes behind these tokens, up to one that ends texts."""
    made: list[int] = []
    while len(made) < count and 260 not in made:
        made.append(int(logits(SHAPE, weights, np.array(ids + made))[-1].argmax()))
    return made


@pytest.mark.slow
def test_a_text_goes_on_with_the_most_likely_tokens(
    model: ingot.LanguageModel, weights: Any
) -> None:
    for prompt in ("hello", "hello world", "world", "hello"):  # also what the cache has in part
        ids = model.tokenizer.encode(prompt)
        expected = _greedy(weights, ids, 10)
        text = "".join(ingot.generate(model, prompt, max_tokens=10, temperature=0.0))
        assert model.ids == ids + expected
        assert text.startswith(model.tokenizer.decode(expected).rstrip("\ufffd"))


@pytest.mark.slow
def test_long_prompts_are_read_in_pieces(
    path: Path, weights: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Also one whose last piece is a token, and one that goes on where a piece had failed."""
    monkeypatch.setattr(language_model, "_READ_AT_ONCE", 3)
    model = ingot.LanguageModel(path)
    lengths: list[int] = []
    prefill = model.model.prefill

    def counted(ids: Any) -> None:
        if len(lengths) == 2:
            lengths.clear()
            raise InterruptedError
        lengths.append(len(ids))
        prefill(ids)

    monkeypatch.setattr(model.model, "prefill", counted, raising=False)
    ids = [5, 6, 7, 8, 9, 10, 11, 12, 13]
    with pytest.raises(InterruptedError):
        model.hold(ids)
    assert model.ids == ids[:6]
    for more in ([14], [14, 15, 16]):
        list(model.generate(ids + more, max_tokens=5, temperature=0.0))
        assert model.ids == ids + more + _greedy(weights, ids + more, 5)
    assert lengths == [3, 2]


@pytest.mark.slow
def test_a_module_is_compiled_once(
    path: Path, weights: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What the compiler reads decides; a damaged module is made anew. One that is there is loaded
    while the tokenizer is made."""
    load, make, begun = ingot.load, loading.FileTokenizer, threading.Event()
    compile, made = ingot.compile, []
    monkeypatch.setattr(ingot, "compile", lambda *a, **k: made.append(k) or compile(*a, **k))
    monkeypatch.setenv("INGOT_CACHE", str(tmp_path / "kept"))
    copy = tmp_path / path.name
    copy.write_bytes(path.read_bytes()[:-4] + bytes(4))  # another number

    def text(file: Path, capacity: int) -> str:
        model = ingot.LanguageModel(file, capacity=capacity)
        return "".join(model.generate("hello", max_tokens=4, temperature=0.0))

    texts = [text(*each) for each in [(path, 64), (copy, 64), (copy, 32), (path, 64)]]
    assert (texts[0], [each["capacity"] for each in made]) == (texts[3], [64, 32])

    def make_later(metadata: Any) -> Any:
        assert begun.wait(10)
        return make(metadata)

    with monkeypatch.context() as patch:
        patch.setattr(ingot, "load", lambda *a, **k: begun.set() or load(*a, **k))
        patch.setattr(loading, "FileTokenizer", make_later)
        patch.setattr(loading, "_is_lone", lambda: False)
        assert text(path, 64) == texts[0]
    for kept in (tmp_path / "kept").iterdir():
        if len(kept.name) == 64:  # a module
            kept.write_bytes(kept.read_bytes()[:-100])
    assert (text(path, 64), len(made)) == (texts[0], 3)

    def replaced(*given: Any, **options: Any) -> Any:
        module = compile(*given, **options)
        whole = copy.read_bytes()
        copy.unlink()  # who has mapped it keeps it
        copy.write_bytes(whole.replace(b"tokenizer.ggml.model", b"tokenizer.ggml.other"))
        return module

    monkeypatch.setattr(ingot, "compile", replaced)
    before = {*(tmp_path / "kept").glob("?" * 64)}
    text(copy, 16)
    assert {*(tmp_path / "kept").glob("?" * 64)} == before


def test_a_lone_processor_makes_the_tokenizer_first(
    path: Path, weights: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    """And what it was made of is not held beside the weights."""
    ingot.LanguageModel(path, capacity=64)
    read, load, files = loading.Gguf, ingot.load, list[Any]()

    def opened(path: Any) -> Any:
        file = read(path)
        files.append(weakref.ref(file))
        return file

    def loaded(*arguments: Any, **options: Any) -> Any:
        gc.collect()
        assert files
        assert not any(file() for file in files)
        return load(*arguments, **options)

    monkeypatch.setattr(loading, "Gguf", opened)
    monkeypatch.setattr(loading, "_is_lone", lambda: True)
    monkeypatch.setattr(ingot, "load", loaded)
    ingot.LanguageModel(path, capacity=64)


def test_names_of_adapters_may_be_any_and_others_are_refused(path: Path, weights: Any) -> None:
    for wrong in (3.5, [None], [()], {"a": 1}):
        with pytest.raises(ingot.InvalidArgument, match=r"lora has .*, expected a path, or a path"):
            ingot.LanguageModel(path, lora=wrong)
    assert digest("\udcff") != digest("?")  # a byte of a name that is no UTF-8


@pytest.mark.slow
def test_a_seed_gives_one_text(model: ingot.LanguageModel) -> None:
    def text(seed: int) -> list[int]:
        list(model.generate("hello", max_tokens=12, temperature=1.5, seed=seed))
        return model.ids

    assert text(1) == text(1) != text(2)


@pytest.mark.slow
def test_a_draft_leaves_texts_as_they_are(
    path: Path, model: ingot.LanguageModel, tmp_path: Path
) -> None:
    other = tmp_path / "small.gguf"
    write_model(other, Shape(layers=1, width=32, heads=1, kv_heads=1, feed=32, vocabulary=264),
                tokenizer=KEYS)  # fmt: skip
    drafted = ingot.LanguageModel(path, draft=other)
    assert drafted.draft is not None
    unlike, alike = drafted.draft, Draft(model, 3)
    for options in ({"temperature": 0.0}, {"temperature": 1.2, "repetition_penalty": 1.2}):
        for seed in range(3):
            settings = {"max_tokens": 20, "seed": seed, **options}
            text, ids = "".join(model.generate("hello", **settings)), model.ids
            for drafted.draft in (unlike, alike):
                assert "".join(drafted.generate("hello", **settings)) == text
                assert drafted.ids == ids
    assert unlike.accepted < unlike.proposed / 2
    assert alike.accepted == alike.proposed > 60
    list(drafted.generate([5] * 60, temperature=2.0, seed=3))
    assert len(drafted.ids) == drafted.capacity or drafted.ids[-1] == 260


@pytest.mark.slow
def test_drafts_that_do_not_fit_are_refused(
    path: Path, model: ingot.LanguageModel, tmp_path: Path
) -> None:
    with pytest.raises(ingot.InvalidArgument, match="draft_tokens is 33, expected 1 to 32"):
        ingot.LanguageModel(path, draft=model, draft_tokens=33)
    with pytest.raises(ingot.InvalidArgument, match="compiled already: give draft and"):
        ingot.generate(model, "hello", draft=path)
    small = tmp_path / "small.gguf"
    write_model(small, replace(SHAPE, context=32), tokenizer=KEYS)
    with pytest.raises(ingot.CompileError, match=r"the draft '.*small.gguf': the capacity is 64"):
        ingot.LanguageModel(path, draft=small)
    short = SimpleNamespace(tokenizer=model.tokenizer, words=264, capacity=63)
    with pytest.raises(ingot.InvalidArgument, match=r"has room for 63 tokens, .* for 64"):
        Draft(short, 4).check(model)  # type: ignore[arg-type]
    short.words = 265
    with pytest.raises(ingot.InvalidArgument, match=r"logits of 265 tokens, .* knows 264"):
        Draft(short, 4).check(model)  # type: ignore[arg-type]
    more = {"tokenizer.ggml.tokens": [*TOKENS, "zz"], "tokenizer.ggml.token_type": [1] * 265}
    short.tokenizer = FileTokenizer(METADATA | more)
    with pytest.raises(ingot.InvalidArgument, match="'zz' is token 264 in the draft and no token"):
        Draft(short, 4).check(model)  # type: ignore[arg-type]


@pytest.mark.slow
def test_generation_ends_with_the_cache(model: ingot.LanguageModel) -> None:
    list(model.generate([5] * 60, temperature=2.0, seed=3))
    assert len(model.ids) == model.capacity == 64 or model.ids[-1] == 260
    with pytest.raises(ingot.OutOfRange, match=r"65 tokens, but the cache has room for 64"):
        next(model.generate([5] * 65))
    with pytest.raises(ingot.InvalidArgument, match="the prompt has no tokens"):
        next(model.generate(""))
    with pytest.raises(ingot.InvalidArgument, match=r"top_p is 0, expected above 0"):
        next(model.generate("x", top_p=0))


@pytest.mark.slow
def test_a_conversation_is_written_as_the_template_says(model: ingot.LanguageModel) -> None:
    messages = [{"role": "system", "content": "a"}, {"role": "user", "content": "b"}]
    text = model.tokenizer.conversation(messages)
    assert text == "<|system|>a<|end|><|user|>b<|end|><|assistant|>"
    list(model.chat(messages, max_tokens=3))
    assert model.ids[:7] == model.tokenizer.encode(text)


@pytest.mark.slow
def test_adapters_are_exchanged_between_texts(path: Path, weights: Any) -> None:
    names = [f"blk.{layer}.attn_{part}" for layer in range(SHAPE.layers) for part in "qv"]
    pairs = random_pairs({name: weights[f"{name}.weight"].shape for name in names}, 2)
    adapter = write_gguf(path.with_name("adapter.gguf"), pairs, 8.0)
    adapted = ingot.LanguageModel(path, lora=(adapter, 0.5))
    ids = adapted.tokenizer.encode("hello")

    def made() -> list[int]:
        for _ in adapted.generate("hello", max_tokens=8, temperature=0.0):
            pass
        return adapted.ids[len(ids) :]

    assert made() == _greedy(merged(weights, pairs, 0.5 * 8 / 2), ids, 8)
    adapted.set_adapters()
    plain = _greedy(weights, ids, 8)
    assert made() == plain
    adapted.set_adapters((adapter, -1.0))
    assert made() == _greedy(merged(weights, pairs, -8 / 2), ids, 8) != plain
    with pytest.raises(ingot.InvalidArgument, match="give draft and lora when"):
        next(ingot.generate(adapted, "hello", lora=adapter))


@pytest.mark.slow
def test_the_command_answers(path: Path, model: ingot.LanguageModel) -> None:
    command = [sys.executable, "-m", "ingot", "chat", str(path), "--prompt", "hello", "--raw"]
    command += ["--temperature", "0", "--max-tokens", "8"]
    done = subprocess.run(command, capture_output=True, text=True, check=True)
    expected = "".join(model.generate("hello", max_tokens=8, temperature=0.0))
    assert done.stdout == "\n".join(map(printable, expected.split("\n"))) + "\n"
    assert "tokens a second]" in done.stderr
    rules = path.with_name("rules")
    for data, message in ((b"root ::= x", "has no rule 'x'"), (b"\xff", "is no text in UTF-8")):
        rules.write_bytes(data)
        done = subprocess.run([*command, "--grammar", rules], capture_output=True, text=True)
        assert (done.returncode, done.stdout) == (1, "")
        assert done.stderr.startswith("ingot chat: InvalidArgument: ")
        assert message in done.stderr
