"""A small decoder over paged caches: norms, rotations, attention, gated feed-forward."""

from __future__ import annotations

import itertools
from typing import TYPE_CHECKING, Any

import torch

import npu_compile
from attn_update import Recorder, UpdateLane
from npu_compile import CompileConfig, DecodeRunner, InputSpec
from npu_graph_runtime import GraphContext, runs_eagerly

if TYPE_CHECKING:
    from collections.abc import Callable

    from npu_graph_check.probe import Look

_LAYERS, _HEADS, _DIM, _BLOCK, _COLUMNS, _BLOCKS = 2, 4, 64, 16, 4, 16
_WIDTH = _HEADS * _DIM
_SIZES = (2, 4)


def decode(look: Look, mode: str) -> None:
    """Capture the decoder, and run steps whose lengths and batch sizes change."""
    device, context = look.opened, GraphContext()
    on, half = device.torch_device, torch.float16
    recorder, lane = Recorder(device), UpdateLane(device)
    generator = torch.Generator().manual_seed(0)

    def random(*shape: int) -> torch.Tensor:
        return (torch.randn(shape, generator=generator) * 0.3).to(half).to(on)

    caches = [random(_BLOCKS, _BLOCK, _WIDTH) for _ in range(_LAYERS)]
    weights = [(random(_WIDTH, _WIDTH), random(_WIDTH, _WIDTH)) for _ in range(_LAYERS)]
    gamma = torch.ones(_WIDTH, dtype=half, device=on)
    lengths: dict[str, Any] = {}

    @torch.library.custom_op("npu_graph_check::attention", mutates_args=())
    def attention(query: torch.Tensor, table: torch.Tensor, layer: int) -> torch.Tensor:
        given = {"query": query, "key": caches[layer], "value": caches[layer]}
        more = {"block_table": table, "block_size": _BLOCK, "input_layout": "TND", "scale": 0.125}
        heads = {"num_heads": _HEADS, "num_key_value_heads": _HEADS}
        arguments = {**given, **more, **heads, **lengths}
        return recorder.attention(f"layers.{layer}", "fused_infer_attention_v1", arguments)[0]

    @attention.register_fake
    def _(query: torch.Tensor, table: torch.Tensor, layer: int) -> torch.Tensor:
        del table, layer
        return torch.empty_like(query)

    attend: Callable[..., torch.Tensor] = torch.ops.npu_graph_check.attention
    if mode == "breakable":
        attend = runs_eagerly(context)(attend)

    def model(hidden: torch.Tensor, table: torch.Tensor) -> torch.Tensor:
        for layer, (inner, outer) in enumerate(weights):
            normed = torch.ops.npu.npu_rms_norm(hidden, gamma)[0]
            query = (normed @ inner).view(-1, _HEADS, _DIM)
            attended = attend(query, table, layer)
            hidden = hidden + torch.nn.functional.silu(attended.reshape(-1, _WIDTH) @ outer)
        return hidden

    def of(keys: list[int]) -> dict[str, Any]:
        return {
            "actual_seq_lengths": list(range(1, len(keys) + 1)),
            "actual_seq_lengths_kv": keys,
        }

    look.doing(f"compiling and capturing in mode {mode}")
    config = CompileConfig.from_mapping(_chosen(mode))
    compiled = npu_compile.compile_model(
        model,
        config,
        device=device,
        context=context,
        dynamic_arg_dims={"hidden": (0,), "table": (0,)},
    )
    runner = DecodeRunner(
        compiled,
        inputs={
            "hidden": InputSpec(dtype=half, trailing_shape=(_WIDTH,)),
            "table": InputSpec(dtype=torch.int32, trailing_shape=(_COLUMNS,)),
        },
        recorder=recorder,
        lane=lane,
        set_lengths=(lambda told: lengths.update(told["default"])) if mode == "measured" else None,
    )
    runner.capture(prepare=lambda size: lengths.update(of([1] * size)))
    updates = mode not in {"piecewise", "breakable"}
    for step, size in itertools.product(range(3), _SIZES):
        look.doing(f"running step {step} of {size} sequences in mode {mode}")
        keys = [1 + (17 * step + 11 * row) % (_BLOCK * _COLUMNS) for row in range(size)]
        batch = {
            "hidden": torch.randn(size, _WIDTH, generator=generator).to(half),
            "table": torch.randint(
                _BLOCKS, (size, _COLUMNS), generator=generator, dtype=torch.int32
            ),
        }
        lengths.update(of(keys))
        output = runner.run(batch, lengths={"default": of(keys)} if updates else {})
        device.synchronize()
        expected = model(**{name: value.to(on) for name, value in batch.items()})
        equal = torch.equal(output.cpu(), expected.cpu())
        look.expect(f"step {step} of {size} sequences, bitwise eager", equal, True)
    lane.close()


def _chosen(mode: str) -> dict[str, Any]:
    """Return the configuration of a mode."""
    chosen: dict[str, Any] = {"mode": mode, "capture_sizes": list(_SIZES), "fusions": "none"}
    if mode not in {"full", "breakable"}:
        chosen["splitting_ops"] = ["npu_graph_check::attention"]
    if mode == "measured":
        chosen["measured_modes"] = ["full", "piecewise"]
    return chosen
