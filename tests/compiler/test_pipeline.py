"""The pipeline: sources, options, dumps, budgets, and what it says when it cannot compile."""

from __future__ import annotations

import gc
import os
import time
from pathlib import Path

import numpy as np
import pytest

import ingot
from ingot.compiler import compile, pipeline
from ingot.compiler.dispatch.ops import Entry
from ingot.compiler.graph.builder import Builder
from ingot.compiler.ir import Block, Function, Module, Op, Region, TensorType, Value, walk
from ingot.compiler.ir.dims import symbol
from ingot.compiler.ir.parser import parse
from ingot.compiler.kernels.classes import lower_entries
from ingot.compiler.kernels.kernel import Kernel
from ingot.compiler.kernels.trace import Node
from ingot.compiler.targets.cpu.toolchain import choose_variants
from ingot.compiler.targets.target import Building
from ingot.compiler.vm.read_module import read_module
from ingot.hal.errors import CompileError, InvalidArgument, NotFound, Unsupported
from ingot.hal.spec import dtype
from tests.support.compiled_programs import build
from tests.support.devices import best_variant
from tests.support.programs import program

F32 = dtype("f32")
B = symbol("b")
TEXT = """
module {producer="a test"} {
  func @main(%x: f32[b,4] "x") -> (f32[b,4] "y") symbols {b in [1, 512]} {
    %y = neg(%x) : f32[b,4] loc("layer")
    return(%y)
  }
}
"""


def layers(count: int, width: int) -> Module:
    """A generated program: `count` ops in dense layers with bias, gelu-like tail, residual."""
    random = np.random.default_rng(0)

    def build(builder: Builder, x: Value) -> Value:
        while len(builder.ops) < count:
            with builder.at(f"layer{len(builder.ops)}"):
                w = builder.constant(random.standard_normal((width, width)).astype(np.float32))
                y = builder.value("dot_general", x, w, lhs_contract=(1,), rhs_contract=(0,))
                bias = builder.constant(random.standard_normal(width).astype(np.float32))
                y = builder.value("add", y, builder.broadcast_to(bias, (B, width)))
                y = builder.value("mul", y, builder.op("logistic", y))
                x = builder.value("add", x, y)
        return x

    return program(build, TensorType(F32, (B, width)), symbols={"b": (1, None)})


def test_ir_text_bytes_files_and_modules_compile_alike(tmp_path: Path) -> None:
    path = tmp_path / "model.ir"
    path.write_text(TEXT, encoding="utf-8")
    sources = [TEXT, TEXT.encode(), path, str(path), parse(TEXT)]
    assert len({bytes(compile(source)) for source in sources}) == 1


def test_the_same_source_gives_the_same_bytes() -> None:
    assert bytes(compile(layers(40, 16))) == bytes(compile(layers(40, 16)))


def test_a_module_that_is_compiled_stays_as_it_was() -> None:
    module = layers(40, 16)
    count = len(module.functions["main"].block.ops)
    compile(module)
    assert len(module.functions["main"].block.ops) == count


def test_save_writes_the_bytes_and_replaces_a_file(tmp_path: Path) -> None:
    module = compile(TEXT)
    path = tmp_path / "out.ingot"
    path.write_bytes(b"old")
    module.save(path)
    assert path.read_bytes() == bytes(module)
    assert os.listdir(tmp_path) == ["out.ingot"]


def test_save_follows_links_and_keeps_the_mode(tmp_path: Path) -> None:
    module = compile(TEXT)
    real, link = tmp_path / "real.ingot", tmp_path / "link.ingot"
    real.write_bytes(b"old")
    real.chmod(0o640)
    link.symlink_to(real)
    module.save(link)
    assert link.is_symlink()
    assert real.read_bytes() == bytes(module)
    assert real.stat().st_mode & 0o777 == 0o640


