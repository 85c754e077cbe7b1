"""The form of a runner's captured steps: the relation between rows and sequences."""

from __future__ import annotations

import dataclasses
import sys
from typing import TYPE_CHECKING

from npu_compile.configuration.config_values import is_whole
from npu_compile.errors import ConfigError
from npu_compile.inputs.input_spec import StepSize, misfit
from npu_graph_runtime import CaptureSizes, GraphKey

if TYPE_CHECKING:
    from collections.abc import Mapping

    from torch import Tensor

    from npu_compile.inputs.input_spec import InputSpec


class StepForm:
    """Sizes, keys and inputs of decode steps with one, several or any number of rows per sequence.

    Args:
        inputs: declarations of the model's arguments.
        query_length: rows of each sequence; ``None`` if sequences have any number of rows.
        max_sequences: sequences of a step whose sequences have any number of rows; otherwise
            ``None``.
        variant: part of the graph keys, if steps of one size are captured in several ways.

    Attributes:
        inputs: as given; if each sequence has one row, none of them is declared ``per_sequence``.
        what: the kind of steps, for messages.
        max_sequences: the most sequences of a batch that fits a captured step.
        outputs_by_sequence: whether an output may have one row per sequence instead of one per
            token.
            True only if the number of sequences differs between sizes, so that a capture notices an
            output that has as many rows by coincidence.

    Raises:
        ConfigError: A number is out of range, missing or not applicable, or no input has one row
            per token.
    """

    def __init__(
        self,
        inputs: Mapping[str, InputSpec],
        *,
        query_length: int | None,
        max_sequences: int | None,
        variant: tuple[str, ...] = (),
    ) -> None:
        is_packed = query_length is None
        limit = max_sequences if is_packed else query_length
        if is_packed == (max_sequences is None) or not is_whole(limit, least=1):
            raise ConfigError(
                f"making a decode runner: query_length is {query_length!r} and max_sequences "
                f"{max_sequences!r}; expected a query_length of at least 1, or query_length None "
                "and max_sequences of at least 1, for sequences of any number of rows"
            )
        self._query_length = query_length
        self._variant = variant
        self.max_sequences = sys.maxsize if max_sequences is None else max_sequences
        self.outputs_by_sequence = not is_packed
        self.inputs = dict(inputs)
        if query_length == 1:
            self.inputs = {
                name: dataclasses.replace(spec, per_sequence=False) for name, spec in inputs.items()
            }
        self.what = {None: "packed", 1: "decode"}.get(query_length, "verification")
        # By which inputs rows and sequences are counted.
        self._by_row = next(
            (name for name, spec in self.inputs.items() if not spec.per_sequence), None
        )
        self._by_sequence = next(
            (name for name, spec in self.inputs.items() if spec.per_sequence), None
        )
        if self._by_row is None and inputs:
            raise ConfigError(
                "making a runner: every input is declared per_sequence, expected at least one of "
                "one row a token, by which the rows of a batch are counted"
            )

    def capture_sizes(self, sizes: tuple[int, ...]) -> tuple[int, ...]:
        """Return capture sizes rounded to whole sequences, ascending, none above the largest one.

        Raises:
            ConfigError: No size is as large as one sequence.
        """
        if not sizes or self._query_length is None:
            return sizes
        # Batches are whole sequences, so rounded down the largest size holds as many of them.
        highest = max(sizes) // self._query_length * self._query_length
        if not highest:
            raise ConfigError(
                f"making a decode runner of {self._query_length} rows a sequence: the capture "
                f"sizes, in rows, are {list(sizes)}, expected one of at least {self._query_length}"
            )
        rounded = CaptureSizes(sizes).rounded_to_multiples(self._query_length)
        return tuple(CaptureSizes(min(size, highest) for size in rounded))

    def step_size(self, rows: int) -> StepSize:
        """Return the sizes of a captured step with this number of rows."""
        if self._query_length is not None:
            return StepSize(tokens=rows, sequences=rows // self._query_length)
        # One more, so that there is always a sequence for rows that are left over.
        return StepSize(tokens=rows, sequences=min(self.max_sequences + 1, rows))

    def key(self, rows: int) -> GraphKey:
        """Return the graph key of a captured step with this number of rows."""
        sequences = self.step_size(rows).sequences
        uniform = self._query_length is not None
        return GraphKey(
            num_tokens=rows, num_sequences=sequences, uniform=uniform, extra=self._variant
        )

    @property
    def counts_sequences(self) -> bool:
        """Whether the inputs of a step say how many sequences it has."""
        return self._query_length is not None or self._by_sequence is not None

    def shown_size(self, own: StepSize, key: GraphKey | None) -> StepSize:
        """Return the size that the lengths of a step describe: padded or the batch's own."""
        is_padded = key is not None and self._query_length is not None
        return self.step_size(key.num_tokens) if key is not None and is_padded else own

    def given(self, inputs: Mapping[str, Tensor]) -> StepSize:
        """Return the size of a batch from its inputs, without checking them any further.

        Raises:
            InputError: A sequence does not have the expected number of rows.
        """
        rows = _rows_of(inputs, self._by_row)
        length = self._query_length
        if length == 1:
            return StepSize(tokens=rows, sequences=rows)
        if self._by_sequence is None:
            # Nothing counts them but the rows.
            sequences = 0 if length is None else rows // length
        else:
            sequences = _rows_of(inputs, self._by_sequence)
        if length is not None and rows != sequences * length:
            raise misfit(
                f"found {rows} rows (`{self._by_row}`) for {sequences} sequences, expected "
                f"{length} rows for each"
            )
        return StepSize(tokens=rows, sequences=sequences)


class PrefillForm(StepForm):
    """Sizes, keys and inputs of prefill and mixed steps. Each graph has `max_sequences` sequences.

    Each captured step has one more, of padding.
    """

    def __init__(self, inputs: Mapping[str, InputSpec], *, max_sequences: int) -> None:
        super().__init__(inputs, query_length=None, max_sequences=max_sequences)
        self.what = "prefill"

    def step_size(self, rows: int) -> StepSize:
        """Return the sizes of a captured step with this number of rows."""
        return StepSize(tokens=rows, sequences=self.max_sequences + 1)

    def key(self, rows: int) -> GraphKey:
        """Return the graph key of a captured step with this number of rows."""
        return GraphKey(num_tokens=rows)


def _rows_of(inputs: Mapping[str, Tensor], name: str | None) -> int:
    """Return the number of rows of an input, or 0 if it is not given.

    Raises:
        InputError: It is not a tensor, or the inputs are not a mapping.
    """
    try:
        value = None if name is None else inputs.get(name)
        return 0 if value is None or value.dim() == 0 else value.shape[0]
    except AttributeError as error:
        raise misfit(f"{error}; expected a mapping of input names to tensors") from error
