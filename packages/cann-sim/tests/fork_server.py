"""A process that imports torch and then forks one process for each source text that it receives.

A new process needs seconds of CPU time to import torch and the parts that torch_npu imports.
Nothing of the device is loaded before the fork, and no thread is started, because each process
reads the environment variables of torch_npu and the simulator itself. Run by `ForkedPython` of
conftest.py.
"""

from __future__ import annotations

import atexit
import contextlib
import ctypes
import os
import pickle
import socket
import sys
import traceback


def serve() -> None:
    """Fork a process for each request, until the other side closes the connection."""
    # What `import torch_npu` imports of torch.
    import torch.distributed.checkpoint
    import torch.distributed.tensor
    import torch.export  # noqa: F401

    connection = socket.socket(fileno=int(sys.argv[1]))
    while True:
        try:
            _, files, _, _ = socket.recv_fds(connection, 16, 3)
        except ConnectionError:
            return
        if not files:
            return
        # The process between waits for the one that runs, so the server is free for the next.
        if os.fork() == 0:
            connection.close()
            _start(*files)
            os._exit(0)
        for file in files:
            os.close(file)
        with contextlib.suppress(ChildProcessError):
            while os.waitpid(-1, os.WNOHANG)[0]:
                pass


def _start(answer: int, output: int, errors: int) -> None:
    """Fork a process for the source, and report its process number and its end to the caller."""
    with socket.socket(fileno=answer) as connection, connection.makefile("rwb") as stream:
        source, environment = pickle.load(stream)
        process = os.fork()
        if process == 0:
            connection.close()
            _run(source, environment, output, errors)
        pickle.dump(process, stream)
        stream.flush()
        code = os.waitstatus_to_exitcode(os.waitpid(process, 0)[1])
        with contextlib.suppress(BrokenPipeError):
            pickle.dump(code, stream)
            stream.flush()


def _run(source: str, environment: dict[str, str], output: int, errors: int) -> None:
    """Run the source and exit as Python does, including exit handlers."""
    os.dup2(output, 1)
    os.dup2(errors, 2)
    os.environ.clear()
    os.environ.update(environment)
    sys.argv = ["-c"]
    names = {"__name__": "__main__"}
    status = 0
    try:
        exec(compile(source, "<string>", "exec"), names)
    except SystemExit as end:
        status = end.code if isinstance(end.code, int) else int(end.code is not None)
        if isinstance(end.code, str):
            sys.stderr.write(f"{end.code}\n")
    except BaseException:  # noqa: BLE001 (as Python itself reports it)
        traceback.print_exc()
        status = 1
    atexit._run_exitfuncs()
    sys.stdout.flush()
    sys.stderr.flush()
    # Runs the exit functions and destructors of the libraries too.
    ctypes.CDLL(None).exit(status)


if __name__ == "__main__":
    serve()
