"""The results of a replay: tensors that the caller may keep, aliased as in eager mode."""

from __future__ import annotations

import weakref
from typing import TYPE_CHECKING, Any, NamedTuple, TypeAlias

import torch
from torch import Tensor

from npu_graph_runtime.by_signature.call_signature import flatten, rebuilt
from npu_graph_runtime.capturing.fresh_memory import extent_of, memory_of
from npu_graph_runtime.errors import UnsupportedInputError

if TYPE_CHECKING:
    from collections.abc import Callable, Hashable, Sequence

_Plan: TypeAlias = "Callable[[Sequence[Tensor], Sequence[Tensor], Sequence[Tensor]], Tensor]"
"""Returns one tensor of a result, given those of the graph, of the call, and those before it."""


class FirstResult:
    """The result of an eager call, without keeping its memory alive.

    Raises:
        UnsupportedInputError: A replay cannot return a value.
    """

    def __init__(self, result: Any, device: torch.device) -> None:
        try:
            flat = flatten((result,), {})
            again = flatten((rebuilt(result, iter(flat.tensors)),), {})
        except Exception as error:
            raise UnsupportedInputError(
                f"the function returns what a replay cannot return ({error}); return tensors and "
                "plain values, in lists, tuples, dicts or dataclasses"
            ) from error
        is_same = again.structure == flat.structure
        if not is_same or len(again.tensors) != len(flat.tensors):
            raise UnsupportedInputError(
                "the function returns a container that cannot be rebuilt from its items; return "
                "lists, tuples, dicts or dataclasses"
            )
        for tensor in flat.tensors:
            _require_returned(tensor, device)
        self._structure = flat.structure
        self._layouts = [_layout(tensor) for tensor in flat.tensors]
        self._memory = [weakref.ref(tensor.untyped_storage()) for tensor in flat.tensors]

    def require_same(self, result: Any) -> list[Tensor]:
        """Return the tensors of the captured call's result.

        Raises:
            UnsupportedInputError: It differs in structure from the result of the eager call.
        """
        flat = flatten((result,), {})
        if flat.structure != self._structure or self._layouts != [
            _layout(tensor) for tensor in flat.tensors
        ]:
            raise UnsupportedInputError(
                "the function returned other Python values or other shapes while it was captured "
                "than just before, expected the same, since replays run no Python; return "
                "tensors, or pass what changes as an argument"
            )
        return flat.tensors

    def is_of_others(self, index: int, tensor: Tensor) -> bool:
        """Return whether two calls returned the same memory, which then belongs to neither."""
        return self._memory[index]() is tensor.untyped_storage()


class ReturnedOutputs:
    """Returns the results of one graph.

    A result that is an argument is returned as the argument of the call, a view of an argument
    as a view of it, and a tensor that the function keeps elsewhere as that tensor. All others
    are in the graph's memory. They are copied if ``is_copied``. The result of the captured call
    is not kept.

    Attributes:
        others: returned memory that belongs to neither the graph nor the arguments.

    Raises:
        UnsupportedInputError: A replay cannot return a result.
    """

    def __init__(
        self, result: Any, first: FirstResult, buffers: Sequence[Tensor], *, is_copied: bool
    ) -> None:
        self._is_copied = is_copied
        self._is_one_tensor = isinstance(result, Tensor)
        self._plans: list[_Plan] = []
        self.others: list[weakref.ref[torch.UntypedStorage]] = []
        owners: dict[int, list[int]] = {}
        tensors = first.require_same(result)
        for index, tensor in enumerate(tensors):
            plan = self._plan(index, tensor, first, buffers)
            if plan is None and tensor.numel():
                owners.setdefault(memory_of(tensor), []).append(index)
            self._plans.append(plan or _copied(index, tensor))
        for indices in owners.values():
            if len(indices) > 1:
                self._share(indices, tensors)

    @property
    def are_there(self) -> bool:
        """Whether the returned memory of others still exists."""
        return all(memory() is not None for memory in self.others)

    def give(self, result: Any, inputs: Sequence[Tensor]) -> Any:
        """Return the result of a replay."""
        if self._is_one_tensor:
            return self._plans[0]([result], inputs, [])
        tensors = flatten((result,), {}).tensors
        made: list[Tensor] = []
        for plan in self._plans:
            made.append(plan(tensors, inputs, made))
        return rebuilt(result, iter(made))

    def _plan(
        self, index: int, tensor: Tensor, first: FirstResult, buffers: Sequence[Tensor]
    ) -> _Plan | None:
        """Return how to return a tensor that needs no copy, or ``None``."""
        for number, buffer in enumerate(buffers):
            if tensor is buffer:
                return lambda _, inputs, __: inputs[number]
        for number, buffer in enumerate(buffers):
            if tensor.numel() and memory_of(tensor) == memory_of(buffer):
                return _view_of_input(tensor, number, buffer)
        if first.is_of_others(index, tensor):
            self.others.append(weakref.ref(tensor.untyped_storage()))
            return _tensor_of_others(tensor)
        if tensor.requires_grad:
            raise UnsupportedInputError(_GRADIENTS)
        if not self._is_copied:
            return lambda tensors, _, __: tensors[index]
        return None

    def _share(self, indices: list[int], tensors: Sequence[Tensor]) -> None:
        """Let tensors that share memory share one copy of it, as in eager mode."""
        parts = [tensors[index] for index in indices]
        if len({part.dtype for part in parts}) > 1 or any(_is_lazy(part) for part in parts):
            raise UnsupportedInputError(
                "the function returns tensors of several dtypes, or lazily conjugated or negated "
                "ones, on the same memory; return copies of them"
            )
        begin = min(int(part.storage_offset()) for part in parts)
        spans = [
            _Span(
                index,
                part.shape,
                part.stride(),
                int(part.storage_offset()) - begin,
                extent_of(part),
            )
            for index, part in zip(indices, parts, strict=True)
        ]
        first_of: dict[int, int] = {}
        owners = [
            first_of.setdefault(id(part), span.number)
            for part, span in zip(parts, spans, strict=True)
        ]
        self._plans[indices[0]] = _shared_copy(spans)
        for span, owner in zip(spans[1:], owners[1:], strict=True):
            beside = _same_as(owner) if owner != span.number else _beside(spans[0], span)
            self._plans[span.number] = beside


