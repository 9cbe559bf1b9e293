"""`Model`: a session over a program, called like a function.

model = ingot.load("model.ingot")
y = model(x)                    # the same as model.main(x)
"""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping
from types import MappingProxyType
from typing import Any

from ingot.hal.array import Array
from ingot.hal.device import open_device
from ingot.hal.errors import InvalidArgument, NotFound
from ingot.hal.native import Uncopied, check, lib
from ingot.hal.options import checked_options
from ingot.hal.whole_file import read_arrays, write_whole
from ingot.runtime.debugging import Debugger, Stop
from ingot.runtime.function import Function, function_of
from ingot.runtime.memory import MemoryStatistics, read_statistics
from ingot.runtime.origin import Origin, origin_of, remember, shared_program
from ingot.runtime.program import HostKernel, Program, module_source
from ingot.runtime.recording import Recording
from ingot.runtime.session import Session
from ingot.runtime.shared_weights import load_shared
from ingot.runtime.signature import Signature, Value
from ingot.runtime.state import (
    is_archive,
    load_state,
    read_state,
    save_state,
    state_spans,
    write_state,
)
from ingot.runtime.submission import Submission
from ingot.runtime.trace import Trace

__all__ = ["Function", "Model", "load"]


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
            signature.name: function_of(self._session, ordinal, signature)
            for ordinal, signature in enumerate(program.signatures)
        }
        mains = [each for name, each in self._functions.items() if name.split(".")[-1] == "main"]
        self._main = mains[0] if len(mains) == 1 else None
        for name, function in self._functions.items():
            if not hasattr(Model, name):  # such a function stands in `functions` only
                self.__dict__[name] = function

    @property
    def functions(self) -> Mapping[str, Function]:
        """All functions by name; where modules have names, as "module.function"."""
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
        if isinstance(origin, str) or origin.obstacle:
            why = origin if isinstance(origin, str) else origin.obstacle
            raise TypeError(f"the model cannot be pickled: {why}")
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

    def submit(self, *arguments: Any, **options: Any) -> Submission:
        """Queues a call of `main`; see `Function.submit`."""
        return self._find_main().submit(*arguments, **options)

    async def async_call(self, *arguments: Any, **options: Any) -> Any:
        """Awaits a call of `main`; see `Function.async_call`."""
        return await self._find_main().async_call(*arguments, **options)

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
        damaged, or of another version. OutOfMemory: of arrays some were set, and the state was
        reset, or nothing is changed.
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
        InvalidArgument for a wrong dtype or shape; else as `load`. DataLoss that says that a file
        was written to meanwhile is the one exception: what was read of it is in use.
        """
        if parameters is None:
            raise InvalidArgument("parameters is None; pass those that are to be used")
        self._session.check_forkable()
        self._program.swap_parameters(parameters, scope, timeout)

    def save_weights(self, path: str | os.PathLike[str], *, scope: str | None = None) -> None:
        """Writes what was made of the parameters of `scope` (None: of all) when the model was
        loaded to a file, for `parameters=` of `load` with the same module and kind of device. It is
        mapped: processes that load it share one copy. NotFound: no parameter is of that scope.
        Else raises as `Module.save`.
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

    def exchange(self, module: str, source: Any, *, parameters: Any = None) -> Model:
        """A model with `source` in the place of the module of that name, and this one's state but
        for variables of that module. The other modules are not read again; `parameters` are those
        of all. This model stays as it is.

        NotFound: there is no such module. Else raises as `load`.
        """
        program = self._program.exchange(module, source, parameters)
        program.origin = "a module of it was exchanged; load all anew"
        other = Model(program)
        own = self.state()
        kept = {name: own[name] for name in own if not name.startswith(f"{module}.")}
        if kept:
            other.load_state({**other.state(), **kept})
        return other

    def statistics(self, *, program: bool = False) -> MemoryStatistics:
        """The bytes that the model's calls hold and have held, by what they are for; with
        `program` those of all its forks too, and of what they share: weights and constants."""
        with self._session.use() as pointer:
            return read_statistics(
                lib.ingot_program_statistics(self._program.pointer)
                if program
                else lib.ingot_session_statistics(pointer)
            )

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

    def record(
        self,
        path: str | os.PathLike[str],
        *,
        slower_than: float | None = None,
        with_weights: bool = False,
    ) -> Recording:
        """Writes the next call of the model to a file, for `ingot replay` and `ingot.read_call`:
        its arguments, the state before it, its results or its error, its time, the device, and the
        module. `with model.record("call.ingotcall"): model(x)` records a call inside, or none.

        `slower_than` waits for the first call that takes more seconds, or fails; with inf for one
        that fails. Weights are told by path and hash, and so is a module of more than 16 MB;
        `with_weights` puts them into the file. "%p" in the path is the number of the process.
        A submitted call waits for those before it; one that waits for fences is not recorded.

        The call itself goes on as ever: where the file cannot be written, the logger "ingot" and
        `error` of what this gives say why. NotFound: there is no such folder.
        """
        recording = self._session.recording = Recording(path, slower_than, with_weights)
        return recording

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
            several = sum(name.endswith(".main") for name in self._functions) > 1
            found = "several modules have a" if several else "the module has no"
            raise NotFound(
                f"{found} function called main; call one of: " + ", ".join(self._functions)
            )
        return self._main


@checked_options(InvalidArgument)
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
    memory_limit: int | None = None,
    shares_slab: bool = False,
    share_weights: bool | str = False,
) -> Model:
    """Makes a compiled module ready to be called.

    `source` is a path, bytes, or what `ingot.compile` gave; or a dict of these by name, modules
    that call functions of each other as native functions: one that declares "lib.step" calls `step`
    of the module `lib`, unless `natives` has it. `device` is a URI such as "cpu" or
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
    `memory_limit` bounds the bytes that the model and all its forks hold, as `statistics` counts
    them: what needs more raises OutOfMemory, which names the layer. Models with `shares_slab`
    leave their working memory to each other between calls: those of a device that do not run at
    once have it once.
    `share_weights` prepares the weights once for all processes that load this module with them:
    what is made of them is kept in the cache of `ingot cache`, by content, and mapped; with the
    name of a scope those of that scope only.
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
            memory_limit=memory_limit,
            shares_slab=shares_slab,
            share_weights=share_weights,
        )
    )


def _program(
    source: Any,
    parameters: Any,
    *,
    device: Any,
    threads: Any,
    share_weights: bool | str = False,
    **options: Any,
) -> Program:
    opened = open_device(device, threads)
    source = _once(source)

    def make(weights: Any) -> Program:
        return Program(source, opened, weights, **options)

    if isinstance(share_weights, str) or share_weights:
        scope = share_weights if isinstance(share_weights, str) else None
        program = load_shared(source, opened, parameters, scope, make)
    else:
        program = make(parameters)
    given = {"device": device, "threads": threads, "share_weights": share_weights, **options}
    program.origin = origin_of(source, parameters, given)
    return program


def _once(source: Any) -> Any:
    """The source with bytes that are to be copied copied, so that there is one copy of them.
    Modules that were compiled here stay, with their native functions."""
    if isinstance(source, Mapping):
        return {name: _once(each) for name, each in source.items()}
    return module_source(source) if isinstance(source, (bytes, bytearray, memoryview)) else source


def _unpickle(origin: Origin, state: Mapping[str, Any]) -> Model:
    """The model that was pickled, with its state."""
    model = Model(shared_program(origin, _program))
    if state:
        model.load_state(state)
    return model
