"""The command ``npu-compile``: configurations, installations, and what is done to a model.

``explain`` says it, ``plan`` measures what captures take, ``bench`` what a step costs the host, and
``trace`` shows when what happens.
"""

from __future__ import annotations

import argparse
import dataclasses
import json
import sys
from pathlib import Path
from types import MappingProxyType
from typing import TYPE_CHECKING, Any

from npu_compile.__about__ import __version__
from npu_compile.command_line.device_failures import find_failures
from npu_compile.command_line.figures.figure import require_drawable, require_folder
from npu_compile.command_line.figures.fusion_figure import draw_fusions
from npu_compile.command_line.figures.times_figure import draw_times
from npu_compile.command_line.figures.trace_figure import draw_trace
from npu_compile.command_line.installation_check import check_installation
from npu_compile.command_line.mode_times import as_table, eager_of, modes_of, time_modes
from npu_compile.command_line.named_model import TOLD_ERRORS, NamedModel
from npu_compile.command_line.planned_captures import plan_captures
from npu_compile.command_line.progress import Progress
from npu_compile.command_line.step_trace import trace_model
from npu_compile.configuration.config import CompileConfig, CompileMode
from npu_compile.errors import ConfigError
from npu_graph_runtime import CaptureBudget

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

_MODEL = (
    "a function without arguments that returns a mapping of what the command is to know of a model"
)
_UNITS = MappingProxyType({"": 1, "K": 2**10, "M": 2**20, "G": 2**30})


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the command.

    Args:
        arguments: the command line without the program; that of the process where it is ``None``.

    Returns:
        The exit status: 0, or 1 where something is wrong.
    """
    options = _parser().parse_args(arguments)
    status: int = options.run(options)
    return status


def _config(options: argparse.Namespace) -> int:
    try:
        config = _read(options.configuration)
    except ConfigError as error:
        sys.stderr.write(f"npu-compile: {error}\n")
        return 1
    sys.stdout.write(json.dumps(config.to_mapping(), indent=1) + "\n")
    return 0


def _read(text: str) -> CompileConfig:
    return (
        CompileConfig.from_json(text) if text.lstrip()[:1] == "{" else CompileConfig.from_file(text)
    )


def _doctor(options: argparse.Namespace) -> int:
    checks = check_installation()
    if options.json:
        shown = json.dumps([dataclasses.asdict(check) for check in checks], indent=1)
    else:
        shown = "\n".join(map(str, checks))
    sys.stdout.write(f"{shown}\n")
    return 0 if all(check.ok for check in checks) else 1


def _error(options: argparse.Namespace) -> int:
    text = sys.stdin.read() if options.text == "-" else options.text
    found = find_failures(text)
    if options.json:
        sys.stdout.write(json.dumps([failure.to_mapping() for failure in found], indent=1) + "\n")
    elif found:
        sys.stdout.write("\n".join(map(str, found)) + "\n")
    if not found:
        sys.stderr.write("npu-compile: no error code of the device is in this text\n")
    return 0 if found else 1


def _explain(options: argparse.Namespace) -> None:
    explanation = NamedModel.load(options.model, _config_of(options)).explanation()
    if options.html is not None:
        _write(options.html, explanation.html())
    for path in options.plot:
        draw_fusions(explanation, path)
    if options.json:
        _show(explanation.to_mapping())
    elif options.html is None and not options.plot:
        sys.stdout.write(f"{explanation}\n")


def _plan(options: argparse.Namespace) -> None:
    named = NamedModel.load(options.model, _config_of(options))
    budget = CaptureBudget(streams=options.streams, num_bytes=options.memory)
    progress = Progress(quiet=options.quiet)
    try:
        planned = plan_captures(named, budget, progress, sizes=options.sizes)
    finally:
        progress.end()
    if options.json:
        _show(planned.to_mapping())
    else:
        sys.stdout.write(f"{planned}\n")


def _bench(options: argparse.Namespace) -> None:
    named = NamedModel.load(options.model, _config_of(options))
    modes = options.modes or modes_of(named)
    progress = Progress(quiet=options.quiet)
    try:
        times = time_modes(named, modes, num_steps=options.steps, progress=progress)
    finally:
        progress.end()
    for path in options.plot:
        draw_times(times, path)
    if options.json:
        _show([each.to_mapping(eager_of(times)) for each in times])
    else:
        sys.stdout.write(f"{as_table(times)}\n")


def _trace(options: argparse.Namespace) -> None:
    trace = trace_model(
        options.model, _config_of(options), num_steps=options.steps, quiet=options.quiet
    )
    try:
        trace.write(options.output)
    except OSError as error:
        raise ConfigError(f"writing the trace {options.output!r}: {error}") from error
    for path in options.plot:
        draw_trace(trace, path)
    summary = trace.summary()
    if options.json:
        _show(summary)
    else:
        sys.stdout.write("".join(f"{name}: {value}\n" for name, value in summary.items()))
        sys.stdout.write(f"open {options.output} at https://ui.perfetto.dev\n")


def _config_of(options: argparse.Namespace) -> CompileConfig | None:
    return None if options.config is None else _read(options.config)


def _show(value: object) -> None:
    sys.stdout.write(json.dumps(value, indent=1) + "\n")


def _write(path: str, text: str) -> None:
    try:
        Path(path).write_text(text, encoding="utf-8")
    except OSError as error:
        raise ConfigError(f"writing the page {path!r}: {error}; name another file") from error


def _of_model(run: Callable[[argparse.Namespace], None]) -> Callable[[argparse.Namespace], int]:
    """Return what runs a command about a model, whose errors are lines for a person."""

    def run_and_tell(options: argparse.Namespace) -> int:
        try:
            for path in options.plot:
                require_drawable(path)
            for path in filter(None, (options.html, options.output)):
                require_folder(path, "writing")
            run(options)
        except TOLD_ERRORS as error:
            sys.stderr.write(f"npu-compile: {error}\n")
            return 1
        return 0

    return run_and_tell


def _positive(text: str) -> int:
    number = int(text) if text.isdecimal() else 0
    if number < 1:
        raise argparse.ArgumentTypeError(f"expected a whole number of at least 1, found {text!r}")
    return number


def _bytes(text: str) -> int:
    """Return a number of bytes, as in 512M or 2G."""
    number, unit = text.upper().removesuffix("IB"), ""
    if number[-1:] in _UNITS and number[-1:]:
        number, unit = number[:-1], number[-1:]
    try:
        return int(float(number) * _UNITS[unit])
    except ValueError:
        raise argparse.ArgumentTypeError(
            f"expected bytes, as in 512M or 2G, found {text!r}"
        ) from None


def _sizes(text: str) -> tuple[int, ...]:
    return tuple(map(_positive, text.split(",")))


def _modes(text: str) -> tuple[CompileMode, ...]:
    try:
        return tuple(dict.fromkeys(map(CompileMode, text.split(","))))
    except ValueError:
        known = ", ".join(mode.value for mode in CompileMode)
        raise argparse.ArgumentTypeError(f"expected some of {known}; found {text!r}") from None


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="npu-compile", description=__doc__)
    parser.add_argument("--version", action="version", version=f"npu-compile {__version__}")
    commands = parser.add_subparsers(required=True, metavar="COMMAND")

    config = commands.add_parser(
        "config", help="read a configuration and show all of it, defaults included, as JSON"
    )
    config.add_argument("configuration", help="a JSON object, or the path of a JSON or TOML file")
    config.set_defaults(run=_config)

    explain = _command(
        commands,
        "explain",
        _explain,
        "show what is done to a model, without running it: fusions, near misses, pieces",
    )
    explain.add_argument("--html", metavar="FILE", help="as a page, written into a file")
    _add_plot(explain, "operators before and after fusion")

    plan = _command(
        commands, "plan", _plan, "capture a model within a budget: which sizes fit, what they take"
    )
    plan.add_argument("--streams", type=_positive, help="of the device; default: all that are free")
    plan.add_argument(
        "--memory", type=_bytes, help="of the device, as in 512M or 2G; default: all that is free"
    )
    plan.add_argument("--sizes", type=_sizes, help="of decode, as in 1,2,4; default: configured")
    _add_quiet(plan)

    bench = _command(commands, "bench", _bench, "time decode steps on the host, by mode")
    bench.add_argument("--modes", type=_modes, help="as in eager,full; default: all that differ")
    bench.add_argument("--steps", type=_positive, default=50, help="in each mode (%(default)s)")
    _add_plot(bench, "the times")
    _add_quiet(bench)

    trace = _command(
        commands,
        "trace",
        _trace,
        "show when host and device do what in some decode steps, as a file for Perfetto",
    )
    trace.add_argument("--steps", type=_positive, default=3, help="that are shown (%(default)s)")
    trace.add_argument("--output", default="trace.json", help="the file (%(default)s)")
    _add_plot(trace, "the steps as a timeline")
    _add_quiet(trace)

    error = commands.add_parser(
        "error", help="say what error codes of the device mean, and what helps against them"
    )
    error.add_argument(
        "text", help="a code such as 507015, a message with codes in it, or - for a log on stdin"
    )
    error.add_argument("--json", action="store_true", help="as a JSON array")
    error.set_defaults(run=_error)

    doctor = commands.add_parser(
        "doctor", help="look for what keeps a model from running on an NPU, and say what helps"
    )
    doctor.add_argument("--json", action="store_true", help="as a JSON array")
    doctor.set_defaults(run=_doctor)
    return parser


def _command(
    commands: Any, name: str, run: Callable[[argparse.Namespace], None], what: str
) -> argparse.ArgumentParser:
    """Return the parser of a new command about a model."""
    parser: argparse.ArgumentParser = commands.add_parser(name, help=what, description=what)
    parser.add_argument("model", metavar="MODULE:FUNCTION", help=_MODEL)
    parser.add_argument("--config", help="as for the command config, in place of the function's")
    parser.add_argument("--json", action="store_true", help="as JSON")
    parser.set_defaults(run=_of_model(run), plot=[], html=None, output=None)
    return parser


def _add_plot(parser: argparse.ArgumentParser, what: str) -> None:
    parser.add_argument(
        "--plot",
        metavar="FILE",
        action="append",
        help=f"draw {what} into a file, .svg or .png; needs npu-compile[plot]; may be repeated",
    )


def _add_quiet(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--quiet", action="store_true", help="say nothing of progress")
