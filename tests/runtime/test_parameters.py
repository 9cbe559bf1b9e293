"""Where weights come from: files, archives and arrays, in order and by scope; what was made of them
as a file; and others in their place."""

from __future__ import annotations

import contextlib
import gc
import json
import pickle
import subprocess
import sys
import threading
import weakref
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from gguf import GGUFWriter
from safetensors.numpy import save_file

import ingot
from ingot.command import main
from ingot.compiler.graph.builder import Builder
from ingot.compiler.ir import Block, Function, Module, Region
from ingot.compiler.ir.printer import to_text
from tests.support.devices import best_variant, on_every_device
from tests.support.parameters import (
    F32,
    B,
    W,
    X,
    compiled,
    expected,
    folder_of_shards,
    gguf,
    identity,
    npz,
    program,
    safetensors,
    saved,
    shards,
    zarr_file,
    zarr_folder,
)


@pytest.fixture(scope="module")
def module() -> Any:
    return compiled()


@pytest.fixture(scope="module")
def path(module: Any, tmp_path_factory: pytest.TempPathFactory) -> Path:
    return saved(module, tmp_path_factory)


# Sources.


KINDS = [safetensors, shards, folder_of_shards, npz, gguf, zarr_folder, zarr_file]


@pytest.mark.parametrize("write", KINDS, ids=lambda each: each.__name__)
def test_every_kind_of_source_is_read(write: Any, module: Any, tmp_path: Path) -> None:
    model = ingot.load(module, parameters=write(tmp_path))
    np.testing.assert_array_equal(model(X), expected())


def test_what_a_program_was_made_of_is_let_go_of_at_once(module: Any) -> None:
    arrays = [W.copy(), B.copy()]
    alive = [weakref.ref(each) for each in arrays]
    gc.disable()
    try:
        model = ingot.load(module, parameters=dict(zip("wb", arrays, strict=True)))
        arrays.clear()
        assert [each() for each in alive] == [None, None]
    finally:
        gc.enable()
    np.testing.assert_array_equal(model(X), expected())


def test_a_safetensors_file_may_hold_an_archive(module: Any, tmp_path: Path) -> None:
    inner = np.fromfile(npz(tmp_path), np.uint8)
    save_file({"b": B, "w": W, "z": inner}, tmp_path / "all.safetensors")
    model = ingot.load(module, parameters=tmp_path / "all.safetensors")
    np.testing.assert_array_equal(model(X), expected())


def test_the_first_source_that_has_a_tensor_gives_it(module: Any, tmp_path: Path) -> None:
    model = ingot.load(module, parameters=[{"b": B + 1}, safetensors(tmp_path)])
    np.testing.assert_array_equal(model(X), expected(b=B + 1))


def test_scopes_have_their_own_sources(module: Any, tmp_path: Path) -> None:
    wrong = {"w": W, "b": -B}
    sources = {"more": [{"other": B}, safetensors(tmp_path)], "": wrong}
    np.testing.assert_array_equal(ingot.load(module, parameters=sources)(X), expected())
    with pytest.raises(ingot.NotFound, match="1 of 2 parameters are missing: 'more/b'"):
        ingot.load(module, parameters={"": wrong})


def test_scopes_are_given_when_sources_are_compiled() -> None:
    source = identity(4)
    module = ingot.compile({"one": source, "two": source}, scope={"two": "second"})
    model = ingot.load(module, parameters=[{"second": {"w": B + 1}}, {"": {"w": B}}])
    np.testing.assert_array_equal(model.one(), B)
    np.testing.assert_array_equal(model.two(), B + 1)
    with pytest.raises(ingot.CompileError, match="'three', which is none of the sources"):
        ingot.compile({"one": source}, scope={"three": "x"})


def test_missing_shards_and_wrong_archives_are_named(module: Any, tmp_path: Path) -> None:
    index = shards(tmp_path)
    (tmp_path / "model-2.safetensors").unlink()
    with pytest.raises(ingot.NotFound, match=r"index '.*json': .*model-2.safetensors"):
        ingot.load(module, parameters=index)
    save_file({"c": B}, tmp_path / "model-2.safetensors")
    with pytest.raises(ingot.DataLoss, match=r"'b' is not in 'model-2.safetensors'"):
        ingot.load(module, parameters=index)
    archive = npz(tmp_path)
    data = bytearray(archive.read_bytes())
    data[60:80] = bytes(20)
    archive.write_bytes(data)
    with pytest.raises(ingot.DataLoss, match=r"array 'w' of .* cannot be read"):
        ingot.load(module, parameters=archive)
    with pytest.raises(ingot.InvalidArgument, match="parameters is int, but must be the path"):
        ingot.load(module, parameters=[{"w": W}, 7])


