"""Defects of vLLM-Ascend's update code, each with a test that this package does not have it.

Read in `acl_graph.py`, `attention_v1.py`, `mla_v1.py` and their neighbours; on simulated CANN.
"""

from __future__ import annotations

import gc
from dataclasses import dataclass
from random import Random
from typing import TYPE_CHECKING, Any

import pytest
import torch

import cann_sim
from attn_update import (
    PlanError,
    Recorder,
    StepParameterError,
    StepParameters,
    UpdateLane,
    UpdatePlan,
)
from attn_update.kinds.kind import needs_update
from npu_graph_testing.attention import PagedModel, assert_layers_equal
from npu_graph_testing.attention.cases import CaseModel, all_kinds, find_case

if TYPE_CHECKING:
    from collections.abc import Callable, Hashable, Mapping

    from attn_update import Lengths
    from npu_graph_runtime import NpuDevice


def npu() -> Any:
    return vars(torch)["npu"]


@dataclass(kw_only=True)
class Captured:
    """A graph of some attention calls, with its plan."""

    plan: UpdatePlan
    graph: Any
    outputs: list[torch.Tensor]

    def step(self, lane: UpdateLane, groups: Mapping[str, Mapping[str, Lengths]]) -> None:
        lane.run(self.plan, StepParameters(key=self.plan.key, groups=groups), self.graph.replay)


def capture(
    device: NpuDevice,
    recorder: Recorder,
    key: Hashable,
    attention: Callable[[], list[torch.Tensor]],
) -> Captured:
    attention()  # Makes its inputs, which a capture could not copy to the device.
    graph = device.create_graph()
    with recorder.recording(key), device.capture(graph, pool=device.create_memory_pool()):
        outputs = attention()
    return Captured(plan=UpdatePlan.compile(recorder, key), graph=graph, outputs=outputs)


def group(model: PagedModel, lengths: list[int]) -> dict[str, dict[str, Lengths]]:
    return {"default": model.step_arguments(len(lengths), lengths)}


def case_model(device: NpuDevice, name: str, **given: Any) -> CaseModel:
    return CaseModel(device=device, case=find_case(name), kinds=all_kinds(), **given)


def test_keys_of_one_token_count_do_not_share_records(npu_device: NpuDevice) -> None:
    # vLLM-Ascend keyed handles by the number of tokens alone, so graphs of one size with other
    # LoRA states collided (issue 13490).
    model, lane = PagedModel(device=npu_device), UpdateLane(npu_device)
    captured = [
        capture(npu_device, model.recorder, ("decode", 2, lora), lambda: model.eager(2, [1, 1]))
        for lora in (0, 1)
    ]
    for lora, lengths in ((0, [5, 6]), (1, [30, 2]), (0, [7, 8])):
        captured[lora].step(lane, group(model, lengths))
        assert_layers_equal(captured[lora].outputs, model.eager(2, lengths))


def test_draft_prefill_graph_has_its_workspace(npu_device: NpuDevice) -> None:
    # The workspace of a draft prefill was saved where the update did not look for it.
    draft = PagedModel(device=npu_device, num_layers=1)
    kind = draft.recorder.kinds[draft.kind_name]
    assert needs_update(kind)
    for key in ("draft", "draft prefill"):
        lengths = [1] * (4 if key == "draft" else 2)
        captured = capture(
            npu_device,
            draft.recorder,
            key,
            lambda: draft.eager(len(lengths), lengths),  # noqa: B023
        )
        (update,) = captured.plan.updates
        needed = kind.workspace_bytes(draft.arguments(len(lengths), 0, lengths))
        assert update.launch["workspace"].nbytes >= needed


def test_draft_workspace_does_not_replace_that_of_the_target(npu_device: NpuDevice) -> None:
    # Under context parallelism the draft's workspace was stored over the target's.
    target = PagedModel(device=npu_device)
    draft = case_model(npu_device, "context parallel latent BNSD")
    target.capture(4)
    before = target.plans[4].updates[0].launch["workspace"].data_ptr()
    draft.capture(2)
    target.capture(2)
    assert {u.launch["workspace"].data_ptr() for u in target.plans[2].updates} == {before}
    assert {u.launch["workspace"].data_ptr() for u in draft.plans[2].updates} != {before}


def test_update_keeps_the_very_block_table_that_was_captured(npu_device: NpuDevice) -> None:
    # Under DCP the graph was captured with one block table and updated with another.
    model = case_model(npu_device, "context parallel")
    model.capture(2)
    table = model.shared[2]["block_table"]
    assert isinstance(table, torch.Tensor)
    lane, random = UpdateLane(npu_device), Random(1)
    for _ in range(3):
        drawn = model.draw(random, 2)
        assert_layers_equal(model.run(lane, drawn), model.expected(drawn))
    assert {u.launch["block_table"].data_ptr() for u in model.plans[2].updates} == {
        table.data_ptr()
    }


