"""The fused attention operators of the NPU: what FIA v1 and v2 have in common.

Both take their lengths as lists of host integers, which a captured launch bakes in, and both come
as four operators: the functional one, its ``.out`` overload (the one that can be updated), a query
for the largest workspace, and one that allocates the outputs. Only names differ.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import torch

from attn_update.attention_geometry import AttentionGeometry, read_geometry, tensor_argument
from attn_update.errors import ArgumentError, StepParameterError, nearest
from attn_update.operator_lookup import find_operator
from attn_update.step_parameters import to_lengths

if TYPE_CHECKING:
    from collections.abc import Hashable, Mapping

_MANAGED = frozenset({"workspace"})


@dataclass(frozen=True, kw_only=True)
class FusedInferAttention:
    """An attention kind over one fused operator family.

    Attributes:
        functional: The operator that allocates its outputs, ``npu::name``.
        workspace_query: The operator that returns a workspace for the largest lengths.
        output_query: The operator that allocates the outputs.
        query_lengths: The name of the argument of query lengths.
        key_lengths: The name of the argument of key lengths.
        rebind_block_table: Whether a step may give another block table. Otherwise the captured
            one is kept and the caller writes new block numbers into it.
    """

    functional: str
    workspace_query: str
    output_query: str
    query_lengths: str
    key_lengths: str
    rebind_block_table: bool = False

    @property
    def operator(self) -> str:
        """The ``.out`` overload, which takes a workspace and can be updated."""
        return f"{self.functional}.out"

    @property
    def step_arguments(self) -> frozenset[str]:
        """The two arguments of lengths, and the block table where it is rebound."""
        names = {self.query_lengths, self.key_lengths}
        return frozenset(names | {"block_table"} if self.rebind_block_table else names)

    def run(self, arguments: Mapping[str, object]) -> tuple[torch.Tensor, ...]:
        """Run the operator at once; into ``out`` where the caller gave that."""
        given = self._with_lengths(arguments)
        if given.get("out") is not None:
            return _tensors(find_operator(self.operator)(**given))
        given.pop("out", None)
        return _tensors(find_operator(self.functional)(**given))

    def check_arguments(self, arguments: Mapping[str, object]) -> None:
        """Refuse what the operator does not take, and a workspace, which the recorder manages.

        Raises:
            ArgumentError: An unknown, a missing or a managed argument.
        """
        schema = find_operator(self.operator)._schema  # noqa: SLF001
        known = {argument.name for argument in schema.arguments} - _MANAGED
        for name in arguments:
            if name in _MANAGED:
                raise ArgumentError(
                    f"checking the arguments of {self.operator}: {name!r} is allocated by the "
                    f"recorder; leave it out",
                )
            if name not in known:
                raise ArgumentError(
                    f"checking the arguments of {self.operator}: it has no argument {name!r}; "
                    f"{nearest(name, known)}",
                )
        for name in ("query", "key", "value"):
            tensor_argument(arguments, name)

    def workspace_bytes(self, arguments: Mapping[str, object]) -> int:
        """Return the bytes that suffice for the longest lengths of these shapes.

        The query answers with a tensor of as many elements as bytes are needed, of the query's
        dtype; its own memory is given back at once.
        """
        given = self._with_lengths(arguments)
        given.pop("out", None)
        (workspace,) = _tensors(find_operator(self.workspace_query)(**given))
        return workspace.numel()

    def make_outputs(self, arguments: Mapping[str, object]) -> tuple[torch.Tensor, ...]:
        """Return ``out`` if given, else new outputs ``(attention, softmax_lse)``.

        ``attention`` has the shape of the query in the layout's output order; ``softmax_lse`` is
        float32 and empty unless the operator was asked for it.
        """
        out = arguments.get("out")
        if isinstance(out, (list, tuple)):
            return tuple(out)
        operator = find_operator(self.output_query)
        names = {argument.name for argument in operator._schema.arguments}  # noqa: SLF001
        given = {name: value for name, value in arguments.items() if name in names}
        return _tensors(operator(**given))

    def launch_arguments(
        self,
        arguments: Mapping[str, object],
        outputs: tuple[torch.Tensor, ...],
        workspace: torch.Tensor,
    ) -> dict[str, object]:
        """Return the keyword arguments of `operator`, without those that are None."""
        given = self._with_lengths(arguments)
        launch = {name: value for name, value in given.items() if value is not None}
        return {**launch, "workspace": workspace, "out": list(outputs)}

    def persistent_arguments(self, arguments: Mapping[str, object]) -> frozenset[str]:
        """Return all tensors but activations; a paged key and value are the cache and count."""
        activations = {"query", "query_rope", "out"}
        if arguments.get("block_table") is None:
            activations |= {"key", "value", "key_rope"}
        tensors = {name for name, value in arguments.items() if isinstance(value, torch.Tensor)}
        # A table that every step replaces is the step's to keep alive.
        rebound = {"block_table"} if self.rebind_block_table else set()
        return frozenset(tensors - activations - rebound)

    def geometry(self, arguments: Mapping[str, object]) -> AttentionGeometry:
        """Return the length rules of the shapes, after checking the captured lengths by them."""
        query = self._lengths(arguments, self.query_lengths)
        key = self._lengths(arguments, self.key_lengths)
        geometry = read_geometry(arguments, query_lengths=query, key_lengths=key)
        if geometry.query is not None and query is not None:
            geometry.query.check(query, what=f"the captured {self.query_lengths}")
        if geometry.key is not None and key is not None:
            geometry.key.check(key, what=f"the captured {self.key_lengths}")
        return geometry

    def prepare(
        self,
        values: Mapping[str, object],
        geometry: Hashable,
        *,
        pad: bool,
        what: str,
    ) -> dict[str, object]:
        """Return the step's lengths as checked lists, and its block table as it is."""
        assert isinstance(geometry, AttentionGeometry)  # noqa: S101
        prepared: dict[str, object] = {}
        for name, value in values.items():
            if name == "block_table":
                prepared[name] = _check_block_table(value, geometry, what=what)
                continue
            rule = geometry.query if name == self.query_lengths else geometry.key
            if rule is None:
                raise StepParameterError(
                    f"checking {name!r} of {what}: it was not given at capture, and a launch "
                    f"cannot gain an argument; capture with lengths",
                )
            lengths = to_lengths(value, what=f"{name!r} of {what}")
            if pad:
                lengths = rule.padded(lengths)
            rule.check(lengths, what=f"{name!r} of {what}")
            prepared[name] = lengths
        return prepared

    def _lengths(self, arguments: Mapping[str, object], name: str) -> list[int] | None:
        value = arguments.get(name)
        return None if value is None else to_lengths(value, what=f"the captured {name}")

    def _with_lengths(self, arguments: Mapping[str, object]) -> dict[str, Any]:
        lengths = {
            name: self._lengths(arguments, name)
            for name in (self.query_lengths, self.key_lengths)
            if name in arguments
        }
        return {**arguments, **lengths}


def _tensors(result: object) -> tuple[torch.Tensor, ...]:
    if isinstance(result, torch.Tensor):
        return (result,)
    assert isinstance(result, (list, tuple))  # noqa: S101
    return tuple(result)


def _check_block_table(value: object, geometry: AttentionGeometry, *, what: str) -> torch.Tensor:
    if geometry.block_table is None:
        raise StepParameterError(
            f"checking 'block_table' of {what}: the launch was captured without paging, and "
            f"cannot gain a block table",
        )
    form = (value.shape, value.dtype, value.device) if isinstance(value, torch.Tensor) else None
    if not isinstance(value, torch.Tensor) or form != geometry.block_table:
        shape, dtype, device = geometry.block_table
        raise StepParameterError(
            f"checking 'block_table' of {what}: expected a tensor of shape {tuple(shape)}, "
            f"{dtype}, on {device} as captured, found {form or type(value).__name__}",
        )
    return value
