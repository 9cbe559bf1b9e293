"""`Function`: a function of a model, called at once or submitted."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import partial
from threading import get_ident
from typing import Any

from ingot.hal.array import array_of_view, values_of_view
from ingot.hal.errors import FailedPrecondition, InvalidArgument
from ingot.hal.native import Uncopied, check, lib, raise_kept, raised
from ingot.runtime.fence import is_event
from ingot.runtime.frame import Frame
from ingot.runtime.limits import set_limits
from ingot.runtime.memory import CallSize, measure_call
from ingot.runtime.recording import RecordedFacts
from ingot.runtime.session import Session
from ingot.runtime.signature import Signature
from ingot.runtime.submission import Submission, check_wait
from ingot.runtime.texts import Texts, has_texts

__all__ = ["Function", "function_of"]

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
        is a list of arrays, an optional may be None, a reference is an `ingot.Reference`.

        Gives an Array, a tuple of them for several results, None for none; a list of Arrays for
        a sequence, None for an optional that is empty, an `ingot.Reference` for a reference. `out`
        holds the memory to write to: an array, or one per result (None: make a new one).
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
        session = self._session
        if session.recording is not None:
            run = partial(Function._run, self, arguments, out, {}, limits)
            return session.recording.call(session, self._facts(arguments, out, limits), run)
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
            if limits is not None and limits[1] is not None:
                status = session.call_in_time(frame.pointer, limits[0], limits[1])
            else:
                if session.pending:  # for which whoever has the lock may wait
                    check_wait(session.pending)
                with session.lock:
                    if session.closed:
                        raise FailedPrecondition(session.closed)
                    status = _call(frame.pointer)
                    if status and session.pending:
                        status = session.call_behind(frame.pointer, status)
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

    def submit(
        self,
        *arguments: Any,
        out: Any = None,
        wait_for: Iterable[Any] = (),
        signal: Iterable[Any] = (),
        max_steps: int | None = None,
        timeout: float | None = None,
        **named: Any,
    ) -> Submission:
        """Queues a call, behind those that were submitted to the model before, and gives its
        future, whose result is what the call would give. Arrays that are passed, and those in
        `out`, are used in place: leave them alone until it is done.

        `wait_for` are pairs (ingot.Fence, value) that the call waits for, or events of pyopencl, as
        of the arrays that are passed, whose queues are then not waited for;
        `signal` are those that it reaches when it succeeds, and that fail when it fails. `timeout`
        counts from now on. A future that is cancelled never begins, or ends the running call.
        """
        fences = _several(wait_for), _several(signal)
        return self._submit(arguments, out, named, (max_steps, timeout), fences)

    async def async_call(self, *arguments: Any, **options: Any) -> Any:
        """What `submit` gives in the end, without keeping the event loop waiting; the call ends
        when the task is cancelled."""
        import asyncio

        return await asyncio.wrap_future(self.submit(*arguments, **options))

    def _submit(
        self,
        arguments: tuple[Any, ...],
        out: Any,
        named: Mapping[str, Any],
        limits: tuple[int | None, float | None],
        fences: tuple[Sequence[Any], Sequence[Any]],
        ended: Callable[[Any, BaseException | None], None] | None = None,
    ) -> Submission:
        if named or len(arguments) != self._argument_count:
            arguments = self._bind(arguments, named)
        session = self._session
        if session.recording is not None and not fences[0]:
            submit = partial(Function._submit, self, arguments, out, {}, limits, fences)
            return session.recording.submit(session, self._facts(arguments, out, limits), submit)
        try:
            frame = self._frames.pop()
        except IndexError:
            frame = self._new_frame()
        submission = None
        try:
            if limits != (None, None):
                set_limits(frame.pointer.options, *limits)
                frame.has_limits = True
            frame.awaits_events = not any(map(is_event, fences[0]))
            keep = frame.set_arguments(arguments)
            outputs = None
            if out is not None or frame.has_output:
                outputs = self._outputs(out)
                keep += frame.set_outputs(outputs)
            submission = Submission(self, session, frame, keep, outputs, ended)
            submission.submit(*fences)
        except BaseException:
            if submission is None or not submission.is_queued:
                self.release(frame)
            raise
        return submission

    def _facts(
        self, arguments: tuple[Any, ...], out: Any, limits: tuple[int | None, float | None] | None
    ) -> RecordedFacts:
        """Of a call that is to be recorded."""
        outputs = self._outputs(out)
        return RecordedFacts(self._session.program, self._signature, arguments, outputs, limits)

    def take(self, frame: Frame, outputs: Sequence[Any] | None) -> Any:
        """What the submitted call of a frame has given."""
        return self._results(frame, outputs)

    def release(self, frame: Frame) -> None:
        """A submitted call has ended: its frame may be used again."""
        frame.awaits_events = True
        if frame.has_limits:
            set_limits(frame.pointer.options, None, None)
            frame.has_limits = False
        self._frames.append(frame)

    def measure(self, *shapes: Sequence[int]) -> CallSize:
        """The memory that a call with tensors of these shapes would need, without making it: its
        working memory and the shapes of its results. Sequences and optionals have no shape here.

        InvalidArgument: the shapes do not fit the signature.
        """
        with self._session.use() as pointer:
            return measure_call(pointer, self._ordinal, self._signature, shapes)

    def _result_names(self) -> list[str]:
        return [value.name for value in self._signature.results]

    def _results(self, frame: Frame, outputs: Sequence[Any] | None) -> Any:
        """What a call gives: new arrays, and those of `out=` as they were passed."""
        views, first, device = frame.views, self._argument_count, self._session.device
        types = [value.reference for value in self._signature.results]
        results = tuple(
            values_of_view(views, first + ordinal, device, types[ordinal])
            if value is None
            else value
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
        return results if out is not None else self._unpack(results)  # `out` is for tensors

    def _submit(
        self,
        arguments: tuple[Any, ...],
        out: Any,
        named: Mapping[str, Any],
        limits: tuple[int | None, float | None],
        fences: tuple[Sequence[Any], Sequence[Any]],
        ended: Callable[[Any, BaseException | None], None] | None = None,
    ) -> Submission:
        arguments, named = self._texts.bind(arguments, named)
        return super()._submit(arguments, out, named, limits, fences, ended)

    def take(self, frame: Frame, outputs: Sequence[Any] | None) -> Any:
        results = super().take(frame, outputs)
        return self._unpack(results) if outputs is None else results

    def _unpack(self, results: Any) -> Any:
        return self._texts.unpack([results] if self._result_count == 1 else results)

    def _result_names(self) -> list[str]:
        return self._texts.result_names


def function_of(session: Session, ordinal: int, signature: Signature) -> Function:
    """The function of a program with that number."""
    kind = _TextFunction if has_texts(signature) else Function
    return kind(session, ordinal, signature)


def _several(fences: Any) -> tuple[Any, ...]:
    """What there is one of or several; what it must be `fence_values` says."""
    return tuple(fences) if isinstance(fences, Iterable) else (fences,)
