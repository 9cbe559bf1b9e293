"""Traced tensors: what stands for a value while a Python function is being traced.

A `Tensor` has the operators, attributes and methods of the array API standard. It has no elements:
what is done with it appends graph ops to the program that is being traced. The functions of the
folder are registered with `@public`, which notes the line of the user's Python at each op and in
each error.
"""

from __future__ import annotations

import sys
import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from functools import wraps
from importlib import import_module
from pathlib import Path
from typing import Any, TypeVar

import numpy as np

from ingot.compiler.frontends.complex_numbers import Parts, join, take_apart
from ingot.compiler.frontends.emitter import Emitter, UnsupportedNode, type_of
from ingot.compiler.frontends.program.dtypes import default_float, default_int, element_type
from ingot.compiler.graph.builder import Builder
from ingot.compiler.ir import TensorType, Value, Variable, dims
from ingot.compiler.ir.dims import Dim, Expr
from ingot.hal.errors import CompileError, InvalidArgument
from ingot.hal.masks import unmasked
from ingot.hal.spec import DType, dtype

__all__ = [
    "COMPLEX",
    "EXTENSIONS",
    "FUNCTIONS",
    "ComplexTensor",
    "Size",
    "Tensor",
    "Trace",
    "as_dim",
    "as_size",
    "current",
    "entered",
    "extension",
    "given",
    "placed",
    "public",
    "user_code",
    "value_of",
]

FUNCTIONS: dict[str, Callable[..., Any]] = {}
"""The functions on traced tensors, by name."""
COMPLEX: dict[str, Callable[..., Any]] = {}
"""Those that take the place of a function where complex numbers take part."""
EXTENSIONS: dict[str, dict[str, Callable[..., Any]]] = {}
"""Functions of the standard's extensions, by the name of the extension."""

_MISUSED = (ArithmeticError, AttributeError, LookupError, TypeError, ValueError)
"""What Python raises of arguments that a function does not take."""
_FOLDER = str(Path(__file__).resolve().parent)
_Function = TypeVar("_Function", bound=Callable[..., Any])
_active = threading.local()


class Trace(Emitter):
    """A block of a program that is being traced. `fresh` gives a new name like the one that it
    takes, for a symbol. Ops are of `layer`, if it has a name, else of the user's line."""

    advice = "give tensors of shapes that fit"

    def __init__(
        self,
        builder: Builder,
        fresh: Callable[[str], str],
        layer: str = "",
        variables: dict[str, Variable] | None = None,
    ) -> None:
        super().__init__(builder)
        self.fresh = fresh
        self.layer = layer
        self.variables = variables  # of the program; None: it can have none
        self.placed = False  # whether a public function is at work

    def fresh_names(self, hint: str = "size") -> Iterator[str]:
        while True:
            yield self.fresh(hint)

    def within(self, builder: Builder) -> Trace:
        """The trace of a body of this block."""
        return Trace(builder, self.fresh, self.layer, self.variables)


def current() -> Trace:
    """The innermost block that is being traced. CompileError: none is."""
    stack = _stack()
    if not stack:
        raise CompileError(
            "no program is being traced: call functions of ingot.ops in a function that "
            "ingot.trace or @ingot.program takes"
        )
    return stack[-1]


def _stack() -> list[Trace]:
    stack: list[Trace] = _active.__dict__.setdefault("stack", [])
    return stack


@contextmanager
def entered(trace: Trace) -> Iterator[Trace]:
    """Functions append to `trace` meanwhile."""
    stack = _stack()
    stack.append(trace)
    try:
        yield trace
    finally:
        stack.pop()


