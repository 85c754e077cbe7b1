"""Shows values from inside captured graphs, by names that you give them.

Neither a print nor a copy to the host can be captured. A copy into a buffer can, at its place in
the graph, and the host reads the buffer after the replay.
"""

from __future__ import annotations

import contextlib
import dataclasses
import math
from typing import TYPE_CHECKING

import torch
from torch import Tensor

from npu_graph_runtime.errors import CaptureSessionError
from npu_graph_runtime.run_mode import RunMode

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from contextlib import AbstractContextManager
    from os import PathLike

    from npu_graph_runtime.device import GraphDevice
    from npu_graph_runtime.graph_context import CallContext
    from npu_graph_runtime.graph_key import GraphKey

_SHOWN = 8
_ALIGN = 32  # what kernels of NPUs copy at once


@dataclasses.dataclass(frozen=True, kw_only=True, slots=True)
class DumpedTensor:
    """One value, from the last run of a graph.

    Attributes:
        name: the name you gave it.
        key: key of the graph; ``None`` outside graphs.
        shape: shape of the whole tensor.
        dtype: dtype of the tensor.
        value: the value on the host, with the shape of the tensor. If truncated, it has fewer rows,
            or is one-dimensional with the first elements, or is empty if nothing was kept.
        cut: what is missing and why, or ``None``.
    """

    name: str
    key: GraphKey | None
    shape: tuple[int, ...]
    dtype: torch.dtype
    value: Tensor
    cut: str | None

    def __str__(self) -> str:
        parts = [f"{self.name}: {self.dtype}, shape {self.shape}"]
        flat = self.value.flatten()
        if flat.numel() and not flat.is_complex():
            numbers = flat.double()
            finite = numbers[numbers.isfinite()]
            if finite.numel():
                parts.append(f"{finite.min():g} to {finite.max():g}, mean {finite.mean():g}")
            if numbers.numel() > finite.numel():
                parts.append(
                    f"{int(numbers.isnan().sum())} NaN, {int(numbers.isinf().sum())} infinite"
                )
        shown = ", ".join(f"{value}" for value in flat[:_SHOWN].tolist())
        parts.append(f"[{shown}{', ...' if flat.numel() > _SHOWN else ''}]")
        if self.cut is not None:
            parts.append(f"cut: {self.cut}")
        return "; ".join(parts)


