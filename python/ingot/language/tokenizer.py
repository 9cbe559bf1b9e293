"""The tokenizer of a language model, made by `tokenizers` of the metadata of its GGUF file, or of
the files in its folder.

Of GGUF byte-level BPE with merges (`gpt2`), pieces of SentencePiece with scores (`llama`), whose
merges follow from the scores, such pieces with merges (`gemma4`), its unigrams (`t5`), pieces of
words (`bert`), and the longest tokens (`rwkv`). Needs the package tokenizers, and for
conversations jinja2, in which files write how they look.
"""

from __future__ import annotations

import re
from bisect import bisect_left
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

from ingot.hal.errors import DataLoss, InvalidArgument, NotFound, Unsupported
from ingot.language.package import package, whole
from ingot.language.piece_tokenizers import (
    MARK,
    longest_tokens,
    unigrams,
    word_pieces,
)
from ingot.language.template import render
from ingot.language.text_stream import LETTERS, TextStream

__all__ = ["FileTokenizer", "Pairs", "Tokenizer", "check_text", "ends_of"]

_CONTRACTIONS = "'s|'t|'re|'ve|'m|'ll|'d"
_WORDS = rf"{_CONTRACTIONS}| ?\p{{L}}+| ?\p{{N}}+| ?[^\s\p{{L}}\p{{N}}]+|\s+(?!\S)|\s+"
_UNSHORTENED = (
    r"[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,%d}|"
    r" ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+"
)
_TIKTOKEN = rf"(?i:{_CONTRACTIONS})|{_UNSHORTENED}"
_MARKED = _TIKTOKEN.replace(r"?\p{L}+", r"?[\p{L}\p{M}]+").replace(r"[^\s\p{L}", r"[^\s\p{L}\p{M}")
_UPPER, _LOWER = (rf"[\p{{{case}}}\p{{Lm}}\p{{Lo}}\p{{M}}]" for case in (r"Lu}\p{Lt", "Ll"))
_CASED = (
    rf"[^\r\n\p{{L}}\p{{N}}]?{_UPPER}*{_LOWER}+%s|[^\r\n\p{{L}}\p{{N}}]?{_UPPER}+{_LOWER}*%s|"
    r"\p{N}{1,%d}| ?[^\s\p{L}\p{N}]+[\r\n/]*|\s*[\r\n]+|\s+(?!\S)|\s+"
)
_ENDINGS = f"(?i:{_CONTRACTIONS})?"
_DEEPSEEK = (
    r"[!\"#$%&'()*+,\-./:;<=>?@\[\\\]^_`{|}~][A-Za-z]+|[^\r\n\p{L}\p{P}\p{S}]?[\p{L}\p{M}]+|"
    r" ?[\p{P}\p{S}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+"
)
_KANA = "\u4e00-\u9fa5\u3040-\u309f\u30a0-\u30ff"
_HAN_APART = (r"\p{Lo}\p{M}]", r"\p{Lo}\p{M}&&[^\p{Han}]]")
_ASIAN = (
    "[\u4e00-\u9fff\u3400-\u4dbf\u8c48-\ufaff\u3040-\u309f\u30a0-\u30ff\uff65-\uff9f\u2f00-\u2fdf"
    "\u0e40-\u0e7f\u0e80-\u0eff\u1780-\u17ff\u1000-\u109f\uaa60-\uaa7f\ua9e0-\ua9ff\uac00-\ud7af"
    "\u1100-\u11ff]+"
)
_MARKS = " ?[^(\\s|.,!?\u2026\u3002\uff0c\u3001\u0964\u06d4\u060c)]+"
_LATIN = (
    "\\s?[A-Za-z\xb5\xc0-\xd6\xd8-\xf6\xf8-\u01ba\u01bc-\u01bf\u01c4-\u0293\u0295-\u02af\u0370-\u0373"
    "\u0376\u0377\u037b-\u037d\u037f\u0386\u0388-\u038a\u038c\u038e-\u03a1\u03a3-\u03f5\u03f7-\u0481"
    "\u048a-\u052f\u0531-\u0556\u10a0-\u10c5\u13a0-\u13f5\u13f8-\u13fd\u1c90-\u1cba\u1cbd-\u1cbf"
    "\u1d00-\u1d2b\u1d6b-\u1d77\u1d79-\u1d9a\u1e00-\u1f15\u1f18-\u1f1d\u1f20-\u1f45\u1f48-\u1f4d"
    "\u1f50-\u1f57\u1f59\u1f5b\u1f5d\u1f5f-\u1f7d\u1f80-\u1fb4\u1fb6-\u1fbc\u1fbe\u1fc2-\u1fc4"
    "\u1fc6-\u1fcc\u1fd0-\u1fd3\u1fd6-\u1fdb\u1fe0-\u1fec\u1ff2-\u1ff4\u1ff6-\u1ffc\u2102\u2107"
    "\u210a-\u2113\u2115\u2119-\u211d\u2124\u2126\u2128\u212a-\u212d\u212f-\u2134\u2139\u213c-\u213f"
    "\u2145-\u2149\u214e\u2183\u2184\u2c00-\u2c7b\u2c7e-\u2ce4\u2ceb-\u2cee\u2cf2\u2cf3\ua640-\ua66d"
    "\ua680-\ua69b\ua722-\ua76f\ua771-\ua787\ua78b-\ua78e\uab70-\uabbf\ufb00-\ufb06\ufb13-\ufb17"
    "\uff21-\uff3a\uff41-\uff5a\U00010400-\U0001044f\U000104b0-\U000104d3\U000104d8-\U000104fb"
    "\U00010c80-\U00010cb2\U00010cc0-\U00010cf2\U000118a0-\U000118df\U0001e900-\U0001e943]+"
)
_THREES = r"\p{N}{1,3}"
_FROM_BEHIND = r"(?<!\d)\d{1,3}(?=(?:\d{3})*+\b)|\G(?<=\d)\d{3}"
"""Digits by threes from behind. Only what begins a number looks at all of it: what follows begins
where the match before has ended."""
_SPLITS: dict[str, tuple[str, ...]] = {
    "default": (r"[\p{P}\$\+<=>\^~\|]+", _WORDS, r"\p{N}+", r"[0-9][0-9][0-9]"),
    "falcon": (r"[\p{P}\$\+<=>\^~\|`]+", _WORDS, r"[0-9][0-9][0-9]"),
    **dict.fromkeys(
        ("gpt-2", "olmo", "phi-2", "mpt", "exaone4", "gigachat", "trillion", "granite-docling",
         "a.x-4.0", "mellum", "jais", "roberta-bpe", "modern-bert", "jina-v1-en", "jina-v2-es",
         "jina-v2-de", "jina-v2-code"),
        (_WORDS,),
    ),
    **dict.fromkeys(
        ("smollm", "starcoder", "refact", "command-r", "codeshell", "exaone", "minerva-7b",
         "mellum2"),
        (r"\p{N}", _WORDS),
    ),
    **dict.fromkeys(
        ("llama-bpe", "llama3", "llama-v3", "dbrx", "smaug-bpe", "chatglm-bpe", "glm4", "glm5",
         "falcon3", "falcon-h1", "pixtral", "lfm2", "midm-2.0"),
        (_TIKTOKEN % 3,),
    ),
    "jais-2": (
        (_TIKTOKEN % 3).replace(r"\s+(?!\S)|\s+", "")
        + "".join(rf"\s{{{1 << power}}}(?!\S)|" for power in range(9, 1, -1))
        + r"\s{1,2}(?!\S)|\s",
    ),
    **dict.fromkeys(
        ("qwen2", "deepseek-r1-qwen", "stablelm2", "hunyuan", "megrez", "kormo", "solar-open",
         "grok-2"),
        (_TIKTOKEN % 1,),
    ),
    "ufakzeka": (_UNSHORTENED % 1,),
    "laguna": (r"[^\n]+|\n+", _TIKTOKEN % 1),
    "minicpm5": (_THREES, (_TIKTOKEN % 1).replace("{1,1}", "+")),
    "seed-coder": ((_TIKTOKEN % 1).replace(r"[^\s\p{L}\p{N}]+[\r\n]*", r"[^\s\p{L}\p{N}\r\n]+"),),
    **dict.fromkeys(
        ("bailingmoe", "bailingmoe2", "llada-moe"),
        ((_TIKTOKEN % 1).replace(r"\s*[\r\n]+", r"\s*[\r\n]"),),
    ),
    "exaone-moe": (
        (_TIKTOKEN % 1)
        .replace(r"?\p{L}+", r"?(?:\p{L}\p{M}*(?: \p{L}\p{M}*)*)+")
        .replace(r"+[\r\n]*", r"+[\r\n/]?")
        .replace(r"\s*[\r\n]+", r"\s*[\r\n]"),
    ),
    "qwen35": (_MARKED % 1,),
    "tekken": (_CASED % ("", "", 1),),
    **dict.fromkeys(
        ("gpt-4o", "llama4", "kanana2", "talkie", "minimax-m2"), (_CASED % (_ENDINGS, _ENDINGS, 3),)
    ),
    **dict.fromkeys(
        ("tiny_aya", "cohere2moe"), (_FROM_BEHIND, _CASED % (_ENDINGS, _ENDINGS, 3))
    ),
    "youtu": (
        "[\uac00-\ud7a3\u3131-\u318e]+|[\uff01\u2026\u201c\u201d\u2018\u2019\u2014\uff1a\uff1b\uff0c"
        f"\u3001-\u303f\ufe30-\ufe4f]+|[\u3105-\u312f]+|[{_KANA}]+",
        _CASED % (_ENDINGS, _ENDINGS, 1),
    ),
    "kimi-k2": (
        r"\p{Han}+|"
        + (_CASED % (_ENDINGS, _ENDINGS, 3)).replace(*_HAN_APART).replace(r"[\r\n/]", r"[\r\n]"),
    ),
    **dict.fromkeys(
        ("deepseek-v3", "hunyuan-dense", "joyai-llm", "hy_v4"), (_THREES, f"[{_KANA}]+", _DEEPSEEK)
    ),
    "spark2_5": (
        *(_THREES, f"[{_KANA}]+"),
        _DEEPSEEK.replace(r"+[\r\n]*|\s*[\r\n]+", r"+|[\r\n]"),
        r"\p{N}",
    ),
    "afmoe": (_FROM_BEHIND, _ASIAN, _DEEPSEEK),
    "deepseek-llm": (
        *(r"[\r\n]", _LATIN, "\\s?[!-/:-~\uff01-\uff0f\uff1a-\uff5e\u2018-\u201f\u3000-\u3002]+"),
        *(r"\s+$", "[\u4e00-\u9fa5\u0800-\u4e00\uac00-\ud7ff]+", r"\p{N}+"),
    ),
    "deepseek-coder": (
        *(r"[\r\n]", r"\s?\p{L}+", r"\s?\p{P}+"),
        *("[\u4e00-\u9fa5\u0800-\u4e00\uac00-\ud7ff]+", r"\p{N}"),
    ),
    **dict.fromkeys(("bloom", "poro-chat", "gpt3-finnish"), (_MARKS,)),
    "viking": (_MARKS, r"\p{N}"),
    "superbpe": (
        r"\p{N}+",
        r"(?:(?<!\d)|(?<=\D\d|\A\d|\D\d\d|\A\d\d))(?=(?:\d{3})++(?!\d))",
        r"(?:\A|\G(?<=\d))\d{3}(?=\d)",
    ),
}  # fmt: skip
"""How texts are cut before merges, by `tokenizer.ggml.pre`."""

