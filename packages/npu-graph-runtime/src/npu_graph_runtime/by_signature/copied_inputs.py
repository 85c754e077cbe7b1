"""The input buffers of one graph: filled before a replay, and read back if the graph wrote them."""

from __future__ import annotations

import contextlib
import itertools
from typing import TYPE_CHECKING, Any, NamedTuple

import torch
from torch import Tensor, nn

from npu_graph_runtime.by_signature.call_signature import flatten, rebuilt
from npu_graph_runtime.capturing.fresh_memory import bytes_of, memory_of
from npu_graph_runtime.capturing.watching.captured_memory import CapturedMemory, describe
from npu_graph_runtime.capturing.weak_tensor import weak_tensor
from npu_graph_runtime.errors import UnsupportedInputError

if TYPE_CHECKING:
    from collections.abc import Collection, Mapping
    from collections.abc import Set as AbstractSet

    from npu_graph_runtime.capturing.watching.capture_watch import BakedMemory
    from npu_graph_runtime.device import GraphDevice


class Writes(NamedTuple):
    """The writes of a call.

    Attributes:
        written: indices of the tensors that it writes.
        others: addresses of memory that it uses in place.
        is_any: whether it writes any memory that existed before.
    """

    written: AbstractSet[int]
    others: AbstractSet[int]
    is_any: bool


class CopiedInputs:
    """Buffers with the layouts of one call's tensors, and arguments that contain these buffers.

    The graph uses the memory of ``uncopied`` tensors, given by their indices, itself.

    Attributes:
        args: positional arguments for the capture and its replays.
        kwargs: keyword arguments for the capture and its replays.
        buffers: one for each tensor, including those that are not copied.
        writes: the writes of a call of the function, as far as known.

    Raises:
        UnsupportedInputError: A tensor or a container cannot be copied.
    """

    def __init__(
        self,
        args: tuple[Any, ...],
        kwargs: Mapping[str, Any],
        tensors: list[Tensor],
        *,
        device: GraphDevice,
        uncopied: Collection[int],
    ) -> None:
        self._device = device
        self._uncopied = frozenset(uncopied)
        made: dict[int, Tensor] = {}
        for index, tensor in enumerate(tensors):
            if id(tensor) not in made:
                _require_copied(tensor, device)
                made[id(tensor)] = tensor if index in self._uncopied else _buffer(tensor)
        self.buffers = [made[id(tensor)] for tensor in tensors]
        first = {id(tensor): index for index, tensor in reversed(list(enumerate(tensors)))}
        copied = sorted(index for index in first.values() if index not in self._uncopied)
        # Of a dimension that is expanded one row is copied.
        self._expanded = {
            index: dimensions for index in copied if (dimensions := _expanded(tensors[index]))
        }
        self._whole = [(index, self.buffers[index]) for index in copied]
        if self._expanded:
            self._whole = [pair for pair in self._whole if pair[0] not in self._expanded]
        self._copied = copied
        self.writes = Writes(frozenset(), frozenset(), is_any=True)
        self._set_arguments(args, kwargs, self.buffers)

    def load(self, tensors: list[Tensor]) -> None:
        """Copy the tensors of a call into the buffers, in the order of the current stream."""
        for index, buffer in self._whole:
            buffer.copy_(tensors[index])
        for index in self._expanded:
            self._rows(index, self.buffers[index]).copy_(self._rows(index, tensors[index]))

    def store(self, tensors: list[Tensor], indices: AbstractSet[int]) -> None:
        """Copy buffers back into the tensors of a call."""
        for index in indices:
            tensor = tensors[index]
            # Nothing else may write a tensor of inference mode.
            mode = torch.inference_mode if tensor.is_inference() else contextlib.nullcontext
            with torch.no_grad(), mode():
                self._rows(index, tensor).copy_(self._rows(index, self.buffers[index]))

    def changed(self, tensors: list[Tensor]) -> set[int]:
        """Return which tensors differ from their buffers; waits for the device."""
        return {
            index
            for index in self._copied
            if not torch.equal(
                _bytes(self._rows(index, self.buffers[index])),
                _bytes(self._rows(index, tensors[index])),
            )
        }

    def note_written(
        self, changed: AbstractSet[int], memory: CapturedMemory | BakedMemory, tensors: list[Tensor]
    ) -> None:
        """Store what a call of the function writes."""
        addresses = {index: memory_of(tensors[index]) for index in self._copied}
        written = changed | {index for index in self._copied if addresses[index] in memory.written}
        others = memory.addresses | {memory_of(tensors[index]) for index in self._uncopied}
        is_any = bool(written) or not others.isdisjoint(memory.written)
        self.writes = Writes(written, others, is_any=is_any)

    @property
    def copied(self) -> AbstractSet[int]:
        """Indices of the tensors that are copied, each object once."""
        return set(self._copied)

    def share_memory(self, tensors: list[Tensor]) -> bool:
        """Return whether writes of the graph would be visible outside the buffers.

        True if copied tensors of a call share memory with each other, or with memory that the
        graph uses in place, and the graph writes any of it.
        """
        writes = self.writes
        if not writes.is_any:
            return False
        return not writes.others.isdisjoint(self.memory(tensors)) or self.overlap(tensors)

    def memory(self, tensors: list[Tensor]) -> list[int]:
        """Return the addresses of the memory of a call's copied tensors."""
        return [memory_of(tensors[index]) for index in self._copied if tensors[index].numel()]

    def overlap(self, tensors: list[Tensor]) -> bool:
        """Return whether copied tensors of a call overlap in memory."""
        memory = self.memory(tensors)
        if len(set(memory)) == len(memory):
            return False
        spans = sorted(bytes_of(tensors[index]) for index in self._copied if tensors[index].numel())
        return any(begin < end for (_, end), (begin, _) in itertools.pairwise(spans))

    def hold_weakly(self) -> None:
        """Drop references to tensors that are not copied: each call provides them again."""
        if self._uncopied:
            self.buffers = [
                weak_tensor(buffer, self._device) if index in self._uncopied else buffer
                for index, buffer in enumerate(self.buffers)
            ]
            self._set_arguments(self.args, self.kwargs, self.buffers)

    def _rows(self, index: int, tensor: Tensor) -> Tensor:
        for dimension in self._expanded.get(index, ()):
            tensor = tensor.narrow(dimension, 0, 1)
        return tensor

    def _set_arguments(
        self, args: tuple[Any, ...], kwargs: Mapping[str, Any], tensors: list[Tensor]
    ) -> None:
        expected = flatten(args, kwargs)
        left = iter(tensors)
        try:
            self.args: tuple[Any, ...] = tuple([rebuilt(value, left) for value in args])
            self.kwargs = {name: rebuilt(value, left) for name, value in kwargs.items()}
            found = flatten(self.args, self.kwargs)
        except Exception as error:
            raise UnsupportedInputError(
                f"{_NOT_REBUILT} ({type(error).__name__}: {error})"
            ) from error
        if found.structure != expected.structure or list(map(id, found.tensors)) != list(
            map(id, tensors)
        ):
            raise UnsupportedInputError(_NOT_REBUILT)