def public(function: _Function, *, takes_complex: bool = False) -> _Function:
    """Register a function of `ingot.ops`. Its ops and errors tell the line that called it. Unless
    it takes complex numbers itself, they go to the function of its name in `COMPLEX`."""
    name = function.__name__

    def chosen(*arguments: Any, **named: Any) -> Any:
        if takes_complex or not _has_complex((arguments, *named.values())):
            return function(*arguments, **named)
        if name not in COMPLEX:
            raise UnsupportedNode(
                "complex numbers in it are not supported: compute with ops.real(x) and ops.imag(x)"
            )
        return COMPLEX[name](*arguments, **named)

    FUNCTIONS[name] = call = placed(wraps(function)(chosen))
    return call  # type: ignore[return-value]


def extension(name: str) -> Callable[[_Function], _Function]:
    """As `public`, of functions of `ingot.ops.<name>`, which take complex numbers themselves."""

    def register(function: _Function) -> _Function:
        call = placed(function)
        EXTENSIONS.setdefault(name, {})[function.__name__] = call
        return call  # type: ignore[return-value]

    return register


def _has_complex(given: Any) -> bool:
    """Whether complex tensors, numbers, arrays or dtypes are among arguments."""
    if isinstance(given, (tuple, list)):
        return any(map(_has_complex, given))
    if isinstance(given, (DType, np.dtype)):
        return given.kind == "c"
    if isinstance(given, type):
        return issubclass(given, (complex, np.complexfloating))
    if isinstance(given, (np.ndarray, np.generic)):
        return given.dtype.kind == "c"
    named = isinstance(given, str) and given in ("c64", "c128", "complex64", "complex128")
    return named or isinstance(given, (complex, ComplexTensor))


def placed(function: Callable[..., Any]) -> Callable[..., Any]:
    """The function, whose ops and errors tell the line of the user's that called it."""

    @wraps(function)
    def call(*arguments: Any, **named: Any) -> Any:
        trace = current()
        if trace.placed:
            return function(*arguments, **named)
        place = _user_line()
        trace.placed = True
        try:
            with trace.builder.at(trace.layer or place):
                return function(*arguments, **named)
        except (UnsupportedNode, CompileError) as error:
            if hasattr(error, "place"):
                raise
            told = CompileError(f"{place}: {function.__name__.lstrip('_')}: {error}")
            told.place = place  # type: ignore[attr-defined]
            raise told from None
        except _MISUSED as error:
            if hasattr(error, "place"):  # a function of the user's raised it
                raise
            name = function.__name__.lstrip("_")
            text = f"{place}: {name}: its arguments are not what it takes: {error}"
            told = CompileError(f"{text}; its docstring has what it takes")
            told.place = place  # type: ignore[attr-defined]
            raise told from error
        finally:
            trace.placed = False

    return call


def user_code(function: Callable[..., Any], trace: Trace, *arguments: Any) -> Any:
    """What a function of the user's gives for these arguments, in a block of its own."""
    with entered(trace):
        try:
            return function(*arguments)
        except _MISUSED as error:
            error.place = None  # type: ignore[union-attr]
            raise


def _user_line() -> str:
    """The innermost line outside of this folder."""
    frame = sys._getframe(1)
    while frame.f_back is not None and (
        frame.f_code.co_filename.startswith(_FOLDER) or "contextlib" in frame.f_code.co_filename
    ):
        frame = frame.f_back
    return f"{Path(frame.f_code.co_filename).name}:{frame.f_lineno}"