_BEGUN = (
    "llama-bpe", "llama3", "llama-v3", "falcon3", "falcon-h1", "pixtral", "lfm2", "midm-2.0",
    "tekken",
)  # fmt: skip
"""Those whose texts begin with a token where nothing else is said."""

_KEPT_WHOLE = (*_BEGUN, "youtu", "glm4", "glm5", "minicpm5")
"""Those of which a part that is a token stays whole, whatever its merges give."""

_SURROGATE = re.compile("[\ud800-\udfff]")
_CONTROLS, _OWN = (2, 3), 4  # types of tokens that texts have as a whole
_ENDS = (
    "<|im_end|>", "<|eot_id|>", "<|eom_id|>", "<|end|>", "<end_of_turn>", "<|endoftext|>",
    "<|end_of_text|>", "<|END_OF_TURN_TOKEN|>", "[|endofturn|]", "<EOT>", "_<EOT>", "[EOT]",
    "[EOS]", "<end_of_utterance>", "<turn|>", "<|tool_response>", "[e~[", "<|return|>",
    "<|call|>", "<|calls|>", "<|flush|>", "<\uff5cend\u2581of\u2581sentence\uff5c>",
)  # fmt: skip
_PART_END, _WHOLE_ENDS = "<|end|>", (("<|return|>", "<|call|>"), ("<|flush|>", "<|calls|>"))


