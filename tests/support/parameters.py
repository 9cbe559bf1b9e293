"""A program with weights of two scopes, and files that have them in every form."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from gguf import GGUFWriter
from safetensors.numpy import save_file

import ingot
from ingot.compiler.graph.builder import Builder
from ingot.compiler.ir import Block, Function, Module, Region, TensorType
from ingot.hal.spec import dtype
from tests.support.devices import best_variant

F32 = dtype("f32")
X = np.ones(3, np.float32)
W = np.arange(12, dtype=np.float32).reshape(4, 3)
B = np.arange(4, dtype=np.float32)


def program() -> Module:
    """w @ x + 2 b, where b is of the scope "more"."""
    block = Block([TensorType(F32, (3,))])
    b = Builder(block)
    weight = b.value("parameter", scope="", key="w", dtype=F32, shape=(4, 3))
    bias = b.value("parameter", scope="more", key="b", dtype=F32, shape=(4,))
    y = b.value("dot_general", weight, *block.arguments, lhs_contract=(1,), rhs_contract=(0,))
    b.return_(b.value("add", y, b.value("add", bias, bias)))
    module = Module()
    module.add(Function("main", Region([block]), ["x"], ["y"]))
    return module


def identity(length: int) -> Module:
    """The parameter w."""
    block = Block([])
    b = Builder(block)
    b.return_(b.value("parameter", scope="", key="w", dtype=F32, shape=(length,)))
    module = Module()
    module.add(Function("main", Region([block]), [], ["y"]))
    return module


def expected(w: Any = W, b: Any = B) -> Any:
    return w @ X + 2 * b


def compiled() -> Any:
    return ingot.compile(program(), variants=[best_variant()])


def saved(module: Any, folders: pytest.TempPathFactory) -> Path:
    path = folders.mktemp("parameters") / "program.ingot"
    module.save(path)
    return path


def safetensors(folder: Path) -> Path:
    save_file({"w": W, "b": B}, folder / "all.safetensors")
    return folder / "all.safetensors"


def shards(folder: Path) -> Path:
    save_file({"w": W, "b": -B}, folder / "model-1.safetensors")
    save_file({"b": B}, folder / "model-2.safetensors")
    files = {"w": "model-1.safetensors", "b": "model-2.safetensors"}
    index = folder / "model.safetensors.index.json"
    index.write_text(json.dumps({"metadata": {}, "weight_map": files}))
    return index


def folder_of_shards(folder: Path) -> Path:
    return shards(folder).parent


def npz(folder: Path) -> Path:
    np.savez_compressed(folder / "all.npz", w=W, b=B)
    return folder / "all.npz"


def gguf(folder: Path) -> Path:
    writer = GGUFWriter(folder / "all.gguf", "none")
    writer.add_tensor("w", W)
    writer.add_tensor("b", B)
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
    return folder / "all.gguf"


def zarr_folder(folder: Path) -> Path:
    zarr = pytest.importorskip("zarr")
    group = zarr.open_group(folder / "all.zarr", mode="w")
    group.create_array("w", data=W, chunks=(1, 2))
    group.create_array("b", data=B)
    group.create_array("unread", shape=(1 << 40,), dtype="f4", chunks=(1 << 20,))
    return folder / "all.zarr"


def zarr_file(folder: Path) -> Path:
    zarr = pytest.importorskip("zarr")
    with zarr.storage.ZipStore(folder / "all.zip", mode="w") as store:
        group = zarr.open_group(store, mode="w")
        group.create_array("w", data=W)
        group.create_array("b", data=B)
    return folder / "all.zip"