class Size:
    """A dim that only a call knows. Sums, products, `//` and `%` of sizes and integers are sizes;
    `==` tells whether two are the same for all calls."""

    __slots__ = ("dim",)
    __array_ufunc__ = None

    def __init__(self, dim: Expr) -> None:
        self.dim = dim

    def __repr__(self) -> str:
        return str(self.dim)

    def __hash__(self) -> int:
        return hash(self.dim)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Size) and self.dim == other.dim

    def __neg__(self) -> int | Size:
        return as_size(self.dim * -1)

    def _with(self, other: Any, function: Callable[[Dim, Dim], Dim], swapped: bool = False) -> Any:
        if not isinstance(other, (int, np.integer, Size)) or isinstance(other, bool):
            return NotImplemented
        a, b = self.dim, as_dim(other)
        return as_size(function(b, a) if swapped else function(a, b))

    def __add__(self, other: Any) -> Any:
        return self._with(other, lambda a, b: a + b)

    __radd__ = __add__

    def __mul__(self, other: Any) -> Any:
        return self._with(other, lambda a, b: a * b)

    __rmul__ = __mul__

    def __sub__(self, other: Any) -> Any:
        return self._with(other, lambda a, b: a - b)

    def __rsub__(self, other: Any) -> Any:
        return self._with(other, lambda a, b: a - b, swapped=True)

    def __floordiv__(self, other: Any) -> Any:
        return self._with(other, dims.floordiv)

    def __rfloordiv__(self, other: Any) -> Any:
        return self._with(other, dims.floordiv, swapped=True)

    def __mod__(self, other: Any) -> Any:
        return self._with(other, dims.modulo)

    def __rmod__(self, other: Any) -> Any:
        return self._with(other, dims.modulo, swapped=True)

    def __truediv__(self, other: Any) -> Any:
        return FUNCTIONS["divide"](self, other)

    def __rtruediv__(self, other: Any) -> Any:
        return FUNCTIONS["divide"](other, self)

    def _unknown(self, *_: Any) -> Any:
        raise CompileError(
            f"{_user_line()}: the dim '{self}' is known only when the program is called: use "
            "ops.asarray(size) for a tensor of it, ops.where or ops.cond to choose by it, "
            "ops.fori_loop to count to it, or give the spec a number"
        )

    __bool__ = __int__ = __float__ = __index__ = _unknown
    __lt__ = __le__ = __gt__ = __ge__ = _unknown


def as_size(dim: Dim) -> int | Size:
    """A dim as users see it."""
    return Size(dim) if isinstance(dim, Expr) else dim


def as_dim(size: Any) -> Dim:
    """An integer or a `Size` of the user's. UnsupportedNode: something else."""
    if isinstance(size, Size):
        return size.dim
    if isinstance(size, (int, np.integer)) and not isinstance(size, bool):
        return int(size)
    raise UnsupportedNode(
        f"a size is {_described(size)}, expected an integer or a dim such as x.shape[0]"
    )


def _described(given: Any) -> str:
    return str(given) if isinstance(given, Tensor) else f"{given!r}"[:80]


def _operator(name: str, swapped: bool = False) -> Callable[[Tensor, Any], Tensor]:
    """The function `name` as an operator; what it cannot take is left to the other operand."""

    def apply(self: Tensor, other: Any) -> Any:
        if not isinstance(other, (Tensor, Size, int, float, complex, np.ndarray, np.generic)):
            return NotImplemented
        return FUNCTIONS[name](*((other, self) if swapped else (self, other)))

    return apply