_PARTS = re.compile(r"\{(?:query|document)\}")


@dataclass(frozen=True)
class Pairs:
    """How two texts look that a model reads together: as in a template, or one behind another."""

    template: str | None = None
    between: int | None = None  # a token behind the end of the first one
    kind: int = 0  # of tokens of the second one


class Tokenizer:
    """Texts to token ids and back. `begin`: the token that begins texts, which `encode` puts in
    front where `adds_begin`; `close`: the one behind whole texts, if models want that; `ends`:
    those behind which a model says nothing; `template`: how conversations look, with the texts of
    `marks`; `pairs`: how two texts look that a model reads together."""

    def __init__(
        self,
        tokenizer: Any,
        *,
        begin: int | None,
        adds_begin: bool,
        ends: Sequence[int],
        template: str | None,
        marks: Mapping[str, str],
        close: int | None = None,
        pairs: Pairs | None = None,
    ) -> None:
        self._tokenizer, self.begin, self.adds_begin = tokenizer, begin, adds_begin
        self.close, self.pairs = close, pairs or Pairs()
        self.ends, self.template, self.marks = list(ends), template, marks
        self._pieces: dict[int, tuple[list[bytes], int]] = {}
        self._in_order: dict[int, list[tuple[bytes, int]]] = {}

    def encode(self, text: str, *, is_start: bool = True) -> list[int]:
        """The ids of a text, behind the token that begins one if the model wants that."""
        ids = self._ids(text, False)
        if is_start and self.adds_begin and self.begin is not None and ids[:1] != [self.begin]:
            ids.insert(0, self.begin)
        return ids

    def whole(self, text: str) -> list[int]:
        """The ids of a text that nothing follows, between those that begin and end one."""
        ids = self.encode(text)
        return ids if self.close is None else [*ids, self.close]

    def pair(self, first: str, second: str) -> tuple[list[int], list[int]]:
        """The ids of two texts that a model reads together, and of which text each is for it."""
        if self.pairs.template is not None:
            parts = {"{query}": first, "{document}": second}
            text = _PARTS.sub(lambda match: parts[match[0]], self.pairs.template)
            ids = self.encode(text, is_start=False)
            return ids, [0] * len(ids)
        close = [] if self.close is None else [self.close]
        between = [] if self.pairs.between is None else [self.pairs.between]
        begin = [*self.encode(first), *close, *between]
        end = [*self.encode(second, is_start=False), *close]
        return begin + end, [0] * len(begin) + [self.pairs.kind] * len(end)

    def _ids(self, text: str, adds_special: bool) -> list[int]:
        check_text(text)
        with whole("the tokenizer"):
            ids: list[int] = self._tokenizer.encode(text, add_special_tokens=adds_special).ids
        return ids

    def decode(self, ids: Sequence[int]) -> str:
        """The text of ids, without tokens that only control."""
        try:
            return self.stream().all(ids)
        except (TypeError, OverflowError) as error:
            raise InvalidArgument(f"{ids!r:.60} are no ids of tokens: {error}") from None

    def vocabulary(self) -> dict[str, int]:
        """The id of each token."""
        ids: dict[str, int] = self._tokenizer.get_vocab()
        return ids

    def pieces(self, count: int) -> tuple[list[bytes], int]:
        """The bytes of the first tokens, so many, none of those that only control, and how many
        spaces in front of a text go. Unsupported: they depend on other tokens."""
        if count not in self._pieces:
            self._pieces[count] = self.stream().pieces(count)
        return self._pieces[count]

    def pieces_in_order(self, count: int) -> list[tuple[bytes, int]]:
        """Those of `pieces` that have bytes, by these, with their tokens."""
        if count not in self._in_order:
            pieces, _ = self.pieces(count)
            self._in_order[count] = sorted((x, id) for id, x in enumerate(pieces) if x)
        return self._in_order[count]

    def stream(self) -> TextStream:
        """What takes one id after another and gives the text that is whole by then."""
        return TextStream(self._tokenizer, self._controls)

    @cached_property
    def _controls(self) -> frozenset[int]:
        """Tokens that only control."""
        added = self._tokenizer.get_added_tokens_decoder()
        return frozenset(id for id, token in added.items() if token.special)

    @property
    def has_template(self) -> bool:
        """Whether the file says how conversations look."""
        return self.template is not None

    def conversation(
        self,
        messages: Sequence[Mapping[str, Any]],
        *,
        tools: Sequence[Mapping[str, Any]] | None = None,
        **options: Any,
    ) -> str:
        """A conversation as the model knows them, up to where it is to answer. `messages` have a
        "role" (system, user, assistant or tool) and "content". `tools`: functions that the model
        may ask for, as JSON schemas. `options`: what else its template knows, as enable_thinking.

        NotFound: the file has no template. InvalidArgument: the template refuses the messages, or
        takes too long.
        """
        if self.template is None:
            raise NotFound("the file has no template for conversations: generate from plain text")
        values = {"add_generation_prompt": True, "documents": None, **self.marks, **options}
        return render(
            self.template,
            {**values, "messages": list(messages), "tools": None if tools is None else list(tools)},
        )


