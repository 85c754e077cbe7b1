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


def read_latent(metadata: Any) -> dict[str, Any]:
    """Return those of latent attention, on FIA v2 and, over a part of the keys, on v1."""
    decode = metadata.decode
    return (
        {}
        if decode is None
        else {
            "actual_seq_qlen": decode.actual_seq_lengths_q,
            "actual_seq_kvlen": decode.seq_lens_list,
            "actual_seq_lengths_kv": decode.cp_seq_len,
            "block_table": decode.block_table,
        }
    )


class KeptTable(NamedTuple):
    """Reads a step whose blocks the engine writes into the table that was captured.

    Attributes:
        table: That was captured, [sequences, blocks of the longest].
        read: Returns lengths of the sequences of a step by argument, or None, and their table.
    """

    table: Tensor
    read: Callable[[Any], dict[str, Any]]

    def __call__(self, metadata: Any) -> dict[str, Lengths]:
        """Return the step parameters; sequences that the step does not have have no keys."""
        given, count = self.read(metadata), len(self.table)
        table = given.pop("block_table", None)
        if table is None or table.data_ptr() != self.table.data_ptr():
            found = "no sequence decodes" if table is None else "it stands in other memory"
            raise StepParameterError(
                f"reading the lengths of sequences that decode: expected a step whose block table "
                f"is the captured one, of {count} rows, found that {found}"
            )
        return {name: [*own, *[0] * (count - len(own))] for name, own in given.items() if own}