def test_a_damaged_chunk_is_named(module: Any, tmp_path: Path) -> None:
    archive = zarr_folder(tmp_path)
    (chunk,) = (archive / "b" / "c").glob("*")
    chunk.write_bytes(b"damaged")
    with pytest.raises(ingot.DataLoss, match=r"array 'b' of .*all.zarr"):
        ingot.load(module, parameters=archive)


def test_pickles_in_an_archive_are_not_read(module: Any, tmp_path: Path) -> None:
    pytest.importorskip("zarr")
    folder = tmp_path / "all.zarr"
    (folder / "w").mkdir(parents=True)
    (folder / ".zgroup").write_text('{"zarr_format": 2}')
    array = {"zarr_format": 2, "shape": [2], "chunks": [2], "dtype": "|O", "order": "C"}
    array |= {"filters": [{"id": "vlen-utf8"}, {"id": "pickle"}], "compressor": None}
    (folder / "w" / ".zarray").write_text(json.dumps({**array, "fill_value": 0}))
    (folder / "w" / "0").write_bytes(pickle.dumps("x"))
    with pytest.raises(ingot.DataLoss, match=r"'w' of .*all.zarr' cannot be read: it is pickled"):
        ingot.load(module, parameters=[folder, {"b": B}])


def test_what_a_source_raises_comes_back(module: Any) -> None:
    class Broken:
        def __array__(self, *args: Any, **kwargs: Any) -> Any:
            raise ZeroDivisionError("broken")

    with pytest.raises(ingot.InvalidArgument, match=r"parameter 'w': .*broken"):
        ingot.load(module, parameters={"w": Broken(), "b": B})


def test_models_of_several_sources_are_pickled(path: Path, tmp_path: Path) -> None:
    sources = {"": safetensors(tmp_path), "more": [npz(tmp_path)]}
    model = ingot.load(path, parameters=sources)
    np.testing.assert_array_equal(pickle.loads(pickle.dumps(model))(X), expected())
    model.swap_parameters({"b": B + 1}, scope="more")
    with pytest.raises(TypeError, match="swapped"):
        pickle.dumps(model)


# Swaps.


@on_every_device
def test_parameters_are_swapped_by_scope(device: str, tmp_path: Path) -> None:
    module = ingot.compile(program(), target=device.partition(":")[0])
    model = ingot.load(module, device=device, parameters={"w": W, "b": B})
    fork = model.fork()
    model.swap_parameters({"b": B + 1}, scope="more")
    np.testing.assert_array_equal(model(X), expected(b=B + 1))
    model.swap_parameters({"w": -W}, scope="")
    np.testing.assert_array_equal(fork(X), expected(-W, B + 1))
    model.save_weights(tmp_path / "packed")
    model.swap_parameters({"w": W, "b": B})
    np.testing.assert_array_equal(fork(X), expected())
    packed = ingot.load(module, device=device, parameters=tmp_path / "packed")
    np.testing.assert_array_equal(packed(X), expected(-W, B + 1))


@pytest.mark.parametrize(
    ("parameters", "scope", "error", "message"),
    [
        ({"b": B[:3]}, "more", ingot.InvalidArgument, "'b': dim 0 is 3, expected 4"),
        ({"b": B.astype(np.float64)}, "more", ingot.InvalidArgument, "'b' is f64, expected f32"),
        ({"b": B}, None, ingot.NotFound, "1 of 2 parameters are missing: 'w'; .* has 'b'"),
        ({"b": B}, "other", ingot.NotFound, "of scope 'other'; its scopes are: '', 'more'"),
        (None, None, ingot.InvalidArgument, "parameters is None"),
        ("missing.safetensors", None, ingot.NotFound, "missing.safetensors"),
    ],
    ids=str,
)
def test_a_swap_that_fails_leaves_the_old(
    module: Any, parameters: Any, scope: str | None, error: type[ingot.Error], message: str
) -> None:
    model = ingot.load(module, parameters={"w": W, "b": B})
    with pytest.raises(error, match=message):
        model.swap_parameters(parameters, scope=scope)
    np.testing.assert_array_equal(model(X), expected())