class FileTokenizer(Tokenizer):
    """The tokenizer of a GGUF file.

    NotFound: `tokenizers` is not installed, or the file has no tokenizer. Unsupported: it is of a
    kind that is not known. DataLoss: it lacks what it needs.
    """

    def __init__(self, metadata: Mapping[str, Any]) -> None:
        tokenizers = package("tokenizers")
        self._metadata = metadata
        texts = self._key("tokens")
        if not isinstance(texts, list):
            raise NotFound("the file has no tokenizer: the key 'tokenizer.ggml.tokens' is missing")
        self.texts: list[str] = texts
        kind = str(self._needed("model"))
        if kind not in _KINDS:
            raise Unsupported(
                f"the tokenizer is of the kind {kind!r:.60}; known are {', '.join(_KINDS)}"
            )
        for name in _NEEDED.get(kind, ()):
            self._needed(name)
        with whole("the file's tokenizer"):
            for name in ("scores", "token_type"):
                self._check_count(name)
            self._tokenizer = _KINDS[kind](self._key, texts)
            self._add_own(tokenizers.AddedToken)
            is_begun = kind in ("llama", "bert") or self._key("pre") in _BEGUN
            adds_begin = kind == "gemma4" or bool(self._key("add_bos_token", is_begun))
        known = {name: self._id(name) for name in ("bos", "eos")}
        if kind == "bert" and known["bos"] is None:
            known["bos"] = self._id("cls")
        template = metadata.get("tokenizer.chat_template")
        super().__init__(
            self._tokenizer,
            begin=known["bos"],
            adds_begin=adds_begin,
            close=self._find_close(kind, known["eos"]),
            pairs=self._find_pairs(kind),
            ends=self._find_ends(),
            template=template if isinstance(template, str) else None,
            marks={f"{name}_token": "" if id is None else texts[id] for name, id in known.items()},
        )
        self._is_of_bytes = kind == "gpt2"
        del self._metadata  # of 128,000 tokens the merges take 11 MB

    def check_rows(self, rows: int) -> None:
        """DataLoss: a model with so many rows of embeddings does not know all tokens."""
        if len(self.texts) > rows:
            raise DataLoss(
                f"the file's tokenizer has {len(self.texts)} tokens, but 'token_embd.weight' has "
                f"{rows} rows"
            )

    def _ids(self, text: str, adds_special: bool) -> list[int]:
        """InvalidArgument, too: there is no token for a byte of the text."""
        ids = super()._ids(text, adds_special)
        lost = self._lost_bytes.intersection(text.encode())
        if lost:
            own = self._tokenizer.get_added_tokens_decoder()
            length = sum(
                len(self.texts[id].encode() if id in own else self.texts[id]) for id in ids
            )
            if length < len(text.encode()):
                raise InvalidArgument(f"the tokenizer has no token for the byte {min(lost):#04x}")
        return ids

    @cached_property
    def _lost_bytes(self) -> frozenset[int]:
        """Bytes that no token of a byte-level tokenizer stands for."""
        if not self._is_of_bytes:
            return frozenset()
        known = set(self.texts)
        return frozenset(byte for letter, byte in LETTERS.items() if letter not in known)

    def _add_own(self, added: Any) -> None:
        """Tell which tokens texts have as a whole."""
        special = [
            added(text, normalized=False, special=type in _CONTROLS)
            for text, type in zip(self.texts, self._key("token_type", ()), strict=False)
            if type in (*_CONTROLS, _OWN)
        ]
        self._tokenizer.add_special_tokens([each for each in special if each.special])
        self._tokenizer.add_tokens([each for each in special if not each.special])

    def _key(self, name: str, default: Any = None) -> Any:
        return self._metadata.get(f"tokenizer.ggml.{name}", default)

    def _needed(self, name: str) -> Any:
        if self._key(name) is None:
            raise NotFound(
                f"the file's tokenizer is not whole: the key 'tokenizer.ggml.{name}' is missing"
            )
        return self._key(name)

    def _check_count(self, name: str) -> None:
        """DataLoss: the key is there, but not for each token."""
        count = len(self._key(name, self.texts))
        if count != len(self.texts):
            raise DataLoss(
                f"the file's tokenizer is damaged: the key 'tokenizer.ggml.{name}' has {count} "
                f"elements, but there are {len(self.texts)} tokens"
            )

    def _id(self, name: str) -> int | None:
        """The token that has a meaning, if there is one."""
        id = self._key(f"{name}_token_id")
        if id is None or (type(id) is int and 0 <= id < len(self.texts)):
            return id
        raise DataLoss(
            f"the file's tokenizer is damaged: the key 'tokenizer.ggml.{name}_token_id' is "
            f"{str(id)[:60]}, but there are {len(self.texts)} tokens"
        )

    def _find_close(self, kind: str, end: int | None) -> int | None:
        """The token behind whole texts."""
        if kind == "bert":
            between = self._id("seperator")  # as the key is written
            is_there = self._key("add_sep_token", self._key("add_eos_token", True))
            return (end if between is None else between) if is_there else None
        return end if self._key("add_eos_token", kind == "t5") else None

    def _find_pairs(self, kind: str) -> Pairs:
        template = self._metadata.get("tokenizer.chat_template.rerank")
        if kind == "bert":
            return Pairs(kind=1)
        between = self._id("seperator") if self._key("add_sep_token", False) else None
        return Pairs(template if isinstance(template, str) else None, between)

    def _find_ends(self) -> list[int]:
        """Tokens behind which a model says nothing."""
        ids = [self._id(name) for name in ("eos", "eot", "eom")]
        ids += ends_of(self._tokenizer)
        return sorted({id for id in ids if id is not None and id < len(self.texts)})


