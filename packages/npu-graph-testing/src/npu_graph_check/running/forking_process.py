"""The process that forks the processes of probes, the other side of `ForkServer`.

Importing torch and torch_npu takes seconds; starting a device takes little. This process imports
them once and forks a process for each probe. It uses no device itself: a process that has started a
device must not be forked. It reads requests from standard input and answers on standard output,
each a line of JSON:

* ``{"module", "arguments", "folder", "errors", "environment"}``: run a module as ``python -m``
  does, in ``folder``, with its output in the file ``errors`` and changes to the environment;
* ``{"pid"}``: the process has started, as the leader of its own session;
* ``{"status"}``: it has ended, with the exit status or the negated number of its signal.

It ends when its input is closed, and with the process that started it.
"""

from __future__ import annotations

import gc
import importlib
import json
import os
import runpy
import sys
import traceback
from contextlib import suppress
from typing import TYPE_CHECKING, Any, NoReturn

from npu_graph_check.end_with_parent import end_with_parent

if TYPE_CHECKING:
    from collections.abc import Mapping

_IMPORTED = (
    "torch",
    "torch_npu",
    "npu_graph_runtime",
    "attn_update",
    "fx_passes",
    "npu_compile",
    "npu_graph_testing.attention",
    "npu_graph_check.child",
)


def main() -> None:
    """Import the modules that probes need, then fork a process for each request."""
    end_with_parent()
    for name in _IMPORTED:
        # The probes that need a missing package say so.
        with suppress(ImportError):
            importlib.import_module(name)
    gc.freeze()  # a collection would copy the memory that processes share
    for line in sys.stdin:
        request = json.loads(line)
        pid = os.fork()
        if pid == 0:
            _run(request)
        _answer({"pid": pid})
        _, status = os.waitpid(pid, 0)
        _answer({"status": os.waitstatus_to_exitcode(status)})


def _answer(line: Mapping[str, int]) -> None:
    sys.stdout.write(json.dumps(line) + "\n")
    sys.stdout.flush()


def _run(request: Mapping[str, Any]) -> NoReturn:
    """Become the process of a probe."""
    status = 1
    try:
        os.setsid()
        end_with_parent()
        into = os.open(request["errors"], os.O_WRONLY | os.O_CREAT | os.O_APPEND)
        nothing = os.open(os.devnull, os.O_RDONLY)
        for source, target in ((nothing, 0), (into, 1), (into, 2)):
            os.dup2(source, target)
        os.chdir(request["folder"])
        os.environ.update(request["environment"])
        sys.argv[:] = [request["module"], *request["arguments"]]
        runpy.run_module(request["module"], run_name="__main__", alter_sys=True)
        status = 0
    except SystemExit as end:
        status = end.code if isinstance(end.code, int) else int(end.code is not None)
    except BaseException:  # noqa: BLE001 - the process ends here, as an interpreter does
        traceback.print_exc()
    finally:
        sys.stdout.flush()
        sys.stderr.flush()
        os._exit(status)


if __name__ == "__main__":
    main()
