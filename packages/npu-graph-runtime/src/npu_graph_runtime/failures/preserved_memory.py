"""Preserves memory that a step changes and that a second run of the step must find unchanged.

An eager run is followed by a replay from the same values. Memory that a step writes before it reads
it, such as the rows of a key/value cache that it fills, is written again with the same values, so
it needs no copy. Memory that a step reads and then changes, such as a counter, a running sum or a
shifted state, is copied before the eager run changes it, and restored before the replay.
"""

from __future__ import annotations

import weakref
from typing import TYPE_CHECKING, Any, NamedTuple

import torch
from torch import Tensor

from npu_graph_runtime.capturing.fresh_memory import bytes_of, extent_of, refers_to
from npu_graph_runtime.capturing.watching.captured_memory import describe, plain_leaves
from npu_graph_runtime.capturing.watching.operator_watch import OperatorWatch
from npu_graph_runtime.capturing.watching.program_place import ProgramPlace
from npu_graph_runtime.capturing.watching.watched_weights import TensorPlace
from npu_graph_runtime.torch_internals import (
    OpOverload,
    given_arguments,
    run_python_kernel,
    schema_of,
)

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from npu_graph_runtime.capturing.watching.operator_watch import Run

# They overwrite all of a tensor, and read nothing of it.
_WHOLE = frozenset({"copy_", "fill_", "zero_"})
# They overwrite some elements, and read nothing of the tensor.
_PARTS = frozenset(
    {"index_put_", "index_copy_", "index_fill_", "scatter_", "masked_fill_", "masked_scatter_"}
)
_CACHE_WRITERS = ("reshape_and_cache", "scatter_nd_update", "scatter_pa_kv_cache")
_READS_TOO = ("reduce", "accumulate")


class PreservedMemory(OperatorWatch):  # type: ignore[no-untyped-call]
    """Sees the operators of an eager run, and copies memory that was read before it is changed."""

    def __init__(self) -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        self._made: dict[int, weakref.ref[torch.UntypedStorage]] = {}
        self._copies: dict[TensorPlace, _Copy] = {}
        self._read: list[_Extent] = []
        self._covered: list[_Extent] = []

    def bring_back(self) -> dict[str, tuple[Tensor, Tensor]]:
        """Restore the original values of memory, and begin again.

        Returns:
            For each operator that changed memory, the tensor and a copy of the eager run's value.
        """
        copies = list(self._copies.values())
        with self.looking(False):
            found = {copy.written_by: (copy.tensor, copy.tensor.clone()) for copy in copies}
            # The last first: its copy has what the ones before it changed.
            for copy in reversed(copies):
                _write(copy.tensor, copy.before)
        self._copies.clear()
        self._read.clear()
        self._covered.clear()
        return found

    def before(self, func: Any, args: Sequence[Any], kwargs: Mapping[str, Any]) -> Run | None:
        """Copy what an operator is about to change."""
        run = run_python_kernel(func, args, kwargs)
        if run is None and isinstance(func, OpOverload):
            self._see(func, args, kwargs)
        return run

    def after(self, func: Any, args: Sequence[Any], kwargs: Mapping[str, Any], result: Any) -> None:
        """Note the memory that an operator has allocated."""
        del func
        known = {id(part.untyped_storage()) for part in plain_leaves((args, dict(kwargs)))}
        for part in plain_leaves(result):
            storage = part.untyped_storage()
            if id(storage) not in known:
                self._made[id(storage)] = weakref.ref(storage)

    def _see(
        self, func: OpOverload[..., Any], args: Sequence[Any], kwargs: Mapping[str, Any]
    ) -> None:
        written: list[tuple[Tensor, bool]] = []
        is_out_variant = "out" in schema_of(func).overload_name
        for argument, value in given_arguments(func, args, kwargs):
            is_written = argument.alias_info is not None and argument.alias_info.is_write
            if argument.alias_info is not None and not is_written:
                continue  # a view of it is returned
            for part in plain_leaves(value):
                if refers_to(self._made, part.untyped_storage()) or not part.numel():
                    continue
                if is_written:
                    written.append((part, is_out_variant and argument.kwarg_only))
                else:
                    self._note_read(_Extent.of(part))
        for part, is_output in written:
            self._note_written(func, part, args, kwargs, is_output=is_output)

    def _note_read(self, extent: _Extent) -> None:
        if not extent.is_in(self._covered):
            self._read.append(extent)

    def _note_written(
        self,
        func: OpOverload[..., Any],
        tensor: Tensor,
        args: Sequence[Any],
        kwargs: Mapping[str, Any],
        *,
        is_output: bool,
    ) -> None:
        extent, view = _Extent.of(tensor), TensorPlace.of(tensor)
        if extent.is_in(self._covered) or view in self._copies:
            return
        name = schema_of(func).name.partition("::")[2]
        is_whole = is_output or name in _WHOLE
        is_part = any(writer in name for writer in _CACHE_WRITERS) or (
            name in _PARTS and not _reads_too(func, args, kwargs)
        )
        if (is_whole or is_part) and not extent.overlaps(self._read):
            if is_whole and _is_dense(tensor):
                self._covered.append(extent)
            return
        place = ProgramPlace.of(None)
        written_by = (
            f"{describe(tensor)} that {func} at {place.file}:{place.line} changes"
            f"{f' ({len(self._copies) + 1})' if self._copies else ''}"
        )
        alias = tensor.detach()
        self._copies[view] = _Copy(alias, alias.clone(), written_by)
        if _is_dense(tensor):
            # Whatever changes it now is undone by the copy.
            self._covered.append(extent)


class _Copy(NamedTuple):
    tensor: Tensor
    before: Tensor
    written_by: str


class _Extent(NamedTuple):
    """The bytes that a tensor spans."""

    begin: int
    end: int

    @classmethod
    def of(cls, tensor: Tensor) -> _Extent:
        return cls(*bytes_of(tensor))

    def is_in(self, others: Sequence[_Extent]) -> bool:
        return any(other.begin <= self.begin and self.end <= other.end for other in others)

    def overlaps(self, others: Sequence[_Extent]) -> bool:
        return any(other.begin < self.end and self.begin < other.end for other in others)


def _is_dense(tensor: Tensor) -> bool:
    """Return whether a tensor covers all the memory that it spans."""
    return tensor.numel() == extent_of(tensor)


def _reads_too(func: OpOverload[..., Any], args: Sequence[Any], kwargs: Mapping[str, Any]) -> bool:
    """Return whether an operator that writes by index also adds to the old values."""
    given = given_arguments(func, args, kwargs)
    return any(value for argument, value in given if argument.name in _READS_TOO)


def _write(tensor: Tensor, value: Tensor) -> None:
    if tensor.is_inference() and not torch.is_inference_mode_enabled():
        with torch.inference_mode():
            tensor.copy_(value)
    else:
        with torch.no_grad():
            tensor.copy_(value)
