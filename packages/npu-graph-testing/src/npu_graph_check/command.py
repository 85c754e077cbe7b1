"""The implementation of each ``npu-graph-check`` command."""

from __future__ import annotations

import dataclasses
import functools
import json
import os
import sys
from contextlib import ExitStack
from pathlib import Path
from types import MappingProxyType
from typing import TYPE_CHECKING

from npu_graph_check.errors import CheckError, NoDeviceError, ResultFileError
from npu_graph_check.probes.table import GROUPS, chosen_probes
from npu_graph_check.results.comparison import compare_results
from npu_graph_check.results.page import as_page
from npu_graph_check.results.probe_result import OTHERWISE
from npu_graph_check.results.result_file import keep_previous, read_results
from npu_graph_check.results.text import as_text
from npu_graph_check.running.check_run import INTERRUPTED, run_probes, write_untried
from npu_graph_check.running.environment import read_environment
from npu_graph_check.running.fork_server import ForkServer
from npu_graph_check.running.probe_process import probe_in_process
from npu_graph_check.running.progress import Progress
from npu_graph_check.running.signals import ended_by_signals
from npu_graph_check.running.start import NewInterpreter

if TYPE_CHECKING:
    import argparse
    from collections.abc import Callable, Mapping, Sequence

    from npu_graph_check.probe import Probe
    from npu_graph_check.running.start import Start

_FOUND, _FAILED, _SIGNALLED = 1, 2, 130


def run(options: argparse.Namespace) -> int:
    """Run the command that the options name, and return its exit status."""
    try:
        return _COMMANDS[options.command](options)
    except CheckError as error:
        sys.stderr.write(f"npu-graph-check: {error}\n")
        return _FAILED
    except KeyboardInterrupt:
        return _SIGNALLED


def _run(options: argparse.Namespace) -> int:
    with ended_by_signals():
        return _run_chosen(options, chosen_probes(options.only), Path(options.output))


def _run_chosen(options: argparse.Namespace, probes: Sequence[Probe], output: Path) -> int:
    keep_previous(output)
    write_untried(probes, output)
    try:
        environment = read_environment(options.device)
    except NoDeviceError as error:
        write_untried(probes, output, str(error), ended=str(error))
        raise
    except KeyboardInterrupt:
        write_untried(probes, output, ended=INTERRUPTED)
        raise
    with ExitStack() as stack:
        start: Start = NewInterpreter(os.environ)
        if not options.new_interpreters:
            start = stack.enter_context(ForkServer(os.environ))
        results = run_probes(
            probes,
            device=options.device,
            environment=environment,
            output=output,
            progress=Progress(len(probes), quiet=options.quiet),
            run=functools.partial(probe_in_process, start=start),
            risky=options.risky,
            minutes=options.minutes,
        )
    if options.json:
        _print_json(results.to_mapping())
    else:
        sys.stdout.write(f"{as_text(results, in_full=False)}wrote {output}\n")
    if results.ended == INTERRUPTED:
        return _SIGNALLED
    return _FOUND if any(each.verdict == OTHERWISE for each in results.probes) else 0


def _show(options: argparse.Namespace) -> int:
    results = read_results(Path(options.file))
    if options.html is not None:
        try:
            Path(options.html).write_text(as_page(results), "utf-8", errors="replace")
        except OSError as error:
            raise ResultFileError(f"writing the page {options.html!r}: {error.strerror}") from error
        sys.stdout.write(f"wrote {options.html}\n")
    elif options.json:
        _print_json(results.to_mapping())
    else:
        sys.stdout.write(as_text(results, in_full=True))
    return 0


def _compare(options: argparse.Namespace) -> int:
    first, second = (read_results(Path(name)) for name in (options.first, options.second))
    differences = compare_results(first, second)
    if options.json:
        _print_json([dataclasses.asdict(each) for each in differences])
    else:
        sys.stdout.writelines(f"{each}\n" for each in differences)
        sys.stdout.write(f"{len(differences)} difference{'' if len(differences) == 1 else 's'}\n")
    return _FOUND if differences else 0


def _list(options: argparse.Namespace) -> int:
    if options.json:
        _print_json(
            [
                {
                    "group": group.name,
                    "title": group.title,
                    "probes": [
                        {
                            "id": probe.id,
                            "title": probe.title,
                            "rows": probe.rows,
                            "devices": sorted(probe.devices),
                            "risk": probe.risk,
                        }
                        for probe in group.probes
                    ],
                }
                for group in GROUPS
            ]
        )
        return 0
    for group in GROUPS:
        sys.stdout.write(f"{group.name}: {group.title}\n")
        for probe in group.probes:
            sys.stdout.write(f"  {probe.id}\n      {probe.title}\n")
            if probe.risk:
                sys.stdout.write(f"      with --risky only: {probe.risk}\n")
    return 0


def _print_json(value: object) -> None:
    sys.stdout.write(json.dumps(value, indent=1) + "\n")


_COMMANDS: Mapping[str, Callable[[argparse.Namespace], int]] = MappingProxyType(
    {"run": _run, "show": _show, "compare": _compare, "list": _list}
)