def check_text(text: Any) -> None:
    """InvalidArgument: it is no text, or has halves of letters."""
    if not isinstance(text, str) or (not text.isascii() and _SURROGATE.search(text)):
        raise InvalidArgument(f"{text!r:.60} is no text: it cannot be written as UTF-8")


def ends_of(tokenizer: Any) -> list[int | None]:
    """The tokens that end texts of many models, where there are such. An answer of several parts,
    each with an end, has other ends itself."""
    ids: dict[str, int | None] = {text: tokenizer.token_to_id(text) for text in _ENDS}
    if any(None not in (ids[first], ids[second]) for first, second in _WHOLE_ENDS):
        del ids[_PART_END]
    return list(ids.values())


def _byte_level(key: Callable[..., Any], texts: Sequence[str]) -> Any:
    """Byte-level BPE."""
    tokenizers = package("tokenizers")
    pre = key("pre", "default")
    if pre not in _SPLITS:
        raise Unsupported(
            f"the tokenizer cuts texts as {pre!r}; those that are known are: {', '.join(_SPLITS)}"
        )
    result = tokenizers.Tokenizer(_merging(key, texts, ignore_merges=pre in _KEPT_WHOLE))
    cuts = tokenizers.pre_tokenizers
    parts = [cuts.Split(tokenizers.Regex(each), "isolated") for each in _SPLITS[pre]]
    byte_level = cuts.ByteLevel(add_prefix_space=False, use_regex=False)
    result.pre_tokenizer = cuts.Sequence([*parts, byte_level])
    result.decoder = tokenizers.decoders.ByteLevel()
    return result


