"""Ways to call FIA v1 and v2: causal, window, masks, quantised caches, layouts of heads, sinks."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

import torch

from attn_update.kinds import FIA_V2
from npu_graph_testing.attention.cases.attention_case import (
    HEAD_DIM,
    HEADS,
    KV_HEADS,
    LONGEST,
)
from npu_graph_testing.attention.cases.paged_case import PagedCase

if TYPE_CHECKING:
    from npu_graph_testing.attention.cases.attention_case import AttentionCase, CaseModel

V1, V2 = "fused_infer_attention_v1", "fused_infer_attention_v2"
WINDOW = 8


def causal_mask(model: CaseModel) -> torch.Tensor:
    """Return the compressed mask that represents any causal one."""
    return torch.ones(2048, 2048, dtype=torch.bool).triu(1).to(model.device.torch_device)


def causal(model: CaseModel, key: int) -> dict[str, object]:
    """Return the arguments of a causal mask."""
    del key
    return {"atten_mask": causal_mask(model), "sparse_mode": 3}


def sliding_window(model: CaseModel, key: int) -> dict[str, object]:
    """Return the arguments of a causal window of the last `WINDOW` keys."""
    del key
    mask = causal_mask(model)
    return {"atten_mask": mask, "sparse_mode": 4, "pre_tokens": WINDOW, "next_tokens": 0}


def whole_mask(model: CaseModel, key: int) -> dict[str, object]:
    """Return a mask of every query and key, which hides a quarter of them."""
    hidden = model.random(key, 1, 2, LONGEST) > 0.7
    return {"atten_mask": hidden, "sparse_mode": 0}


def sinks(model: CaseModel, key: int) -> dict[str, object]:
    """Return a learnable sink for each head; of any query the operator takes it in bfloat16."""
    del key
    return {"learnable_sink": model.random(HEADS, dtype=torch.bfloat16)}


def int8_tensor(model: CaseModel, shape: tuple[int, ...]) -> torch.Tensor:
    """Return quantised queries, keys or values."""
    return (model.random(*shape) * 40).clamp(-127, 127).to(torch.int8)


def scales(model: CaseModel, *shape: int, dtype: torch.dtype = torch.float32) -> torch.Tensor:
    """Return scales of quantised queries, keys or values."""
    return model.random(*shape, dtype=dtype).abs() * 0.02 + 0.001


def scales_by_channel(model: CaseModel) -> dict[str, object]:
    """Return scales of a quantised cache, one for each head and dimension."""
    names = ("key_antiquant_scale", "value_antiquant_scale")
    given = {name: scales(model, KV_HEADS * HEAD_DIM, dtype=model.dtype) for name in names}
    return {**given, "key_antiquant_mode": 0, "value_antiquant_mode": 0, "inner_precise": 1}


def scales_by_token(model: CaseModel, key: int) -> dict[str, object]:
    """Return scales of a quantised cache, one for each token of each sequence."""
    names = ("key_antiquant_scale", "value_antiquant_scale")
    given = {name: scales(model, key, LONGEST) for name in names}
    return {**given, "key_antiquant_mode": 1, "value_antiquant_mode": 1}


def rebound(case: PagedCase) -> PagedCase:
    """Return the case with another block table at every step."""
    name, kind_name = f"{case.name} rebound", f"{case.kind_name}_rebound"
    return replace(case, name=name, kind_name=kind_name, rebinds=True)


def unpadded(case: PagedCase) -> PagedCase:
    """Return the case with fewer sequences, and rows of the block table, at every step."""
    name, kind_name = f"{case.name} unpadded", f"{case.kind_name}_unpadded"
    return replace(case, name=name, kind_name=kind_name, rebinds=True, unpadded=True)


def fused_infer_cases() -> list[AttentionCase]:
    """Return all of them."""
    decode = PagedCase(name="v1 decode", kind_name=V1)
    several = replace(decode, tokens=3, ragged=True)
    quantised = replace(decode, cache=int8_tensor, layer_arguments=scales_by_channel)
    v2 = PagedCase(name="v2 decode", kind_name=V2, family=FIA_V2)
    cases = [
        decode,
        replace(decode, name="v1 BSH", layout="BSH"),
        replace(several, name="v1 causal", arguments=causal),
        replace(several, name="v1 window", arguments=sliding_window),
        replace(several, name="v1 non-causal"),
        replace(decode, name="v1 whole mask", layout="BSND", tokens=2, arguments=whole_mask),
        replace(quantised, name="v1 int8 BNSD", layout="BNSD", cache_has_heads=True),
        replace(quantised, name="v1 int8 BSND", layout="BSND"),
        replace(quantised, name="v1 int8 NZ", layout="BNSD", dim=32, kv_heads=1, cache_unit=32),
        replace(
            decode,
            name="v1 int8 by token",
            layout="BNSD",
            cache=int8_tensor,
            arguments=scales_by_token,
        ),
        replace(decode, name="v1 NTD_TND", layout="NTD_TND", tokens=2, cache_has_heads=True),
        replace(decode, name="v1 BNSD_BSND", layout="BNSD_BSND", tokens=2),
        replace(decode, name="v1 one key head", heads=6, kv_heads=1),
        rebound(replace(decode, name="v1")),
        unpadded(replace(decode, name="v1", tokens=2)),
        v2,
        replace(v2, name="v2 sinks", arguments=sinks),
        replace(
            v2,
            name="v2 sinks and window",
            tokens=3,
            ragged=True,
            arguments=lambda m, k: sinks(m, k) | sliding_window(m, k),
        ),
        replace(v2, name="v2 BSH causal", layout="BSH", tokens=2, arguments=causal),
        rebound(replace(v2, name="v2")),
        unpadded(replace(v2, name="v2", tokens=2)),
    ]
    return [case.build() for case in cases]
