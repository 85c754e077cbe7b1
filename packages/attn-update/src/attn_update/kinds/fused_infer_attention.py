"""The fused attention operators of the NPU (FIA v1 and v2), and encoder attention over them.

They accept their lengths as lists of host integers, which a captured launch keeps. Causal
attention, sliding windows (``sparse_mode=4``), non-causal attention, quantised caches and the sinks
of v2 are arguments of one operator, so they are one kind. Latent attention and attention under
context parallelism call the same operators, and derive from `FusedInferAttention`.

Each version consists of four operators: the functional one, its ``.out`` overload (the one that can
be updated), a query for the largest workspace, and one that allocates the outputs. The versions
differ only in names, so one kind is parametrised by a family.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import torch

from attn_update.errors import ArgumentError, StepParameterError
from attn_update.kinds.attention_geometry import (
    AttentionGeometry,
    TensorForm,
    read_geometry,
    tensor_argument,
)
from attn_update.kinds.lengths import to_lengths
from attn_update.operator_lookup import argument_names, check_argument_names, find_operator

if TYPE_CHECKING:
    from collections.abc import Hashable, Mapping

    from attn_update.kinds.attention_geometry import LengthRule

_MANAGED = frozenset({"workspace"})


@dataclass(frozen=True, kw_only=True)
class OperatorFamily:
    """One version of fused attention.

    Attributes:
        functional: The operator that allocates its outputs, ``namespace::name``.
        workspace_query: The operator that returns a workspace for the largest lengths.
        output_query: The operator that allocates the outputs.
        query_lengths: Name of the argument of query lengths.
        key_lengths: Name of the argument of key lengths.
        heads: Name of the number of query heads.
        softmax_lse: Name of the flag that requests the logarithm of the softmax sums.
    """

    functional: str
    workspace_query: str
    output_query: str
    query_lengths: str
    key_lengths: str
    heads: str
    softmax_lse: str

    @property
    def updatable(self) -> str:
        """The ``.out`` overload, which accepts a workspace and can be updated."""
        return f"{self.functional}.out"


FIA_V1 = OperatorFamily(
    functional="npu::npu_fused_infer_attention_score",
    workspace_query="npu::_npu_fused_infer_attention_score_get_max_workspace",
    output_query="npu::_npu_fused_infer_attention_score_infer_output",
    query_lengths="actual_seq_lengths",
    key_lengths="actual_seq_lengths_kv",
    heads="num_heads",
    softmax_lse="softmax_lse_flag",
)
"""FIA v1; schemas of torch_npu 2.10 to 2.14."""

FIA_V2 = OperatorFamily(
    functional="npu::npu_fused_infer_attention_score_v2",
    workspace_query="npu::_npu_fused_infer_attention_score_v2_get_max_workspace",
    output_query="npu::_npu_fused_infer_attention_score_v2_infer_output",
    query_lengths="actual_seq_qlen",
    key_lengths="actual_seq_kvlen",
    heads="num_query_heads",
    softmax_lse="return_softmax_lse",
)
"""FIA v2; schemas of torch_npu 2.10 to 2.14."""


@dataclass(frozen=True, kw_only=True)
class FusedInferAttention:
    """An attention kind over one family of fused operators.

    Attributes:
        family: The operators and the names of their arguments.
        rebind_block_table: Whether a step may pass another block table. Otherwise the captured
            one is kept, and you write new block numbers into it.
        allows_fewer_sequences: Whether a step may have fewer sequences than were captured: fewer
            lengths and, with `rebind_block_table`, a block table with fewer rows. Only for ragged
            layouts. Engines use this for draft steps that they do not pad to the bucket; outputs
            after the last query token are undefined.
    """

    family: OperatorFamily = FIA_V1
    rebind_block_table: bool = False
    allows_fewer_sequences: bool = False

    @property
    def operator(self) -> str:
        """The overload that can be updated."""
        return self.family.updatable

    @property
    def step_arguments(self) -> frozenset[str]:
        """The two arguments of lengths, and the block table if it can be rebound."""
        names = {self.family.query_lengths, self.family.key_lengths}
        return frozenset(names | {"block_table"} if self.rebind_block_table else names)

    def run(self, arguments: Mapping[str, object]) -> tuple[torch.Tensor, ...]:
        """Run the operator eagerly; into ``out`` if the caller passed it."""
        return self.run_complete(self.complete(arguments))

    def check_arguments(self, arguments: Mapping[str, object]) -> None:
        """Reject arguments the operator does not have, and a workspace, which the recorder owns.

        Raises:
            ArgumentError: An argument is unknown, missing, or owned by the recorder.
        """
        check_argument_names(self.operator, arguments, managed=_MANAGED)
        for name in ("query", "key", "value"):
            tensor_argument(arguments, name)

    def complete(self, arguments: Mapping[str, object]) -> dict[str, Any]:
        """Return the arguments as the operator expects them; launches nothing.

        Kinds whose callers pass other arguments than the operator's translate them here.
        """
        lengths = {
            name: to_lengths(arguments[name], what=f"the captured {name}")
            for name in (self.family.query_lengths, self.family.key_lengths)
            if arguments.get(name) is not None
        }
        return {**arguments, **lengths}

    def run_complete(self, given: Mapping[str, Any]) -> tuple[torch.Tensor, ...]:
        """Run the operator eagerly on arguments from `complete`."""
        passed = self.passed(given)
        if given.get("out") is not None:
            return as_tensors(find_operator(self.operator)(**passed))
        taken = {name: value for name, value in passed.items() if name != "out"}
        return as_tensors(find_operator(self.family.functional)(**taken))

    def workspace_bytes(self, arguments: Mapping[str, object]) -> int:
        """Return a number of bytes that suffices for the longest lengths of these shapes.

        The query returns a tensor of the query's dtype with as many elements as bytes are needed;
        its own memory is freed at once.
        """
        given = self.shapes(self.complete(arguments))
        given.pop("out", None)
        (workspace,) = as_tensors(find_operator(self.family.workspace_query)(**given))
        return workspace.numel()

    def shapes(self, given: Mapping[str, Any]) -> dict[str, Any]:
        """Return complete arguments for queries that only read shapes; launches nothing."""
        return self.passed(given)

    def passed(self, given: Mapping[str, Any]) -> dict[str, Any]:
        """Return complete arguments in the form that the operator takes."""
        return dict(given)

    def make_outputs(self, arguments: Mapping[str, object]) -> tuple[torch.Tensor, ...]:
        """Return ``out`` if given, else new outputs ``(attention, softmax_lse)``.

        ``attention`` has the shape of the query in the layout's output order; ``softmax_lse`` is
        float32 and empty unless it was requested.
        """
        return self.outputs_for(self.complete(arguments))

    def outputs_for(self, given: Mapping[str, Any]) -> tuple[torch.Tensor, ...]:
        """Return the outputs for arguments from `complete`."""
        out = given.get("out")
        if isinstance(out, (list, tuple)):
            return tuple(out)
        operator = find_operator(self.family.output_query)
        names = argument_names(operator)
        taken = {name: value for name, value in self.shapes(given).items() if name in names}
        return as_tensors(operator(**taken))

    def launch_arguments(
        self,
        arguments: Mapping[str, object],
        outputs: tuple[torch.Tensor, ...],
        workspace: torch.Tensor,
    ) -> dict[str, object]:
        """Return the keyword arguments of `operator`, without those that are None."""
        launch = self.launch_complete(self.complete(arguments), outputs)
        return {name: value for name, value in launch.items() if value is not None} | {
            "workspace": workspace
        }

    def launch_complete(
        self, given: Mapping[str, Any], outputs: tuple[torch.Tensor, ...]
    ) -> dict[str, object]:
        """Return the launch for arguments from `complete`, without the workspace."""
        return {**self.passed(given), "out": list(outputs)}

    def persistent_arguments(self, arguments: Mapping[str, object]) -> frozenset[str]:
        """Return all tensors except activations; a paged key and value are the cache and count."""
        activations = {"query", "query_rope", "dequant_scale_query", "out"}
        if arguments.get("block_table") is None:
            activations |= {"key", "value", "key_rope"}
        host = {self.family.query_lengths, self.family.key_lengths}
        tensors = {name for name, value in arguments.items() if isinstance(value, torch.Tensor)}
        # A table that every step replaces is the step's to keep alive.
        rebound = {"block_table"} if self.rebind_block_table else set()
        return frozenset(tensors - activations - host - rebound)

    def geometry(self, arguments: Mapping[str, object]) -> AttentionGeometry:
        """Return the length rules of the shapes, after checking the captured lengths."""
        given = self.complete(arguments)
        query, key = given.get(self.family.query_lengths), given.get(self.family.key_lengths)
        geometry = read_geometry(given, query_lengths=query, key_lengths=key)
        if geometry.query is not None and query is not None:
            if self.allows_fewer_sequences and not geometry.query.cumulative:
                raise ArgumentError(
                    f"reading input_layout: {given.get('input_layout')!r} has a fixed number of "
                    f"sequences; allows_fewer_sequences is for ragged layouts",
                )
            geometry.query.check(query, what=f"the captured {self.family.query_lengths}")
        if geometry.key is not None and key is not None:
            geometry.key.check(key, what=f"the captured {self.family.key_lengths}")
        return geometry

    def step_rules(self, geometry: Hashable) -> dict[str, LengthRule | TensorForm]:
        """Return the rules of lengths and block table, unless they depend on each other."""
        assert isinstance(geometry, AttentionGeometry)  # noqa: S101
        if self.allows_fewer_sequences or type(self).prepare is not FusedInferAttention.prepare:
            return {}
        rules = {
            self.family.query_lengths: geometry.query,
            self.family.key_lengths: geometry.key,
            "block_table": geometry.block_table if self.rebind_block_table else None,
        }
        return {name: rule for name, rule in rules.items() if rule is not None}

    def prepare(
        self,
        values: Mapping[str, object],
        geometry: Hashable,
        *,
        pad: bool,
        what: str,
    ) -> dict[str, object]:
        """Return the step's lengths as checked lists, and its block table unchanged."""
        assert isinstance(geometry, AttentionGeometry)  # noqa: S101
        prepared: dict[str, object] = {}
        rows = 0
        for name, rule in (
            (self.family.query_lengths, geometry.query),
            (self.family.key_lengths, geometry.key),
        ):
            if name in values:
                value = values[name]
                # Copied before it is checked: the caller's list may change meanwhile.
                lengths = value.copy() if type(value) is list else None
                if lengths is None or rule is None or not rule.fits(lengths):
                    lengths = self._prepare_lengths(name, value, rule, pad=pad, what=what)
                rows = max(rows, len(lengths))
                prepared[name] = lengths
        if self.allows_fewer_sequences:
            self._check_counts(prepared, geometry, what=what)
        if "block_table" in values:
            # Rows of sequences that a step does not have may be left out with them.
            rows = rows if self.allows_fewer_sequences else 0
            table = values["block_table"]
            prepared["block_table"] = check_block_table(table, geometry, rows=rows, what=what)
        return prepared

    def _prepare_lengths(
        self, name: str, value: object, rule: LengthRule | None, *, pad: bool, what: str
    ) -> list[int]:
        if rule is None:
            raise StepParameterError(
                f"checking {name!r} of {what}: it was not given at capture, and a launch "
                f"cannot gain an argument; capture with lengths",
            )
        named = f"{name!r} of {what}"
        lengths = to_lengths(value, what=named)
        if pad:
            lengths = rule.padded(lengths)
        elif self.allows_fewer_sequences:
            rule = rule.shortened(len(lengths))
        rule.check(lengths, what=named)
        return lengths

    def _check_counts(
        self, prepared: Mapping[str, object], geometry: AttentionGeometry, *, what: str
    ) -> None:
        counts = {}
        for name, rule in (
            (self.family.query_lengths, geometry.query),
            (self.family.key_lengths, geometry.key),
        ):
            if rule is not None:
                # What a step does not give keeps the captured number of sequences.
                lengths = prepared.get(name)
                counts[name] = len(lengths) if isinstance(lengths, list) else rule.count
        if len(set(counts.values())) > 1:
            found = ", ".join(f"{count} in {name!r}" for name, count in counts.items())
            raise StepParameterError(
                f"checking {what}: expected one number of sequences, found {found}",
            )


