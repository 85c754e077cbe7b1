"""Runs third-party test files for torch_npu on simulated CANN, each in a process of its own.

    python tools/foreign_tests.py CHECKOUT --folder test/test_custom_ops --lift --into rows.json

CHECKOUT is a clone of op-plugin or of torch_npu, which may be bare; it is not changed. A file runs
in a copy of this process, which has imported torch and torch_npu but not used the device yet.
`--lift` makes `unittest.skip` skip nothing. `--names advance,rotate` selects the files with one of
the words in their name, `--sample N` selects N of the files, the same ones for the same `--seed`.
Prints a line for each file and for each test that did not pass, with the last line of its reason.
`--into` writes rows `{file, test, outcome, reason}`. The exit status is 0 if every file ran to its
end, whatever the outcomes of its tests.
"""

from __future__ import annotations

import argparse
import importlib
import importlib.util
import json
import os
import random
import signal
import subprocess
import sys
import tempfile
import time
import traceback
import unittest
from collections import Counter
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

_REASON_CHARACTERS = 300


@dataclass(frozen=True, kw_only=True)
class Row:
    """The outcome of one test.

    Attributes:
        file: Path in the checkout.
        test: Its identifier; empty if the file as a whole did not run to its end.
        outcome: passed, failed, error, skipped, or ended (the process died, or took too long).
        reason: The last line of the message; empty if it passed.
    """

    file: str
    test: str
    outcome: str
    reason: str = ""


class _Rows(unittest.TestResult):
    """Collects a row for each test."""

    def __init__(self, file: str) -> None:
        super().__init__()
        self.rows: list[Row] = []
        self._file = file

    def _add(self, test: unittest.TestCase, outcome: str, text: str = "") -> None:
        # torch_npu appends the error code to the message.
        lines = [line for line in text.splitlines() if line.strip() and "[ERROR]" not in line]
        reason = lines[-1].strip()[:_REASON_CHARACTERS] if lines else ""
        self.rows.append(Row(file=self._file, test=test.id(), outcome=outcome, reason=reason))

    def addSuccess(self, test: unittest.TestCase) -> None:
        self._add(test, "passed")

    def addSkip(self, test: unittest.TestCase, reason: str) -> None:
        self._add(test, "skipped", reason)

    def addFailure(self, test: unittest.TestCase, err: Any) -> None:
        self._add(test, "failed", "".join(traceback.format_exception(*err)))

    def addError(self, test: unittest.TestCase, err: Any) -> None:
        self._add(test, "error", "".join(traceback.format_exception(*err)))

    def addExpectedFailure(self, test: unittest.TestCase, err: Any) -> None:  # noqa: ARG002
        self._add(test, "passed")


def _unskipped(_reason: str) -> Callable[[Any], Any]:
    """Replace `unittest.skip`."""
    return lambda test: test


def _run_here(path: Path, file: str, *, lifted: bool) -> list[Row]:
    if lifted:
        unittest.skip = _unskipped  # type: ignore[assignment]
    sys.argv = [str(path)]
    sys.path.insert(0, str(path.parent))
    os.chdir(path.parent)
    found = importlib.util.spec_from_file_location(path.stem, path)
    if found is None or found.loader is None:
        raise ImportError(str(path))
    module = importlib.util.module_from_spec(found)
    sys.modules[path.stem] = module
    found.loader.exec_module(module)
    result = _Rows(file)
    unittest.defaultTestLoader.loadTestsFromModule(module).run(result)
    return result.rows


def _run_forked(path: Path, file: str, *, lifted: bool, seconds: float) -> list[Row]:
    """Run a file in a copy of this process and discard its output."""
    with tempfile.TemporaryFile("w+") as answer:
        child = os.fork()
        if child == 0:
            os.setsid()
            nowhere = os.open(os.devnull, os.O_RDWR)
            for number in (0, 1, 2):
                os.dup2(nowhere, number)
            try:
                rows = _run_here(path, file, lifted=lifted)
            except BaseException as error:  # noqa: BLE001 (whatever a foreign file does)
                rows = [Row(file=file, test="", outcome="error", reason=repr(error)[:300])]
            json.dump([asdict(row) for row in rows], answer)
            answer.flush()
            os._exit(0)
        end = time.monotonic() + seconds
        while (done := os.waitpid(child, os.WNOHANG))[0] == 0:
            if time.monotonic() > end:
                os.killpg(child, signal.SIGKILL)
                os.waitpid(child, 0)
                return [Row(file=file, test="", outcome="ended", reason=f"took {seconds:.0f} s")]
            time.sleep(0.05)
        if done[1] != 0:
            reason = f"ended with wait status {done[1]}"
            return [Row(file=file, test="", outcome="ended", reason=reason)]
        answer.seek(0)
        return [Row(**row) for row in json.load(answer)]


def _files(checkout: Path, folder: str, into: Path) -> list[Path]:
    """Put the folder at the commit that is checked out into `into`, and return its test files."""
    archive = subprocess.run(
        ["git", "-C", str(checkout), "archive", "HEAD", folder], check=True, capture_output=True
    ).stdout
    subprocess.run(["tar", "-x", "-C", str(into)], input=archive, check=True)
    return sorted((into / folder).rglob("test_*.py"))


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the files; return the exit status."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("checkout", type=Path)
    parser.add_argument("--folder", default="test/test_custom_ops")
    parser.add_argument("--lift", action="store_true")
    parser.add_argument("--names", default="")
    parser.add_argument("--sample", type=int)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--seconds", type=float, default=600)
    parser.add_argument("--into", type=Path)
    options = parser.parse_args(arguments)
    # A rejected launch stops torch_npu's own queue permanently.
    os.environ.setdefault("TASK_QUEUE_ENABLE", "0")
    simulator = importlib.import_module("cann_sim")
    simulator.build()
    simulator.activate()
    importlib.import_module("torch_npu")
    importlib.import_module("torch_npu.testing.testcase")
    rows: list[Row] = []
    with tempfile.TemporaryDirectory() as scratch:
        files = _files(options.checkout, options.folder, Path(scratch))
        words = [word for word in options.names.split(",") if word]
        files = [file for file in files if not words or any(word in file.name for word in words)]
        if options.sample is not None:
            files = sorted(random.Random(options.seed).sample(files, options.sample))  # noqa: S311
        for path in files:
            file = str(path.relative_to(scratch))
            found = _run_forked(path, file, lifted=options.lift, seconds=options.seconds)
            rows += found
            counts = Counter(row.outcome for row in found)
            print(f"{path.name}: {', '.join(f'{n} {what}' for what, n in sorted(counts.items()))}")
            for row in found:
                if row.outcome not in {"passed", "skipped"}:
                    print(f"    {row.outcome} {row.test}: {row.reason}")
            sys.stdout.flush()
    print(dict(Counter(row.outcome for row in rows)))
    if options.into is not None:
        options.into.write_text(json.dumps([asdict(row) for row in rows], indent=1) + "\n")
    return int(any(row.outcome == "ended" for row in rows))


if __name__ == "__main__":
    sys.exit(main())
