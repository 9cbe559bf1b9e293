"""The tokenizer of a language model, made by `tokenizers` of the metadata of its GGUF file, or of
the files in its folder.

Of GGUF two families: byte-level BPE with merges (`gpt2`), and pieces of SentencePiece with scores
(`llama`), whose merges follow from the scores. Needs the package tokenizers, and for
conversations jinja2, in which files write how they look.
"""

from __future__ import annotations

import re
from bisect import bisect_left
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any

from ingot.hal.errors import DataLoss, Error, InvalidArgument, NotFound, Unsupported
from ingot.language.package import package
from ingot.language.template import render

__all__ = ["FileTokenizer", "Tokenizer", "ends_of", "whole"]

_CONTRACTIONS = "'s|'t|'re|'ve|'m|'ll|'d"
_WORDS = rf"{_CONTRACTIONS}| ?\p{{L}}+| ?\p{{N}}+| ?[^\s\p{{L}}\p{{N}}]+|\s+(?!\S)|\s+"
_TIKTOKEN = (
    rf"(?i:{_CONTRACTIONS})|[^\r\n\p{{L}}\p{{N}}]?\p{{L}}+|\p{{N}}{{1,%d}}|"
    r" ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+"
)
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
_SPLITS = {
    "default": (r"[\p{P}\$\+<=>\^~\|]+", _WORDS, r"\p{N}+", r"[0-9][0-9][0-9]"),
    "falcon": (r"[\p{P}\$\+<=>\^~\|`]+", _WORDS, r"[0-9][0-9][0-9]"),
    **dict.fromkeys(
        ("gpt-2", "olmo", "phi-2", "mpt", "exaone4", "gigachat", "trillion", "granite-docling"),
        (_WORDS,),
    ),
    **dict.fromkeys(
        ("smollm", "starcoder", "refact", "command-r", "codeshell", "exaone", "minerva-7b"),
        (r"\p{N}", _WORDS),
    ),
    **dict.fromkeys(
        ("llama-bpe", "llama3", "llama-v3", "dbrx", "smaug-bpe", "chatglm-bpe", "glm4", "falcon3",
         "falcon-h1", "pixtral", "lfm2", "midm-2.0"),
        (_TIKTOKEN % 3,),
    ),
    **dict.fromkeys(
        ("qwen2", "deepseek-r1-qwen", "stablelm2", "hunyuan", "megrez"), (_TIKTOKEN % 1,)
    ),
    "qwen35": (_MARKED % 1,),
    "tekken": (_CASED % ("", "", 1),),
    **dict.fromkeys(("gpt-4o", "llama4"), (_CASED % (_ENDINGS, _ENDINGS, 3),)),
    **dict.fromkeys(
        ("deepseek-v3", "hunyuan-dense"),
        (r"\p{N}{1,3}", "[\u4e00-\u9fa5\u3040-\u309f\u30a0-\u30ff]+", _DEEPSEEK),
    ),
}  # fmt: skip
"""How texts are cut before merges, by `tokenizer.ggml.pre`."""

_SURROGATE = re.compile("[\ud800-\udfff]")
_CONTROL, _OWN = 3, 4  # types of tokens that texts have as a whole
_ENDS = (
    "<|im_end|>", "<|eot_id|>", "<|end|>", "<end_of_turn>", "<|endoftext|>", "<|end_of_text|>",
    "<|END_OF_TURN_TOKEN|>", "[|endofturn|]", "<|return|>", "<|call|>",
    "<\uff5cend\u2581of\u2581sentence\uff5c>",
)  # fmt: skip
_MARK = "\u2581"  # SentencePiece's space


