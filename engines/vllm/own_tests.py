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
from pathlib import Path
from xml.etree import ElementTree as ET

from engines.running.process_group import run_group
from engines.running.session_run import ROOT
from engines.vllm.graphs import PLUGINS
from engines.vllm.without_device import stand_ins

OUT = ROOT / "build" / "engines" / "vllm-own-tests.json"
TESTS = ("tests/compile/test_graph_partition.py", "tests/v1/cudagraph/test_cudagraph_dispatch.py")
PLATFORMS = {"stock": "ascend", "ours": "npu_graph"}
MOST_SECONDS = 540


def run_tests(sources: Path, out: Path) -> int:
    """Run the tests in this process, whose platform `VLLM_PLUGINS` names."""
    kept = stand_ins.prepare()
    import pytest

    os.chdir(sources)
    sys.path.insert(0, str(sources))
    # The engine's conftest wants its models and services.
    options = ["-q", "--noconftest", "-p", "no:cacheprovider", "-o", "addopts="]
    status = pytest.main([*options, f"--junitxml={out}", *TESTS])
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
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--source", type=Path, default=OUT.with_name("vllm-0.23.0.tar.gz"))
    parser.add_argument("--run", help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.run:
        return run_tests(*map(Path, json.loads(options.run)))
    stand_ins.set_environment()
    OUT.parent.mkdir(parents=True, exist_ok=True)
    outcomes: dict[str, dict[str, str]] = {}
    wrong = []
    with tempfile.TemporaryDirectory() as folder:
        with tarfile.open(options.source) as archive:
            archive.extractall(folder, filter="data")
        (sources,) = Path(folder).iterdir()
        for name, platform in PLATFORMS.items():
            plugins = [platform, *(each for each in PLUGINS if each not in PLATFORMS.values())]
            given = {**os.environ, "VLLM_PLUGINS": ",".join(plugins)}
            report, log = Path(folder) / f"{name}.xml", OUT.with_name(f"{OUT.stem}-{name}.log")
            run = json.dumps([str(sources), str(report)])
            ended = run_group(__spec__.name, run, given, log, MOST_SECONDS)
            if not report.exists():
                wrong.append(f"{name}: {ended or 'it took too long'}, see {log}")
                continue
            found = outcomes[name] = read_outcomes(report)
            print(f"{name}: {dict(Counter(found.values()))}", flush=True)
            wrong += [f"{name}: {test} {how}" for test, how in found.items() if how == "failure"]
            if "passed" not in found.values():
                wrong.append(f"{name}: no test passed")
    OUT.write_text(json.dumps(outcomes, indent=1))
    if not wrong and outcomes["ours"] != outcomes["stock"]:
        wrong.append("tests end otherwise on our platform")
    print("\n".join(wrong) or "every test ends alike on both platforms")
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main())
