"""The tokenizer of a folder as Hugging Face's libraries write them: tokenizer.json, and what
tokenizer_config.json, generation_config.json and chat_template.jinja say of it."""

from __future__ import annotations

import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from ingot.hal.checkpoint import read_json
from ingot.hal.errors import DataLoss, NotFound
from ingot.language.package import package, whole
from ingot.language.tokenizer import Tokenizer, check_text, ends_of

__all__ = ["FolderTokenizer"]

_MAX_TEMPLATE = 1 << 20  # characters


class FolderTokenizer(Tokenizer):
    """The tokenizer of a folder. NotFound: it has none, or the package tokenizers is missing.
    DataLoss: its files are damaged, or name tokens that there are not."""

    def __init__(self, path: str | os.PathLike[str]) -> None:
        folder = Path(path)
        if not (folder / "tokenizer.json").is_file():
            raise NotFound(f"'{folder}' has no tokenizer: the file tokenizer.json is missing")
        tokenizers = package("tokenizers")
        with whole(f"'{folder / 'tokenizer.json'}'"):
            made = tokenizers.Tokenizer.from_file(str(folder / "tokenizer.json"))
        made.no_truncation()
        made.no_padding()
        config = _optional(folder / "tokenizer_config.json")
        marks = {
            key: text for key in ("bos_token", "eos_token") if (text := _text(config.get(key)))
        }
        ids = {key: _id(made, text, folder, key) for key, text in marks.items()}
        super().__init__(
            made,
            begin=ids.get("bos_token"),
            adds_begin=False,
            ends=_ends(made, folder, ids.get("eos_token")),
            template=_template(folder, config),
            marks={"bos_token": "", "eos_token": "", **marks},
        )

    def encode(self, text: str, *, is_start: bool = True) -> list[int]:
        """The ids of a text, with what tokenizer.json puts around one that begins."""
        ids = self._ids(text, is_start)
        while ids and is_start and ids[-1] in self.ends:
            ids.pop()  # the model is to go on
        return ids

    def whole(self, text: str) -> list[int]:
        """See `Tokenizer`: with all that tokenizer.json puts around it."""
        return self._ids(text, True)

    def pair(self, first: str, second: str) -> tuple[list[int], list[int]]:
        """See `Tokenizer`: as tokenizer.json puts them together."""
        for text in (first, second):
            check_text(text)
        with whole("the tokenizer"):
            made = self._tokenizer.encode(first, second)
        return made.ids, made.type_ids


def _optional(path: Path) -> dict[str, Any]:
    return read_json(path) if path.is_file() else {}


def _text(token: Any) -> str | None:
    """The text of a token, which may be an object with its properties."""
    token = token.get("content") if isinstance(token, Mapping) else token
    return token if isinstance(token, str) else None


def _id(tokenizer: Any, text: str, folder: Path, key: str) -> int:
    with whole(f"{key} in '{folder / 'tokenizer_config.json'}'"):
        id = tokenizer.token_to_id(text)
    if id is None:
        raise DataLoss(
            f"the tokenizer in '{folder}' is damaged: {key} is {text[:60]!r} in "
            "tokenizer_config.json, but tokenizer.json has no such token"
        )
    return int(id)


def _ends(tokenizer: Any, folder: Path, end: int | None) -> list[int]:
    """Tokens behind which the model says nothing."""
    found = [end, *ends_of(tokenizer)]
    count = tokenizer.get_vocab_size()
    for name in ("generation_config.json", "config.json"):
        ids = _optional(folder / name).get("eos_token_id")
        ids = ids if isinstance(ids, list) else [ids]
        wrong = [id for id in ids if id is not None and (type(id) is not int or id < 0)]
        if wrong:
            raise DataLoss(f"'{folder / name}': eos_token_id is {str(wrong[0])[:60]}, no token")
        found += [id for id in ids if id is not None and id < count]
    return sorted({id for id in found if id is not None})


def _template(folder: Path, config: Mapping[str, Any]) -> str | None:
    """How conversations look: a file of its own, or an entry, perhaps one of several by name."""
    file = folder / "chat_template.jinja"
    if file.is_file():
        return file.read_text(encoding="utf-8", errors="replace")[:_MAX_TEMPLATE]
    template = config.get("chat_template")
    if isinstance(template, list):
        named = (each for each in template if isinstance(each, Mapping))
        template = next(
            (each.get("template") for each in named if each.get("name") == "default"), None
        )
    return template if isinstance(template, str) else None