def _merging(key: Callable[..., Any], texts: Sequence[str], **options: Any) -> Any:
    """A model of the file's merges."""
    merges = [tuple(merge.split(" ", 1)) for merge in key("merges")]
    vocabulary = {text: id for id, text in enumerate(texts)}
    if not all(map(vocabulary.__contains__, map("".join, merges))):  # the package dies of that
        merge = next(each for each in merges if "".join(each) not in vocabulary)
        raise DataLoss(f"the file's tokenizer is damaged: merge {merge} gives no token")
    return package("tokenizers").models.BPE(vocabulary, merges, **options)


def _marked_spaces(key: Callable[..., Any], texts: Sequence[str]) -> Any:
    """BPE of lines of characters, with SentencePiece's space and bytes."""
    tokenizers = package("tokenizers")
    model = _merging(key, texts, ignore_merges=False, byte_fallback=True)
    result = tokenizers.Tokenizer(model)
    normalizers, decoders = tokenizers.normalizers, tokenizers.decoders
    result.normalizer = normalizers.Replace(" ", MARK)
    lines = tokenizers.Regex(r"[^\n]+|\n+")
    result.pre_tokenizer = tokenizers.pre_tokenizers.Split(lines, "isolated")
    parts = [decoders.Replace(MARK, " "), decoders.ByteFallback(), decoders.Fuse()]
    result.decoder = decoders.Sequence(parts)
    return result


