"""The arguments of the command ``npu-compile``."""

from __future__ import annotations

import argparse
from importlib.metadata import version
from types import MappingProxyType
from typing import Any

_DESCRIPTION = """\
Show, measure and configure what npu-compile does to a model.

explain, lint, plan, bench and trace take MODULE:FUNCTION: a function without arguments that
returns the model and its example inputs. Run `npu-compile explain --help` for an example."""

_MODEL = "a function that returns the model and its example inputs; see the example below"
_EXAMPLE = """\
example, in a file my_model.py:

  import torch

  def decode():
      model = torch.nn.Sequential(torch.nn.Linear(64, 64), torch.nn.SiLU())
      return {{
          "model": model.eval(),
          "inputs": {{"input": torch.randn(4, 64)}},
          "config": {{"mode": "full", "capture_sizes": [1, 2, 4]}},
      }}

  npu-compile {command} my_model:decode{options}

The mapping must have "model" and "inputs" (example arguments of one decode step, by name). It may
have "config", "pipeline" and "dynamic_arg_dims" (as for compile_model), and, to run the model,
"device", "context", "decode" (further arguments of DecodeRunner) and "prefill" (of
PrefillRunner)."""

_LINT = """\
The model runs twice eagerly, on the CPU: its inputs play tensors of the device. Each value or copy
that the host reads, shape that depends on values, wait, seed, copy from the host, tensor that is
made in each call and kept, and value of Python that each call changes is named with its line and
the remedy. The exit status is 1 if something was found, or if the model raised.

For a model that needs operators of NPUs, put its inputs on the NPU, set
TORCH_DEVICE_BACKEND_AUTOLOAD=1, and run the command on an NPU or by `cann-sim run --`."""

_CONFIG_EXAMPLES = """\
examples:

  npu-compile config '{"mode": "full", "capture_sizes": [1, 2, 4]}'
  npu-compile config --enable-torch-compile --cuda-graph-max-bs 16
  npu-compile config --compilation-config '{"compiler": "piecewise"}' --cuda-graph-bs 1 2 4"""

_UNITS = MappingProxyType({"": 1, "K": 2**10, "M": 2**20, "G": 2**30})