def test_calls_see_one_of_both_while_others_swap(module: Any) -> None:
    model = ingot.load(module, parameters={"w": W, "b": B})
    ends = threading.Event()
    wrong: list[Any] = []

    def call(own: ingot.Model) -> None:
        while not ends.is_set():
            y = np.asarray(own(X)) - W @ X
            if not any(np.array_equal(y, 2 * b) for b in (B, -B)):
                wrong.append(y)

    callers = [threading.Thread(target=call, args=(each,)) for each in (model, model.fork())]
    swappers = [threading.Thread(target=swap, args=(model,)) for _ in range(2)]
    for thread in (*callers, *swappers):
        thread.start()
    for thread in swappers:
        thread.join()
    ends.set()
    for thread in callers:
        thread.join()
    assert not wrong


def swap(model: ingot.Model) -> None:
    for i in range(50):
        model.swap_parameters({"b": B if i % 2 else -B}, scope="more")


# Packed weights.


def test_packed_weights_stand_for_parameters(module: Any, tmp_path: Path) -> None:
    packed = tmp_path / "weights.packed"
    ingot.load(module, parameters={"w": W, "b": B}).save_weights(packed)
    np.testing.assert_array_equal(ingot.load(module, parameters=packed)(X), expected())
    np.testing.assert_array_equal(ingot.load(module, parameters=packed, verify=True)(X), expected())


def test_packed_weights_of_a_scope_leave_the_others(module: Any, tmp_path: Path) -> None:
    packed = tmp_path / "weights.packed"
    ingot.load(module, parameters={"w": W, "b": -B}).save_weights(packed, scope="")
    model = ingot.load(module, parameters=[packed, {"b": B}])
    np.testing.assert_array_equal(model(X), expected())
    model.swap_parameters({"w": -W}, scope="")
    np.testing.assert_array_equal(model(X), expected(-W))
    with pytest.raises(ingot.NotFound, match="1 of 1 parameters are missing: 'more/b'"):
        ingot.load(module, parameters=packed)
    with pytest.raises(ingot.InvalidArgument, match="cannot be swapped in"):
        model.swap_parameters(packed, scope="")


def test_wrong_packed_weights_are_refused(module: Any, tmp_path: Path) -> None:
    packed = tmp_path / "weights.packed"
    model = ingot.load(module, parameters={"w": W, "b": B})
    with pytest.raises(ingot.NotFound, match="of scope 'other'; its scopes are: '', 'more'"):
        model.save_weights(packed, scope="other")
    assert not packed.exists()
    model.save_weights(packed)
    other = ingot.compile(program(), precision="int8", variants=[best_variant()])
    with pytest.raises(ingot.InvalidArgument, match=r"weights.packed': .*another module"):
        ingot.load(other, parameters=packed)
    data = bytearray(packed.read_bytes())
    data[-1] ^= 1
    packed.write_bytes(data)
    with pytest.raises(ingot.DataLoss, match="damaged; pack them again"):
        ingot.load(module, parameters=packed, verify=True)
    packed.write_bytes(data[:-1])
    with pytest.raises(ingot.DataLoss, match="cut"):
        ingot.load(module, parameters=packed)
    with pytest.raises(ingot.NotFound, match="no folder"):
        ingot.load(module, parameters={"w": W, "b": B}).save_weights(tmp_path / "a" / "b")


