"""The process of one probe: ``python -m npu_graph_check.child PROBE --device npu --into FILE``."""

from __future__ import annotations

import argparse
import faulthandler
import os
import sys
from pathlib import Path
from typing import TYPE_CHECKING

from npu_graph_check.end_with_parent import end_with_parent
from npu_graph_check.probe import Look, NotTriedError
from npu_graph_check.probes.table import find_probe

if TYPE_CHECKING:
    from collections.abc import Sequence

    from npu_graph_check.probe import Probe


def main(arguments: Sequence[str] | None = None) -> None:
    """Run the probe that the arguments name, and end the process."""
    parser = argparse.ArgumentParser(prog="npu_graph_check.child")
    parser.add_argument("probe")
    parser.add_argument("--device", choices=("npu", "cuda"), default="npu")
    parser.add_argument("--into", type=Path, required=True)
    parser.add_argument("--limit", type=float)
    options = parser.parse_args(arguments)
    probe = find_probe(options.probe)
    end_with_parent()
    with options.into.open("w", encoding="utf-8") as lines:
        look = Look(lines, options.device)
        # The thread of faulthandler needs no lock of the interpreter, so it ends a process that
        # waits inside a library. Its dump on the standard error says where.
        faulthandler.enable()
        faulthandler.dump_traceback_later(options.limit or probe.limit_s, exit=True)
        run_probe(probe, look)
    # A device that waits for ever would keep an ordinary exit from ending.
    sys.stdout.flush()
    sys.stderr.flush()
    os._exit(0)


def run_probe(probe: Probe, look: Look) -> None:
    """Run a probe in this process, and write its verdict."""
    try:
        probe.function()(look)
    except NotTriedError as reason:
        look.end("not tried", str(reason))
        return
    except Exception as error:  # noqa: BLE001 - whatever the device answers is a finding
        lines = str(error).strip().splitlines() or [""]
        look.end("otherwise", f"{type(error).__name__}: {lines[0][:500]}")
        return
    if not look.num_seen:
        look.end("otherwise", "the probe ended without having seen anything")
        return
    if look.found_otherwise:
        look.end("otherwise")
    else:
        look.end("confirmed" if look.has_expected else "answered")


if __name__ == "__main__":
    main()
