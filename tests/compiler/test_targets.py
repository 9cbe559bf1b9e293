"""Modules for several targets: what they share, what each has, and what runs on the host."""

from __future__ import annotations

from pathlib import Path

import pytest

import ingot
from ingot.command import main as command
from ingot.compiler import compile
from ingot.compiler.graph.builder import Builder
from ingot.compiler.ir import Module, Value
from ingot.compiler.targets.cpu.compilers import find_ziglang
from ingot.compiler.targets.opencl import object as opencl_object
from ingot.compiler.vm.read_module import read_module
from ingot.hal.errors import CompileError, InvalidArgument, Unsupported
from ingot.hal.spec import dtype
from tests.support.programs import constant, program

F32 = dtype("f32")
BOTH = ("cpu", "opencl")
TANH = """
module {producer="a test"} {
  func @main(%x: f32[b,4] "x") -> (f32[b,4] "y") symbols {b in [1, 512]} {
    %y = tanh(%x) : f32[b,4] loc("layer")
    return(%y)
  }
}
"""


def dense(width: int = 64) -> Module:
    """main(x: f32[b, width]): one layer with a weight of width * width floats, and a softmax."""

    def build(builder: Builder, x: Value) -> Value:
        w = constant(builder, 0, width, width)
        y = builder.value("dot_general", x, w, lhs_contract=(1,), rhs_contract=(0,))
        return builder.value("tanh", y)

    return program(build, f"f32[b,{width}]", symbols={"b": (1, None)})


def test_targets_have_their_own_code_and_share_the_weights() -> None:
    one, both = compile(dense(), target="opencl"), compile(dense(), target=BOTH)
    contents = read_module(bytes(both))
    assert [each.target for each in contents.functions if each.name == "main"] == list(BOTH)
    assert [each.target for each in contents.executables] == list(BOTH)
    assert contents.constants.length == read_module(bytes(one)).constants.length
    assert both.report.constant_length == one.report.constant_length
    formats = [variant.format.partition("-")[0] for variant in contents.executables[1].variants]
    assert formats == ["opencl", "opencl", "elf"]
    names = [variant.name for variant in contents.executables[1].variants]
    assert names == ["opencl-c-large", "opencl-c", "generic"]


def test_the_report_and_the_metadata_speak_of_each_target() -> None:
    module = compile(dense(), target=BOTH)
    assert list(module.report.targets) == list(BOTH)
    assert module.report.dispatches == module.report.targets["cpu"].dispatches
    assert "target opencl" in str(module.report)
    metadata = read_module(bytes(module)).metadata["targets"]
    assert metadata["opencl"]["variants"] == ["opencl-c-large", "opencl-c", "generic"]
    assert metadata["opencl"]["host"] == {}
    assert metadata["cpu"]["peaks"].keys() == metadata["opencl"]["peaks"].keys()


def test_compiling_for_two_targets_gives_the_same_bytes_again() -> None:
    assert bytes(compile(dense(), target=BOTH)) == bytes(compile(dense(), target=BOTH))


def test_parameters_are_listed_once(project_root: Path) -> None:
    path = project_root / "tests" / "models" / "mlp.onnx"
    contents = read_module(bytes(compile(path, target=BOTH, parameters="external")))
    keys = [parameter.key for parameter in contents.parameters]
    assert len(keys) == len(set(keys)) == 6
    assert sum(function.init for function in contents.functions) == 2


def test_the_fallback_can_be_left_out(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("CC", "no-such-compiler")  # nothing is left for one to do
    module = compile(dense(), target="opencl", fallback=False)
    assert list(module.report.object_lengths) == ["opencl-c-large", "opencl-c"]


def test_a_target_that_is_not_known_is_refused() -> None:
    with pytest.raises(Unsupported, match="target 'cuda' is not known; the targets are: cpu, op"):
        compile(dense(), target=["cpu", "cuda"])
    with pytest.raises(Unsupported, match="the targets are: cpu, opencl"):
        compile(dense(), target=[])


def test_variants_without_the_target_that_has_them_are_refused() -> None:
    with pytest.raises(InvalidArgument, match="are of the target 'cpu'"):
        compile(dense(), target="opencl", variants=["x86-64-v3"])


@pytest.fixture
def no_tanh(monkeypatch: pytest.MonkeyPatch) -> None:
    """OpenCL without a kernel that computes tanh."""
    print_kernel = opencl_object.print_kernel

    def refuse(kernel: object) -> object:
        if "tanh" in kernel.name:  # type: ignore[attr-defined]
            raise CompileError("there is no tanh today")
        return print_kernel(kernel)  # type: ignore[arg-type]

    monkeypatch.setattr(opencl_object, "print_kernel", refuse)


@pytest.mark.usefixtures("no_tanh")
def test_kernels_that_run_on_the_host_are_reported(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path, out = tmp_path / "dense.ir", tmp_path / "dense.ingot"
    path.write_text(TANH)
    report = compile(path, target=BOTH).report
    assert report.targets["cpu"].host == {}
    (reason,) = report.targets["opencl"].host.values()
    assert reason == "there is no tanh today"
    assert command(["compile", str(path), "-o", str(out), "--target", "cpu,opencl"]) == 0
    printed = capsys.readouterr().out
    assert "for cpu (" in printed
    assert "opencl: 1 of 1 kernels run on the host:" in printed
    assert "there is no tanh today" in printed
    assert command(["inspect", str(out)]) == 0
    printed = capsys.readouterr().out
    assert "1 of them run on the host:" in printed
    assert "there is no tanh today" in printed


@pytest.mark.usefixtures("no_tanh")
def test_without_a_fallback_every_missing_kernel_is_named() -> None:
    with pytest.raises(CompileError, match=r"(?s)cannot be made for opencl.*no tanh today"):
        compile(dense(), target="opencl", fallback=False)


def test_a_module_without_code_for_the_device_says_how_to_compile_it() -> None:
    module = compile(dense(), target="opencl")
    with pytest.raises(ingot.Unsupported, match=r"ingot compile --target opencl,cpu"):
        ingot.load(module)


def test_dumps_of_two_targets_do_not_overwrite_each_other(tmp_path: Path) -> None:
    compile(dense(), target=BOTH, dump_ir=tmp_path)
    names = {path.name[3:] for path in tmp_path.iterdir()}
    assert {"cpu.kernels.x86-64-v4.ir", "opencl.kernels.opencl-c.ir"} <= names
    assert {"opencl.vm.convert.ir", "cpu.vm.convert.ir"} <= names


@pytest.mark.parametrize(
    ("names", "message"),
    [
        (
            ["aarch64", "armv7-neon"],
            r"code for aarch64, armv7-neon, which is not for .*: compile with --variants x86-64-v",
        ),
        (["wasm32-simd128"], r"code for wasm32-simd128, which is not for"),
    ],
)
def test_a_module_for_other_machines_says_which_and_how_to_compile_for_this_one(
    names: list[str], message: str
) -> None:
    if find_ziglang() is None:
        pytest.skip("ziglang is not installed")
    with pytest.raises(ingot.Unsupported, match=message):
        ingot.load(compile(dense(), variants=names))
