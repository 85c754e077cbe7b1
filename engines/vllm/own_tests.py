"""vLLM's own tests of splitting and of dispatching, on the engine's platform and on ours.

Run as ``cann-sim run -- python -m engines.vllm.own_tests``. The tests are in the engine's source
distribution, which ``./nox`` keeps in build/engines. Each must end alike on both platforms, and
none may fail; those that need CUDA are skipped by themselves. Rows go to
build/engines/vllm-own-tests.json.
"""

from __future__ import annotations

import argparse
import json
import os
import sys
import tarfile
import tempfile
from collections import Counter
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING
from xml.etree import ElementTree as ET

from engines.running.process_group import run_group
from engines.running.session_run import ROOT
from engines.vllm.graphs import PLUGINS
from engines.vllm.without_device import stand_ins

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

PLATFORMS = {"stock": "ascend", "ours": "npu_graph"}
FAILED = ("failure", "error")
MOST_SECONDS = 540


def name_plugins(platform: str) -> dict[str, str]:
    """Return the environment in which vLLM chooses a platform."""
    others = [each for each in PLUGINS if each not in PLATFORMS.values()]
    return {"VLLM_PLUGINS": ",".join([platform, *others])}


@dataclass(frozen=True, kw_only=True)
class OwnTests:
    """vLLM's own tests of a release, which run once with the engine alone and once with ours.

    Attributes:
        name: Of the file of rows.
        module: The module of the session.
        source: The source distribution in build/engines.
        tests: Files in it.
        sides: Environment variables of each side.
        prepare: Gets the side before its tests run; its result is kept alive.
    """

    name: str
    module: str
    source: str
    tests: tuple[str, ...]
    sides: Mapping[str, Mapping[str, str]]
    prepare: Callable[[str], object]

    def run(self, description: str | None) -> int:
        """Run the tests on both sides; return 1 if one fails, or ends otherwise with ours."""
        out = ROOT / "build" / "engines" / f"{self.name}.json"
        parser = argparse.ArgumentParser(description=description)
        parser.add_argument("--source", type=Path, default=out.with_name(self.source))
        parser.add_argument("--run", help=argparse.SUPPRESS)
        options = parser.parse_args()
        if options.run:
            side, *paths = json.loads(options.run)
            return self._run_here(side, *map(Path, paths))
        stand_ins.set_environment()
        out.parent.mkdir(parents=True, exist_ok=True)
        outcomes: dict[str, dict[str, str]] = {}
        wrong = []
        with tempfile.TemporaryDirectory() as folder:
            with tarfile.open(options.source) as archive:
                archive.extractall(folder, filter="data")
            (sources,) = Path(folder).iterdir()
            for side, environment in self.sides.items():
                given = {**os.environ, **environment}
                report, log = Path(folder) / f"{side}.xml", out.with_name(f"{out.stem}-{side}.log")
                run = json.dumps([side, str(sources), str(report)])
                ended = run_group(self.module, run, given, log, MOST_SECONDS)
                if not report.exists():
                    wrong.append(f"{side}: {ended or 'it took too long'}, see {log}")
                    continue
                found = outcomes[side] = read_outcomes(report)
                print(f"{side}: {dict(Counter(found.values()))}", flush=True)
                wrong += [f"{side}: {test} {how}" for test, how in found.items() if how in FAILED]
                if "passed" not in found.values():
                    wrong.append(f"{side}: no test passed")
        out.write_text(json.dumps(outcomes, indent=1))
        if not wrong and outcomes["ours"] != outcomes["stock"]:
            wrong.append("tests end otherwise with ours")
        print("\n".join(wrong) or "every test ends alike on both sides")
        return 1 if wrong else 0

    def _run_here(self, side: str, sources: Path, out: Path) -> int:
        """Run the tests in this process."""
        kept = self.prepare(side)
        import pytest

        os.chdir(sources)
        sys.path.insert(0, str(sources))
        # The engine's conftest wants its models and services.
        options = ["-q", "--noconftest", "-p", "no:cacheprovider", "-o", "addopts="]
        status = pytest.main([*options, f"--junitxml={out}", *self.tests])
        del kept
        return int(status)


def read_outcomes(report: Path) -> dict[str, str]:
    """Return how each test ended: passed, or the reason why it did not."""
    outcomes = {}
    for case in ET.parse(report).iter("testcase"):  # pytest wrote it
        ended = next((child.tag for child in case if child.tag != "system-out"), "passed")
        outcomes[f"{case.get('classname')}.{case.get('name')}"] = ended
    return outcomes


def main() -> int:
    """Run the tests on both platforms; return 1 if one fails, or ends otherwise on ours."""
    session = OwnTests(
        name="vllm-own-tests",
        module=__spec__.name,
        source="vllm-0.23.0.tar.gz",
        tests=(
            "tests/compile/test_graph_partition.py",
            "tests/v1/cudagraph/test_cudagraph_dispatch.py",
        ),
        sides={side: name_plugins(platform) for side, platform in PLATFORMS.items()},
        prepare=lambda _side: stand_ins.prepare(),
    )
    return session.run(__doc__)


if __name__ == "__main__":
    sys.exit(main())