@dataclass(frozen=True, kw_only=True)
class EncoderAttention(FusedInferAttention):
    """Self-attention over ragged sequences (layout ``TND``), without a cache.

    A graph is captured for a number of tokens and a number of sequences. A step only says where its
    sequences end; keys end where queries do. Remaining tokens belong to padding sequences, see
    `ParameterGroup.pad`, and their outputs are undefined.
    """

    @property
    def step_arguments(self) -> frozenset[str]:
        """The cumulative lengths, passed once under the name of the query lengths."""
        return frozenset({self.family.query_lengths})

    def prepare(
        self,
        values: Mapping[str, object],
        geometry: Hashable,
        *,
        pad: bool,
        what: str,
    ) -> dict[str, object]:
        """Return the cumulative lengths, checked, for queries and keys."""
        given = {self.family.query_lengths: values[self.family.query_lengths]}
        prepared = super().prepare(given, geometry, pad=pad, what=what)
        # Padded as queries are, for the rule of keys knows no total to fill up to.
        same = {self.family.key_lengths: prepared[self.family.query_lengths]}
        prepared.update(super().prepare(same, geometry, pad=False, what=what))
        return prepared


def as_tensors(result: object) -> tuple[torch.Tensor, ...]:
    """Return the outputs of an operator, one tensor or several, as a tuple."""
    if isinstance(result, torch.Tensor):
        return (result,)
    assert isinstance(result, (list, tuple))  # noqa: S101
    return tuple(result)