_NOT_REBUILT = (
    "a container among the arguments cannot be rebuilt from its items; pass lists, tuples, dicts "
    "or dataclasses"
)


def _require_copied(tensor: Tensor, device: GraphDevice) -> None:
    if tensor.device != device.torch_device:
        problem = f"lies on {tensor.device}, expected {device.torch_device}; move it there before"
    elif tensor.layout is not torch.strided or tensor.is_quantized:
        problem = "is sparse or quantised, expected a strided tensor"
    elif tensor.is_neg() or tensor.is_conj():
        problem = "is lazily negated or conjugated; pass resolve_neg() or resolve_conj() of it"
    elif tensor.requires_grad and torch.is_grad_enabled():
        problem = "requires grad, and graphs record no gradients; call under torch.no_grad()"
    elif _overlaps_itself(tensor):
        problem = "has elements that share memory; pass a contiguous copy"
    else:
        return
    raise UnsupportedInputError(f"{describe(tensor)} {problem}")


def _buffer(tensor: Tensor) -> Tensor:
    # Tensors of inference mode could be written in that mode only.
    with torch.inference_mode(mode=False):
        buffer = torch.empty_strided(
            tensor.shape, tensor.stride(), dtype=tensor.dtype, device=tensor.device
        )
        # What the function may ask of it in Python.
        if isinstance(tensor, nn.Parameter):
            return nn.Parameter(buffer, requires_grad=tensor.requires_grad)
        return buffer.requires_grad_(tensor.requires_grad)


def _expanded(tensor: Tensor) -> tuple[int, ...]:
    return tuple(
        dimension
        for dimension, (size, stride) in enumerate(zip(tensor.shape, tensor.stride(), strict=True))
        if stride == 0 and size > 1
    )


def _overlaps_itself(tensor: Tensor) -> bool:
    """Return whether elements share memory other than by expanded dimensions."""
    if tensor.numel() == 0:
        return False
    end = 1
    for stride, size in sorted(zip(tensor.stride(), tensor.shape, strict=True)):
        if stride == 0 or size == 1:
            continue
        if stride < end:
            return True
        end = stride * (size - 1) + end
    return False


def _bytes(tensor: Tensor) -> Tensor:
    flat = torch.empty(tensor.numel(), dtype=tensor.dtype, device=tensor.device)
    return flat.copy_(tensor.detach().reshape(-1)).view(torch.uint8)
