"""One decoder in every mode: launches before and after raising, and values against eager."""

from __future__ import annotations

import math
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import torch

import cann_sim
import npu_compile
from npu_compile import CompileMode
from npu_graph_runtime import GraphKey, RunMode
from plain_models.tiny_decoders import TinyDecoder

if TYPE_CHECKING:
    from collections.abc import Callable

    from npu_compile import CompiledModel
    from npu_graph_runtime import NpuDevice

# Splitting ops of every model: what raising makes of attention.
ATTENTION = ("npu::npu_fused_infer_attention_score",)
MODES = tuple(mode for mode in CompileMode if mode is not CompileMode.MEASURED)
# Roundings in a row in two layers that the fused kernels place elsewhere than eager does.
_ROUNDINGS = 41
_SHAPE = (2, 7)
_DTYPE = torch.bfloat16


@dataclass
class RaisedDecoder:
    """Results of raising one kind of decoder.

    Attributes:
        kind: name of the kind in transformers.
        launches: number of operators that the device launches in a step of the original model.
        fused: the same with the default pipeline.
        raised: the same with raising, identical in each mode except torchair.
        error: largest difference of a raised logit from float64, relative to the largest logit.
        plain_error: the same for the original model.
        graphs: number of captured device graphs, by mode.
        differing: modes whose replays are not bitwise identical to the same compiled model in eager
            mode.
    """

    kind: str
    launches: int = 0
    fused: int = 0
    raised: int = 0
    error: float = 0.0
    plain_error: float = 0.0
    graphs: dict[str, int] = field(default_factory=dict)
    differing: list[str] = field(default_factory=list)

    @property
    def allowed_error(self) -> float:
        """Maximum sum of the roundings of fused kernels, or twice the error of eager."""
        eps = torch.finfo(_DTYPE).eps
        return max(eps / 2 * math.sqrt(_ROUNDINGS), 2 * self.plain_error)


def raise_decoder(
    kind: str, device: NpuDevice, modes: tuple[CompileMode, ...] = MODES
) -> RaisedDecoder:
    """Run a decoder as it is, then compiled with raising in each mode."""
    row = RaisedDecoder(kind=kind)
    tokens = torch.arange(math.prod(_SHAPE)).reshape(_SHAPE) + 3
    model = TinyDecoder(kind, _DTYPE)
    exact = TinyDecoder(kind, torch.float32)
    exact.load_state_dict(model.state_dict())
    with torch.no_grad():
        expected = exact(tokens)
    model = model.to("npu")
    inputs = tokens.to("npu")

    def step(call: Callable[..., Any]) -> tuple[torch.Tensor, int]:
        with torch.no_grad():
            call(inputs)
            device.synchronize()
            before = cann_sim.counters()
            result: torch.Tensor = call(inputs)
            device.synchronize()
        return result.cpu(), (cann_sim.counters() - before).launches

    plain, row.launches = step(model)
    row.plain_error = _error(plain, expected)
    _, row.fused = step(npu_compile.compile_model(model, device=device))
    for mode in modes:
        torch._dynamo.reset()
        splits = {"splitting_ops": ATTENTION} if mode.splits else {}
        config = {"mode": mode, "fusions": "raise", **splits}
        compiled = npu_compile.compile_model(model, config, device=device)
        raised, launches = step(compiled)
        row.error = max(row.error, _error(raised, expected))
        if mode is not CompileMode.TORCHAIR:
            row.raised = max(row.raised, launches)
        row.graphs[mode.value], same = _replayed(compiled, inputs)
        if not same:
            row.differing.append(mode.value)
    return row


def _replayed(compiled: CompiledModel, tokens: torch.Tensor) -> tuple[int, bool]:
    """Capture each run mode and replay it on other tokens; return graphs and equality."""
    graphs, same = 0, True
    for mode in dict.fromkeys(
        (*compiled.config.decode_run_modes, *compiled.config.prefill_run_modes)
    ):
        if mode is RunMode.EAGER:
            continue
        buffer, key = tokens.clone(), GraphKey(num_tokens=tokens.numel())
        with compiled.capture_session(), compiled.context.run(mode, key):
            compiled(buffer)
        for factor in (3, 5):
            buffer.copy_(tokens * factor % 64)
            expected = compiled(buffer).clone()
            with compiled.context.run(mode, key):
                same = same and torch.equal(compiled(buffer), expected)
        graphs = compiled.num_captured_graphs
    compiled.release()
    return graphs, same


def _error(logits: torch.Tensor, expected: torch.Tensor) -> float:
    return float((logits.double() - expected.double()).abs().max() / expected.abs().max())
