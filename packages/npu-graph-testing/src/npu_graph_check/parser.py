"""The arguments of ``npu-graph-check``."""

from __future__ import annotations

import argparse
import math
from importlib.metadata import PackageNotFoundError, version

_DESCRIPTION = (
    "Look at a device, claim by claim: each probe says confirmed, otherwise (and what was seen) or "
    "not tried (and why). On a machine without an NPU, start it as `cann-sim run -- "
    "npu-graph-check run`."
)


def make_parser() -> argparse.ArgumentParser:
    """Return the parser of the command line."""
    parser = argparse.ArgumentParser(prog="npu-graph-check", description=_DESCRIPTION)
    parser.add_argument("--version", action="version", version=f"npu-graph-check {_version()}")
    commands = parser.add_subparsers(dest="command", required=True)
    run = commands.add_parser("run", help="run the probes and write their verdicts to a file")
    run.add_argument(
        "--only",
        nargs="+",
        action="extend",
        default=[],
        metavar="NAME",
        help="groups or probes, as `npu-graph-check list` names them",
    )
    run.add_argument(
        "--minutes",
        type=_minutes,
        metavar="N",
        help="begin no probe after this time; the rest is not tried",
    )
    run.add_argument(
        "--output",
        default="npu-graph-check.json",
        metavar="FILE",
        help="the file of results, written anew after each probe; results that it held are kept "
        "as FILE.previous (default: %(default)s)",
    )
    run.add_argument("--device", choices=("npu", "cuda"), default="npu")
    run.add_argument(
        "--risky",
        action="store_true",
        help="also run probes that may disturb others on the device; `list` says how",
    )
    run.add_argument(
        "--new-interpreters",
        action="store_true",
        help="start a new interpreter for each probe, instead of forking one that has imported "
        "torch_npu and started no device: takes seconds more a probe",
    )
    run.add_argument("--json", action="store_true", help="print the results as JSON at the end")
    run.add_argument("--quiet", action="store_true", help="say nothing of the progress")
    show = commands.add_parser("show", help="show a file of results")
    show.add_argument("file", metavar="FILE")
    show.add_argument("--html", metavar="PAGE", help="write one self-contained page instead")
    show.add_argument("--json", action="store_true", help="as JSON")
    compare = commands.add_parser("compare", help="what differs between two files of results")
    compare.add_argument("first", metavar="FILE")
    compare.add_argument("second", metavar="FILE")
    compare.add_argument("--json", action="store_true", help="as JSON")
    listed = commands.add_parser("list", help="list groups and probes")
    listed.add_argument("--json", action="store_true", help="as JSON")
    return parser


def _minutes(text: str) -> float:
    number = float(text)
    if not (math.isfinite(number) and number > 0):
        raise argparse.ArgumentTypeError(f"expected a number above 0, found {text!r}")
    return number


def _version() -> str:
    try:
        return version("npu-graph-testing")
    except PackageNotFoundError:
        return "(not installed)"
