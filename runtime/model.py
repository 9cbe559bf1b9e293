"""`Model`: a session over a program, called like a function.

model = ingot.load("model.ingot")
y = model(x)                    # the same as model.main(x)
"""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping, Sequence
from threading import get_ident
from types import MappingProxyType
from typing import Any

from ingot.hal.array import Array, array_of_view, values_of_view
from ingot.hal.device import open_device
from ingot.hal.errors import FailedPrecondition, InvalidArgument, NotFound
from ingot.hal.native import Uncopied, check, lib, raise_kept, raised
from ingot.hal.whole_file import read_arrays, write_whole
from ingot.runtime.debugging import Debugger, Stop
from ingot.runtime.frame import Frame
from ingot.runtime.limits import set_limits
from ingot.runtime.origin import Origin, origin_of, remember, shared_program
from ingot.runtime.program import HostKernel, Program
from ingot.runtime.session import Session
from ingot.runtime.signature import Signature, Value
from ingot.runtime.state import (
    is_archive,
    load_state,
    read_state,
    save_state,
    state_spans,
    write_state,
)
from ingot.runtime.texts import Texts, has_texts
from ingot.runtime.trace import Trace

__all__ = ["Function", "Model", "load"]

_call = lib.ingot_python_call


class Function(Uncopied):
    """A function of a model, ready to be called."""

    __slots__ = (
        "__weakref__",
        "_argument_count",
        "_frames",
        "_gives_tensor",
        "_ordinal",
        "_result_count",
        "_session",
        "_signature",
    )

    def __init__(self, session: Session, ordinal: int, signature: Signature) -> None:
        self._session = session
        self._ordinal = ordinal
        self._signature = signature
        self._argument_count = len(signature.arguments)
        self._result_count = len(signature.results)
        kinds = [value.kind for value in signature.results]
        self._gives_tensor = kinds == ["tensor"]
        self._frames: list[Frame] = []  # those not in a call

    @property
    def signature(self) -> Signature:
        return self._signature

    @property
    def tensors(self) -> Function:
        """The function with the values of its signature as they are: strings as two tensors."""
        return self

    @property
    def __name__(self) -> str:
        return self._signature.name

    def __repr__(self) -> str:
        return f"<function {self._signature}>"

    def __call__(self, *arguments: Any, out: Any = None, **named: Any) -> Any:
        """Runs the function. Arguments are arrays (NumPy, DLPack), scalars or lists; a sequence
        is a list of arrays, an optional may be None.

        Gives an Array, a tuple of them for several results, None for none; a list of Arrays for
        a sequence, None for an optional that is empty. `out` holds the memory to write to: an
        array, or one per result (None: make a new one).
        """
        return self._run(arguments, out, named)

    def _run(
        self,
        arguments: tuple[Any, ...],
        out: Any,
        named: Mapping[str, Any],
        limits: tuple[int | None, float | None] | None = None,
    ) -> Any:
        if named or len(arguments) != self._argument_count:
            arguments = self._bind(arguments, named)
        try:
            frame = self._frames.pop()
        except IndexError:
            frame = self._new_frame()
        try:
            if limits is not None:
                set_limits(frame.pointer.options, *limits)
            keep = frame.set_arguments(arguments)
            outputs = None
            if out is not None or frame.has_output:
                outputs = self._outputs(out)
                keep += frame.set_outputs(outputs)
            session = self._session
            if limits is not None and limits[1] is not None:
                status = session.call_in_time(frame.pointer, limits[0], limits[1])
            else:
                with session.lock:
                    if session.closed:
                        raise FailedPrecondition(session.closed)
                    status = _call(frame.pointer)
            if status:
                check(status)
            if raised and get_ident() in raised:
                self._results(frame, outputs)  # takes them over
                raise_kept()
            if not self._gives_tensor:
                return self._results(frame, outputs)
            if outputs is not None and outputs[0] is not None:
                return outputs[0]
            return array_of_view(frame.views, self._argument_count, session.device)
        finally:
            if raised:  # another exception was first
                raised.pop(get_ident(), None)
            if limits is not None:
                set_limits(frame.pointer.options, None, None)
            self._frames.append(frame)

    def call(
        self,
        *arguments: Any,
        out: Any = None,
        as_dict: bool = False,
        max_steps: int | None = None,
        timeout: float | None = None,
        **named: Any,
    ) -> Any:
        """Runs the function; with `as_dict` the results come in a dict by name, and `out`
        may be one too. DeadlineExceeded: the call took more than `max_steps` instructions of
        the VM or `timeout` seconds, with those for which calls of other threads kept it
        waiting; they are looked at in every loop and kernel."""
        if isinstance(out, Mapping):
            out = self._order_outputs(out)
        results = self._run(arguments, out, named, (max_steps, timeout))
        if not as_dict:
            return results
        names = self._result_names()
        return dict(zip(names, results if len(names) > 1 else [results], strict=False))

    def _result_names(self) -> list[str]:
        return [value.name for value in self._signature.results]

    def _results(self, frame: Frame, outputs: Sequence[Any] | None) -> Any:
        """What a call gives: new arrays, and those of `out=` as they were passed."""
        views, first, device = frame.views, self._argument_count, self._session.device
        results = tuple(
            values_of_view(views, first + ordinal, device) if value is None else value
            for ordinal, value in enumerate(outputs or (None,) * self._result_count)
        )
        return results if len(results) > 1 else results[0] if results else None

    def _new_frame(self) -> Frame:
        session = self._session
        return Frame(session.pointer, session.device, self._ordinal, self._signature)

    def _bind(self, arguments: tuple[Any, ...], named: Mapping[str, Any]) -> tuple[Any, ...]:
        """Positional and named arguments in the order of the signature."""
        names = [value.name for value in self._signature.arguments]
        if len(arguments) > len(names):
            raise InvalidArgument(
                f"{len(arguments)} arguments for {self._signature}, which takes {len(names)}"
            )
        unknown = [name for name in named if name not in names]
        if unknown:
            raise InvalidArgument(
                f"no argument is called {unknown[0]!r}; the signature is {self._signature}"
            )
        twice = [name for name in names[: len(arguments)] if name in named]
        if twice:
            raise InvalidArgument(f"argument {twice[0]!r} is given by position and by name")
        missing = [name for name in names[len(arguments) :] if name not in named]
        if missing:
            raise InvalidArgument(
                f"argument {missing[0]!r} is missing; the signature is {self._signature}"
            )
        return arguments + tuple(named[name] for name in names[len(arguments) :])

    def _outputs(self, out: Any) -> tuple[Any, ...]:
        """One entry per result; None where the result is to be made."""
        if out is None:
            return (None,) * self._result_count
        if self._result_count == 1 and not isinstance(out, (tuple, list)):
            return (out,)
        if not isinstance(out, (tuple, list)):
            out = (out,)
        outputs = tuple(out)
        if len(outputs) != self._result_count:
            raise InvalidArgument(
                f"out= holds {len(outputs)} arrays, but {self._signature} has "
                f"{self._result_count} results"
            )
        return outputs

    def _order_outputs(self, out: Mapping[str, Any]) -> tuple[Any, ...]:
        names = [value.name for value in self._signature.results]
        unknown = [name for name in out if name not in names]
        if unknown:
            raise InvalidArgument(
                f"no result is called {unknown[0]!r}; the signature is {self._signature}"
            )
        return tuple(out.get(name) for name in names)