def make_parser() -> argparse.ArgumentParser:
    """Make the parser. The options that it gives have the name of the command as ``command``."""
    parser = argparse.ArgumentParser(
        prog="npu-compile",
        description=_DESCRIPTION,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument(
        "--version", action="version", version=f"npu-compile {version('npu-compile')}"
    )
    commands = parser.add_subparsers(required=True, metavar="COMMAND", dest="command")

    explain = _add_model_command(
        commands,
        "explain",
        "show fusions, near misses and pieces of a model, without running it",
        options=" --html explanation.html",
    )
    explain.add_argument(
        "--transformers",
        metavar="FOLDER",
        help="explain the decoder of transformers whose config.json is in this folder, in place of "
        "MODULE:FUNCTION; needs no weights, and raises models in plain torch unless --fusions or "
        "--config says otherwise",
    )
    explain.add_argument(
        "--fusions",
        metavar="NAME",
        help="use this pipeline: default, raise (for models in plain torch), none, or "
        "MODULE:FUNCTION that returns an fx_passes.Pipeline",
    )
    explain.add_argument("--html", metavar="FILE", help="write the explanation as an HTML page")
    _add_plot(explain, "operators before and after fusion")

    _add_model_command(
        commands,
        "lint",
        "find what a captured graph of a model could not repeat, without a device",
        options="",
        more=_LINT,
    )

    plan = _add_model_command(
        commands,
        "plan",
        "capture a model within a budget, and show which sizes fit and what they take",
        options=" --memory 2G",
    )
    plan.add_argument(
        "--streams", type=_positive, help="streams of the device to use (default: all free ones)"
    )
    plan.add_argument(
        "--memory", type=_bytes, help="memory to use, such as 512M or 2G (default: all free memory)"
    )
    plan.add_argument(
        "--sizes", type=_sizes, help="sizes of decode, such as 1,2,4 (default: as configured)"
    )
    _add_quiet(plan)

    bench = _add_model_command(
        commands,
        "bench",
        "measure the host time of decode steps in each mode",
        options=" --modes eager,full",
    )
    bench.add_argument(
        "--modes", type=_texts, help="modes, such as eager,full (default: all that differ)"
    )
    bench.add_argument(
        "--steps", type=_positive, default=50, help="steps in each mode (default: %(default)s)"
    )
    _add_plot(bench, "the times")
    _add_quiet(bench)

    trace = _add_model_command(
        commands,
        "trace",
        "trace some decode steps on host and device, for Perfetto",
        options=" --steps 3",
    )
    trace.add_argument(
        "--steps", type=_positive, default=3, help="steps to trace (default: %(default)s)"
    )
    trace.add_argument(
        "--output", default="trace.json", help="file to write (default: %(default)s)"
    )
    _add_plot(trace, "the steps as a timeline")
    _add_quiet(trace)

    config = commands.add_parser(
        "config",
        help="read a configuration and print it as JSON, with all defaults",
        epilog=_CONFIG_EXAMPLES,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    config.add_argument(
        "configuration",
        help="a JSON object, the path of a JSON or TOML file, or options as flags, those of SGLang "
        "and vLLM too",
    )

    error = commands.add_parser("error", help="explain error codes of the device")
    error.add_argument(
        "text", help="a code such as 507015, a message that contains codes, or - for a log on stdin"
    )
    error.add_argument("--json", action="store_true", help="print a JSON array")

    doctor = commands.add_parser(
        "doctor", help="check this installation, and say how to repair what is wrong"
    )
    doctor.add_argument("--json", action="store_true", help="print a JSON array")
    return parser


def _add_model_command(
    commands: Any, name: str, what: str, *, options: str, more: str = ""
) -> argparse.ArgumentParser:
    parser: argparse.ArgumentParser = commands.add_parser(
        name,
        help=what,
        description=what[0].upper() + what[1:] + "." + (f" {more}" if more else ""),
        epilog=_EXAMPLE.format(command=name, options=options),
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    # Only explain can be given a model in another way.
    number = "?" if name == "explain" else None
    parser.add_argument("model", metavar="MODULE:FUNCTION", nargs=number, help=_MODEL)
    parser.add_argument(
        "--config",
        help="use this configuration (a JSON object, a file, or flags such as "
        "--config='--mode full') in place of the function's",
    )
    parser.add_argument("--json", action="store_true", help="print JSON")
    parser.set_defaults(plot=[], html=None, output=None)
    return parser


def _add_plot(parser: argparse.ArgumentParser, what: str) -> None:
    parser.add_argument(
        "--plot",
        metavar="FILE",
        action="append",
        help=f"draw {what} as .svg or .png (needs matplotlib); may be repeated",
    )


def _add_quiet(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--quiet", action="store_true", help="show no progress")


def _positive(text: str) -> int:
    number = int(text) if text.isdecimal() else 0
    if number < 1:
        raise argparse.ArgumentTypeError(f"expected a whole number of at least 1, found {text!r}")
    return number


def _bytes(text: str) -> int:
    number, unit = text.upper().removesuffix("IB"), ""
    if number[-1:] in _UNITS and number[-1:]:
        number, unit = number[:-1], number[-1:]
    try:
        return int(float(number) * _UNITS[unit])
    except ValueError:
        raise argparse.ArgumentTypeError(
            f"expected bytes, such as 512M or 2G, found {text!r}"
        ) from None


def _texts(text: str) -> tuple[str, ...]:
    return tuple(dict.fromkeys(text.split(",")))


def _sizes(text: str) -> tuple[int, ...]:
    return tuple(map(_positive, text.split(",")))