class Tokenizer:
    """Texts to token ids and back. `begin`: the token that begins texts, which `encode` puts in
    front where `adds_begin`; `ends`: those behind which a model says nothing; `template`: how
    conversations look, with the texts of `marks`."""

    def __init__(
        self,
        tokenizer: Any,
        *,
        begin: int | None,
        adds_begin: bool,
        ends: Sequence[int],
        template: str | None,
        marks: Mapping[str, str],
    ) -> None:
        self._tokenizer, self.begin, self.adds_begin = tokenizer, begin, adds_begin
        self.ends, self.template, self.marks = list(ends), template, marks

    def encode(self, text: str, *, is_start: bool = True) -> list[int]:
        """The ids of a text, behind the token that begins one if the model wants that."""
        ids = self._ids(text, False)
        if is_start and self.adds_begin and self.begin is not None and ids[:1] != [self.begin]:
            ids.insert(0, self.begin)
        return ids

    def _ids(self, text: str, adds_special: bool) -> list[int]:
        if not isinstance(text, str) or (not text.isascii() and _SURROGATE.search(text)):
            raise InvalidArgument(f"{text!r:.60} is no text: it cannot be written as UTF-8")
        with whole("the tokenizer"):
            ids: list[int] = self._tokenizer.encode(text, add_special_tokens=adds_special).ids
        return ids

    def decode(self, ids: Sequence[int]) -> str:
        """The text of ids, without tokens that only control."""
        with whole("the tokenizer"):
            try:
                text: str = self._tokenizer.decode(list(ids), skip_special_tokens=True)
            except (TypeError, OverflowError) as error:
                raise InvalidArgument(f"{ids!r:.60} are no ids of tokens: {error}") from None
        return text

    def vocabulary(self) -> dict[str, int]:
        """The id of each token."""
        ids: dict[str, int] = self._tokenizer.get_vocab()
        return ids

    def stream(self) -> Callable[[int], str]:
        """A function that takes one id after another and gives the text that is whole by then."""
        stream = package("tokenizers").decoders.DecodeStream(skip_special_tokens=True)

        def step(id: int) -> str:
            with whole("the tokenizer"):
                return stream.step(self._tokenizer, id) or ""

        return step

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
        kind = str(self._key("model"))
        if kind not in _KINDS:
            raise Unsupported(
                f"the tokenizer is of the kind {kind!r:.60}; known are gpt2 and llama"
            )
        with whole("the file's tokenizer"):
            self._tokenizer = _KINDS[kind](self._key, texts)
            self._add_own(tokenizers.AddedToken)
            adds_begin = bool(self._key("add_bos_token", kind == "llama"))
        known = {name: self._id(name) for name in ("bos", "eos")}
        template = metadata.get("tokenizer.chat_template")
        super().__init__(
            self._tokenizer,
            begin=known["bos"],
            adds_begin=adds_begin,
            ends=self._find_ends(),
            template=template if isinstance(template, str) else None,
            marks={f"{name}_token": "" if id is None else texts[id] for name, id in known.items()},
        )

    def _add_own(self, added: Any) -> None:
        """Tell which tokens texts have as a whole."""
        special = [
            added(text, normalized=False, special=type == _CONTROL)
            for text, type in zip(self.texts, self._key("token_type", ()), strict=False)
            if type in (_CONTROL, _OWN)
        ]
        self._tokenizer.add_special_tokens([each for each in special if each.special])
        self._tokenizer.add_tokens([each for each in special if not each.special])

    def _key(self, name: str, default: Any = None) -> Any:
        return self._metadata.get(f"tokenizer.ggml.{name}", default)

    def _id(self, name: str) -> int | None:
        """The token that has a meaning, if there is one."""
        id = self._key(f"{name}_token_id")
        if id is None or (type(id) is int and 0 <= id < len(self.texts)):
            return id
        raise DataLoss(
            f"the file's tokenizer is damaged: the key 'tokenizer.ggml.{name}_token_id' is "
            f"{str(id)[:60]}, but there are {len(self.texts)} tokens"
        )

    def _find_ends(self) -> list[int]:
        """Tokens behind which a model says nothing."""
        ids = [self._id(name) for name in ("eos", "eot", "eom")]
        ids += ends_of(self._tokenizer)
        return sorted({id for id in ids if id is not None and id < len(self.texts)})


@contextmanager
def whole(what: str) -> Iterator[None]:
    """DataLoss: the package tokenizers raises an error, or panics, over what a file says."""
    try:
        yield
    except Error:
        raise
    except BaseException as error:
        if isinstance(error, Exception) or type(error).__name__ == "PanicException":
            raise DataLoss(f"{what} is damaged: {error}") from None
        raise


def ends_of(tokenizer: Any) -> list[int | None]:
    """The tokens that end texts of many models, where there are such."""
    return [tokenizer.token_to_id(text) for text in _ENDS]


def _byte_level(key: Callable[..., Any], texts: Sequence[str]) -> Any:
    """Byte-level BPE."""
    tokenizers = package("tokenizers")
    pre = key("pre", "default")
    if pre not in _SPLITS:
        raise Unsupported(
            f"the tokenizer cuts texts as {pre!r}; those that are known are: {', '.join(_SPLITS)}"
        )
    merges = [tuple(merge.split(" ", 1)) for merge in key("merges", ())]
    vocabulary = {text: id for id, text in enumerate(texts)}
    for merge in merges:
        if "".join(merge) not in vocabulary:  # which the package does not survive
            raise DataLoss(f"the file's tokenizer is damaged: merge {merge} gives no token")
    result = tokenizers.Tokenizer(tokenizers.models.BPE(vocabulary, merges, ignore_merges=True))
    cuts = tokenizers.pre_tokenizers
    parts = [cuts.Split(tokenizers.Regex(each), "isolated") for each in _SPLITS[pre]]
    byte_level = cuts.ByteLevel(add_prefix_space=False, use_regex=False)
    result.pre_tokenizer = cuts.Sequence([*parts, byte_level])
    result.decoder = tokenizers.decoders.ByteLevel()
    return result


def _sentence_piece(key: Callable[..., Any], texts: Sequence[str]) -> Any:
    """BPE of SentencePiece: of two neighbours those are merged first whose whole scores best."""
    tokenizers = package("tokenizers")
    scores = key("scores", ())
    vocabulary = {text: id for id, text in enumerate(texts)}
    merges = sorted(_merges(vocabulary), key=lambda pair: -scores[vocabulary["".join(pair)]])
    unknown = key("unknown_token_id", 0)
    model = tokenizers.models.BPE(
        vocabulary, merges, unk_token=texts[unknown], fuse_unk=True, byte_fallback=True
    )
    result = tokenizers.Tokenizer(model)
    normalizers, decoders = tokenizers.normalizers, tokenizers.decoders
    steps = [normalizers.Replace(" ", _MARK)]
    parts = [decoders.Replace(_MARK, " "), decoders.ByteFallback(), decoders.Fuse()]
    if key("add_space_prefix", True):
        steps.insert(0, normalizers.Prepend(_MARK))
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


_KINDS = {"gpt2": _byte_level, "llama": _sentence_piece}
