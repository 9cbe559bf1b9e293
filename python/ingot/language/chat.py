"""`ingot chat model.gguf`: a conversation with a language model in the terminal."""

from __future__ import annotations

import argparse
import sys
import time
from collections.abc import Iterator
from dataclasses import fields
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ingot.command_line import add_command, say
from ingot.hal.checkpoint import read_json
from ingot.hal.errors import InvalidArgument
from ingot.hal.printable import printable
from ingot.hal.whole_file import open_regular
from ingot.language.sampling import Sampling

if TYPE_CHECKING:
    from ingot.language.draft import Draft

__all__ = ["add_chat"]


def add_chat(commands: Any) -> None:
    parser = add_command(commands, "chat", _run, "talk to a language model")
    parser.add_argument(
        "model", help="a .gguf file, or a folder with config.json, .safetensors and tokenizer.json"
    )
    parser.add_argument("--system", metavar="TEXT", help="what the model is told first")
    parser.add_argument(
        "--prompt", metavar="TEXT", help="answer this and end, instead of asking for lines"
    )
    parser.add_argument("--raw", action="store_true", help="go on from texts as they are")
    parser.add_argument("--capacity", type=int, metavar="COUNT", help="tokens of the cache")
    parser.add_argument(
        "--precision",
        default="f32",
        metavar="NAME",
        help="of activations: f32; int8, faster; or bf16 or f16, as of weights that are no codes",
    )
    parser.add_argument("--cache", default="f32", metavar="TYPE", help="f32 or f16, half as large")
    parser.add_argument(
        "--weights", metavar="TYPE", help="int8 or int4: what weights of a folder become"
    )
    parser.add_argument(
        "--draft",
        metavar="MODEL",
        help="a smaller model of the same vocabulary, which writes ahead",
    )
    parser.add_argument(
        "--draft-tokens", type=int, default=4, metavar="COUNT", help="of it at a time (%(default)s)"
    )
    parser.add_argument(
        "--lora",
        action="append",
        default=[],
        metavar="FILE[:SCALE]",
        help="an adapter: a GGUF file or a folder of PEFT; may come several times",
    )
    parser.add_argument(
        "--share-weights",
        action="store_true",
        help="prepare the weights once, in a file of the cache that all processes share",
    )
    parser.add_argument("--schema", metavar="FILE", help="answer with JSON that fits this schema")
    parser.add_argument("--grammar", metavar="FILE", help="follow this grammar (GBNF)")
    parser.add_argument("--max-tokens", type=int, metavar="COUNT", help="of one answer")
    parser.add_argument("--threads", type=int, metavar="COUNT", help="threads of the CPU")
    for field in fields(Sampling):
        parser.add_argument(
            f"--{field.name.replace('_', '-')}",
            type=type(field.default),
            default=field.default,
            metavar="NUMBER",
            help="(%(default)s)",
        )


def _run(options: argparse.Namespace) -> None:
    from ingot.language.adapters import parse_adapter
    from ingot.language.constraint import grammar_of
    from ingot.language.model import LanguageModel
    from ingot.progress import show_progress

    sampling = {field.name: getattr(options, field.name) for field in fields(Sampling)}
    Sampling(**sampling)
    rules: dict[str, Any] = {}
    if options.schema is not None:
        rules["schema"] = read_json(Path(options.schema))
    if options.grammar is not None:
        rules["grammar"] = _text_of(options.grammar)
    grammar_of(rules.get("grammar"), rules.get("schema"))  # before a model is compiled
    with show_progress(f"compiling {options.model}") as progress:
        model = LanguageModel(
            options.model,
            capacity=options.capacity,
            cache=options.cache,
            weights=options.weights,
            precision=options.precision,
            threads=options.threads,
            share_weights=options.share_weights,
            lora=[parse_adapter(each) for each in options.lora] or None,
            draft=options.draft,
            draft_tokens=options.draft_tokens,
            progress=progress,
        )
    messages = [{"role": "system", "content": options.system}] if options.system else []
    is_raw = options.raw or not model.tokenizer.has_template
    if is_raw and not options.raw:
        say("the model has no template for conversations: what you write is continued", sys.stderr)
    for line in [options.prompt] if options.prompt is not None else _lines():
        messages.append({"role": "user", "content": line})
        rest = {"max_tokens": options.max_tokens, **rules, **sampling}
        pieces = model.generate(line, **rest) if is_raw else model.chat(messages, **rest)
        answer = _show(pieces, model)
        messages.append({"role": "assistant", "content": answer})


def _text_of(path: str) -> str:
    """The text of a file. InvalidArgument: it is not UTF-8. Else raises as `open_regular`."""
    with open_regular(path) as file:
        data = file.read()
    try:
        return data.decode()
    except UnicodeDecodeError as error:
        raise InvalidArgument(f"'{path}' is no text in UTF-8: {error}") from None


def _lines() -> Iterator[str]:
    """What the user writes, line by line, up to the end of the input."""
    while True:
        try:
            line = input("> ")
        except EOFError:
            return
        if line.strip():
            yield line


def _show(pieces: Iterator[str], model: Any) -> str:
    """Print a text while it is made, and how fast that was; gives the text."""
    text, begin, first = "", time.perf_counter(), 0.0
    before = 0
    try:
        for piece in pieces:
            if not first:
                first, before = time.perf_counter(), len(model.ids)
            text += piece
            print("\n".join(map(printable, piece.split("\n"))), end="", flush=True)
    except KeyboardInterrupt:
        pass  # ends the answer, not the conversation
    print()
    count, seconds = len(model.ids) - before, time.perf_counter() - first
    if first and count:
        say(
            f"[first token after {first - begin:.2f} s, {count / seconds:.1f} tokens a second"
            f"{_accepted(model.draft)}]",
            sys.stderr,
        )
    return text


def _accepted(draft: Draft | None) -> str:
    """How much of what a draft proposed has stayed so far."""
    return "" if draft is None else f", {draft.accepted} of {draft.proposed} drafted tokens stayed"
