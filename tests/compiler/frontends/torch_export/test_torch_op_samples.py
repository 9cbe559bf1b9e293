"""Core ATen ops on the arguments that torch's own tests draw (OpInfo), against eager torch."""

from __future__ import annotations

from importlib import import_module
from itertools import islice
from typing import Any

import numpy as np
import pytest

from ingot.compiler.frontends.torch.core_ops import CORE
from ingot.compiler.frontends.torch.lowering import REFUSED
from ingot.compiler.graph.interpreter import interpret
from ingot.compiler.read_source import read_source

pytest.importorskip("torch.export")  # a folder that is called torch is none
pytest.importorskip("expecttest")  # which torch's tests import
torch = import_module("torch")
tree = import_module("torch.utils._pytree")
op_db = import_module("torch.testing._internal.common_methods_invocations").op_db

SAMPLES = 4  # of an op and a dtype
DTYPES = (torch.float32, torch.int64, torch.bool)
NAMES = {name.partition(".")[0] for name in CORE} | {"softmax", "log_softmax"}
OTHERS = {  # what is taken otherwise, or gives nothing that can be compared
    "bernoulli", "empty", "empty_permuted", "empty_strided", "empty_like", "normal", "rand",
    "rand_like", "randint", "randint_like", "randn", "randn_like", "randperm", "resize_",
    "uniform",
}  # fmt: skip
OTHERS |= {name.split(".")[1] for name in REFUSED} | {"_native_batch_norm_legit"}
TIES = {"sort", "topk"}  # torch gives any place of equal elements, which floats have none of
OPS = [
    op
    for op in op_db
    if {op.name, op.aten_name, op.name.rpartition(".")[2]} & NAMES
    and not {op.name, op.aten_name} & OTHERS
    and not op.name.startswith(("sparse", "masked", "_refs"))
    and op.variant_test_name != "partial_views"  # whose results depend on memory around them
]


class Calls(torch.nn.Module):  # type: ignore[misc, name-defined]
    """An op on samples, whose tensors are the arguments."""

    def __init__(self, op: Any, samples: list[Any]) -> None:
        super().__init__()
        self.op, self.samples = op, samples

    def forward(self, tensors: list[Any]) -> list[Any]:
        left = iter(tensors)
        results = []
        for sample in self.samples:
            first, args, kwargs = tree.tree_map_only(
                torch.Tensor, lambda _: next(left), parts(sample)
            )
            results.append(self.op(first, *args, **kwargs))
        return results


def parts(sample: Any) -> Any:
    return sample.input, sample.args, sample.kwargs


def tensors_of(value: Any) -> list[Any]:
    return [each for each in tree.tree_leaves(value) if isinstance(each, torch.Tensor)]


def array_of(tensor: Any) -> Any:
    return tensor.detach().resolve_conj().resolve_neg().numpy()


@pytest.mark.slow
@pytest.mark.parametrize("op", OPS, ids=lambda op: f"{op.name}.{op.variant_test_name}".rstrip("."))
def test_samples_agree(op: Any) -> None:
    torch.manual_seed(0)
    dtypes = DTYPES[:1] if op.name in TIES else DTYPES
    for dtype in set(dtypes) & op.supported_dtypes("cpu"):
        samples = list(islice(op.sample_inputs("cpu", dtype, requires_grad=False), SAMPLES))
        calls = Calls(op, samples)
        given = [each.detach() for sample in samples for each in tensors_of(parts(sample))]
        expected = tensors_of(calls([each.clone() for each in given]))
        try:
            program = torch.export.export(calls, (given,), strict=False)
        except Exception as error:  # such as sizes that depend on data
            pytest.skip(f"torch cannot export it: {error}")
        with np.errstate(all="ignore"):
            found = interpret(read_source(program), "main", [array_of(each) for each in given])
        assert len(found) == len(expected)
        for a, tensor in zip(found, expected, strict=True):
            b = array_of(tensor)
            assert (np.asarray(a).dtype, np.asarray(a).shape) == (b.dtype, b.shape)
            np.testing.assert_allclose(a, b, 1e-4, 1e-4)
