"""What the names of a graph stand for, where some of them share memory and are written."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from ingot.compiler.frontends.emitter import UnsupportedNode
from ingot.hal.errors import CompileError

__all__ = ["PartTensors", "Tensors", "View"]


@dataclass
class View:
    """A value that shares the memory of `base`; `again` makes it of the base's newest value."""

    base: str
    version: int  # of the base of which it was made
    again: Callable[[], Any]
    back: Callable[[Any], Any] | None  # the base with this value in place of the view


class Tensors:
    """What the names of one graph stand for. A write into a view writes into its base, and views
    of what was written are made again when they are read."""

    def __init__(self) -> None:
        self._values: dict[str, Any] = {}
        self._makers: dict[str, Callable[[], Any]] = {}
        self._versions: dict[str, int] = {}
        self._views: dict[str, View] = {}

    def make(self, name: str, maker: Callable[[], Any]) -> None:
        """A value that is made when it is first read."""
        self._makers[name] = maker

    def set(self, name: str, value: Any, version: int = 0) -> None:
        self._values[name] = value
        if version:
            self._versions[name] = version

    def view(self, name: str, view: View) -> None:
        """CompileError: the name is another tensor's, of which views could be without end."""
        if name == view.base or self.is_known(name):
            raise CompileError(f"'{name}' is defined twice")
        self._views[name] = view

    def clear(self) -> None:
        """Forget all: views and what makes them refer to each other, and to the whole program."""
        for each in (self._values, self._makers, self._views):
            each.clear()

    def is_known(self, name: str) -> bool:
        return any(name in names for names in (self._views, self._values, self._makers))

    def version(self, name: str) -> int:
        """How often it was written."""
        return self._versions.get(name, 0)

    def get(self, name: str) -> Any:
        view = self._views.get(name)
        if view is not None:
            self.get(view.base)
            if self.version(view.base) != view.version:
                self._values[name] = view.again()
                self._versions[name] = self.version(name) + 1
                view.version = self.version(view.base)
        if name not in self._values:
            if name not in self._makers:
                raise CompileError(f"'{name}' is read before anything defines it")
            self._values[name] = self._makers[name]()
        return self._values[name]

    def write(self, name: str, value: Any) -> None:
        """UnsupportedNode: it is part of a tensor in a way that cannot be written."""
        view = self._views.get(name)
        if view is not None:
            self.write(view.base, _put_back(view, value))
            view.version = self.version(view.base)
        self._values[name] = value
        self._versions[name] = self.version(name) + 1


class PartTensors(Tensors):
    """Those of a graph that runs as a part of another one: `shared` are the names of that one by
    the names inside."""

    def __init__(self, outer: Tensors, shared: dict[str, str]) -> None:
        super().__init__()
        self._outer = outer
        self._shared = shared

    def version(self, name: str) -> int:
        shared = self._shared.get(name)
        return super().version(name) if shared is None else self._outer.version(shared)

    def get(self, name: str) -> Any:
        shared = self._shared.get(name)
        return super().get(name) if shared is None else self._outer.get(shared)

    def write(self, name: str, value: Any) -> None:
        shared = self._shared.get(name)
        if shared is None:
            super().write(name, value)
        else:
            self._outer.write(shared, value)

    def give(self, name: str, outside: str) -> None:
        """Let `outside` share the memory of `name`, in the graph around this one."""
        root = name
        while root in self._views and root not in self._shared:
            root = self._views[root].base
        if root not in self._shared:
            base = f"{outside}/{root}"
            self._outer.set(base, self.get(root), self.version(root))  # which views know
            self._shared[root] = base

        def back(value: Any) -> Any:
            at = name
            while at != root:
                value, at = _put_back(self._views[at], value), self._views[at].base
            return value

        base = self._shared[root]
        view = View(base, self._outer.version(base), lambda: self.get(name), back)
        self._outer.view(outside, view)


def _put_back(view: View, value: Any) -> Any:
    if view.back is None:
        raise UnsupportedNode(
            "it writes into a view in a way that is not supported: compile the exported program, "
            "or save what its run_decompositions() gives, which has no such writes"
        )
    return view.back(value)
