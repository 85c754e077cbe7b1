"""The command ``npu-compile``: configurations, installations, and what is done to a model."""

from __future__ import annotations

import argparse
import dataclasses
import json
import sys
from pathlib import Path
from typing import TYPE_CHECKING

from npu_compile.__about__ import __version__
from npu_compile.command_line.device_failures import find_failures
from npu_compile.command_line.explained_model import explain_named
from npu_compile.command_line.installation_check import check_installation
from npu_compile.configuration.config import CompileConfig
from npu_compile.errors import ConfigError

if TYPE_CHECKING:
    from collections.abc import Sequence


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


def _explain(options: argparse.Namespace) -> int:
    try:
        config = None if options.config is None else _read(options.config)
        explanation = explain_named(options.model, config)
        if options.html is not None:
            _write(options.html, explanation.html())
    except ValueError as error:
        # Those of this package and of the leaves are values that do not fit.
        sys.stderr.write(f"npu-compile: {error}\n")
        return 1
    if options.json:
        sys.stdout.write(json.dumps(explanation.to_mapping(), indent=1) + "\n")
    elif options.html is None:
        sys.stdout.write(f"{explanation}\n")
    return 0


def _write(path: str, text: str) -> None:
    try:
        Path(path).write_text(text, encoding="utf-8")
    except OSError as error:
        raise ConfigError(f"writing the page {path!r}: {error}; name another file") from error


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="npu-compile", description=__doc__)
    parser.add_argument("--version", action="version", version=f"npu-compile {__version__}")
    commands = parser.add_subparsers(required=True, metavar="COMMAND")

    config = commands.add_parser(
        "config", help="read a configuration and show all of it, defaults included, as JSON"
    )
    config.add_argument("configuration", help="a JSON object, or the path of a JSON or TOML file")
    config.set_defaults(run=_config)

    explain = commands.add_parser(
        "explain",
        help="show what is done to a model, without running it: fusions, near misses, pieces",
    )
    explain.add_argument(
        "model",
        metavar="MODULE:FUNCTION",
        help="a function without arguments that returns those of npu_compile.explain as a mapping: "
        "model, inputs and, if wished, config and dynamic_arg_dims",
    )
    explain.add_argument("--config", help="as for the command config, in place of the function's")
    explain.add_argument("--json", action="store_true", help="as a JSON object")
    explain.add_argument("--html", metavar="FILE", help="as a page, written into a file")
    explain.set_defaults(run=_explain)

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