def test_save_replaces_nothing_but_files(tmp_path: Path) -> None:
    module = compile(TEXT)
    os.mkfifo(tmp_path / "pipe")
    for path in (tmp_path / "pipe", tmp_path):
        with pytest.raises(InvalidArgument, match="no regular file"):
            module.save(path)
    module.save("/dev/null")
    assert Path("/dev/null").is_char_device()
    with pytest.raises(InvalidArgument, match="that no path can have"):
        module.save(f"{tmp_path}/a\0b")
    assert os.listdir(tmp_path) == ["pipe"]


def test_save_syncs_and_never_touches_the_umask(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    module = compile(TEXT)
    synced: list[int] = []
    monkeypatch.setattr(os, "fsync", synced.append)
    monkeypatch.setattr(os, "umask", None)
    module.save(tmp_path / "out.ingot")
    assert len(synced) == 2


def test_metadata_locations_and_regions_survive() -> None:
    contents = read_module(bytes(compile(TEXT, variants=["x86-64-v3"])))
    assert contents.metadata["producer"] == "a test"
    assert contents.metadata["targets"]["cpu"]["variants"] == ["x86-64-v3"]
    (executable,) = contents.executables
    assert [variant.name for variant in executable.variants] == ["x86-64-v3"]
    assert "neg(" in executable.entries[0].region
    assert executable.entries[0].layer == "layer"
    assert any(each.layer == "layer" for each in contents.functions[0].code.locations)


def test_equal_layers_share_kernels_and_a_chain_is_two_values_of_memory() -> None:
    report = compile(layers(80, 16)).report
    assert report.kernel_count == 1
    assert report.dispatches["main"] == 10
    assert report.peaks["main"] == "128*b"
    assert "10 dispatches, 8192 B of working memory at b=64: 128*b B" in str(report)


def test_dump_writes_numbered_files_and_forgets_old_ones(tmp_path: Path) -> None:
    (tmp_path / "07-old.ir").write_text("old", encoding="utf-8")
    steps: list[str] = []
    names_of_variants = ["x86-64-v4", "x86-64-v3"]
    compile(TEXT, dump_ir=tmp_path, progress=steps.append, variants=names_of_variants)
    names = sorted(os.listdir(tmp_path))
    assert names[0] == "00-import.ir"
    assert [name[:2] for name in names] == [f"{i:02}" for i in range(len(names))]
    assert {f"kernels.{variant}.ir" for variant in names_of_variants} < {name[3:] for name in names}
    for name in names:
        assert parse((tmp_path / name).read_text(encoding="utf-8")), name
    assert steps[0] == "import"
    assert "build_kernels" in steps


@pytest.mark.slow
def test_python_takes_less_than_a_millisecond_per_op() -> None:
    module = layers(5000, 4)
    start = time.process_time()
    report = compile(module, variants=["x86-64-v3"]).report
    spent = time.process_time() - start
    assert report.dispatches["main"] == 625
    assert spent < 5.0 * (1 if not os.environ.get("CI") else 2), report


def test_ops_without_a_kernel_are_listed_together() -> None:
    module = Module()
    for place, layer in enumerate(("first/conv", "second/conv")):
        block = Block([TensorType(F32, (1, 4, 4, 4)), TensorType(F32, (4, 4, 3, 3))])
        builder = Builder(block)
        with builder.at(layer):
            y = builder.value("convolution", *block.arguments, layout="nchw,oihw->nchw")
        builder.return_(y)
        attributes = Entry(layer=layer)
        module.add(Function(f"entry_{place}", Region([block]), attributes=attributes))
    with pytest.raises(CompileError) as caught:
        lower_entries(module, [choose_variants(None)[0].target])
    text = str(caught.value)
    assert "convolution(f32[1,4,4,4], f32[4,4,3,3]) at 'first/conv'" in text
    assert "convolution(f32[1,4,4,4], f32[4,4,3,3]) at 'second/conv'" in text


def test_wrong_sources_are_named(tmp_path: Path) -> None:
    with pytest.raises(NotFound, match="there is no file"):
        compile(tmp_path / "missing.onnx")
    with pytest.raises(CompileError, match="cannot compile a source of type int"):
        compile(3)
    with pytest.raises(CompileError, match="empty"):
        compile(b"")
    with pytest.raises(CompileError, match="MLIR text cannot be read"):
        compile("module @m { func.func public @main() { return }")
    with pytest.raises(Unsupported, match="target 'gpu'"):
        compile(TEXT, target="gpu")
    with pytest.raises(InvalidArgument, match="variant"):
        compile(TEXT, variants=["x86-64-v9"])


def test_wrong_graphs_are_refused_before_any_pass() -> None:
    module = parse(TEXT)
    module.functions["main"].block.ops[0] = Op(
        "neg", module.functions["main"].arguments, [TensorType(F32, (B, 5))]
    )
    with pytest.raises(CompileError):
        compile(module)


def test_a_path_that_begins_with_module_is_a_path() -> None:
    with pytest.raises(NotFound, match=r"there is no file 'module\.onnx'"):
        compile("module.onnx")


def test_ends_without_names_get_names() -> None:
    text = "module {} { func @main(%x: f32[n], %y: f32[n]) -> (f32[n], f32[n]) { return(%y, %x) } }"
    signature = ingot.load(compile(text)).signature
    assert [each.name for each in signature.arguments] == ["argument0", "argument1"]
    assert [each.name for each in signature.results] == ["result0", "result1"]


def test_a_compiled_module_is_no_source(tmp_path: Path) -> None:
    path = tmp_path / "x.ingot"
    path.write_bytes(b"INGOT\r\n\x1a and more")
    for source in (path, str(path), path.read_bytes()):
        with pytest.raises(CompileError, match=r"is a compiled Ingot module: load it"):
            compile(source)


def test_text_that_is_not_utf_8_is_refused() -> None:
    with pytest.raises(CompileError, match="is not UTF-8"):
        compile(b"module {} { // \xff\xfe }")


def _live_nodes() -> int:
    gc.collect()
    return sum(isinstance(each, (Op, Value, Node)) for each in gc.get_objects())


def test_compiles_keep_nothing_of_their_programs_alive() -> None:
    def softmax(b: Builder, x: Value) -> list[Value]:
        top = b.value("reduce", x, axes=(1,), kind="max")
        e = b.value(
            "exp", b.value("sub", x, b.value("broadcast", top, shape=(B, 8), dimensions=(0,)))
        )
        total = b.value("reduce", e, axes=(1,), kind="add")
        return [b.value("div", e, b.value("broadcast", total, shape=(B, 8), dimensions=(0,)))]

    alive = []
    gc.collect()
    gc.freeze()  # what other tests left
    for _ in range(10):
        ingot.compile(build(softmax, ("f32", (B, 8))), variants=[best_variant()])
        alive.append(_live_nodes())
    assert alive == [alive[0]] * 10


def test_a_sketch_that_fails_does_not_matter(monkeypatch: pytest.MonkeyPatch) -> None:
    expected, asked = bytes(compile(TEXT)), []

    def begin_all(self: Building, kernels: object) -> None:
        asked.append(kernels)
        raise CompileError("no compiler")

    monkeypatch.setattr(pipeline, "read_sketch", lambda source, **reading: parse(TEXT))
    monkeypatch.setattr(Building, "begin_all", begin_all)
    assert bytes(compile(TEXT)) == expected
    assert len(asked) == 1


@pytest.mark.parametrize("debug", [False, True])
def test_loops_of_kernels_go_when_their_text_is_there(
    debug: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("INGOT_VERIFY_KERNELS")
    made: list[int] = []
    lower = Building.lower

    def counted(building: Building, module: Module) -> dict[str, tuple[Kernel, ...]]:
        kernels = lower(building, module)
        made.extend(len(list(walk(each.loops))) for (each,) in kernels.values())
        return kernels

    monkeypatch.setattr(Building, "lower", counted)
    model = ingot.load(compile(layers(20, 8), variants=best_variant(), debug=debug))
    assert min(made) > 1 if debug else max(made) == 0
    assert model(np.ones((3, 8), np.float32)).shape == (3, 8)