def test_lengths_captured_as_tensors_are_updated_with_lists(npu_device: NpuDevice) -> None:
    # Sinks were captured with a tensor of lengths and updated with a list.
    model = case_model(npu_device, "v2 sinks", num_layers=1)
    arguments = model.arguments(2, 0, model.captured_step(2))
    given = arguments | {"actual_seq_kvlen": torch.tensor([1, 1])}
    captured = capture(
        npu_device,
        model.recorder,
        2,
        lambda: [model.recorder.attention("layers.0", model.kind_name, given)[0]],
    )
    step = {"actual_seq_qlen": [1, 2], "actual_seq_kvlen": [9, 30]}
    captured.step(UpdateLane(npu_device), {"default": step})
    assert_layers_equal(captured.outputs, model.eager(2, step))


def test_rebinding_of_block_tables_is_declared_and_not_guessed(npu_device: NpuDevice) -> None:
    # A model's configuration having an attribute `sliding_window` decided it, whatever its value.
    kept = PagedModel(device=npu_device)
    rebound = PagedModel(
        device=npu_device, kind_name="fused_infer_attention_v1_rebound", kinds=all_kinds()
    )
    lane, table = UpdateLane(npu_device), torch.tensor([[7, 6, 5], [4, 3, 2]]).int().to("npu")
    for model in (kept, rebound):
        model.capture(2)
    with_table: dict[str, Lengths] = {**kept.lengths(2, [20, 40]), "block_table": table}
    parameters = StepParameters(key=2, groups={"default": with_table})
    with pytest.raises(StepParameterError, match="'block_table' is not declared"):
        lane.run(kept.plans[2], parameters, kept.graphs[2].replay)
    lane.run(rebound.plans[2], parameters, rebound.graphs[2].replay)
    rebound.inputs[2]["block_table"] = table
    assert_layers_equal(rebound.outputs[2], rebound.eager(2, [20, 40]))
    kept.inputs[2]["block_table"].copy_(table)
    assert_layers_equal(kept.step(lane, 2, [20, 40]), kept.eager(2, [20, 40]))


def test_second_model_of_the_same_depth_keeps_its_own_layer_names(npu_device: NpuDevice) -> None:
    # A process-wide list of layer names was refreshed only when its length changed.
    lane = UpdateLane(npu_device)
    models = [PagedModel(device=npu_device, seed=seed) for seed in (0, 100)]
    captured = []
    for prefix, model in zip(("model.layers", "mtp.layers"), models, strict=True):

        def attention(prefix: str = prefix, model: PagedModel = model) -> list[torch.Tensor]:
            return [
                model.recorder.attention(
                    f"{prefix}.{layer}", model.kind_name, model.arguments(2, layer, [1, 1])
                )[0]
                for layer in range(model.num_layers)
            ]

        captured.append(capture(npu_device, model.recorder, 2, attention))
    for index, lengths in ((0, [5, 6]), (1, [7, 30]), (0, [9, 1])):
        captured[index].step(lane, group(models[index], lengths))
        assert_layers_equal(captured[index].outputs, models[index].eager(2, lengths))
    assert captured[1].plan.updates[0].layer_name == "mtp.layers.0"


def test_layer_without_parameters_is_refused_and_not_cut_off(npu_device: NpuDevice) -> None:
    # zip() cut the longer list off: a layer was never updated, and the graph waited forever.
    model, lane = PagedModel(device=npu_device, num_layers=2), UpdateLane(npu_device)

    def attention() -> list[torch.Tensor]:
        return [
            model.recorder.attention(
                f"layers.{layer}",
                model.kind_name,
                model.arguments(2, layer, [1, 1]),
                group=f"layers.{layer}",
            )[0]
            for layer in range(2)
        ]

    captured = capture(npu_device, model.recorder, 2, attention)
    names = ["layers.0", "layers.1", "layers.2"]
    with pytest.raises(PlanError, match=r"layers\.2"):
        UpdatePlan.compile(model.recorder, 2, layers=names)
    before = cann_sim.counters().replays
    with pytest.raises(StepParameterError, match=r"layers\.1"):
        captured.step(lane, {"layers.0": model.lengths(2, [5, 6])})
    assert cann_sim.counters().replays == before


