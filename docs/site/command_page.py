"""The page of the `ingot` command, from the parser that reads its options."""

from __future__ import annotations

import argparse
import re
from collections.abc import Iterator

from ingot.command import make_parser

__all__ = ["command_page"]


def command_page() -> str:
    """Markdown."""
    parser = make_parser()
    (commands,) = (each for each in parser._actions if isinstance(each, argparse._SubParsersAction))
    summaries = {each.dest: each.help for each in commands._choices_actions}
    lines = ["# The command", "", parser.description or "", ""]
    lines += ["| command | what it does |", "|---|---|"]
    lines += [
        f"| [`ingot {name}`](#ingot-{name}) | {_cell(summaries[name] or '')} |"
        for name in commands.choices
    ]
    lines += ["", "`ingot --version` prints the version. A command exits with 0; with 1 if it"]
    lines += ["failed and 2 if it was used wrongly, and says why in one line on standard error;"]
    lines += ["with 130 if it was interrupted."]
    for name, command in commands.choices.items():
        lines += ["", f"## ingot {name} {{ #ingot-{name} }}", "", command.description or ""]
        lines += ["", "```text", _usage(command), "```", *_options(command)]
    return "\n".join(lines) + "\n"


def _usage(command: argparse.ArgumentParser) -> str:
    formatter = command._get_formatter()
    formatter._width = 88
    formatter.add_usage(None, command._actions, command._mutually_exclusive_groups, "")
    return formatter.format_help().strip()


def _options(command: argparse.ArgumentParser) -> Iterator[str]:
    rows = [each for each in command._actions if not isinstance(each, argparse._HelpAction)]
    if rows:
        yield from ("", "| argument | meaning |", "|---|---|")
    for action in rows:
        formatter = command._get_formatter()
        words = formatter._format_action_invocation(action).split(", ")
        # The value stands once, behind the last spelling.
        names = ", ".join([word.partition(" ")[0] for word in words[:-1]] + [words[-1]])
        yield f"| `{_cell(names)}` | {_cell(_help(formatter, action))} |"


def _help(formatter: argparse.HelpFormatter, action: argparse.Action) -> str:
    return formatter._expand_help(action) if action.help else ""


def _cell(text: str) -> str:
    """Text in a table, in which only what stands between backticks is markup."""
    parts = re.split(r"(`[^`]*`)", text.replace("|", "\\|"))
    return "".join(
        part if part.startswith("`") else re.sub(r"([*_<])", r"\\\1", part) for part in parts
    )