class _Span(NamedTuple):
    """A tensor's position in a copy of memory that it shares with others."""

    number: int
    shape: torch.Size
    stride: tuple[int, ...]
    offset: int
    extent: int


_GRADIENTS = (
    "the function returns a tensor that requires grad, and graphs record no gradients; call it "
    "under torch.no_grad() or torch.inference_mode()"
)


def _layout(tensor: Tensor) -> tuple[Hashable, ...]:
    return tensor.shape, tensor.stride(), tensor.dtype, tensor.requires_grad


def _require_returned(tensor: Tensor, device: torch.device) -> None:
    if tensor.device != device:
        raise UnsupportedInputError(
            f"the function returns a tensor on {tensor.device}, expected {device}, since a replay "
            "computes nothing elsewhere"
        )
    if tensor.layout is not torch.strided or tensor.is_quantized:
        raise UnsupportedInputError("the function returns a sparse or quantised tensor")
    if tensor.requires_grad and torch.is_grad_enabled():
        raise UnsupportedInputError(_GRADIENTS)


def _is_lazy(tensor: Tensor) -> bool:
    return tensor.is_conj() or tensor.is_neg()


def _flat(tensor: Tensor, extent: int) -> Tensor:
    return tensor.as_strided((extent,), (1,), tensor.storage_offset())


def _copied(index: int, tensor: Tensor) -> _Plan:
    shape, stride, extent = tensor.shape, tensor.stride(), extent_of(tensor)
    is_dense = torch.empty_like(tensor, device="meta").stride() == stride
    if is_dense or _is_lazy(tensor):
        return lambda tensors, _, __: tensors[index].clone()
    return lambda tensors, _, __: _flat(tensors[index], extent).clone().as_strided(shape, stride)


def _shared_copy(spans: Sequence[_Span]) -> _Plan:
    size = max(span.offset + span.extent for span in spans)

    def copy(tensors: Sequence[Tensor], _: Sequence[Tensor], __: Sequence[Tensor]) -> Tensor:
        region = tensors[spans[0].number].new_empty(size)
        # A weak tensor reaches no further than its own elements, so each is copied by itself.
        for span in spans:
            part = _flat(tensors[span.number], span.extent)
            region.narrow(0, span.offset, span.extent).copy_(part)
        return region.as_strided(spans[0].shape, spans[0].stride, spans[0].offset)

    return copy


def _beside(leader: _Span, span: _Span) -> _Plan:
    return lambda _, __, made: made[leader.number].as_strided(span.shape, span.stride, span.offset)


def _same_as(owner: int) -> _Plan:
    return lambda _, __, made: made[owner]


def _view_of_input(tensor: Tensor, number: int, buffer: Tensor) -> _Plan:
    if tensor.dtype != buffer.dtype or _is_lazy(tensor):
        raise UnsupportedInputError(
            "the function returns a view of an argument of another dtype, or a lazily conjugated "
            "or negated one; return a copy"
        )
    shape, stride = tensor.shape, tensor.stride()
    shift = tensor.storage_offset() - buffer.storage_offset()

    def view(_: Sequence[Tensor], inputs: Sequence[Tensor], __: Sequence[Tensor]) -> Tensor:
        owner = inputs[number]
        return owner.as_strided(shape, stride, owner.storage_offset() + shift)

    return view


def _tensor_of_others(tensor: Tensor) -> _Plan:
    """Return a tensor that the function keeps elsewhere, such as a buffer of a module."""
    # Not the tensor itself: it would keep memory that its owner replaces.
    known, memory = weakref.ref(tensor), weakref.ref(tensor.untyped_storage())
    layout, offset = _layout(tensor), tensor.storage_offset()
    shape, stride, dtype, device = tensor.shape, tensor.stride(), tensor.dtype, tensor.device

    def find(_: Sequence[Tensor], __: Sequence[Tensor], ___: Sequence[Tensor]) -> Tensor:
        found = known()
        if found is not None and _layout(found) == layout:
            return found
        storage: Any = memory()
        return torch.empty(0, dtype=dtype, device=device).set_(storage, offset, shape, stride)

    return find
