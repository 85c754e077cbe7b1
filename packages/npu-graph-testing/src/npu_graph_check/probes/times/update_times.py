"""Host times of updates of attention, and whether the device waits for them."""

from __future__ import annotations

from random import Random
from typing import TYPE_CHECKING, Any

import torch

from attn_update import UpdateLane
from npu_graph_check.probes.step_times import median_times
from npu_graph_testing.attention import PagedModel
from npu_graph_testing.attention.paged_model import draw_lengths

if TYPE_CHECKING:
    from collections.abc import Callable

    from npu_graph_check.probe import Look
    from npu_graph_runtime import CudaDevice, NpuDevice

_LAYERS, _SEQUENCES = 16, 4


def update(look: Look) -> None:
    """Time a step of 16 layers: eager, with an update lane, and with `NPUGraph.update`."""
    device, random = look.opened, Random(0)  # noqa: S311 - lengths of a test
    model, lane = _captured(device), UpdateLane(device)
    look.doing("timing steps with an update lane")

    def drawn() -> list[int]:
        return draw_lengths(random, _SEQUENCES)

    def lane_step(lengths: list[int]) -> None:
        given = model.parameters(_SEQUENCES, lengths)
        lane.run(model.plans[_SEQUENCES], given, model.graphs[_SEQUENCES].replay)

    eager, ours = median_times(
        device, lambda: model.eager(_SEQUENCES, drawn()), lambda: lane_step(drawn())
    )
    look.figure(f"a step of {_LAYERS} layers, eager, host", round(eager * 1e6, 1), "us")
    look.figure("the same, replayed and updated by a lane, host", round(ours * 1e6, 1), "us")
    look.figure("eager by lane", round(eager / ours, 2), "times")
    native = _native_step(model)
    if native is None:
        look.not_tried("this torch_npu has no NPUGraph.update")
    look.doing("timing steps with NPUGraph.update")
    (theirs,) = median_times(device, lambda: native(drawn()))
    look.figure("the same, by NPUGraph.update, host", round(theirs * 1e6, 1), "us")
    look.figure("NPUGraph.update by lane", round(theirs / ours, 2), "times")
    look.expect("a lane takes the host less than NPUGraph.update", ours < theirs, True)


def stall(look: Look) -> None:
    """Compare steps whose lengths changed, and are updated, with steps whose lengths did not."""
    device, random = look.opened, Random(0)  # noqa: S311 - lengths of a test
    model, lane = _captured(device), UpdateLane(device)
    lengths = draw_lengths(random, _SEQUENCES)

    def step() -> None:
        given = model.parameters(_SEQUENCES, lengths)
        lane.run(model.plans[_SEQUENCES], given, model.graphs[_SEQUENCES].replay)

    def changed() -> None:
        lengths[:] = [1 + length % 40 for length in lengths]
        step()

    look.doing("timing steps until the device has ended them")
    same, other = median_times(device, step, changed, is_whole=True)
    look.figure("a step whose lengths did not change, until its end", round(same * 1e6, 1), "us")
    look.figure("a step whose lengths changed, until its end", round(other * 1e6, 1), "us")
    layer = (other - same) / _LAYERS
    look.figure("what updates add, by layer", round(layer * 1e6, 2), "us")


def _captured(device: NpuDevice | CudaDevice) -> PagedModel:
    model = PagedModel(device=device, num_layers=_LAYERS)
    model.capture(_SEQUENCES)
    return model


def _native_step(model: PagedModel) -> Callable[[list[int]], None] | None:
    """Capture with torch_npu's own recording; None where this torch_npu has none."""
    npu: Any = vars(torch)["npu"]
    graph = npu.NPUGraph()
    if not hasattr(graph, "update"):
        return None
    kept = []
    with npu.graph(graph, auto_dispatch_capture=True):
        for layer in range(_LAYERS):
            given = model.arguments(_SEQUENCES, layer, [1] * _SEQUENCES)
            kept.append(torch.ops.npu.npu_fused_infer_attention_score(**given))

    def step(lengths: list[int], _: object = kept) -> None:
        graph.replay()
        graph.update(cpu_update_input=[model.lengths(_SEQUENCES, lengths)])

    return step
