"""The implementation of each ``npu-compile`` command; ``npu_compile_command`` parses arguments."""

from __future__ import annotations

import dataclasses
import json
import shlex
import sys
from pathlib import Path
from types import MappingProxyType
from typing import TYPE_CHECKING

from npu_compile.command_line.device_failures import find_failures
from npu_compile.command_line.figures.figure import require_drawable, require_folder
from npu_compile.command_line.figures.fusion_figure import draw_fusions
from npu_compile.command_line.figures.trace_figure import draw_trace
from npu_compile.command_line.installation_check import check_installation
from npu_compile.command_line.mode_times import as_table, draw_times, eager_of, modes_of, time_modes
from npu_compile.command_line.named_model import TOLD_ERRORS, NamedModel, transformers_model
from npu_compile.command_line.planned_captures import plan_captures, plan_mapping
from npu_compile.command_line.progress import Progress
from npu_compile.command_line.step_trace import trace_model
from npu_compile.configuration.config import CompileConfig, CompileMode
from npu_compile.errors import ConfigError
from npu_graph_runtime.diagnosis import find_uncapturable
from npu_graph_runtime.planning import CaptureBudget

if TYPE_CHECKING:
    import argparse
    from collections.abc import Callable, Mapping, Sequence


def run(options: argparse.Namespace) -> int:
    """Run the command selected by the options.

    Returns:
        The exit status: 0, or 1 if something is wrong.
    """
    command = _COMMANDS.get(options.command)
    if command is not None:
        return command(options)
    try:
        for path in options.plot:
            require_drawable(path)
        for path in filter(None, (options.html, options.output)):
            require_folder(path, "writing")
        return _MODEL_COMMANDS[options.command](options) or 0
    except TOLD_ERRORS as error:
        sys.stderr.write(f"npu-compile: {error}\n")
        return 1


def _config(options: argparse.Namespace) -> int:
    try:
        config = _read(options.configuration)
    except ConfigError as error:
        sys.stderr.write(f"npu-compile: {error}\n")
        return 1
    _show(config.to_mapping())
    return 0


def _read(text: str) -> CompileConfig:
    """Read a JSON object, flags such as ``--mode full``, or a file."""
    if text.lstrip()[:1] == "{":
        return CompileConfig.from_json(text)
    if text.startswith("--"):
        return CompileConfig.from_flags(shlex.split(text))
    return CompileConfig.from_file(text)


def _doctor(options: argparse.Namespace) -> int:
    checks = check_installation()
    _answer(options, list(map(dataclasses.asdict, checks)), *checks)
    return 0 if all(check.ok for check in checks) else 1


def _error(options: argparse.Namespace) -> int:
    text = sys.stdin.read() if options.text == "-" else options.text
    found = find_failures(text)
    _answer(options, [failure.to_mapping() for failure in found], *found)
    if not found:
        sys.stderr.write("npu-compile: no error code of the device is in this text\n")
    return 0 if found else 1


def _explain(options: argparse.Namespace) -> None:
    if (options.model is None) == (options.transformers is None):
        raise ConfigError(
            "reading the arguments: expected a model, either MODULE:FUNCTION or --transformers "
            f"FOLDER; found {'neither' if options.model is None else 'both'}"
        )
    config = _config_of(options)
    named = (
        NamedModel.load(options.model, config)
        if options.transformers is None
        else transformers_model(options.transformers, config)
    )
    explanation = named.with_fusions(options.fusions).explanation()
    if options.html is not None:
        _write(options.html, explanation.html())
    for path in options.plot:
        draw_fusions(explanation, path)
    if options.json:
        _show(explanation.to_mapping())
    elif options.html is None and not options.plot:
        sys.stdout.write(f"{explanation}\n")
    _show_written(options, options.html, *options.plot)


def _lint(options: argparse.Namespace) -> int:
    named = NamedModel.load(options.model, _config_of(options))
    breaks = named.config.mode is CompileMode.BREAKABLE
    work = find_uncapturable(
        named.model, kwargs=named.inputs, context=named.context if breaks else None
    )
    _answer(options, work.to_mapping(), work)
    return 0 if work.is_none else 1


def _plan(options: argparse.Namespace) -> None:
    named = NamedModel.load(options.model, _config_of(options))
    budget = CaptureBudget(streams=options.streams, num_bytes=options.memory)
    with Progress(quiet=options.quiet) as progress:
        plans = plan_captures(named, budget, progress, sizes=options.sizes)
    texts = (f"{step}\n{plan}" for step, plan in plans.items())
    _answer(options, {step: plan_mapping(plan) for step, plan in plans.items()}, "\n\n".join(texts))


def _bench(options: argparse.Namespace) -> None:
    named = NamedModel.load(options.model, _config_of(options))
    modes = _modes(options.modes) if options.modes else modes_of(named)
    with Progress(quiet=options.quiet) as progress:
        times = time_modes(named, modes, num_steps=options.steps, progress=progress)
    for path in options.plot:
        draw_times(times, path)
    _answer(options, [each.to_mapping(eager_of(times)) for each in times], as_table(times))
    _show_written(options, *options.plot)


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
    lines = (f"{name}: {value}" for name, value in summary.items())
    _answer(options, summary, *lines, f"open {options.output} at https://ui.perfetto.dev")
    _show_written(options, *options.plot)


def _config_of(options: argparse.Namespace) -> CompileConfig | None:
    return None if options.config is None else _read(options.config)


def _show(value: object) -> None:
    sys.stdout.write(json.dumps(value, indent=1) + "\n")


def _answer(options: argparse.Namespace, data: object, *lines: object) -> None:
    """Write the answer as JSON, or else as text."""
    if options.json:
        _show(data)
    else:
        sys.stdout.writelines(f"{line}\n" for line in lines)


def _show_written(options: argparse.Namespace, *paths: str | None) -> None:
    for path in paths:
        if path is not None and not options.json:
            sys.stdout.write(f"wrote {path}\n")


def _write(path: str, text: str) -> None:
    try:
        Path(path).write_text(text, encoding="utf-8")
    except OSError as error:
        raise ConfigError(f"writing the page {path!r}: {error}; name another file") from error


def _modes(texts: Sequence[str]) -> tuple[CompileMode, ...]:
    try:
        return tuple(map(CompileMode, texts))
    except ValueError:
        known = ", ".join(mode.value for mode in CompileMode)
        raise ConfigError(
            f"reading --modes: expected some of {known}; found {','.join(texts)!r}"
        ) from None


_COMMANDS = MappingProxyType({"config": _config, "doctor": _doctor, "error": _error})
_MODEL_COMMANDS: Mapping[str, Callable[[argparse.Namespace], int | None]] = MappingProxyType(
    {"explain": _explain, "lint": _lint, "plan": _plan, "bench": _bench, "trace": _trace}
)
