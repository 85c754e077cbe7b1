"""Observers between passes."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest
import torch
from torch import Tensor

import fx_passes
from fx_passes.testing import capture_graph, random_tensors

if TYPE_CHECKING:
    from pathlib import Path

    from torch.fx import GraphModule


def module_of() -> GraphModule:
    def function(x: Tensor, residual: Tensor, weight: Tensor) -> Tensor:
        out: Tensor = torch.ops.npu.npu_rms_norm(x + residual, weight)[0]
        return out

    return capture_graph(function, random_tensors((3, 8), (3, 8), (8,)))


def test_timing_observer_has_a_duration_for_each_run_of_a_pass() -> None:
    timing = fx_passes.TimingObserver()

    result = fx_passes.default_npu_pipeline().observed_by(timing).run(module_of())

    assert [name for name, _ in timing.seconds] == [each.name for each in result.report.passes]
    assert all(seconds > 0 for _, seconds in timing.seconds)


def test_diff_observer_shows_what_a_pass_changed() -> None:
    diff = fx_passes.DiffObserver()

    fx_passes.default_npu_pipeline().observed_by(diff).run(module_of())

    names = [name for name, _ in diff.diffs]
    assert names == ["normalize", "npu_fusions"]
    assert "npu_add_rms_norm" in diff.diffs[1][1]
    assert diff.diffs[1][1].startswith("--- before npu_fusions")


def test_dump_observer_writes_numbered_files(tmp_path: Path) -> None:
    dump = fx_passes.DumpObserver(tmp_path / "graphs")

    fx_passes.default_npu_pipeline().observed_by(dump).run(module_of())

    names = sorted(path.name for path in (tmp_path / "graphs").iterdir())
    assert names[:3] == ["000-input.txt", "001-normalize.txt", "002-forward_copies.txt"]
    assert names[3] == "003-npu_fusions.txt"
    assert "npu_add_rms_norm" in (tmp_path / "graphs" / names[3]).read_text()


def test_verify_observer_finds_an_invalid_graph() -> None:
    def break_order(module: GraphModule) -> bool:
        first, *_, last = module.graph.find_nodes(op="placeholder")
        user = next(iter(first.users))
        first.prepend(user)
        del last
        return True

    broken = fx_passes.FunctionPass(name="broken", function=break_order)
    pipeline = fx_passes.Pipeline(passes=(broken,), observers=(fx_passes.VerifyObserver(),))
    module = module_of()
    before = str(module.graph)

    with pytest.raises(fx_passes.PassError, match="after the pass 'broken'"):
        pipeline.run(module)

    assert str(module.graph) == before


def test_verify_observer_finds_lost_metadata() -> None:
    def lose(module: GraphModule) -> bool:
        node = module.graph.find_nodes(op="call_function", target=torch.ops.aten.add.Tensor)[0]
        del node.meta["val"]
        return True

    passes = (fx_passes.NormalizePass(), fx_passes.FunctionPass(name="lossy", function=lose))
    pipeline = fx_passes.Pipeline(passes=passes, observers=(fx_passes.VerifyObserver(),))

    with pytest.raises(fx_passes.PassError, match=r"'lossy'.*no meta\['val'\]"):
        pipeline.run(module_of())
