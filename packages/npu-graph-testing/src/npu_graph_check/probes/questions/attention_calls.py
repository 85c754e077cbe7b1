"""What a call of fused attention over a long cache launches, and what its mask costs."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import torch

from attn_update import Recorder, StepParameters, UpdateLane, UpdatePlan
from npu_graph_check.probes.operators.agreement import drawn
from npu_graph_check.probes.step_times import median_times

if TYPE_CHECKING:
    from npu_graph_check.probe import Look

_HEADS, _KV_HEADS, _DIM, _BLOCK, _BLOCKS, _SEQUENCES = 4, 1, 128, 128, 256, 4
_LENGTHS = (1, 127, 128, 129, 512, 2048, 4097, 16384, _BLOCK * _BLOCKS)


class _LongCache:
    """Arguments of decode steps over one cache that all sequences read."""

    def __init__(self, on: torch.device) -> None:
        cache = drawn(_BLOCKS, _BLOCK, _KV_HEADS * _DIM, seed=0).half().to(on)
        table = torch.arange(_BLOCKS, dtype=torch.int32).repeat(_SEQUENCES, 1).to(on)
        self._given: dict[str, Any] = {
            "query": drawn(_SEQUENCES, _HEADS, _DIM, seed=1).half().to(on),
            "key": cache,
            "value": cache,
            "block_table": table,
            "block_size": _BLOCK,
            "input_layout": "TND",
            "num_heads": _HEADS,
            "num_key_value_heads": _KV_HEADS,
            "scale": _DIM**-0.5,
        }

    def arguments(self, length: int) -> dict[str, Any]:
        """Return the arguments of a step whose sequences have that many keys."""
        return {**self._given, **self.lengths(length)}

    def lengths(self, length: int) -> dict[str, list[int]]:
        """Return the arguments of lengths alone."""
        own = list(range(1, _SEQUENCES + 1))
        return {"actual_seq_lengths": own, "actual_seq_lengths_kv": [length] * _SEQUENCES}

    def run(self, length: int, **more: object) -> torch.Tensor:
        """Run the operator at once."""
        given = {**self.arguments(length), **more}
        query, key, value = (given.pop(name) for name in ("query", "key", "value"))
        operator = torch.ops.npu.npu_fused_infer_attention_score
        output: torch.Tensor = operator(query, key, value, **given)[0]
        return output


def kernels_by_length(look: Look) -> None:
    """Update one captured call to lengths far apart: another number of kernels is refused."""
    device = look.opened
    cache, recorder = _LongCache(device.torch_device), Recorder(device)
    lane = UpdateLane(device, updater="operators")
    graph, pool = device.create_graph(), device.create_memory_pool()
    recorder.attention("layer", "fused_infer_attention_v1", cache.arguments(_LENGTHS[-1]))
    with recorder.recording("step", graph=graph), device.capture(graph, pool=pool):
        output, _ = recorder.attention(
            "layer", "fused_infer_attention_v1", cache.arguments(_LENGTHS[0])
        )
    plan, others = UpdatePlan.compile(recorder, "step"), []
    for length in _LENGTHS:
        look.doing(f"updating to {length} keys")
        try:
            given = StepParameters(key="step", groups={"default": cache.lengths(length)})
            lane.run(plan, given, graph.replay)
            device.synchronize()
            equal = torch.equal(output.cpu(), cache.run(length).cpu())
        except RuntimeError as error:
            look.answer(f"{length} keys", (str(error).splitlines() or [""])[0][:200])
            others.append(length)
            # What the device does behind a refusal is no answer.
            break
        if not equal:
            others.append(length)
    look.answer("lengths at which the captured kernels are not those of the call", others)


def unmasked_decode(look: Look) -> None:
    """Decode with sparse mode 3 and its mask, and with neither."""
    device = look.opened
    cache = _LongCache(device.torch_device)
    mask = torch.triu(torch.ones(2048, 2048, dtype=torch.int8), diagonal=1)
    causal = {"sparse_mode": 3, "atten_mask": mask.to(device.torch_device)}
    for length in (512, 16384):
        look.doing(f"decoding over {length} keys with and without a mask")
        plain, masked = cache.run(length), cache.run(length, **causal)
        equal = torch.equal(plain.cpu(), masked.cpu())
        look.answer(f"bitwise equal without a mask, {length} keys", equal)

        def ten(more: dict[str, object], length: int = length) -> None:
            for _ in range(10):
                cache.run(length, **more)

        masked_calls, plain_calls = median_times(
            device, lambda: ten(causal), lambda: ten({}), rounds=5, is_whole=True
        )
        look.figure(f"a call with a mask, {length} keys", round(masked_calls * 1e5, 1), "us")
        look.figure(f"a call without, {length} keys", round(plain_calls * 1e5, 1), "us")
