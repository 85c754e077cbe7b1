"""Ways to call latent attention: layouts for plain and speculative steps, padded heads, drafts."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

import torch

from attn_update.kinds import FIA_V1, FIA_V2
from npu_graph_testing.attention.cases.fused_infer_cases import (
    causal,
    int8_tensor,
    rebound,
    scales,
    unpadded,
)
from npu_graph_testing.attention.cases.paged_case import PagedCase

if TYPE_CHECKING:
    from attn_update.kinds import OperatorFamily
    from npu_graph_testing.attention.cases.attention_case import AttentionCase, CaseModel

LATENT_DIM, ROPE_DIM = 512, 64


def latent_cases() -> list[AttentionCase]:
    """Return all of them, over both operators; queries in int8 over the second, which has them."""
    both = (("latent_attention_v1", FIA_V1), ("latent_attention_v2", FIA_V2))
    cases = [case for kind_name, family in both for case in _cases(kind_name, family)]
    return [*cases, *(case.build() for case in _quantised_cases())]


def bfloat16_tensor(model: CaseModel, shape: tuple[int, ...]) -> torch.Tensor:
    """Return random values of the one dtype that rotary parts have beside queries in int8."""
    return model.random(*shape, dtype=torch.bfloat16)


def _quantised_cases() -> list[PagedCase]:
    decode = PagedCase(
        name="latent_attention_v2 int8",
        kind_name="latent_attention_v2",
        family=FIA_V2,
        kv_heads=1,
        dim=LATENT_DIM,
        rope_dim=ROPE_DIM,
        # Units of 32 bytes, and the one block size of this form.
        cache_unit=32,
        rope_cache_unit=16,
        block_size=128,
        query=int8_tensor,
        cache=int8_tensor,
        rope=bfloat16_tensor,
        arguments=lambda model, key: _query_scales(model, key, heads=4),
    )
    padded = replace(
        decode,
        name=f"{decode.name} padded",
        heads=3,
        arguments=lambda model, key: _query_scales(model, key, heads=3),
    )
    return [decode, padded]


def _query_scales(model: CaseModel, key: int, *, heads: int) -> dict[str, object]:
    return {
        "dequant_scale_query": scales(model, key, heads),
        "dequant_scale_key": scales(model, 1),
        "dequant_scale_value": scales(model, 1),
        "query_quant_mode": 3,
    }


def _cases(kind_name: str, family: OperatorFamily) -> list[AttentionCase]:
    ragged = PagedCase(
        name="",
        kind_name=kind_name,
        family=family,
        kv_heads=1,
        dim=LATENT_DIM,
        rope_dim=ROPE_DIM,
        cache_has_heads=True,
    )
    plain = replace(ragged, gives_query_lengths=False)
    speculative = replace(ragged, tokens=3, arguments=causal)
    named = {
        "BNSD": replace(plain, layout="BNSD"),
        "BSND": replace(plain, layout="BSND", cache_has_heads=False),
        "BNSD_NBSD padded": replace(plain, layout="BNSD_NBSD", heads=3),
        "BNSD_NBSD": replace(plain, layout="BNSD_NBSD"),
        "BSND_NBSD padded": replace(plain, layout="BSND_NBSD", heads=5, cache_has_heads=False),
        "BSND_NBSD": replace(plain, layout="BSND_NBSD", cache_has_heads=False),
        "BSND_NBSD NZ": replace(plain, layout="BSND_NBSD", cache_unit=16),
        "TND": ragged,
        "TND padded": replace(ragged, heads=3),
        "TND speculative": speculative,
        "TND_NTD speculative": replace(speculative, layout="TND_NTD", ragged=True),
        "TND_NTD speculative padded": replace(speculative, layout="TND_NTD", heads=5),
        "TND rebound": rebound(ragged),
        "TND unpadded": unpadded(speculative),
    }
    return [replace(case, name=f"{kind_name} {name}").build() for name, case in named.items()]