class Tensor:
    """A value of the program that is being traced."""

    __slots__ = ("_trace", "_value")
    __array_ufunc__ = None  # so that NumPy's arrays leave their operators to this class

    def __init__(self, value: Value, trace: Trace) -> None:
        self._value = value
        self._trace = trace

    @property
    def _type(self) -> TensorType:
        return type_of(self._value)

    @property
    def dtype(self) -> DType:
        return self._type.dtype

    @property
    def shape(self) -> tuple[int | Size, ...]:
        return tuple(as_size(dim) for dim in self._type.shape)

    @property
    def ndim(self) -> int:
        return self._type.rank

    @property
    def size(self) -> int | Size:
        return as_size(dims.product(self._type.shape))

    @property
    def device(self) -> None:
        """A program has none: it is chosen where its module is loaded."""
        return

    @property
    def T(self) -> Tensor:  # noqa: N802
        return self._call("matrix_transpose") if self.ndim == 2 else self._call("_transposed")

    @property
    def mT(self) -> Tensor:  # noqa: N802
        return self._call("matrix_transpose")

    def __repr__(self) -> str:
        return f"Tensor({self._type})"

    def __array_namespace__(self, api_version: str | None = None) -> Any:
        return import_module("ingot.compiler.frontends.program.namespace")

    def __hash__(self) -> int:
        return id(self)

    def __len__(self) -> int:
        if not self.ndim:
            raise TypeError("a tensor of rank 0 has no length")
        size = self.shape[0]
        return size if isinstance(size, int) else size._unknown()

    def __iter__(self) -> Iterator[Tensor]:
        return iter(FUNCTIONS["unstack"](self))

    def __getitem__(self, key: Any) -> Tensor:
        return self._call("_index", key)

    def __setitem__(self, key: Any, value: Any) -> None:
        raise CompileError(
            f"{_user_line()}: a traced tensor cannot be changed in place: use ops.where, "
            "ops.concat or ops.dynamic_update_slice, which give a new one"
        )

    def astype(self, dtype: Any) -> Tensor:
        return self._call("astype", dtype)

    def reshape(self, *shape: Any) -> Tensor:
        return self._call("reshape", shape[0] if isinstance(shape[0], (tuple, list)) else shape)

    def sum(self, **options: Any) -> Tensor:
        return self._call("sum", **options)

    def mean(self, **options: Any) -> Tensor:
        return self._call("mean", **options)

    def max(self, **options: Any) -> Tensor:
        return self._call("max", **options)

    def min(self, **options: Any) -> Tensor:
        return self._call("min", **options)

    def _call(self, name: str, *arguments: Any, **options: Any) -> Tensor:
        result: Tensor = FUNCTIONS[name](self, *arguments, **options)
        return result

    def _unknown(self, *_: Any) -> Any:
        raise CompileError(
            f"{_user_line()}: the elements of {self} are known only when the program is called: "
            "use ops.where, ops.cond or ops.while_loop in place of if and while, and functions of "
            "ingot.ops in place of NumPy's"
        )

    __bool__ = __int__ = __float__ = __index__ = __complex__ = __array__ = _unknown
    __dlpack__ = _unknown

    __add__ = _operator("add")
    __sub__ = _operator("subtract")
    __mul__ = _operator("multiply")
    __truediv__ = _operator("divide")
    __floordiv__ = _operator("floor_divide")
    __mod__ = _operator("remainder")
    __pow__ = _operator("pow")
    __matmul__ = _operator("matmul")
    __and__ = _operator("bitwise_and")
    __or__ = _operator("bitwise_or")
    __xor__ = _operator("bitwise_xor")
    __lshift__ = _operator("bitwise_left_shift")
    __rshift__ = _operator("bitwise_right_shift")
    __radd__ = _operator("add", swapped=True)
    __rsub__ = _operator("subtract", swapped=True)
    __rmul__ = _operator("multiply", swapped=True)
    __rtruediv__ = _operator("divide", swapped=True)
    __rfloordiv__ = _operator("floor_divide", swapped=True)
    __rmod__ = _operator("remainder", swapped=True)
    __rpow__ = _operator("pow", swapped=True)
    __rmatmul__ = _operator("matmul", swapped=True)
    __rand__ = _operator("bitwise_and", swapped=True)
    __ror__ = _operator("bitwise_or", swapped=True)
    __rxor__ = _operator("bitwise_xor", swapped=True)
    __rlshift__ = _operator("bitwise_left_shift", swapped=True)
    __rrshift__ = _operator("bitwise_right_shift", swapped=True)
    __eq__ = _operator("equal")  # type: ignore[assignment]
    __ne__ = _operator("not_equal")  # type: ignore[assignment]
    __lt__ = _operator("less")
    __le__ = _operator("less_equal")
    __gt__ = _operator("greater")
    __ge__ = _operator("greater_equal")

    def __neg__(self) -> Tensor:
        return self._call("negative")

    def __pos__(self) -> Tensor:
        return self._call("positive")

    def __abs__(self) -> Tensor:
        return self._call("abs")

    def __invert__(self) -> Tensor:
        return self._call("bitwise_invert")