def test_the_command_packs_and_takes_several_files(
    path: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    save_file({"w": W}, tmp_path / "w.safetensors")
    np.savez(tmp_path / "b.npz", b=B)
    packed, weights = tmp_path / "weights.packed", f"--parameters={tmp_path}/w.safetensors"
    more = f"--parameters=more={tmp_path}/b.npz"
    assert main(["pack", str(path), weights, more, "--scope", "", "-o", str(packed)]) == 0
    capsys.readouterr()
    for first in (weights, f"--parameters={packed}"):
        assert main(["run", str(path), "--input", "x=[1,1,1]", first, more]) == 0
        assert "[ 3., 14., 25., 36.]" in capsys.readouterr().out
    assert main(["run", str(path), "--input", "x=[1,1,1]", f"--parameters={packed}"]) == 1
    assert "'more/b'" in capsys.readouterr().err
    assert main(["inspect", str(path)]) == 0
    assert "more/b: f32[4]" in capsys.readouterr().out


def test_the_command_compiles_scopes(tmp_path: Path) -> None:
    (tmp_path / "a.ir").write_text(to_text(program()))
    out = str(tmp_path / "out.ingot")
    assert main(["compile", str(tmp_path / "a.ir"), "--scope", "base", "-o", out]) == 0
    model = ingot.load(out, parameters={"base": {"w": W}, "more": {"b": B}})
    np.testing.assert_array_equal(model(X), expected())
    both = [f"one={tmp_path}/a.ir", f"two={tmp_path}/a.ir"]
    assert main(["compile", *both, "--scope", "two=base", "-o", out]) == 0
    sources = {"base": {"w": -W}, "": {"w": W}, "more": {"b": B}}
    model = ingot.load(out, parameters=sources)
    np.testing.assert_array_equal(model.one(X), expected())
    np.testing.assert_array_equal(model.two(X), expected(-W))
    assert main(["compile", *both, "--scope", "a", "--scope", "b=c", "-o", out]) == 1


# What is wrong, and memory.


@pytest.fixture
def cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("INGOT_CACHE", str(tmp_path / "cache"))
    return tmp_path / "cache"


def test_archives_that_are_damaged_anywhere_are_refused(module: Any, tmp_path: Path) -> None:
    np.savez(tmp_path / "w.npz", w=W, b=B)
    data = (tmp_path / "w.npz").read_bytes()
    for place in range(0, len(data), 7):
        (tmp_path / "bad.npz").write_bytes(data[:place] + b"\xff" + data[place + 1 :])
        with contextlib.suppress(ingot.Error):  # or nobody reads that byte
            ingot.load(module, parameters=tmp_path / "bad.npz")


def test_sources_that_are_none_are_said(module: Any, cache: Path, tmp_path: Path) -> None:
    weights: dict[str, Any] = {"w": W, "b": B}
    around: list[Any] = []
    around.append(around)
    model = ingot.load(module, parameters=weights)
    with pytest.raises(ingot.InvalidArgument, match="hold themselves"):
        ingot.load(module, parameters=around)
    with pytest.raises(ingot.InvalidArgument, match="scope of parameters= is 5"):
        ingot.load(module, parameters={5: weights})
    for name in ("a\0b.npz", "\ud800.npz"):
        with pytest.raises(ingot.InvalidArgument, match="no path can have"):
            ingot.load(module, parameters=name)
    for scope in ("a\0b", "\ud800"):
        with pytest.raises(ingot.InvalidArgument, match="scope"):
            model.swap_parameters(weights, scope=scope)
        with pytest.raises(ingot.InvalidArgument, match="scope"):
            model.save_weights(tmp_path / "weights", scope=scope)
    shared = ingot.load(module, parameters={5: W, "\ud800": B, **weights}, share_weights=True)
    np.testing.assert_array_equal(shared(X), expected())


@pytest.mark.skipif(sys.platform != "linux", reason="/proc tells the peak of memory")
def test_what_init_has_read_of_a_mapped_file_leaves_memory(tmp_path: Path) -> None:
    count, length = 16, 1 << 20
    block = Block([])
    b = Builder(block)
    sums = [
        b.value(
            "reduce",
            b.value("parameter", scope="", key=f"w{i}", dtype=F32, shape=(length,)),
            axes=(0,),
            kind="add",
        )
        for i in range(count)
    ]
    b.return_(*sums)
    module = Module()
    names = [f"y{i}" for i in range(count)]
    module.add(Function("main", Region([block]), [], names))
    path = tmp_path / "sums.ingot"
    ingot.compile(module, variants=[best_variant()]).save(path)
    writer = GGUFWriter(tmp_path / "w.gguf", "none")
    for i in range(count):
        writer.add_tensor(f"w{i}", np.full(length, i, np.float32))
    for write in ("write_header_to_file", "write_kv_data_to_file", "write_tensors_to_file"):
        getattr(writer, write)()
    writer.close()
    code = """
import sys
import ingot
def peak():
    return next(int(line.split()[1]) for line in open("/proc/self/status") if "VmHWM" in line)
ingot.load
before = peak()
model = ingot.load(sys.argv[1], parameters=sys.argv[2], threads=1)
print(peak() - before, int(model()[5].numpy()) >> 20)
"""
    command = [sys.executable, "-c", code, path, tmp_path / "w.gguf"]
    done = subprocess.run(command, capture_output=True, text=True, check=True)
    kilobytes, five = map(int, done.stdout.split())
    assert five == 5
    assert kilobytes < 40_000  # of 65,536 in the file