class _TextFunction(Function):
    """A function that takes or gives strings or maps: one object array for each string tensor."""

    __slots__ = ("_texts",)

    def __init__(self, session: Session, ordinal: int, signature: Signature) -> None:
        super().__init__(session, ordinal, signature)
        self._texts = Texts(signature)

    @property
    def tensors(self) -> Function:
        return Function(self._session, self._ordinal, self._signature)

    def _run(
        self,
        arguments: tuple[Any, ...],
        out: Any,
        named: Mapping[str, Any],
        limits: tuple[int | None, float | None] | None = None,
    ) -> Any:
        arguments, named = self._texts.bind(arguments, named)
        results = super()._run(arguments, out, named, limits)
        if out is not None:  # memory of the caller's, for tensors
            return results
        return self._texts.unpack([results] if self._result_count == 1 else results)

    def _result_names(self) -> list[str]:
        return self._texts.result_names


def _function(session: Session, ordinal: int, signature: Signature) -> Function:
    kind = _TextFunction if has_texts(signature) else Function
    return kind(session, ordinal, signature)


class Model(Uncopied):
    """A loaded module with private state. Threads may share it: calls wait for each other.

    Calling it calls `main`; every other function is an attribute, or stands in `functions`.
    """

    def __init__(self, program: Program, origin: Session | None = None) -> None:
        if not isinstance(program, Program):
            raise TypeError("ingot.load(...) makes models")
        self._program = program
        self._session = Session(program, origin)
        self._functions = {
            signature.name: _function(self._session, ordinal, signature)
            for ordinal, signature in enumerate(program.signatures)
        }
        self._main = self._functions.get("main")
        for name, function in self._functions.items():
            if not hasattr(Model, name):  # such a function stands in `functions` only
                self.__dict__[name] = function

    @property
    def functions(self) -> Mapping[str, Function]:
        """All functions by name."""
        return MappingProxyType(self._functions)

    @property
    def signature(self) -> Signature:
        """The signature of `main`."""
        return self._find_main().signature

    @property
    def device(self) -> str:
        """The URI of the device that runs the model."""
        return self._program.device.uri

    @property
    def metadata(self) -> dict[str, Any]:
        """What the compiler wrote down: version, producer, options, names of dims."""
        return self._session.program.metadata()

    @property
    def host_kernels(self) -> tuple[HostKernel, ...]:
        """The kernels that the host runs because the device cannot, or gets them wrong; their
        data is copied each way at every call."""
        return self._program.host_kernels

    def __reduce__(self) -> tuple[Any, ...]:
        """Pickles the path of the module, or its bytes, and the state. Where it is unpickled, the
        files must be at the same paths; a process loads them once for all models of one origin.
        TypeError: it was loaded with what cannot go to another process."""
        origin = self._program.origin
        if isinstance(origin, str):
            raise TypeError(f"the model cannot be pickled: {origin}")
        remember(origin, self._program)
        return _unpickle, (origin, self.state())

    def __copy__(self) -> Any:
        return super().__reduce__()

    def __deepcopy__(self, _memo: object) -> Any:
        return super().__reduce__()

    def __call__(self, *arguments: Any, out: Any = None, **named: Any) -> Any:
        """Runs `main`; see `Function.__call__`."""
        return (self._main or self._find_main())._run(arguments, out, named)

    def call(self, *arguments: Any, **options: Any) -> Any:
        """Runs `main`; see `Function.call`."""
        return self._find_main().call(*arguments, **options)

    @property
    def variables(self) -> tuple[Value, ...]:
        """Names, dtypes and shapes of the model's state; empty without one."""
        return self._program.variables

    def state(self) -> dict[str, Array]:
        """Copies of all variables by name.

        FailedPrecondition: a call failed while it was changing one; see `reset`.
        """
        with self._session.use() as pointer:
            return read_state(pointer, self._program)

    def save_state(self, path: str | os.PathLike[str]) -> None:
        """Writes all variables to a file, for `load_state`. Raises as `state`; OSError."""
        with self._session.use() as pointer:
            save_state(pointer, path)

    def load_state(self, state: Mapping[str, Any] | str | os.PathLike[str]) -> None:
        """Sets all variables, from what `state` gave, from other arrays, or from a file at a
        path: one of `save_state`, or a .npz archive.

        InvalidArgument: a name is missing or unknown, or a dtype or shape is wrong; then
        nothing is changed. NotFound, DataLoss, Incompatible: there is no such file, it is
        damaged, or of another version.
        """
        if isinstance(state, (str, os.PathLike)):
            if not is_archive(state):
                with self._session.use() as pointer:
                    load_state(pointer, state)
                return
            state = read_arrays(state)
        spans = state_spans(self._program, state)
        with self._session.use() as pointer:
            write_state(pointer, self._program, spans)

    def swap_parameters(
        self, parameters: Any, *, scope: str | None = None, timeout: float | None = None
    ) -> None:
        """Puts others in the place of the parameters of `scope` (None: of all), for this model and
        its forks. `parameters` and `timeout` are as for `load`.

        Calls that run meanwhile, on other threads and forks, end with the old ones; later ones have
        the new ones, and the old ones are freed. State stays. Where this raises nothing has
        changed: NotFound names parameters that are missing, or there is none of that scope;
        InvalidArgument for a wrong dtype or shape; else as `load`.
        """
        if parameters is None:
            raise InvalidArgument("parameters is None; pass those that are to be used")
        self._session.check_forkable()
        self._program.swap_parameters(parameters, scope, timeout)

    def save_weights(self, path: str | os.PathLike[str], *, scope: str | None = None) -> None:
        """Writes what was made of the parameters of `scope` (None: of all) when the model was
        loaded to a file, for `parameters=` of `load` with the same module and kind of device. It is
        mapped: processes that load it share one copy. Raises as `Module.save`.
        """
        self._session.check_forkable()
        write_whole(path, lambda file: self._program.save_weights(file, scope))

    def reset(self) -> None:
        """Gives all variables their initial values back."""
        with self._session.use() as pointer:
            check(lib.ingot_session_reset(pointer))

    def fork(self, *, state: bool = True) -> Model:
        """Another session: it shares the program and its weights, and goes on from this one's
        state, of which a variable is copied when one of both changes it. Without `state` it
        starts with the initial values.

        FailedPrecondition: a call failed while it was changing a variable; or this is called
        from within a call that may change one.
        """
        self._session.check_forkable()
        return Model(self._program, self._session if state and self.variables else None)

    def cancel(self) -> bool:
        """Ends the call that is running, from any thread: it raises Cancelled. False, and nothing
        happens, if there is none: later calls are not touched."""
        return self._session.cancel()

    def trace(self, *arguments: Any, **named: Any) -> Trace:
        """`with model.trace() as trace: model(x)`: what every call meanwhile did, one event per
        kernel and copy, with its times and bytes. `model.trace(x)` calls the model once. `save`
        of either writes a timeline for Perfetto."""
        trace = Trace(self._session)
        if arguments or named:
            with trace:
                self._find_main()(*arguments, **named)
        return trace

    def debug(self, length: int, stopped: Callable[[Stop], bool]) -> Debugger:
        """What stops the calls of a function of `length` words, as the debugger of `ingot run`
        does: see `runtime/debugging.py`."""
        return Debugger(self._session, length, stopped)

    def close(self) -> None:
        """Frees the session's memory; later calls raise FailedPrecondition. From within a call,
        as in a signal handler, the memory stays until the model goes."""
        self._session.close()

    def __enter__(self) -> Model:
        return self

    def __exit__(self, *error: object) -> None:
        self.close()

    def __getattr__(self, name: str) -> Function:
        raise AttributeError(
            f"the model has no function {name!r}; its functions are: "
            + ", ".join(self.__dict__.get("_functions", ()))
        )

    def __repr__(self) -> str:
        signatures = "; ".join(str(each.signature) for each in self._functions.values())
        state = ", ".join(map(str, self.variables))
        return f"<Model on {self.device}: {signatures}{'; state: ' * bool(state)}{state}>"

    def _find_main(self) -> Function:
        if self._main is None:
            raise NotFound(
                "the module has no function called main; call one of: " + ", ".join(self._functions)
            )
        return self._main


