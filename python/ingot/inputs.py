"""Inputs and outputs of a model on the command line: from text and files to arrays."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import numpy.typing as npt

from ingot.hal.array import Array
from ingot.hal.errors import DataLoss, InvalidArgument
from ingot.hal.whole_file import read_arrays, write_arrays
from ingot.runtime.model import Model
from ingot.runtime.signature import Signature, Value

__all__ = [
    "known_sizes",
    "random_inputs",
    "read_inputs",
    "sizes_of",
    "write_outputs",
]


_SHOWN = 200  # characters of an argument, in messages


def read_inputs(texts: Sequence[str], signature: Signature) -> dict[str, Any]:
    """`--input` texts as arguments by name.

    A text is NAME=@FILE.npy, NAME=JSON, the same without "NAME=" for the arguments in their
    order, or @FILE.npz, whose arrays are taken by name. A sequence is NAME=@FILE.npy,@FILE.npy,
    NAME=@FILE.npz, or JSON lists in a list; what an optional lacks is NAME=none.
    """
    kinds = {value.name: value.kind for value in signature.arguments}
    names = [value.name for value in signature.arguments]
    inputs: dict[str, Any] = {}
    for text in texts:
        if text.startswith("@") and text.endswith(".npz") and ",@" not in text:
            inputs |= _read_named(text[1:])
            continue
        name, separator, value = text.partition("=")
        if not separator or name not in names:
            name, value = _next_name(text, names, inputs, signature), text
        if value == "none":
            inputs[name] = None
        elif not value.startswith("@"):
            inputs[name] = _parse(name, value)
        elif kinds[name].endswith("sequence"):
            inputs[name] = _read_list(value)
        else:
            inputs[name] = read_arrays(value[1:])
    return inputs


def _read_named(path: str) -> dict[str, Any]:
    found = read_arrays(path)
    if not isinstance(found, dict):
        raise DataLoss(f"'{path}' holds one array and no names: call it .npy")
    return found


def _read_list(text: str) -> list[Any]:
    """The arrays of `@FILE,@FILE`, in their order."""
    arrays: list[Any] = []
    for path in text[1:].split(",@"):
        found = read_arrays(path)
        arrays += found.values() if isinstance(found, Mapping) else [found]
    return arrays


def _next_name(text: str, names: list[str], inputs: Mapping[str, Any], signature: Signature) -> str:
    name, separator, _ = text.partition("=")
    if separator and not text.startswith(("@", "[")):
        raise InvalidArgument(f"no argument is called {name!r}; the signature is {signature}")
    free = [name for name in names if name not in inputs]
    if not free:
        raise InvalidArgument(f"--input {text}: every argument of {signature} has its value")
    return free[0]


def _parse(name: str, text: str) -> Any:
    try:
        return json.loads(text)
    except (RecursionError, ValueError):  # the latter also of numbers of too many digits
        shown = text if len(text) <= _SHOWN else f"{text[:_SHOWN]}..."
        raise InvalidArgument(
            f"--input {name}={shown}: not a number or JSON list; for a file write {name}=@FILE.npy"
        ) from None


def write_outputs(paths: Sequence[str], results: Mapping[str, Any]) -> None:
    """Writes results to `--output` paths: NAME=FILE.npy, FILE.npy in the order of the
    results, or FILE.npz for all of them. Elements that .npy lacks become f32. A sequence is
    written to NAME=FILE.npz as 0, 1, ..., in the file of all as NAME.0, NAME.1, ...; what an
    optional lacks is left out."""
    free = dict(results)
    for path in paths:
        if path.endswith(".npz") and path.partition("=")[0] not in results:
            write_arrays(path, _savable_by_name(results))
            continue
        name, separator, file = path.partition("=")
        if not separator or name not in results:
            name, file = next(iter(free), ""), path
        if name not in results:
            raise InvalidArgument(
                f"--output {path}: the model has only {len(results)} results: {', '.join(results)}"
            )
        free.pop(name, None)
        result, file = results[name], file.removeprefix("@")
        if isinstance(result, list) != file.endswith(".npz") or result is None:
            kind = "nothing" if result is None else "a list" if isinstance(result, list) else "one"
            raise InvalidArgument(
                f"--output {path}: {name} is {kind}; arrays go to .npy files, lists to .npz files"
            )
        if isinstance(result, list):
            write_arrays(file, {str(at): _savable(each) for at, each in enumerate(result)})
        else:
            write_arrays(file, _savable(result))


def _savable_by_name(results: Mapping[str, Any]) -> dict[str, Any]:
    savable: dict[str, Any] = {}
    for name, result in results.items():
        if isinstance(result, list):
            savable |= {f"{name}.{place}": _savable(each) for place, each in enumerate(result)}
        elif result is not None:
            savable[name] = _savable(result)
    return savable


def _savable(array: Any) -> npt.NDArray[Any]:
    if isinstance(array, Array):
        return np.asarray(array if array.dtype.is_numpy else array.astype("f32"))
    if isinstance(array, dict):
        raise InvalidArgument("maps have no place in .npy files; without --output they are printed")
    return np.asarray(array, np.str_)


def known_sizes(sizes: Mapping[str, int], metadata: Mapping[str, Any]) -> dict[str, int]:
    """Sizes by the symbols of a module, of names that only its source had too."""
    from ingot.compiler.ir.renamed_dims import sizes_of_symbols
    from ingot.compiler.vm.read_module import read_dim

    written = metadata.get("dims", {})
    if not isinstance(written, dict) or not all(isinstance(each, str) for each in written.values()):
        raise DataLoss("the module's metadata names its dims in another form: compile it again")
    renamed = {name: read_dim(text) for name, text in written.items()}
    try:
        return sizes_of_symbols(sizes, renamed)
    except ValueError as error:
        raise InvalidArgument(f"--dim: {error}") from None


def random_inputs(model: Model, signature: Signature, sizes: Mapping[str, int]) -> dict[str, Any]:
    """Inputs by name: floats from the normal distribution, integers 0 and 1, which are
    valid indices almost everywhere. Dims that `sizes` leaves open are 1.

    InvalidArgument: `sizes` names a dim that no argument has, or a size that it never has."""
    sizes = known_sizes(sizes, model.metadata)
    _check_sizes(signature, sizes)
    generator = np.random.default_rng(0)
    return {value.name: _random_value(value, sizes, generator) for value in signature.arguments}


def sizes_of(signature: Signature, inputs: Mapping[str, Any]) -> dict[str, int]:
    """The sizes that inputs give to open dims; of those that stand in formulas only, none."""
    from ingot.compiler.ir.dims import symbols_of
    from ingot.compiler.vm.read_module import read_dim

    return {
        dim: size
        for value in signature.arguments
        if value.kind == "tensor"
        for dim, size in zip(value.shape, np.shape(inputs[value.name]), strict=False)
        if isinstance(dim, str) and symbols_of(read_dim(dim)) == {dim}
    }


def _random_value(value: Value, sizes: Mapping[str, int], generator: np.random.Generator) -> Any:
    """An array; two for a sequence. What is open in elements is 1."""
    if value.kind == "tensor":
        return _random_array(value, _shape(value, sizes), generator)
    if value.reference:
        raise InvalidArgument(
            f"argument '{value.name}' is a reference &{value.reference}: only an application has "
            "such an object, and calls the model with it"
        )
    shape = tuple(1 if isinstance(dim, str) else dim for dim in value.shape)
    arrays = [_random_array(value, shape, generator) for _ in range(2)]
    return arrays if value.kind.endswith("sequence") else arrays[0]


def _check_sizes(signature: Signature, sizes: Mapping[str, int]) -> None:
    from ingot.compiler.ir.dims import symbols_of
    from ingot.compiler.vm.read_module import read_dim

    tensors = [value for value in signature.arguments if value.kind == "tensor"]
    texts = [dim for value in tensors for dim in value.shape if isinstance(dim, str)]
    open_dims = sorted({name for text in texts for name in symbols_of(read_dim(text))})
    unknown = [name for name in sizes if name not in open_dims]
    if unknown:
        known = f"the open dims are: {', '.join(open_dims)}" if open_dims else "all dims are fixed"
        raise InvalidArgument(f"no dim is called {unknown[0]!r}; {known}")


def _shape(value: Value, sizes: Mapping[str, int]) -> tuple[int, ...]:
    from ingot.compiler.ir.dims import evaluate, symbols_of
    from ingot.compiler.vm.read_module import read_dim

    shape = []
    for text in value.shape:
        dim = read_dim(text) if isinstance(text, str) else text
        known = {name: sizes.get(name, 1) for name in symbols_of(dim)}
        shape.append(evaluate(dim, known))
    return tuple(shape)


def _random_array(
    value: Value, shape: tuple[int, ...], generator: np.random.Generator
) -> npt.NDArray[Any]:
    if value.dtype.is_float or value.dtype.is_complex:
        return np.asarray(generator.standard_normal(shape)).astype(value.dtype.numpy)
    return np.asarray(generator.integers(0, 2, shape)).astype(value.dtype.numpy)
