"""The subcommand `ingot quantize`."""

from __future__ import annotations

import argparse
import time
from typing import Any

from ingot.command_line import add_command, add_dim, add_json, count, parse_dims, say
from ingot.hal.printable import printable, size_text

__all__ = ["add_quantize"]


def add_quantize(commands: Any) -> None:
    parser = add_command(
        commands, "quantize", _run_quantize, "compile a model with weights of few bits"
    )
    parser.add_argument("model", nargs="+", help="as of `ingot compile`")
    parser.add_argument("-o", "--output", required=True, metavar="OUT", help="the module file")
    _add_choices(parser)
    _add_accuracy(parser)
    parser.add_argument(
        "--no-measure",
        action="store_true",
        help="measure no times, and leave no layer float for being slower on this machine",
    )
    parser.add_argument("--target", metavar="NAMES", help="as of `ingot compile`")
    parser.add_argument("--variants", metavar="NAMES", help="as of `ingot compile`")
    add_dim(parser, "the size of a dim that the model leaves open, to measure without --data (1)")
    parser.add_argument("--report", metavar="PAGE.html", help="write what was done as a page")
    add_json(parser, "print what was done")


def _add_choices(parser: argparse.ArgumentParser) -> None:
    """What layers become."""
    parser.add_argument(
        "--weights",
        default="int8",
        metavar="TYPE",
        help="of products, convolutions and tables: int8, int4, int3 or int2; or bf16 or f16, "
        "as are activations then (%(default)s)",
    )
    parser.add_argument(
        "--activations",
        metavar="TYPE",
        help="multiply bytes with bytes: int8 with ranges that --data shows, or dynamic with "
        "ranges that each call finds; without it weights are multiplied with floats",
    )
    parser.add_argument(
        "--data", metavar="FILE.npz", help="calibration samples: an array for each argument"
    )
    parser.add_argument(
        "--keep",
        action="append",
        default=[],
        metavar="LAYER",
        help="a layer that stays float, or a pattern such as 'encoder/*'; as often as needed",
    )
    parser.add_argument(
        "--group",
        type=count,
        metavar="SIZE",
        help="weights of a row that share a scale (all of int8, 32 below)",
    )
    parser.add_argument(
        "--precision",
        default="f32",
        metavar="NAME",
        help="of what meets weights in groups: f32, or int8, as of `ingot compile` (%(default)s)",
    )


def _add_accuracy(parser: argparse.ArgumentParser) -> None:
    """How numbers of few bits are chosen, and how wrong they may be."""
    parser.add_argument(
        "--method",
        default="mse",
        metavar="NAME",
        help="how ranges are chosen: minmax, entropy or mse (%(default)s)",
    )
    parser.add_argument(
        "--compensate",
        action="store_true",
        help="make up for the error of a weight by those behind it, by --data (GPTQ)",
    )
    parser.add_argument(
        "--max-error",
        type=float,
        metavar="ERROR",
        help="leave layers float whose relative error would be greater, such as 0.05",
    )


def _run_quantize(options: argparse.Namespace) -> None:
    import ingot
    from ingot.compile_options import parse_sources
    from ingot.hal.whole_file import write_whole
    from ingot.progress import show_progress

    begin = time.perf_counter()
    targets = {} if options.target is None else {"target": options.target.split(",")}
    if options.variants is not None:
        targets["variants"] = options.variants.split(",")
    with show_progress(f"quantising {' '.join(options.model)}") as progress:
        module = ingot.quantize(
            parse_sources(options.model),
            weights=options.weights,
            activations=options.activations,
            data=options.data,
            keep=options.keep,
            group=options.group,
            method=options.method,
            compensate=options.compensate,
            max_error=options.max_error,
            precision=options.precision,
            measure=not options.no_measure,
            dims=parse_dims(options.dim),
            progress=progress,
            **targets,
        )
        module.save(options.output)
    seconds = time.perf_counter() - begin
    report = module.quantization
    if options.report is not None:
        from ingot.quantizing.page import make_page

        page = make_page(report, f"{' '.join(options.model)}, quantised").encode()
        write_whole(options.report, lambda file: file.write(page))
    if options.json:
        from ingot.reports import quantize_report, to_json

        print(to_json("quantize", quantize_report(options.output, seconds, report)))
        return
    say(report)
    say(f"{printable(options.output)}: {size_text(len(module))}, in {seconds:.1f} s")