def check_block_table(
    value: object, geometry: AttentionGeometry, *, rows: int = 0, what: str
) -> torch.Tensor:
    """Return the block table of a step, which must have the captured form.

    ``rows`` is the number of sequences of the step if fewer rows suffice; 0 if they do not.

    Raises:
        StepParameterError: It has another form, or the launch was captured without paging.
    """
    if geometry.block_table is None:
        raise StepParameterError(
            f"checking 'block_table' of {what}: the launch was captured without paging, and "
            f"cannot gain a block table",
        )
    shape, dtype, device = geometry.block_table
    if isinstance(value, torch.Tensor):
        form = TensorForm.of(value)
        if form == geometry.block_table:
            return value
        if rows and form[1:] == (dtype, device) and value.shape[1:] == shape[1:]:
            if rows <= value.shape[0] <= shape[0]:
                return value
            raise StepParameterError(
                f"checking 'block_table' of {what}: expected {rows} to {shape[0]} rows for "
                f"{rows} sequences, found {value.shape[0]}",
            )
        found = f"{tuple(value.shape)}, {value.dtype}, on {value.device}"
    else:
        found = type(value).__name__
    raise StepParameterError(
        f"checking 'block_table' of {what}: expected a tensor of shape {tuple(shape)}, "
        f"{dtype}, on {device} as captured, found {found}",
    )
