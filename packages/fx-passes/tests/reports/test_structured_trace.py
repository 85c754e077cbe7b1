"""The artifacts of a run in torch's structured trace: in its file, and as tlparse shows them."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

PROGRAM = """
import torch
from torch import Tensor
import fx_passes as fp

def pattern(x: Tensor, alpha: float) -> dict[str, Tensor]:
    return {"y": torch.add(x, x, alpha=alpha)}

def check(match):
    return None if match.bound["alpha"] == 1 else fp.NoMatch("another alpha", match.nodes)

def rewrite(match, build):
    return {"y": build.call("aten::mul.Tensor", match.bound["x"], 2, val=match.value("y"))}

rules = fp.RulePass(name="mine", rules=(fp.Rule(
    name="doubled", patterns=(pattern,), check=check, rewrite=rewrite),))
pipeline = fp.Pipeline(passes=(fp.NormalizePass(), rules))

def backend(module, inputs):
    pipeline.run(module)
    return module.forward

run = torch.compile(lambda x: torch.add(x, x) - torch.add(x, x, alpha=3), backend=backend)
print(run(torch.ones(2)))
"""


OFF = """
import torch
import fx_passes as fp

module = torch.fx.symbolic_trace(torch.nn.Identity())
pipeline = fp.Pipeline(passes=(fp.NormalizePass(),))
pipeline.run(module)  # at the first event of a process torch's handler takes itself away

def refuse(*arguments, **keywords):
    raise AssertionError("nobody asked for a text")

torch.fx.GraphModule.print_readable = fp.Report.__str__ = refuse
pipeline.run(module)
"""


@pytest.fixture(scope="module")
def traces(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The folder that a process traced into."""
    folder = tmp_path_factory.mktemp("traces")
    environment = {**os.environ, "TORCH_TRACE": str(folder), "TORCH_DEVICE_BACKEND_AUTOLOAD": "0"}
    subprocess.run([sys.executable, "-c", PROGRAM], env=environment, check=True)
    return folder


def artifacts_of(folder: Path) -> dict[str, tuple[dict[str, object], str]]:
    """Return the metadata and text of each of our artifacts, by name."""
    (log,) = folder.glob("*.log")
    found: dict[str, tuple[dict[str, object], str]] = {}
    said: dict[str, object] = {}
    name = ""
    for line in log.read_text().splitlines():
        if line.startswith("\t"):
            if name:
                found[name] = (said, found.get(name, (said, ""))[1] + line[1:] + "\n")
            continue
        said = json.loads(line[line.index("{") :])
        artifact = said.get("artifact")
        name = str(artifact["name"]) if isinstance(artifact, dict) else ""
        name = name if name.startswith("fx_passes_") else ""
    return found


def test_graphs_and_report_are_in_the_trace_of_the_compilation(traces: Path) -> None:
    found = artifacts_of(traces)

    assert set(found) == {"fx_passes_before", "fx_passes_after", "fx_passes_report"}
    assert all(said["frame_id"] == 0 for said, _ in found.values())
    before, after = found["fx_passes_before"][1], found["fx_passes_after"][1]
    assert "f32[2]" in before
    assert "aten.mul.Tensor" not in before
    assert "aten.mul.Tensor" in after
    report = found["fx_passes_report"][1]
    assert "doubled: 1 matched, 1 near misses" in report
    assert "another alpha" in report


def test_tlparse_shows_them_with_those_of_torch(traces: Path, tmp_path: Path) -> None:
    (log,) = traces.glob("*.log")
    program = Path(sys.executable).with_name("tlparse")
    shown = tmp_path / "shown"
    command = [str(program), str(log), "-o", str(shown), "--no-browser"]
    subprocess.run(command, check=True, capture_output=True)

    index = (shown / "index.html").read_text()
    for name in ("before", "after", "report"):
        (path,) = shown.rglob(f"fx_passes_{name}*.txt")
        assert path.name in index
        assert path.parent.name != "unknown"


def test_off_it_makes_no_text() -> None:
    # In a process of its own: pytest's own capture of logs switches the trace on.
    environment = {**os.environ, "TORCH_DEVICE_BACKEND_AUTOLOAD": "0"}
    environment.pop("TORCH_TRACE", None)
    subprocess.run([sys.executable, "-c", OFF], env=environment, check=True)
