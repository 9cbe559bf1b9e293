"""Texts that tokenizers cut in different ways, and what llama.cpp makes of them."""

from __future__ import annotations

import random
from pathlib import Path

__all__ = ["CUT", "PIECES", "UNMERGED", "texts_to_cut"]

CUT = Path(__file__).parents[1] / "compiler/frontends/gguf/tokens.npz"
"""`tokens` and `merges` of a tokenizer, and by the names of `tokenizer.ggml.pre` the ids of the
first 60 texts, -1 behind each."""
PIECES = CUT.parent / "pieces.npz"
"""Keys of tokenizers whose words are cut into pieces, as JSON, and ids as in `CUT`."""
UNMERGED = ["Hello", "\u0120HELLO"]
"""Tokens that no merge gives; some kinds have them where a part of a text is one of them."""

_PARTS = (
    "hello", "World", "HELLO", "camelCase", "don't", "I'LL", "we've", "'s", "12", "3456", "1", "  ",
    "   ", "\n", "\n\n", "\r\n", "\t", "!", "!!", "...", "a/b", "//", "/\n", "?\n", "\u4e2d\u6587",
    "\u65e5\u672c\u8a9e", "\u3072\u3089", "\u30ab\u30bf", "\xdf", "\xdcn\xef", "\xe9", "\U0001f642",
    " ", "\u041f\u0440\u0438", "x=1;", "(foo)", "_bar", "#include", "$5", "\u20ac", "<=>",
    "`code`", "~", "\u0663\u0664", "\xbd", "a1b2", "\u02b0", "\xaa", "A", "b",
)  # fmt: skip
"""Without marks that join letters, and letters in the case of titles, for which llama.cpp has other
rules than tokenizers."""


def texts_to_cut(count: int) -> list[str]:
    """The first of an endless list."""
    drawn = random.Random(0)

    def text() -> str:
        parts = (drawn.choice(_PARTS) for _ in range(drawn.randint(2, 12)))
        return "".join(part + " " * (drawn.random() < 0.4) for part in parts)

    return [text() for _ in range(count)]
