"""Cheap frozen dataclasses behave as those of the standard library."""

from __future__ import annotations

import copy
import dataclasses
import inspect
import pickle
from dataclasses import FrozenInstanceError, field, fields, replace
from functools import cached_property
from pathlib import Path
from typing import Any

import pytest

from ingot.compiler.graph.ops import Broadcast
from ingot.compiler.ir import dataclass as ours
from ingot.compiler.ir.dims import symbol


def _classes(dataclass: Any) -> tuple[type[Any], ...]:
    @dataclass(frozen=True)
    class Empty:
        """No fields."""

    @dataclass(frozen=True)
    class Point(Empty):
        """Defaults, a factory, and what is computed later."""

        x: int
        y: float = 2.0
        tags: tuple[str, ...] = field(default_factory=lambda: ("a",))
        total: float = field(init=False)

        def __post_init__(self) -> None:
            object.__setattr__(self, "total", self.x + self.y)

        @cached_property
        def double(self) -> float:
            return self.total * 2

    @dataclass(frozen=True, kw_only=True)
    class Named(Point):
        """Fields that only their names give, before others."""

        name: str
        y: float = 4.0

        def __repr__(self) -> str:
            return self.name

    @dataclass(frozen=True, eq=False)
    class Identity:
        """Equal to itself only."""

        x: int

    @dataclass
    class Plain:
        """Not frozen."""

        x: int = 0

    return Empty, Point, Named, Identity, Plain


def _behaviour(dataclass: Any) -> list[Any]:
    empty, point, named, identity, plain = _classes(dataclass)
    one, same, other = point(1, y=3.0), point(1, 3.0, ("a",)), point(2)
    name = named(1, name="n")
    assert one.double == 8.0  # is no part of what is compared
    changed = plain()
    changed.x = 3
    found = [
        [one == same, one != other, one == name, hash(one) == hash(same), empty() == empty()],
        [hash(each) for each in (empty(), one, other)],
        [
            one == 1,
            {one, same, other} == {one, other},
            identity(1) == identity(1),
            plain() == plain(),
        ],
        [repr(each).rpartition(".")[2] for each in (empty(), one, name, changed)],
        [[(each.name, each.kw_only) for each in fields(cls)] for cls in (point, named)],
        [list(vars(each)) for each in (same, name)],
        [replace(one, x=5).total, replace(name, name="m").name, point.__match_args__],
        [list(inspect.signature(each).parameters) for each in (point, named, identity, plain)],
    ]
    for wrong in (point, lambda: point(1, z=2), lambda: named(1, (), "n"), lambda: empty(1)):
        with pytest.raises(TypeError) as error:
            wrong()
        found.append(str(error.value).rpartition(".")[2])
    for change in (lambda: setattr(one, "x", 1), lambda: delattr(one, "x")):
        with pytest.raises(FrozenInstanceError) as error:
            change()
        found.append(str(error.value))
    return found


def test_they_behave_as_the_standard_ones() -> None:
    assert _behaviour(ours.dataclass) == _behaviour(dataclasses.dataclass)


@ours.dataclass(frozen=True)
class Pickled:
    """Of a module."""

    x: int
    y: tuple[int, ...] = ()


def test_they_can_be_copied_by_pickle() -> None:
    assert pickle.loads(pickle.dumps(Pickled(1, (2,)))) == Pickled(1, (2,))


def test_frozen_classes_of_the_compiler_are_these() -> None:
    folder = Path(ours.__file__).parents[1]
    texts = {path: path.read_text(encoding="utf-8") for path in folder.rglob("*.py")}
    frozen = [path for path, text in texts.items() if "@dataclass(frozen=True" in text]
    assert len(frozen) > 100
    assert [path for path in frozen if "ir.dataclass import dataclass" not in texts[path]] == []


def test_a_record_knows_its_symbols_and_so_do_its_copies() -> None:
    record = Broadcast((symbol("n") + symbol("m"), 4), (1,))
    for each in (record, copy.copy(record), copy.deepcopy(record)):
        assert each == record
        assert each.symbols_used == {"n", "m"}
        assert vars(each) == {"shape": record.shape, "dimensions": (1,)}
    assert not Broadcast((2, 4), (1,)).symbols_used