def load(
    source: Any,
    *,
    device: Any = "cpu",
    threads: int | None = None,
    parameters: Any = None,
    verify: bool = False,
    timeout: float | None = None,
    zero_memory: bool = False,
    natives: Mapping[str, Any] | None = None,
) -> Model:
    """Makes a compiled module ready to be called.

    `source` is a path, bytes, or what `ingot.compile` gave. `device` is a URI such as "cpu" or
    "opencl://0", one of `ingot.devices()`, or a context or command queue of pyopencl, whose
    arrays the model then takes and gives without a copy. `parameters` are the weights
    that are not in the module: the path of a safetensors file, of its index.json, of a GGUF or npz
    file, of a model's folder, of a zarr archive or of what `Model.save_weights` wrote, or a dict of
    arrays; a list of such sources, of which the first that has a tensor gives it; or a dict of
    sources by scope.
    `verify` reads the constants too and checks them. `timeout` is a limit in seconds, looked at
    while the module's init code runs; `zero_memory` makes results and working memory start as
    zeros, so that a module that writes only a part shows nothing of what was there before.
    `natives` are the functions that the module calls, by name: they get NumPy arrays, which are
    read-only and end with the call, and give arrays; or functions of C from ctypes, as
    `ingot_native_function_t` of ingot.h has them.
    NotFound: a file, device, parameter or native function is missing. DataLoss: the module is
    damaged. Incompatible: it is for another version. DeadlineExceeded: it took longer than
    `timeout`.
    """
    return Model(
        _program(
            source,
            parameters,
            device=device,
            threads=threads,
            verify=verify,
            timeout=timeout,
            zero_memory=zero_memory,
            natives=natives,
        )
    )


def _program(source: Any, parameters: Any, *, device: Any, threads: Any, **options: Any) -> Program:
    program = Program(source, open_device(device, threads), parameters, **options)
    program.origin = origin_of(
        source, parameters, {"device": device, "threads": threads, **options}
    )
    return program


def _unpickle(origin: Origin, state: Mapping[str, Any]) -> Model:
    """The model that was pickled, with its state."""
    model = Model(shared_program(origin, _program))
    if state:
        model.load_state(state)
    return model
