"""The command ``cann-sim``."""

from __future__ import annotations

import argparse
import os
import signal
import subprocess
import sys
from pathlib import Path
from typing import TYPE_CHECKING

from cann_sim.__about__ import __version__
from cann_sim.activation import launch_environment
from cann_sim.building.native_build import build
from cann_sim.errors import (
    ActivationError,
    CacheError,
    CompilationError,
    CompilerNotFoundError,
    InstallationError,
    SettingError,
)
from cann_sim.inventory.coverage import read_coverage
from cann_sim.inventory.simulated_operators import (
    simulated_atb_operations,
    simulated_compiled_operators,
    simulated_operators,
)
from cann_sim.settings import check_settings
from cann_sim.simulated_device.stalls import read_stalls
from cann_sim.start_report import start_report

if TYPE_CHECKING:
    from collections.abc import Sequence

_COMMAND_NOT_FOUND = 127
_SIGNALLED = 128  # a shell's status of a command that a signal ended is this and its number
_COVERAGE_HELP = "begin FILE anew, collect in it what is asked of the operators, and show it"
_EXPECTED_ERRORS = (
    ActivationError,
    CacheError,
    CompilationError,
    CompilerNotFoundError,
    InstallationError,
    SettingError,
)


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the command.

    Args:
        arguments: The command line without the program; that of the process where it is None.

    Returns:
        The exit status. ``run`` without ``--coverage`` does not return: the process becomes the
        command.
    """
    parser = argparse.ArgumentParser(prog="cann-sim", description="A simulated CANN.")
    parser.add_argument("--version", action="version", version=f"cann-sim {__version__}")
    commands = parser.add_subparsers(dest="command", required=True)
    run = commands.add_parser("run", help="run a command over the simulated libraries")
    run.add_argument("--coverage", metavar="FILE", type=Path, help=_COVERAGE_HELP)
    run.add_argument("program", nargs=argparse.REMAINDER, help="-- and the command")
    commands.add_parser("build", help="build the native libraries ahead")
    commands.add_parser(
        "info", help="say what is installed, built and chosen, and what would keep it from starting"
    )
    commands.add_parser("ops", help="list the operators that are simulated")
    shown = commands.add_parser("coverage", help="show what CANN_SIM_COVERAGE has collected")
    shown.add_argument("file", type=Path)
    stalls = commands.add_parser(
        "stalls", help="show when replays came to their waits, in a trace with virtual times"
    )
    stalls.add_argument("trace", type=Path)
    chosen = parser.parse_args(arguments)
    try:
        if chosen.command == "run":
            return _run(chosen.program, chosen.coverage)
        if chosen.command == "coverage":
            return _coverage(chosen.file)
        if chosen.command == "stalls":
            return _stalls(chosen.trace)
        return {"build": _build, "info": _info, "ops": _ops}[chosen.command]()
    except _EXPECTED_ERRORS as error:
        sys.stderr.write(f"cann-sim: {error}\n")
        return 1


def _run(program: Sequence[str], coverage: Path | None) -> int:
    command = list(program[1:] if program[:1] == ["--"] else program)
    if not command:
        sys.stderr.write("cann-sim run: expected a command, as in: cann-sim run -- pytest\n")
        return 2
    environment = launch_environment(os.environ)
    try:
        if coverage is not None:
            return _run_with_coverage(command, environment, coverage)
        os.execvpe(command[0], command, environment)  # noqa: S606 (no shell is what is wanted)
    except OSError as error:
        sys.stderr.write(f"cann-sim run: cannot run {command[0]!r}: {error.strerror}\n")
        return _COMMAND_NOT_FOUND


def _run_with_coverage(command: Sequence[str], environment: dict[str, str], file: Path) -> int:
    file.write_text("", encoding="utf-8")
    environment["CANN_SIM_COVERAGE"] = str(file.absolute())
    with subprocess.Popen(command, env=environment) as process:
        # An interrupt reaches the command as well, which decides what becomes of it.
        before = signal.signal(signal.SIGINT, signal.SIG_IGN)
        status = process.wait()
        signal.signal(signal.SIGINT, before)
    sys.stderr.write(f"cann-sim: {file}\n{read_coverage(file).report()}")
    return status if status >= 0 else _SIGNALLED - status


def _coverage(file: Path) -> int:
    try:
        sys.stdout.write(read_coverage(file).report())
    except (OSError, ValueError) as error:
        sys.stderr.write(f"cann-sim coverage: {error}\n")
        return 1
    return 0


def _stalls(trace: Path) -> int:
    try:
        stalls = read_stalls(trace)
    except (OSError, ValueError) as error:
        sys.stderr.write(f"cann-sim stalls: {error}\n")
        return 1
    sys.stdout.write("replay  wait      arrived      written        stall  (microseconds)\n")
    for stall in stalls:
        sys.stdout.write(
            f"{stall.replay:6}  {stall.position:4}  {stall.arrived:11.1f}  {stall.written:11.1f}  "
            f"{stall.microseconds:11.1f}\n"
        )
    return 0


def _build() -> int:
    sys.stdout.write(f"{build().folder}\n")
    return 0


def _ops() -> int:
    check_settings(os.environ)
    *operators, operations = build().deferred_paths
    names = simulated_operators(operators) + simulated_compiled_operators(operators)
    names += simulated_atb_operations(operations)
    sys.stdout.writelines(f"{name}\n" for name in names)
    return 0


def _info() -> int:
    report = start_report()
    sys.stdout.write(report.text())
    return 1 if report.problems else 0