class ComplexTensor(Tensor):
    """A tensor of complex numbers, which the program has as two of real ones."""

    __slots__ = ("_imaginary",)

    def __init__(self, parts: Parts, trace: Trace) -> None:
        super().__init__(parts[0], trace)
        self._imaginary = parts[1]

    @property
    def parts(self) -> Parts:
        """The real and the imaginary part. UnsupportedNode: they are of another program."""
        _check_place(self)
        return self._value, self._imaginary

    @property
    def _type(self) -> TensorType:
        type = type_of(self._value)
        return TensorType(dtype("c64" if type.dtype.bits == 32 else "c128"), type.shape)


def given(value: Value) -> Tensor:
    """A value of the innermost block as a tensor."""
    if type_of(value).dtype.is_complex:
        return ComplexTensor(take_apart(current().builder, value), current())
    return Tensor(value, current())


def _check_place(x: Tensor) -> None:
    if x._trace not in _stack():
        raise UnsupportedNode(
            f"{x} belongs to another program, or to the body of a loop or branch that has "
            "ended: return it from there"
        )


def value_of(x: Any, element: DType | None = None) -> Value:
    """What a user passes as a tensor: a traced one, a NumPy array or nested lists; a Python number
    or a dim of rank 0 has the dtype `element`, else the default one of its kind."""
    trace = current()
    if isinstance(x, Tensor):
        _check_place(x)
        return join(trace.builder, x.parts) if isinstance(x, ComplexTensor) else x._value
    if isinstance(x, Size):
        return trace.size(x.dim, element or default_int())
    if isinstance(x, (bool, int, float)) and not isinstance(x, np.generic):
        return _number(trace, x, element)
    if isinstance(x, (list, tuple)) and _holds_tensors(x):
        return value_of(FUNCTIONS["stack"]([given(value_of(each, element)) for each in x]))
    if not isinstance(x, (np.ndarray, np.generic, list, tuple)):
        raise UnsupportedNode(
            f"an operand is {_described(x)}, expected a tensor, a number or a NumPy array"
        )
    return _array(trace, x, element)


def _number(trace: Trace, x: float, element: DType | None) -> Value:
    if element is None:
        kinds = {bool: dtype("i1"), int: default_int(), float: default_float()}
        element = next(found for kind, found in kinds.items() if isinstance(x, kind))
    _check_fits(x, element)
    return trace.full(bool(x) if element.is_boolean else x, element, ())


def _check_fits(x: float, element: DType) -> None:
    if element.is_integer and not element.limits[0] <= x <= element.limits[1]:
        raise UnsupportedNode(f"the number {x} does not fit into {element}")


def _array(trace: Trace, x: Any, element: DType | None) -> Value:
    """A constant. Nested lists have the dtype `element`, else the default one of their kind."""
    try:
        array = unmasked(x)
    except (ValueError, InvalidArgument) as error:  # rows of different lengths, or masks
        raise UnsupportedNode(f"an operand is no array: {error}") from None
    if array.dtype.kind not in "biufV":
        raise UnsupportedNode(f"an operand is {array.dtype}, which no program computes with")
    found = element_type(array.dtype)
    if not isinstance(x, (np.ndarray, np.generic)):
        kinds = {"f": default_float(), "i": default_int(), "u": default_int()}
        found = element or kinds.get(array.dtype.kind, found)
        for number in (array.min(), array.max()) if array.size else ():
            _check_fits(number.item(), found)
    return trace.constant(array, found)


def _holds_tensors(x: Sequence[Any]) -> bool:
    return any(
        isinstance(each, (Tensor, Size))
        or (isinstance(each, (list, tuple)) and _holds_tensors(each))
        for each in x
    )
