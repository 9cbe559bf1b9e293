"""Serves a compiled model: Open Inference Protocol v2, REST and gRPC, with MLServer.

pip install mlserver
ingot compile ../digits/digits.onnx -o digits.ingot
python serve.py digits.ingot
"""

from __future__ import annotations

import argparse
import asyncio
from collections.abc import Sequence
from pathlib import Path

from ingot_runtime import DEFAULTS, IngotModel
from mlserver import MLServer
from mlserver.settings import ModelParameters, ModelSettings, Settings


async def serve(options: argparse.Namespace) -> None:
    extra = {name: getattr(options, name) for name in DEFAULTS}
    extra |= {"threads": options.threads, "device": options.device, "parameters": options.weights}
    model = ModelSettings(
        name=options.name or options.module.stem,
        implementation=IngotModel,
        parameters=ModelParameters(uri=str(options.module), extra=extra),
    )
    settings = Settings(
        host=options.host,
        http_port=options.port,
        grpc_port=options.port + 1,
        metrics_port=options.port + 2,
        parallel_workers=0,  # a call leaves the GIL: one process, one copy of the weights
    )
    await MLServer(settings).start([model])


def main(arguments: Sequence[str] | None = None) -> None:
    parser = argparse.ArgumentParser(description="Serves a compiled model with MLServer.")
    parser.add_argument("module", type=Path, help="a file that `ingot compile` wrote")
    parser.add_argument("--name", help="of the model, else that of the file")
    parser.add_argument("--weights", help="the file of external parameters")
    parser.add_argument("--device", default="cpu")
    parser.add_argument("--threads", type=int)
    parser.add_argument("--host", default="127.0.0.1")
    parser.add_argument("--port", type=int, default=8080, help="REST; gRPC and metrics are behind")
    for name, default in DEFAULTS.items():
        option = f"--{name.replace('_', '-')}"
        parser.add_argument(option, type=type(default), default=default, help=f"{default}")
    asyncio.run(serve(parser.parse_args(arguments)))


if __name__ == "__main__":
    main()
