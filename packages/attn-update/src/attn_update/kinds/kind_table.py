"""The table of kinds that a recorder uses unless the caller gives another."""

from __future__ import annotations

from typing import TYPE_CHECKING

from attn_update.kinds.encoder_attention import encoder_attention
from attn_update.kinds.fused_infer_attention_v1 import fused_infer_attention_v1
from attn_update.kinds.fused_infer_attention_v2 import fused_infer_attention_v2

if TYPE_CHECKING:
    from attn_update.kind import AttentionKind


def default_kinds() -> dict[str, AttentionKind]:
    """Return a new table from kind names to kinds; the caller may add to it.

    The names ending in ``_rebound`` take a block table at every step.
    """
    return {
        "encoder_attention": encoder_attention(),
        "fused_infer_attention_v1": fused_infer_attention_v1(),
        "fused_infer_attention_v1_rebound": fused_infer_attention_v1(rebind_block_table=True),
        "fused_infer_attention_v2": fused_infer_attention_v2(),
        "fused_infer_attention_v2_rebound": fused_infer_attention_v2(rebind_block_table=True),
    }
