"""Names of the arguments and results of an imported function, as the source has them.

jax names an argument by the place of its value in the pytree of a parameter, such as
`params['w']`, which becomes `params.w`; a result `result['logits']` becomes `logits`.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Any

from ingot.compiler.frontends.distinct_names import distinct_names
from ingot.compiler.frontends.stablehlo.reading.program import (
    SourceFunction,
    SourceProgram,
    SourceValue,
)
from ingot.compiler.frontends.stablehlo.tuples import leaf_names

__all__ = ["argument_names", "exported_paths", "result_names", "symbol_prefixes"]


def argument_names(
    program: SourceProgram, function: SourceFunction, paths: Sequence[str] = ()
) -> list[str]:
    """One name per argument, and per element of one that is a tuple, all different; `paths` are
    those of a jax export's inputs."""
    names = []
    for place, argument in enumerate(function.arguments):
        path = str(function.argument_attributes[place].get("jax.arg_info", ""))
        path = path or _own_name(argument.location) or _inner_name(program, function, argument)
        if not path and len(paths) == len(function.arguments):
            path = paths[place]
        names.append(_dotted(path) or f"arg{place}")
    return distinct_names(leaf_names(names, [argument.type for argument in function.arguments]))


def result_names(function: SourceFunction) -> list[str]:
    """One name per result and element of a tuple, all different."""
    names = []
    for place, attributes in enumerate(function.result_attributes):
        path = str(attributes.get("jax.result_info", "")).removeprefix("result")
        dotted = _dotted(path)
        if not dotted:
            dotted = "result" if len(function.result_types) == 1 else f"result.{place}"
        elif dotted[0].isdigit():
            dotted = f"result.{dotted}"
        names.append(dotted)
    return distinct_names(leaf_names(names, function.result_types))


def symbol_prefixes(names: Sequence[str]) -> list[str]:
    """Per argument the start of the symbols for its dynamic dims; the axis follows."""
    texts = [re.sub(r"\W+", "_", name).strip("_") for name in names]
    return distinct_names([text if text[:1].isalpha() else f"arg{text}" for text in texts])


def exported_paths(exported: Any) -> list[str]:
    """The pytree paths of the arguments that a jax.export.Exported keeps."""
    import jax

    leaves, _ = jax.tree_util.tree_flatten_with_path(
        jax.tree_util.tree_unflatten(exported.in_tree, list(range(exported.in_tree.num_leaves)))
    )
    paths = [_positional(jax.tree_util.keystr(path)) for path, _ in leaves]
    return [paths[place] for place in exported.module_kept_var_idx if place < len(paths)]


def _positional(path: str) -> str:
    """ "[0][1]['w']" (positional arguments) as "args[1]['w']", "[1]['x']" as "x"."""
    if path.startswith("[1]"):
        return path.removeprefix("[1]")
    return f"args{path.removeprefix('[0]')}"


def _own_name(location: str) -> str:
    """A location that is a name; one with slashes or positions is where code stands."""
    return location if re.fullmatch(r"[A-Za-z_][\w.]*(\[[^\]/:]+\]|\.\w+)*", location) else ""


def _inner_name(program: SourceProgram, function: SourceFunction, value: SourceValue) -> str:
    """The name that a function called with `value` gives it."""
    for op in function.body.ops:
        callee = program.functions.get(str(op.attributes.get("callee")))
        if op.name == "call" and callee is not None and value in op.operands:
            place = op.operands.index(value)
            if place < len(callee.arguments):
                name = _own_name(callee.arguments[place].location)
                if name:
                    return name
    return ""


def _dotted(path: str) -> str:
    parts = re.sub(r"\[['\"]?([^'\"\]]+)['\"]?\]", r".\1", path)
    return parts.strip(".")
