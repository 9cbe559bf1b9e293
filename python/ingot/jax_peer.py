"""Every tensor of a StableHLO program in XLA, as jax brings it, and in what was imported."""

from __future__ import annotations

import io
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from ingot.compiler.frontends.stablehlo.importer import import_stablehlo
from ingot.hal.errors import Unsupported
from ingot.peer import PeerTensor, interpret_from

__all__ = ["compare_import"]

_Array = npt.NDArray[Any]


def compare_import(path: str, arguments: Sequence[Any]) -> list[PeerTensor]:
    """The tensors that ops of `main` and of what it calls make, in the order of execution; those
    inside of regions, complex ones, and what is known at import are left out.

    Unsupported: jax is not installed, or does not run the program.
    """
    data = Path(path).read_bytes()
    module = import_stablehlo(data, is_shown=True)
    function = module.functions["main"]
    try:
        made = _run(data, arguments)
    except ImportError as error:
        raise Unsupported(f"comparing needs jax: pip install jax ({error})") from None
    except Exception as error:  # MLIR's and XLA's have many kinds, none of them public
        raise Unsupported(f"this version of jax does not run the program: {error}") from error
    names = {name: name.partition(" ")[0] for name in function.result_names}
    expected = {name: made[place] for name, place in names.items() if place in made}
    whole = interpret_from(module, arguments, {}, {})
    own = interpret_from(module, arguments, {}, expected)
    return [PeerTensor(name, array, own[name], whole[name]) for name, array in expected.items()]


def _run(data: bytes, arguments: Sequence[Any]) -> dict[str, _Array]:
    """What XLA has for the results of ops, by where these stand."""
    import jax
    from jax.extend.backend import get_backend
    from jaxlib import _jax, xla_client  # type: ignore[attr-defined]
    from jaxlib.mlir import ir
    from jaxlib.mlir.dialects import stablehlo

    with ir.Context() as context, ir.Location.unknown():
        stablehlo.register_dialect(context)
        module = stablehlo.deserialize_portable_artifact(context, data)
        shower = _Shower(module)
        places = shower.show("main")
        shower.fix_arguments("main", [np.shape(each) for each in arguments])
        module.operation.verify()
        written = io.BytesIO()
        module.operation.write_bytecode(written)
    refined = _jax.mlir.refine_polymorphic_shapes(
        written.getvalue(), enable_shape_assertions=True, validate_static_shapes=True
    )
    backend = get_backend("cpu")
    devices = xla_client.DeviceList(tuple(backend.local_devices()[:1]))
    program = backend.compile_and_load(refined, devices, xla_client.CompileOptions())
    with jax.enable_x64(True):
        given = [jax.device_put(each, backend.local_devices()[0]) for each in arguments]
        results = program.execute(given)
    shown = results[len(results) - len(places) :]
    return {place: np.asarray(each) for place, each in zip(places, shown, strict=True)}


class _Shower:
    """Makes functions of an MLIR module return what their ops give."""

    def __init__(self, module: Any) -> None:
        functions = [op for op in module.body.operations if op.operation.name == "func.func"]
        self.functions = {str(op.name.value): op for op in functions}
        self.places: dict[str, list[str]] = {}

    def show(self, name: str) -> list[str]:
        """Where the ops stand whose results are those of the function behind its own."""
        from jaxlib.mlir import ir
        from jaxlib.mlir.dialects import func

        if name in self.places:
            return self.places[name]
        function = self.functions[name]
        shown: list[tuple[str, Any]] = []
        for at, op in enumerate(list(function.regions[0].blocks[0].operations)):
            results = list(op.results)
            if op.operation.name == "func.call":
                callee = ir.FlatSymbolRefAttr(op.attributes["callee"]).value
                inner = self.show(callee)
                with ir.InsertionPoint(op):
                    call = func.CallOp(
                        self.functions[callee].type.results, callee, list(op.operands)
                    )
                for old, new in zip(results, call.results, strict=False):
                    old.replace_all_uses_with(new)
                op.operation.erase()
                made = list(call.results)
                values = made[len(made) - len(inner) :]
                shown += [
                    (f"{at}.{place}", each) for place, each in zip(inner, values, strict=True)
                ]
                results = made[: len(results)]
            elif op.operation.name in ("func.return", "stablehlo.return"):
                with ir.InsertionPoint(op):
                    returned = [*op.operands, *(value for _, value in shown)]
                    func.ReturnOp(returned)
                op.operation.erase()
                self._set_type(name, function.type.inputs, [each.type for each in returned])
                break
            tensors = [isinstance(each.type, ir.RankedTensorType) for each in results]
            shown += [
                (f"{at}:{number}", each)
                for number, (each, is_tensor) in enumerate(zip(results, tensors, strict=True))
                if is_tensor
            ]
        self.places[name] = [place for place, _ in shown]
        return self.places[name]

    def fix_arguments(self, name: str, shapes: Sequence[tuple[int, ...]]) -> None:
        """Give the arguments these shapes, which every other then follows from."""
        from jaxlib.mlir import ir
        from jaxlib.mlir.dialects import stablehlo

        function = self.functions[name]
        block = function.regions[0].blocks[0]
        types = []
        for argument, shape in zip(block.arguments, shapes, strict=True):
            old = argument.type
            types.append(ir.RankedTensorType.get(shape, ir.RankedTensorType(old).element_type))
            with ir.InsertionPoint.at_block_begin(block):
                erased = stablehlo.ConvertOp(old, argument)
            argument.replace_all_uses_except(erased.result, erased.operation)
            argument.set_type(types[-1])
        self._set_type(name, types, function.type.results)

    def _set_type(self, name: str, arguments: Sequence[Any], results: Sequence[Any]) -> None:
        from jaxlib.mlir import ir

        attributes = self.functions[name].attributes
        attributes["function_type"] = ir.TypeAttr.get(ir.FunctionType.get(arguments, results))
        for each in ("arg_attrs", "res_attrs"):
            if each in attributes:
                del attributes[each]
