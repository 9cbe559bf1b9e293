"""Weights and buffers that share memory, against eager torch."""

from __future__ import annotations

import io
from typing import Any

import numpy as np
import pytest

import ingot
from ingot.compiler.graph.interpreter import interpret
from ingot.compiler.read_source import read_source
from tests.support.devices import load_best
from tests.support.torch_calls import Calls, drawn, torch

pytestmark = pytest.mark.filterwarnings("ignore:No complete tensor")  # torch, of what it saves


class Parts(torch.nn.Module):  # type: ignore[misc, name-defined]
    """Writes into each buffer of a memory and reads all of them."""

    def __init__(self, *parts: Any, written: str = "abc") -> None:
        super().__init__()
        self.written = written
        for name, part in zip("abc", parts, strict=False):
            self.register_buffer(name, part)

    def forward(self, x: Any) -> Any:
        for place, name in enumerate(self.written[: len(list(self.buffers()))], 2):
            getattr(self, name).mul_(place).add_(x)
        return [part * 1 for part in self.buffers()]


def whole() -> Any:
    return torch.arange(24.0).reshape(2, 3, 4)


CASES = {
    "ends": (lambda m: (m[0], m[1]), "a b"),
    "rows": (lambda m: (m, m[1, 1:]), "a"),
    "turned": (lambda m: (m[1].t(), m[:, 1:, 2]), "a+b"),
    "turned whole": (lambda m: (m.permute(2, 0, 1), m[1].t(), m[:, 1]), "a"),
    "overlapping rows": (lambda m: (m.view(-1)[:15], m.view(-1)[9:], m[1, 2]), "a+b+c"),
    "steps": (lambda m: (m.view(6, 4)[::2], m.view(-1)[1::5], m[..., None]), "c"),
    "diagonal": (lambda m: (m[0, :, :3].diagonal(), m[0]), "b"),
    "empty": (lambda m: (m[:0], m[1]), "a b"),
}


@pytest.mark.parametrize("name", CASES)
def test_buffers_that_share_memory_are_views_of_one_variable(name: str) -> None:
    make, variables = CASES[name]
    x = torch.tensor(1.5)
    program = torch.export.export(Parts(*make(whole())), (x,))
    saved = io.BytesIO()
    torch.export.save(program, saved)
    eager = Parts(*make(whole()))
    expected = [eager(x) for _ in range(2)]
    for source in (program, saved.getvalue()):
        module, state = read_source(source), dict[str, Any]()
        assert " ".join(sorted(module.variables)) == variables
        for each in expected:
            found = interpret(module, "main", [x.numpy()], state=state)
            for own, other in zip(found, each, strict=True):
                np.testing.assert_array_equal(own, other.numpy())


def test_a_compiled_module_writes_parts_of_a_buffer() -> None:
    parts = lambda: Parts(whole(), whole()[:, 1:, 2])  # noqa: E731
    model = load_best(torch.export.export(parts(), (torch.tensor(1.5),)))
    eager = parts()
    for number in (1.5, -2.0):
        found = model(np.float32(number))
        for own, other in zip(found, eager(torch.tensor(number)), strict=True):
            np.testing.assert_array_equal(own, other.numpy())


def test_weights_that_cannot_be_one_variable_are_refused() -> None:
    x = torch.tensor(1)
    bits = torch.zeros(3)
    for parts, message in (
        ((bits, bits.view(torch.int32)), "buffer 'b' of i32 shares memory, which it writes, with"),
        ((bits[:1].expand(3), bits), "'a', which it writes, has several elements in one place"),
    ):
        program = torch.export.export(
            Parts(*parts, written="b" if message[0] == "b" else "a"), (x,)
        )
        with pytest.raises(ingot.CompileError, match=message):
            read_source(program)


def test_a_reshape_of_rows_is_a_view_and_of_columns_may_be_a_copy() -> None:
    def writes(x: Any) -> Any:
        y = x + 1
        z = y.reshape(12).add_(x.flatten())
        y[0] = 5
        z.contiguous().mul_(2)
        return y, z, y.flatten(0, 1).relu_()

    def unknown(x: Any) -> Any:
        y = x + 1
        return y.T.reshape(12).add_(2), y

    x = drawn(3, 4)
    data = io.BytesIO()
    torch.export.save(torch.export.export(Calls(writes), (x,)), data)
    found = interpret(read_source(data.getvalue()), "main", [x.numpy()])
    for each, expected in zip(found, writes(x), strict=True):
        np.testing.assert_allclose(each, expected.numpy(), 1e-6)
    data = io.BytesIO()
    torch.export.save(torch.export.export(Calls(unknown), (x,)), data)
    with pytest.raises(ingot.CompileError, match="writes into a view in a way"):
        read_source(data.getvalue())
