"""Asks a language model from a GGUF file, and shows the answer while it is written.

    python chat.py model.gguf "Why is the sky blue?" "And at night?"

The questions are one conversation: what the cache holds of it is not computed again.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence

import ingot


def main(arguments: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("model", help="a .gguf file")
    parser.add_argument("questions", nargs="+")
    parser.add_argument("--max-tokens", type=int, default=256, help="of one answer")
    options = parser.parse_args(arguments)
    model = ingot.LanguageModel(options.model)
    messages: list[dict[str, str]] = []
    for question in options.questions:
        print(f"> {question}")
        messages.append({"role": "user", "content": question})
        answer = ""
        for piece in model.chat(messages, max_tokens=options.max_tokens, temperature=0.7):
            print(piece, end="", flush=True)
            answer += piece
        print()
        messages.append({"role": "assistant", "content": answer})
    return 0


if __name__ == "__main__":
    sys.exit(main())
