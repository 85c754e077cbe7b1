"""The attention of one model in vLLM's FULL graphs, read from the engine's metadata.

Imports nothing from the engine.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from attn_update import UpdatableLayers

if TYPE_CHECKING:
    from collections.abc import Mapping
    from contextlib import AbstractContextManager

    from attn_update import Lengths


class AttentionUpdate(UpdatableLayers):
    """The layers of one model, with the metadata of a step from the engine's forward context."""

    def metadata(self, context: Any) -> Mapping[str, Any] | None:
        """Return the metadata of each layer in the engine's forward context, by name."""
        return context.attn_metadata  # type: ignore[no-any-return]

    def replaying(self, context: Any) -> AbstractContextManager[None]:
        """Update the graph that is replayed inside, from the engine's forward context."""
        return self.step(context.batch_descriptor, self.metadata(context))


def read_lengths(metadata: Any) -> dict[str, Lengths]:
    """Return the step parameters of FIA v1 and of paged attention in the engine's metadata."""
    return {
        "actual_seq_lengths": metadata.actual_seq_lengths_q,
        "actual_seq_lengths_kv": metadata.seq_lens_list,
        "context_lens": metadata.seq_lens_list,
        "block_table": metadata.block_tables,
    }


def read_part(metadata: Any, at: tuple[int, int]) -> dict[str, Any]:
    """Return those of FIA v1 over a part of the keys, of the rank at a place in PCP and DCP."""
    decode = metadata.decode_meta
    return {
        "actual_seq_lengths": metadata.actual_seq_lengths_q,
        "actual_seq_lengths_kv": decode and decode.num_computed_tokens_of_pcp_dcp[:, at[0], at[1]],
        "block_table": decode and decode.block_tables,
    }


def read_latent(metadata: Any) -> dict[str, Any]:
    """Return those of latent attention, on FIA v2 and, over a part of the keys, on v1."""
    decode = metadata.decode
    return {
        "actual_seq_qlen": decode and decode.actual_seq_lengths_q,
        "actual_seq_kvlen": decode and decode.seq_lens_list,
        "actual_seq_lengths_kv": getattr(decode, "cp_seq_len", None),
        "block_table": decode and decode.block_table,
    }
