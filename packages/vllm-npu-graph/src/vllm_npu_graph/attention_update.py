"""The attention of one model in vLLM's FULL graphs: what is read from the engine's metadata.

Nothing of the engine is imported here.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from attn_update import StepParameterError, UpdatableLayers

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping
    from contextlib import AbstractContextManager

    from torch import Tensor

    from attn_update import Lengths


class AttentionUpdate(UpdatableLayers):
    """The layers of one model; what a step has stands in the engine's forward context."""

    def metadata(self, context: Any) -> Mapping[str, Any] | None:
        """Return what the engine's forward context gives each layer in a step, by name."""
        return context.attn_metadata  # type: ignore[no-any-return]

    def replaying(self, context: Any) -> AbstractContextManager[None]:
        """Update the graph that is replayed inside, by what the engine's forward context says."""
        return self.step(context.batch_descriptor, self.metadata(context))


def read_lengths(metadata: Any) -> dict[str, Lengths]:
    """Return those of FIA v1 and of paged attention, from the engine's metadata of a step."""
    return {
        "actual_seq_lengths": metadata.actual_seq_lengths_q,
        "actual_seq_lengths_kv": metadata.seq_lens_list,
        "context_lens": metadata.seq_lens_list,
        "block_table": metadata.block_tables,
    }


def latent_reader(table: Tensor) -> Callable[[Any], dict[str, Lengths]]:
    """Return what reads the step parameters of latent attention of one token a sequence.

    The engine gives the lengths of the sequences that a step has, and writes their blocks into the
    table that was captured, [sequences, blocks of the longest].
    """
    count, address = len(table), table.data_ptr()

    def read(metadata: Any) -> dict[str, Lengths]:
        decode = metadata.decode
        if decode is None or decode.block_table.data_ptr() != address:
            found = "no sequence decodes" if decode is None else "it stands in other memory"
            raise StepParameterError(
                f"reading the lengths of latent attention: expected a step whose block table is "
                f"the captured one, of {count} rows, found that {found}"
            )
        lengths = decode.seq_lens_list
        return {"actual_seq_kvlen": [*lengths, *[0] * (count - len(lengths))]}

    return read
