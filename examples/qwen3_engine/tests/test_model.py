"""Tests of qwen3_engine.qwen3.model."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest
import torch

from qwen3_engine.qwen3.model_loader import load_model

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from qwen3_engine.qwen3.model import Qwen3Model


@pytest.fixture
def model(checkpoint_folder: Path, npu: torch.device) -> Iterator[Qwen3Model]:
    model = load_model(checkpoint_folder, device=npu, num_blocks=8, max_length=256)
    yield model
    model.attention.close()
    torch._dynamo.reset()


def _decode_inputs(model: Qwen3Model, rows: int) -> tuple[torch.Tensor, ...]:
    """Inputs of ``rows`` sequences of one token, one block each."""
    device = model.embedding.device
    model.attention.step_state.load([1] * rows, [1] * rows)
    blocks = torch.arange(1, rows + 1, dtype=torch.int32)
    inputs = (
        torch.arange(rows, dtype=torch.int32).to(device),
        torch.zeros(rows, dtype=torch.int64, device=device),
        (blocks * 128).to(device),
        torch.stack([blocks, torch.zeros_like(blocks)], dim=1).to(device),
    )
    for tensor in inputs:
        torch._dynamo.mark_dynamic(tensor, 0)
    return inputs


@torch.no_grad()
def test_forward_traced_by_dynamo_is_one_graph_for_all_sizes(model: Qwen3Model) -> None:
    graphs: list[torch.fx.GraphModule] = []

    def backend(graph_module: torch.fx.GraphModule, _: object) -> torch.fx.GraphModule:
        graphs.append(graph_module)
        return graph_module

    compiled = torch.compile(model, backend=backend, fullgraph=True)

    for rows in (5, 2, 7):
        inputs = _decode_inputs(model, rows)
        assert torch.equal(compiled(*inputs).cpu(), model(*inputs).cpu())

    (graph_module,) = graphs
    attention = [
        node for node in graph_module.graph.nodes if node.target is model.attention.operator
    ]
    names = [node.args[-1] for node in attention]
    assert names == ["layers.0", "layers.1", "layers.2", "layers.3"]


@torch.no_grad()
def test_forward_keeps_the_new_tokens_and_no_others(model: Qwen3Model) -> None:
    """Each layer's caches are written in the slots of the step's tokens, padding in block 0."""
    inputs = _decode_inputs(model, 4)
    inputs[2][3] = 0

    model(*inputs)

    for layer in model.layers:
        for name in ("key_cache", "value_cache"):
            cache: torch.Tensor = getattr(layer, name)
            written = cache.cpu().any(dim=-1).nonzero().tolist()
            assert written == [[0, 0], [1, 0], [2, 0], [3, 0]]


@torch.no_grad()
def test_forward_two_models_in_one_process_do_not_disturb_each_other(
    model: Qwen3Model, checkpoint_folder: Path, npu: torch.device
) -> None:
    alone = model(*_decode_inputs(model, 3)).cpu()
    other = load_model(checkpoint_folder, device=npu, num_blocks=8, max_length=256)

    other(*_decode_inputs(other, 5))
    again = model(*_decode_inputs(model, 3)).cpu()

    other.attention.close()
    assert torch.equal(alone, again)
    assert other.attention.name != model.attention.name


@torch.no_grad()
def test_forward_padded_rows_leave_the_others_bitwise_as_they_are(model: Qwen3Model) -> None:
    """Rows of a batch of one size do not depend on the content of other rows."""
    inputs = _decode_inputs(model, 6)
    full = model(*inputs).cpu()
    input_ids, positions, slots, table = inputs
    input_ids[4:] = 0
    slots[4:] = 0
    table[4:] = 0
    model.attention.step_state.load([1] * 6, [1, 1, 1, 1, 0, 0])

    padded = model(input_ids, positions, slots, table).cpu()

    assert torch.equal(padded[:4], full[:4])
    assert bool(torch.isfinite(padded).all())
