"""Static device buffers for the inputs of captured graphs, filled by one copy a step.

A captured graph reads its inputs at the addresses of its capture. All inputs therefore live in one
packed device buffer that is never moved, and the graph of a smaller capture size reads the first
rows of the same buffer. A step writes its batch and the padding into a packed host buffer and
copies that in one asynchronous copy, so the host cost does not grow with the number of inputs. A
value that is on the device already, such as the tokens just sampled, is copied there behind it.

The copy reads host memory after the call has returned. Host buffers therefore come from a ring, and
one is written again only after the event recorded behind its copy has passed; the host waits only
if it is ahead of the device by more steps than the ring has buffers.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

import torch

from npu_compile.runners.packed_layout import PackedLayout

if TYPE_CHECKING:
    from collections.abc import Mapping

    from npu_compile.runners.packed_layout import InputSpec
    from npu_compile.runners.step_size import StepSize
    from npu_graph_runtime import Event, GraphDevice

# Engines prepare at most one step while another runs; two more absorb jitter.
RING_DEPTH = 4

# Batch sizes whose rows of a host buffer are kept cut out; decoding meets few others.
_KEPT_SIZES = 256


class _HostRows(NamedTuple):
    """The rows of one input in a host buffer, for one size of a batch."""

    name: str
    spec: InputSpec
    own: torch.Tensor
    padding: torch.Tensor | None
    padded: torch.Tensor


class _HostBuffer:
    """One packed buffer of the ring, and the event behind its last copy."""

    def __init__(self, layout: PackedLayout, *, pinned: bool, event: Event) -> None:
        self.packed = torch.zeros(layout.num_bytes, dtype=torch.uint8, pin_memory=pinned)
        self.views = layout.views(self.packed)
        self.event = event
        self.in_flight = False
        self._rows: dict[tuple[StepSize, StepSize], tuple[_HostRows, ...]] = {}

    def rows(
        self, specs: Mapping[str, InputSpec], own: StepSize, size: StepSize
    ) -> tuple[_HostRows, ...]:
        """Return the rows of each input; cutting them out takes longer than filling them."""
        rows = self._rows.get((own, size))
        if rows is None:
            if len(self._rows) == _KEPT_SIZES:
                self._rows.clear()
            rows = self._rows[own, size] = tuple(
                self._cut(name, spec, spec.rows(own), spec.rows(size))
                for name, spec in specs.items()
            )
        return rows

    def _cut(self, name: str, spec: InputSpec, rows: int, padded: int) -> _HostRows:
        view = self.views[name]
        padding = view[rows:padded] if rows < padded else None
        return _HostRows(name, spec, view[:rows], padding, view[:padded])

    def wait_until_free(self) -> None:
        if self.in_flight and not self.event.query():
            self.event.synchronize()
        self.in_flight = False


class InputBuffers:
    """Owns the static input buffers of one runner, for as long as its captured graphs live.

    Args:
        specs: input names and their declarations.
        largest: the largest capture size.
        device: the device seam; copies are issued on its current stream.
    """

    def __init__(
        self, specs: Mapping[str, InputSpec], *, largest: StepSize, device: GraphDevice
    ) -> None:
        target = device.torch_device
        self._layout = PackedLayout(specs, largest=largest, device=target)
        self._device = device
        self._packed = torch.zeros(self._layout.num_bytes, dtype=torch.uint8, device=target)
        self._full_views = self._layout.views(self._packed)
        self._views_by_size: dict[StepSize, dict[str, torch.Tensor]] = {}
        pinned = target.type != "cpu"
        self._ring = tuple(
            _HostBuffer(self._layout, pinned=pinned, event=device.create_event())
            for _ in range(RING_DEPTH)
        )
        self._next = 0

    def views(self, size: StepSize) -> dict[str, torch.Tensor]:
        """Return the device views ``[rows, *trailing_shape]`` that a graph of this size reads.

        The same tensors at every call; the memory belongs to this object.
        """
        views = self._views_by_size.get(size)
        if views is None:
            specs = self._layout.specs
            views = {
                name: view[: specs[name].rows(size)] for name, view in self._full_views.items()
            }
            self._views_by_size[size] = views
        return views

    def padding(self, size: StepSize) -> dict[str, torch.Tensor]:
        """Return the values of a step of nothing but padding, new tensors on the CPU."""
        return {
            name: torch.full(
                (spec.rows(size), *spec.trailing_shape), spec.pad_value, dtype=spec.dtype
            )
            for name, spec in self._layout.specs.items()
        }

    def check(
        self, values: Mapping[str, torch.Tensor], *, size: StepSize, least: int = 1
    ) -> StepSize:
        """Return the size of a batch that is to be padded to ``size``; copies nothing.

        Args:
            values: as for :meth:`load`.
            size: after padding.
            least: rows that there have to be.

        Raises:
            InputError: as for :meth:`PackedLayout.check`.
        """
        return self._layout.check(values, most=size, least=least)

    def load(self, values: Mapping[str, torch.Tensor], *, own: StepSize, size: StepSize) -> None:
        """Copy a batch into the static buffers, padded to ``size``.

        Asynchronous: ordered on the current stream; the given tensors may be changed at once.

        Args:
            values: for each input a tensor ``[rows, ...]`` that :meth:`check` has passed. One on
                the device is read in the order of the current stream.
            own: size of the batch, as :meth:`check` returned it.
            size: its size after padding, at most the largest capture size.
        """
        host = self._ring[self._next]
        self._next = (self._next + 1) % RING_DEPTH
        host.wait_until_free()
        on_device: list[tuple[torch.Tensor, torch.Tensor]] = []
        for name, spec, view, padding, padded in host.rows(self._layout.specs, own, size):
            value = values[name]
            is_narrower = value.dim() > 1 and value.shape[1] != spec.trailing_shape[0]
            if not value.is_cpu:
                # What it does not fill is padded by the packed copy, in front of its own.
                padded.fill_(spec.pad_value)
                target = self._full_views[name][: spec.rows(own)]
                on_device.append((target[:, : value.shape[1]] if is_narrower else target, value))
                continue
            if is_narrower:
                view[:, : value.shape[1]] = value
                view[:, value.shape[1] :] = spec.pad_value
            else:
                view.copy_(value)
            if padding is not None:
                padding.fill_(spec.pad_value)
        self._packed.copy_(host.packed, non_blocking=True)
        for target, value in on_device:
            target.copy_(value)
        host.event.record(self._device.current_stream())
        host.in_flight = True