class TensorDump:
    """Keeps values of captured graphs, which you can read after a replay.

    Insert ``x = dump.keep(x, "layers.3.mlp")`` after the value is computed. In a capture it becomes
    a copy into memory of this object; in eager code it copies at once. You can use it in captured
    segments, in functions that run eagerly, and in warm-up runs. The memory is allocated with the
    object and belongs to no graph, so values stay until their own graph is replayed again.

    Use it in code that runs as Python. In code that Dynamo traces, call it from a custom operator.

    Args:
        device: device of the graphs.
        context: context of the graphed callables, which says which graph a value belongs to. In run
            mode ``EAGER`` it belongs to none.
        value_bytes: maximum bytes per value; more rows or elements are truncated.
        total_bytes: maximum bytes for all graphs; later values are truncated too.
    """

    def __init__(
        self,
        device: GraphDevice,
        context: CallContext,
        *,
        value_bytes: int = 1 << 20,
        total_bytes: int = 64 << 20,
    ) -> None:
        self._device = device
        self._context = context
        self._value_bytes = value_bytes
        self._memory = torch.empty(total_bytes, dtype=torch.uint8, device=device.torch_device)
        self._taken = 0
        self._kept: dict[tuple[GraphKey | None, str], _Kept] = {}

    def keep(self, tensor: Tensor, name: str) -> Tensor:
        """Keep a value at this point, and return the tensor unchanged.

        Args:
            tensor: a tensor on the device; not kept alive.
            name: name of layer and value, such as ``layers.3.attention.out``; unique per graph.

        Raises:
            CaptureSessionError: The name was already used in the same capture.
        """
        key = None if self._context.mode is RunMode.EAGER else self._context.key
        known, attempt = self._kept.get((key, name)), self._attempt()
        if known is None or not known.fits(tensor):
            known = self._kept[key, name] = self._new(tensor, of_graph=key is not None)
        elif attempt is not None and known.attempt is attempt:
            raise CaptureSessionError(
                f"capturing under key {key}: {name!r} is kept a second time, expected a name for "
                "each value of a graph; say the layer in the name"
            )
        known.attempt = attempt or known.attempt
        known.buffer.copy_(_first(tensor.detach(), known.buffer))
        return tensor

    def read(self, key: GraphKey | None = None) -> list[DumpedTensor]:
        """Wait for the device and return the values of one graph, in the order of ``keep`` calls.

        Args:
            key: key of the graph; ``None`` for values outside graphs.
        """
        self._device.synchronize()
        return [
            DumpedTensor(
                name=name,
                key=key,
                shape=kept.shape,
                dtype=kept.buffer.dtype,
                value=kept.buffer.cpu(),
                cut=kept.cut,
            )
            for (of_key, name), kept in self._kept.items()
            if of_key == key
        ]

    def told(
        self, tell: Callable[[str], object]
    ) -> Callable[[GraphKey], AbstractContextManager[None]]:
        """Return a hook that reports the values after each replay, waiting for the device.

        Args:
            tell: called with a line for each value, such as ``print``; pass the hook as
                ``around_replay=`` of the graphed callable.
        """

        @contextlib.contextmanager
        def hook(key: GraphKey) -> Iterator[None]:
            yield
            for value in self.read(key):
                tell(str(value))

        return hook

    def save(self, path: str | PathLike[str], key: GraphKey | None = None) -> None:
        """Write the values of one graph, for ``torch.load``: a dict of dicts by their names.

        Args:
            path: path of the file.
            key: key of the graph; ``None`` for values outside graphs.
        """
        values = {
            each.name: {"value": each.value, "shape": each.shape, "cut": each.cut}
            for each in self.read(key)
        }
        torch.save(values, path)

    def clear(self) -> None:
        """Drop all values, so that other names or graphs can use their memory.

        Capture graphs that keep values again before you replay them.
        """
        self._kept.clear()
        self._taken = 0

    def _attempt(self) -> object:
        """Return an object that identifies the capture, or ``None`` outside captures."""
        session = self._context.capture_session
        return None if session is None or not self._device.is_capturing() else session.attempt

    def _new(self, tensor: Tensor, *, of_graph: bool) -> _Kept:
        left, limit = self._value_bytes, "value_bytes"
        if of_graph and self._memory.nbytes - self._taken < left:
            left, limit = self._memory.nbytes - self._taken, "total_bytes"
        shape, cut = tensor.shape, None
        if tensor.nbytes > left:
            elements = left // tensor.element_size()
            row = math.prod(tensor.shape[1:])
            rows = elements // row if tensor.dim() and row else 0
            shape = torch.Size((rows, *tensor.shape[1:]) if rows else (elements,))
            kept = f"{rows} of {tensor.shape[0]} rows" if rows else f"{elements} elements"
            cut = f"{kept} kept, {tensor.nbytes} bytes are above the limit ({limit})"
        num_bytes = math.prod(shape) * tensor.element_size()
        if of_graph:
            memory = self._memory[self._taken : self._taken + num_bytes]
            buffer = memory.view(tensor.dtype).view(shape)
            self._taken = min(self._memory.nbytes, -(-(self._taken + num_bytes) // _ALIGN) * _ALIGN)
        else:
            buffer = torch.empty(shape, dtype=tensor.dtype, device=tensor.device)
        return _Kept(buffer=buffer, shape=tuple(tensor.shape), cut=cut)


@dataclasses.dataclass(kw_only=True, slots=True)
class _Kept:
    buffer: Tensor
    shape: tuple[int, ...]
    cut: str | None
    attempt: object = None

    def fits(self, tensor: Tensor) -> bool:
        return self.shape == tuple(tensor.shape) and self.buffer.dtype == tensor.dtype


def _first(tensor: Tensor, buffer: Tensor) -> Tensor:
    """Return the part of a tensor that fits a buffer."""
    if tensor.shape == buffer.shape:
        return tensor
    if tensor.dim() == buffer.dim() and tensor.shape[1:] == buffer.shape[1:]:
        return tensor[: buffer.shape[0]]
    if tensor.dim():
        # Rows that hold what is wanted, so that not all of a tensor is laid out anew.
        row = max(1, math.prod(tensor.shape[1:]))
        tensor = tensor[: -(-buffer.numel() // row)]
    return tensor.reshape(-1)[: buffer.numel()]