def _sentence_piece(key: Callable[..., Any], texts: Sequence[str]) -> Any:
    """BPE of SentencePiece: of two neighbours those are merged first whose whole scores best."""
    tokenizers = package("tokenizers")
    scores = key("scores")
    vocabulary = {text: id for id, text in enumerate(texts)}
    merges = sorted(_merges(vocabulary), key=lambda pair: -scores[vocabulary["".join(pair)]])
    unknown = key("unknown_token_id", 0)
    model = tokenizers.models.BPE(
        vocabulary, merges, unk_token=texts[unknown], fuse_unk=True, byte_fallback=True
    )
    result = tokenizers.Tokenizer(model)
    normalizers, decoders = tokenizers.normalizers, tokenizers.decoders
    steps = [normalizers.Replace(" ", MARK)]
    parts = [decoders.Replace(MARK, " "), decoders.ByteFallback(), decoders.Fuse()]
    if key("add_space_prefix", True):
        steps.insert(0, normalizers.Prepend(MARK))
        parts.append(decoders.Strip(" ", 1, 0))
    result.normalizer = normalizers.Sequence(steps)
    result.decoder = decoders.Sequence(parts)
    return result


def _merges(vocabulary: Mapping[str, int]) -> Iterator[tuple[str, str]]:
    """Pairs of pieces that make a piece."""
    lengths = sorted({len(text) for text in vocabulary} - {0})
    for text in vocabulary:
        for place in lengths[: bisect_left(lengths, len(text))]:
            if text[:place] in vocabulary and text[place:] in vocabulary:
                yield text[:place], text[place:]


_KINDS = {
    "gpt2": _byte_level,
    "llama": _sentence_piece,
    "gemma4": _marked_spaces,
    "bert": word_pieces,
    "t5": unigrams,
    "rwkv": longest_tokens,
}
_NEEDED = {"gpt2": ("merges",), "gemma4": ("merges",), "llama": ("scores",), "t5": ("scores",)}
"""What files have for these kinds beside their tokens."""
