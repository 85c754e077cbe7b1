"""A decoder in plain torch whose attention runs eagerly, for devices without task groups too."""

from __future__ import annotations

import itertools
from typing import TYPE_CHECKING

import torch

import npu_compile
from npu_compile import CompileConfig, DecodeRunner, InputSpec
from npu_graph_runtime import GraphContext, runs_eagerly

if TYPE_CHECKING:
    from collections.abc import Callable

    from npu_graph_check.probe import Look

_LAYERS, _WIDTH, _KEYS = 2, 128, 40
_SIZES = (2, 4)


def decode(look: Look, mode: str) -> None:
    """Capture what lies between attention, and run steps whose lengths and sizes change."""
    device, context = look.opened, GraphContext()
    on, half = device.torch_device, torch.float16
    generator = torch.Generator().manual_seed(0)

    def random(*shape: int) -> torch.Tensor:
        return (torch.randn(shape, generator=generator) * 0.1).to(half)

    square = (_WIDTH, _WIDTH)
    weights = [(random(*square).to(on), random(*square).to(on)) for _ in range(_LAYERS)]
    keys = random(_KEYS, _WIDTH).to(on)
    length = [1]

    @torch.library.custom_op("npu_graph_check::plain_attention", mutates_args=())
    def attention(query: torch.Tensor) -> torch.Tensor:
        seen = keys[: length[0]]
        return torch.softmax(query @ seen.T, -1) @ seen

    @attention.register_fake
    def _(query: torch.Tensor) -> torch.Tensor:
        return torch.empty_like(query)

    attend: Callable[..., torch.Tensor] = torch.ops.npu_graph_check.plain_attention
    chosen = {"mode": mode, "capture_sizes": list(_SIZES), "fusions": "none"}
    if mode == "breakable":
        attend = runs_eagerly(context)(attend)
    else:
        chosen["splitting_ops"] = ["npu_graph_check::plain_attention"]

    def model(hidden: torch.Tensor) -> torch.Tensor:
        for inner, outer in weights:
            attended = attend(torch.tanh(hidden @ inner))
            hidden = hidden + torch.relu(attended @ outer)
        return hidden

    look.doing(f"compiling and capturing in mode {mode}")
    compiled = npu_compile.compile_model(
        model,
        CompileConfig.from_mapping(chosen),
        device=device,
        context=context,
        dynamic_arg_dims={"hidden": (0,)},
    )
    inputs = {"hidden": InputSpec(dtype=half, trailing_shape=(_WIDTH,))}
    runner = DecodeRunner(compiled, inputs=inputs)
    runner.capture(prepare=lambda _: None)
    for step, size in itertools.product(range(3), _SIZES):
        look.doing(f"running step {step} of {size} sequences in mode {mode}")
        length[0] = 1 + (17 * step + 5 * size) % _KEYS
        hidden = random(size, _WIDTH)
        output = runner.run({"hidden": hidden}, lengths={})
        device.synchronize()
        equal = torch.equal(output.cpu(), model(hidden.to(on)).cpu())
        look.expect(f"step {step} of {size} sequences, bitwise eager", equal, True)
