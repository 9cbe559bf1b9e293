"""Weights as torchao quantises them in safetensors files: `_weight_qdata` and what goes with it."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, ClassVar

from ingot.compiler.frontends.checkpoint.codes import (
    Floats,
    Form,
    Integers,
    Parts,
    Values,
    WrongPartsError,
)
from ingot.compiler.frontends.gguf.fields import Fields
from ingot.compiler.frontends.gguf.keys import shown
from ingot.compiler.ir import Value
from ingot.compiler.ir.dataclass import dataclass

__all__ = ["forms_of"]

_FLOATS = ("F32", "F16", "BF16")
_READ = (
    *("Int8WeightOnlyConfig", "Int8DynamicActivationInt8WeightConfig", "IntxWeightOnlyConfig"),
    *("Int8DynamicActivationIntxWeightConfig", "Float8WeightOnlyConfig"),
    "Float8DynamicActivationFloat8WeightConfig",
)
"""Kinds that can be read; those of activations change nothing that lies in files."""
_OF_MODULES = ("ModuleFqnToConfig", "FqnToConfig")
_MAPS = ("module_fqn_to_config", "fqn_to_config")
_PATTERN = "re:"
_BITS = (2, 3, 4)


@dataclass(frozen=True)
class _Codes(Integers):
    """Codes of so many bits, each in a byte of its own, signed."""

    scale: str = "scale"
    bits: int = 8
    is_symmetric: bool = False

    title = "codes of torchao"
    main = "qdata"
    zeros = "zero_point"
    needed: ClassVar = {"qdata": ("I8",), "scale": _FLOATS}
    optional: ClassVar = {"zero_point": ("I8",)}
    unread: ClassVar[tuple[str, ...]] = ()
    mark = "._weight_"

    def used(self, parts: Parts) -> tuple[str, ...]:
        has_zeros = self.zeros in parts and not self.is_symmetric
        return (self.main, self.scale, *((self.zeros,) if has_zeros else ()))

    def codes(self, values: Values, f: Fields) -> tuple[Value, Value | int]:
        """See `Integers`; those of few bits without a sign, so that their range is seen."""
        if self.bits not in _BITS:
            return super().codes(values, f)
        middle = 1 << (self.bits - 1)
        codes = f.apply("and", f.apply("add", values[self.main], middle), 2 * middle - 1)
        if self.zeros not in values:
            return codes, middle
        return codes, f.apply("and", f.apply("add", values[self.zeros], middle), 2 * middle - 1)


@dataclass(frozen=True)
class _Floats(Floats):
    title = "numbers of f8e4m3fn of torchao"
    main = "qdata"
    needed: ClassVar = {"qdata": ("F8_E4M3",), "scale": _FLOATS}
    optional: ClassVar = {}
    unread: ClassVar[tuple[str, ...]] = ()
    mark = "._weight_"


def forms_of(
    config: Mapping[str, Any], is_like: Callable[[str, str], bool]
) -> Mapping[type[Form], Callable[[str], Form | None]]:
    """The forms of a folder, by the module's name. `is_like` says whether the whole of a name is
    what a pattern describes. WrongPartsError: the folder is quantised in a way that cannot be
    read."""
    given = config.get("quant_type")
    whole = given.get("default") if isinstance(given, Mapping) else None
    data = _data(whole, (*_READ, *_OF_MODULES))
    found = next((data[key] for key in _MAPS if isinstance(data.get(key), Mapping)), None)
    every: Mapping[str, Any] = {"_default": whole} if found is None else found
    own = {name: _data(each, _READ) for name, each in every.items() if each is not None}

    def choose(module: str) -> Form:
        names = (f"{module}.weight", module)
        likes = (
            key
            for name in names
            for key in own
            if key.startswith(_PATTERN) and is_like(key.removeprefix(_PATTERN), name)
        )
        chosen = next((name for name in names if name in own), None) or next(likes, "_default")
        return _codes(own.get(chosen, {}))

    floats = _Floats((128, 128))
    return {_Codes: choose, _Floats: lambda module: floats}


def _data(given: Any, known: tuple[str, ...]) -> Mapping[str, Any]:
    """What is said of a kind of quantisation."""
    kind = given.get("_type") if isinstance(given, Mapping) else None
    if kind not in known:
        raise WrongPartsError(
            f"'quant_type' is {shown(kind or given)}; those that can be read are: "
            f"{', '.join(_READ)}"
        )
    data = given.get("_data")
    return data if isinstance(data, Mapping) else {}


def _codes(data: Mapping[str, Any]) -> _Codes:
    def text(key: str) -> str:
        value = data.get(key)
        return str(value.get("_data")) if isinstance(value, Mapping) else ""

    bits = text("weight_dtype").removeprefix("int")
    mapping = text("weight_mapping_type") or text("mapping_type")
    is_symmetric = mapping.startswith("SYMMETRIC")
    return _Codes("scale", 1, int(bits) if bits.isdecimal() else 8, is_symmetric)
