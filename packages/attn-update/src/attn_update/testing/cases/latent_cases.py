"""Ways to call latent attention: layouts for plain and speculative steps, padded heads, drafts."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from attn_update.kinds import FIA_V1, FIA_V2
from attn_update.testing.cases.fused_infer_cases import causal, rebound, unpadded
from attn_update.testing.cases.paged_case import PagedCase

if TYPE_CHECKING:
    from attn_update.kinds import OperatorFamily
    from attn_update.testing.cases.attention_case import AttentionCase

LATENT_DIM, ROPE_DIM = 512, 64


def latent_cases() -> list[AttentionCase]:
    """Return all of them, over both operators."""
    both = (("latent_attention_v1", FIA_V1), ("latent_attention_v2", FIA_V2))
    return [case for kind_name, family in both for case in _cases(kind_name, family)]


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
