"""Compares Ingot with ExecuTorch and LiteRT on networks of PyTorch with weights and codes of i8.

    python benchmarks/quantised_torch.py [--threads 1] [--rounds 10] [--turn 0.3] [MODEL ...]

"pt2e" is a program that torchao quantises as XNNPACK wants it, with weights of i8 per channel, for
Ingot and ExecuTorch; "tflite" the file of codes that litert-torch makes of the same network, for
Ingot and LiteRT. Weights are drawn. This is no part of `make bench`: it needs
`pip install executorch litert-torch`.
"""

from __future__ import annotations

import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

import numpy as np
import torch
from dynamic import Program, Run, measure, options_of_models
from table import print_table
from torchao.quantization.pt2e.quantize_pt2e import convert_pt2e, prepare_pt2e

import ingot
from tests.models import definitions

NETWORKS = {"resnet50": definitions.ResNet50, "mobilenetv2": definitions.MobileNetV2}
MODELS = ("resnet50 pt2e", "mobilenetv2 pt2e", "resnet50 tflite", "mobilenetv2 tflite")
TOLERANCE = 0.02  # of results from the other engine's: a code or two


def main(arguments: Sequence[str] | None = None) -> int:
    options = options_of_models("Measures quantised models of PyTorch.", MODELS, arguments)
    rows: list[list[str]] = []
    failed = False
    for model in options.models or MODELS:
        with TemporaryDirectory() as folder:
            each = program(model, Path(folder), options.threads)
            added, error = measure(each, options.rounds, options.turn)
            rows += added
            failed |= not error <= TOLERANCE
    print(f"{options.threads} thread(s); error: max |d| / max |first|")
    head = ("model", "engine", "median", "minimum", "ratio", "ratio of minima", "", "error")
    print_table(head, rows)
    return int(failed)


def as_pt2e(name: str, image: Any, folder: Path, threads: int) -> tuple[Path, dict[str, Run]]:
    """The program as a file, and the engines that run it, Ingot left out."""
    from executorch.backends.xnnpack.partition.xnnpack_partitioner import XnnpackPartitioner
    from executorch.backends.xnnpack.quantizer import xnnpack_quantizer as xnnpack
    from executorch.exir import to_edge_transform_and_lower
    from executorch.extension.pybindings import portable_lib
    from executorch.runtime import Runtime

    path, lowered = folder / "model.pt2", folder / "model.pte"
    quantizer = xnnpack.XNNPACKQuantizer()
    quantizer.set_global(xnnpack.get_symmetric_quantization_config(is_per_channel=True))
    network = quantised(name, image, quantizer)
    program = torch.export.export(network, (torch.from_numpy(image),))
    torch.export.save(program, path)
    edge = to_edge_transform_and_lower(program, partitioner=[XnnpackPartitioner()])
    lowered.write_bytes(edge.to_executorch().buffer)
    portable_lib._unsafe_reset_threadpool(threads)
    method = Runtime.get().load_program(lowered).load_method("forward")

    def run(inputs: Mapping[str, Any]) -> list[Any]:
        return [each.numpy() for each in method.execute([torch.from_numpy(inputs["image"])])]

    return path, {"executorch": run}


def as_tflite(name: str, image: Any, folder: Path, threads: int) -> tuple[Path, dict[str, Run]]:
    """The file, and the engines that run it, Ingot left out."""
    import litert_torch
    from ai_edge_litert.interpreter import Interpreter
    from litert_torch.quantize import pt2e_quantizer
    from litert_torch.quantize.quant_config import QuantConfig

    path = folder / "model.tflite"
    config = pt2e_quantizer.get_symmetric_quantization_config(is_per_channel=True)
    quantizer = pt2e_quantizer.PT2EQuantizer().set_global(config)
    network = quantised(name, image, quantizer, fold_quantize=False)
    arguments = (torch.from_numpy(image),)
    litert_torch.convert(
        network, arguments, quant_config=QuantConfig(pt2e_quantizer=quantizer)
    ).export(str(path))
    interpreter = Interpreter(str(path), num_threads=threads)
    interpreter.allocate_tensors()
    (source,), (target,) = interpreter.get_input_details(), interpreter.get_output_details()

    def run(inputs: Mapping[str, Any]) -> list[Any]:
        interpreter.set_tensor(source["index"], inputs["codes"])
        interpreter.invoke()
        return [interpreter.get_tensor(target["index"])]

    return path, {"litert": run}


FORMS = {"pt2e": (as_pt2e, "image"), "tflite": (as_tflite, "codes")}


def quantised(name: str, image: Any, quantizer: Any, **options: Any) -> Any:
    """The network with scales of one image."""
    arguments = (torch.from_numpy(image),)
    torch.manual_seed(0)
    network = torch.export.export(NETWORKS[name]().eval(), arguments).module()
    prepared = prepare_pt2e(network, quantizer)
    with torch.no_grad():
        prepared(*arguments)
    return convert_pt2e(prepared, **options)


def program(model: str, folder: Path, threads: int) -> Program:
    """A name and a form, such as "mobilenetv2 tflite", in all engines that run it."""
    name, form = model.split()
    random = np.random.default_rng(0)
    image = random.standard_normal((1, 3, 224, 224)).astype(np.float32)
    inputs = {"image": image, "codes": random.integers(-128, 128, image.shape, np.int8)}
    make, argument = FORMS[form]
    path, others = make(name, image, folder, threads)
    ours = ingot.load(ingot.compile(path), threads=threads)
    runs = {"ingot": lambda inputs: [ours(inputs[argument])], **others}
    return Program(model, runs, inputs)


if __name__ == "__main__":
    sys.exit(main())