def test_workspace_is_the_largest_over_layers_of_other_shapes(npu_device: NpuDevice) -> None:
    # The first layer of a size decided the workspace of all.
    small, large = (
        case_model(npu_device, name, num_layers=1) for name in ("v1 decode", "v1 causal")
    )
    recorder = small.recorder

    def run(model: CaseModel, name: str) -> torch.Tensor:
        arguments = model.arguments(4, 0, model.captured_step(4))
        return recorder.attention(name, model.kind_name, arguments)[0]

    def attention() -> list[torch.Tensor]:
        return [run(small, "small"), run(large, "large")]

    with recorder.recording("warm-up"):
        attention()
    captured = capture(npu_device, recorder, 4, attention)
    kind = recorder.kinds["fused_infer_attention_v1"]
    assert needs_update(kind)
    needed = [
        kind.workspace_bytes(model.arguments(4, 0, model.captured_step(4)))
        for model in (small, large)
    ]
    assert needed[0] < needed[1]
    assert recorder.workspace.num_buffers == 1
    for update in captured.plan.updates:
        assert update.launch["workspace"].nbytes >= needed[1]


def test_no_step_allocates_device_memory(npu_device: NpuDevice) -> None:
    # Paged attention allocated a workspace in every layer of every step, and dropped it at once.
    model, lane = PagedModel(device=npu_device), UpdateLane(npu_device)
    model.capture(2)
    npu_device.synchronize()
    gc.collect()
    allocated = npu().memory_allocated()
    npu().reset_peak_memory_stats()
    for lengths in ([7, 8], [40, 1], [48, 48]):
        lane.run(model.plans[2], model.parameters(2, lengths), model.graphs[2].replay)
    assert npu().max_memory_allocated() == allocated


def test_layers_take_their_lengths_by_name_in_any_order(npu_device: NpuDevice) -> None:
    # Layers and handles were paired by position: another order gave another layer's lengths.
    model, lane = PagedModel(device=npu_device), UpdateLane(npu_device)
    order = [2, 0, 1]

    def attention() -> list[torch.Tensor]:
        return [
            model.recorder.attention(
                f"layers.{layer}",
                model.kind_name,
                model.arguments(2, layer, [1, 1]),
                group=f"layers.{layer}",
            )[0]
            for layer in order
        ]

    captured = capture(npu_device, model.recorder, 2, attention)
    lengths = {0: [3, 4], 1: [30, 31], 2: [17, 5]}
    captured.step(lane, {f"layers.{layer}": model.lengths(2, lengths[layer]) for layer in lengths})
    for layer, out in zip(order, captured.outputs, strict=True):
        assert_layers_equal([out], [model.eager(2, lengths[layer])[layer]])


def test_no_step_makes_a_stream(npu_device: NpuDevice) -> None:
    # The encoder made a new stream at every replay, until there were none.
    model, lane = PagedModel(device=npu_device), UpdateLane(npu_device)
    model.capture(2)
    with cann_sim.injected_faults("stream:1+"):
        steps = [model.step(lane, 2, lengths) for lengths in ([7, 8], [40, 1], [48, 48])]
        npu_device.synchronize()
    assert_layers_equal(steps[-1], model.eager(2, [48, 48]))


def test_second_engine_in_a_process_and_a_second_start_work(npu_device: NpuDevice) -> None:
    # Module-wide parameters could be set once: a second engine, or a restart, raised.
    lane = UpdateLane(npu_device)
    for _ in range(2):
        models = [PagedModel(device=npu_device, seed=seed) for seed in (0, 100)]
        for model in models:
            model.capture(2)
        for model in models:
            assert_layers_equal(model.step(lane, 2, [5, 6]), model.eager(2, [5, 6]))
            npu_device.synchronize()
            model.recorder.close()


def test_one_graph_updates_layers_of_several_kinds(npu_device: NpuDevice) -> None:
    # The update function of the first attention backend served the layers of all.
    names = ("v1 causal", "v2 sinks", "latent_attention_v2 TND padded", "encoder")
    models = {name: case_model(npu_device, name, num_layers=1) for name in names}
    recorder = Recorder(npu_device, all_kinds())

    def attention() -> list[torch.Tensor]:
        return [
            recorder.attention(
                name,
                model.kind_name,
                model.arguments(4, 0, model.captured_step(4)),
                group=name,
            )[0]
            for name, model in models.items()
        ]

    captured = capture(npu_device, recorder, 4, attention)
    random, lane = Random(3), UpdateLane(npu_device)
    for _ in range(5):
        steps = {name: model.case.draw(random, model, 4) for name, model in models.items()}
        groups = {
            name: {each: step[each] for each in captured.plan.groups[name].arguments}
            for name, step in steps.items()
        }
        captured.step(lane, groups)
        outputs = [out.clone() for out in captured.outputs]
        expected = [model.eager(4, steps[name])[0] for name, model in models.items()]
        assert_layers_equal(outputs, expected)
