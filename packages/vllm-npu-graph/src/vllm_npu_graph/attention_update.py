"""The attention of one model in vLLM's FULL graphs: what is read from the engine's metadata.

Nothing of the engine is imported here.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NamedTuple

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


class DecodeReader(NamedTuple):
    """Reads the step parameters of attention of one token a sequence.

    The engine gives the lengths of the sequences that a step has, and writes their blocks into the
    table that was captured.

    Attributes:
        table: That was captured, [sequences, blocks of the longest].
        lengths: Returns those of the sequences of a step, by argument.
    """

    table: Tensor
    lengths: Callable[[Any], Mapping[str, list[int]]]

    def __call__(self, metadata: Any) -> dict[str, Lengths]:
        """Return the step parameters in the metadata of a step; missing sequences have no keys."""
        decode = metadata.decode if hasattr(metadata, "decode") else metadata.decode_meta
        count, found = len(self.table), "no sequence decodes"
        if decode is not None:
            table = getattr(decode, "block_table", None)
            table = decode.block_tables if table is None else table
            if table.data_ptr() == self.table.data_ptr():
                given = self.lengths(metadata)
                return {name: [*own, *[0] * (count - len(own))] for name, own in given.items()}
            found = "it stands in other memory"
        raise StepParameterError(
            f"reading the lengths of a step that decodes: expected one whose block table is the "
            f"captured one, of {count} rows, found that {found}"
        )
