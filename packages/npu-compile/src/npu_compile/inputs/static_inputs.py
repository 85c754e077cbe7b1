"""Static input buffers for captured graphs, filled on the device by one copy per step.

A captured graph reads its inputs at the addresses of its capture. All device inputs therefore
live in one packed buffer that never moves, and the graph of a smaller capture size reads the first
rows of the same buffer. A step writes its batch and the padding into a packed host buffer and
copies it with one asynchronous copy, so the host cost does not grow with the number of inputs.
Values that are already on the device, such as the tokens just sampled, are copied there afterwards.
Inputs declared for another place have a buffer there, which the host writes.

The copy reads host memory after the call has returned. Host buffers therefore come from a ring. A
buffer is reused only after the event recorded after its copy has passed, so the host waits only if
it is ahead of the device by more steps than the ring has buffers. Pinned inputs have no ring,
because the steps themselves read them: they are written only after all work queued before is done.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

import torch

from npu_compile.errors import ConfigError, RunnerStateError
from npu_compile.inputs.input_spec import InputPlace, misfit, require_specs, require_step_size
from npu_compile.inputs.packed_layout import PackedLayout

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from npu_compile.inputs.input_spec import InputSpec, StepSize
    from npu_graph_runtime import GraphDevice
    from npu_graph_runtime.device import Event

# Engines prepare at most one step while another runs; two more absorb jitter.
RING_DEPTH = 4

_HOST_PLACES = (InputPlace.PINNED, InputPlace.CPU)

# Batch sizes whose rows of a host buffer are kept cut out.
_KEPT_SIZES = 256


class _HostRows(NamedTuple):
    """The rows of one input in a host buffer, for one size of a batch."""

    name: str
    spec: InputSpec
    own: torch.Tensor
    padding: torch.Tensor | None
    padded: torch.Tensor


class _HostBuffer:
    """One packed buffer of the ring, and the event recorded after its last copy."""

    def __init__(self, layout: PackedLayout, *, pinned: bool, event: Event) -> None:
        parts = layout.parts(torch.zeros(layout.num_bytes, dtype=torch.uint8, pin_memory=pinned))
        self.packed = parts[InputPlace.DEVICE]
        self.views = layout.views(parts)
        self.of_host = [parts[place].numpy() for place in _HOST_PLACES]
        self.event = event
        self.in_flight = False
        self._largest = layout.largest
        self._rows: dict[tuple[StepSize, StepSize], tuple[_HostRows, ...]] = {}

    def rows(
        self, specs: Mapping[str, InputSpec], own: StepSize, size: StepSize
    ) -> tuple[_HostRows, ...]:
        """Return the rows of each input as views; slicing them takes longer than filling them.

        The views are cached for batches whose sequences are all as long as those of the largest
        step, because decode batches repeat. Sizes of prefill rarely repeat, and there may be any
        number of them.
        """
        rows = self._rows.get((own, size))
        if rows is None:
            rows = tuple(
                self._cut(name, spec, spec.rows(own), spec.rows(size))
                for name, spec in specs.items()
            )
            if own.tokens * self._largest.sequences == own.sequences * self._largest.tokens:
                if len(self._rows) == _KEPT_SIZES:
                    self._rows.clear()
                self._rows[own, size] = rows
        return rows

    def _cut(self, name: str, spec: InputSpec, rows: int, padded: int) -> _HostRows:
        view = self.views[name]
        padding = view[rows:padded] if rows < padded else None
        return _HostRows(name, spec, view[:rows], padding, view[:padded])

    def wait_until_free(self) -> None:
        if self.in_flight and not self.event.query():
            self.event.synchronize()
        self.in_flight = False


class _Staged(NamedTuple):
    """A batch that is being written into a host buffer; valid until another one is loaded."""

    host: _HostBuffer
    num_steps: int
    own: StepSize
    size: StepSize


class StaticInputs:
    """Static input buffers for captured steps, filled on the device by one copy per step.

    You can fill them in two ways. :meth:`load` copies the tensors of a batch, from the CPU or from
    the device. With :meth:`staging` and :meth:`commit`, your engine writes its batch directly where
    the packed copy reads it, without another copy on the host.

    Owns the buffers. Host buffers are pinned unless the device is the CPU; those of inputs declared
    for the CPU are not. It must live as long as the graphs captured on :meth:`views`. Use it from
    one host thread.

    Args:
        specs: input names and their declarations.
        largest: the largest step, after padding.
        device: the device; copies are launched on its current stream.

    Raises:
        ConfigError: An argument has the wrong type, or a size is not an integer.
    """

    def __init__(
        self, specs: Mapping[str, InputSpec], *, largest: StepSize, device: GraphDevice
    ) -> None:
        doing = "making static inputs"
        require_specs(doing, specs)
        require_step_size(doing, largest)
        target = getattr(device, "torch_device", None)
        if target is None:
            raise ConfigError(
                f"{doing}: device is {device!r}, expected a GraphDevice, such as "
                "npu_graph_runtime.NpuDevice()"
            )
        self._layout = PackedLayout(specs, largest=largest, device=target)
        self._device = device
        pinned = self._can_pin = target.type != "cpu"
        sizes = self._layout.part_bytes
        self._packed = torch.zeros(sizes[InputPlace.DEVICE], dtype=torch.uint8, device=target)
        of_host = {
            place: torch.zeros(
                sizes[place],
                dtype=torch.uint8,
                pin_memory=pinned and place is InputPlace.PINNED and sizes[place] > 0,
            )
            for place in _HOST_PLACES
        }
        self._of_host = [part.numpy() for part in of_host.values()]
        self._has_host_places = any(sizes[place] for place in _HOST_PLACES)
        self._is_read = device.create_event() if sizes[InputPlace.PINNED] else None
        self._address = self._packed.untyped_storage().data_ptr()
        self._full_views = self._layout.views({InputPlace.DEVICE: self._packed, **of_host})
        self._views_by_size: dict[StepSize, dict[str, torch.Tensor]] = {}
        self._ring = tuple(
            _HostBuffer(self._layout, pinned=pinned, event=device.create_event())
            for _ in range(RING_DEPTH)
        )
        self._num_steps = 0
        self._staged: _Staged | None = None

    def views(self, size: StepSize) -> dict[str, torch.Tensor]:
        """Return the views ``[rows, *trailing_shape]`` that a graph of this size reads.

        Each is in the place that its input is declared for. Every call returns the same tensors;
        this object owns the memory.

        Raises:
            ConfigError: The size is not a `StepSize`.
            InputError: It is larger than the largest.
        """
        views = self._views_by_size.get(size)
        if views is None:
            self._layout.require_fits(size)
            specs = self._layout.specs
            views = {
                name: view[: specs[name].rows(size)] for name, view in self._full_views.items()
            }
            self._views_by_size[size] = views
        return views

    def padding(self, size: StepSize) -> dict[str, torch.Tensor]:
        """Return the values of a step that contains only padding, as new tensors on the CPU."""
        return {
            name: torch.full(
                (spec.rows(size), *spec.trailing_shape), spec.pad_value, dtype=spec.dtype
            )
            for name, spec in self._layout.specs.items()
        }

    def place(self, values: Mapping[str, torch.Tensor]) -> dict[str, torch.Tensor]:
        """Move checked values to where a step that does not use these buffers needs them.

        Values for the device are copied there, pinned ones into new memory that no other step
        writes; values for the CPU are returned as they are.
        """
        return {
            name: self._placed(value, self._layout.specs[name].place)
            for name, value in values.items()
        }

    def check(
        self, values: Mapping[str, torch.Tensor], *, size: StepSize, least: int = 1
    ) -> StepSize:
        """Return the size of a batch that is to be padded to ``size``; copies nothing.

        Args:
            values: as for :meth:`load`.
            size: size after padding.
            least: minimum number of rows.

        Raises:
            InputError: as for :meth:`PackedLayout.check`.
        """
        return self._layout.check(values, most=size, least=least)

    def load(self, values: Mapping[str, torch.Tensor], *, size: StepSize) -> StepSize:
        """Copy a batch into the static buffers, padded to ``size``, and return its own size.

        The copy is asynchronous and ordered on the current stream; you may change CPU tensors at
        once. The host waits only if it is ahead of the device by more steps than there are host
        buffers and, if an input is declared pinned, for all work queued before.

        Args:
            values: for each input a tensor ``[rows, ...]`` of its dtype, on the CPU or, for a
                device input, on the device, where it is read in the order of the current stream.
                All have the same number of rows (of tokens or of sequences), at least one. The
                first trailing dimension may be narrower than declared; the rest is padded.
            size: the size after padding, at most the largest.

        Raises:
            ConfigError: The size is not a `StepSize`.
            InputError: An input is missing, unknown, overlaps :meth:`views`, or does not match its
                declaration, or there are too few or too many rows; nothing was copied.
        """
        self._layout.require_fits(size)
        own = self.check(values, size=size)
        self.load_checked(values, own=own, size=size)
        return own

    def load_checked(
        self, values: Mapping[str, torch.Tensor], *, own: StepSize, size: StepSize
    ) -> None:
        """Like :meth:`load`, for values that :meth:`check` has already accepted.

        Args:
            values: as for :meth:`load`.
            own: size of the batch, as returned by :meth:`check`.
            size: as for :meth:`check`.
        """
        host = self._ring[self._num_steps % RING_DEPTH]
        self._num_steps += 1
        host.wait_until_free()
        on_device: list[tuple[torch.Tensor, torch.Tensor]] = []
        for name, spec, view, padding, padded in host.rows(self._layout.specs, own, size):
            value = values[name]
            if not value.is_cpu:
                # What it does not fill is padded by the packed copy, in front of its own.
                padded.fill_(spec.pad_value)
                on_device.append(self._copy_on_device(name, value))
                continue
            if value.dim() > 1 and value.shape[1] != spec.trailing_shape[0]:
                view[:, : value.shape[1]] = value
                view[:, value.shape[1] :] = spec.pad_value
            else:
                view.copy_(value)
            if padding is not None:
                padding.fill_(spec.pad_value)
        self._copy(host, on_device)

    def staging(self, own: StepSize, *, size: StepSize) -> dict[str, torch.Tensor]:
        """Return host views to write a batch into; :meth:`commit` copies them to the device.

        The views are filled with padding, so everything you do not write, such as unused columns of
        a block table, is padding on the device. Write to them only until :meth:`commit`, because
        the copy may read them later. If you call this again before :meth:`commit`, it starts over
        in the same memory. It waits for the device as :meth:`load` does.

        Args:
            own: size of the batch; without rows for a step of padding only.
            size: its size after padding, at most the largest.

        Returns:
            For each input a view ``[rows, *trailing_shape]`` of the batch's own rows, of the
            declared dtype, on the CPU. This object owns the memory.

        Raises:
            ConfigError: A size is not a `StepSize`.
            InputError: The batch is larger than its padded size, or that is larger than the
                largest.
        """
        self._layout.require_fits(size)
        require_step_size("loading the inputs of a step", own)
        if own.tokens > size.tokens or own.sequences > size.sequences:
            raise misfit(
                f"a batch of {own} is to be padded to {size}, expected one that is not larger"
            )
        host = self._ring[self._num_steps % RING_DEPTH]
        host.wait_until_free()
        rows = host.rows(self._layout.specs, own, size)
        for each in rows:
            each.padded.fill_(each.spec.pad_value)
        self._staged = _Staged(host, self._num_steps, own, size)
        return {each.name: each.own for each in rows}

    def commit(self, on_device: Mapping[str, torch.Tensor] | None = None) -> None:
        """Copy the values written into :meth:`staging` to the device, in one asynchronous copy.

        Args:
            on_device: device inputs whose values are already there, such as the tokens just
                sampled, each ``[rows, ...]`` as for :meth:`load`. They are copied after the packed
                copy, in the order of the current stream. Elements that they do not fill keep the
                staged values.

        Raises:
            RunnerStateError: Nothing is staged, or a batch was loaded since; nothing was copied.
            InputError: An input is unknown, on the CPU, overlaps :meth:`views`, or does not match
                its declaration or the staged rows. Nothing was copied, and the staged values can
                still be committed.
        """
        staged = self._staged
        if staged is None or staged.num_steps != self._num_steps:
            since = "nothing is staged" if staged is None else "another batch was loaded since"
            raise RunnerStateError(
                f"committing the inputs of a step: {since}; call staging(), write the batch into "
                "its views, and then commit() once"
            )
        copies: list[tuple[torch.Tensor, torch.Tensor]] = []
        for name, value in (on_device or {}).items():
            self._layout.check_on_device(name, value, own=staged.own)
            copies.append(self._copy_on_device(name, value))
        self._staged = None
        self._num_steps += 1
        self._copy(staged.host, copies)

    def _copy_on_device(self, name: str, value: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        """Return the destination of a checked device value, and the value."""
        # The packed copy comes first: it would overwrite the value before it is read.
        if value.untyped_storage().data_ptr() == self._address:
            raise misfit(
                f"`{name}` lies in the static inputs themselves, which the step overwrites before "
                "it is read; clone it before"
            )
        target = self._full_views[name][: len(value)]
        is_narrower = value.dim() > 1 and value.shape[1] != target.shape[1]
        return target[:, : value.shape[1]] if is_narrower else target, value

    def _copy(
        self, host: _HostBuffer, on_device: Iterable[tuple[torch.Tensor, torch.Tensor]]
    ) -> None:
        if self._has_host_places:
            self._write_host_places(host)
        self._packed.copy_(host.packed, non_blocking=True)
        for target, value in on_device:
            target.copy_(value)
        host.event.record(self._device.current_stream())
        host.in_flight = True

    def _write_host_places(self, host: _HostBuffer) -> None:
        if self._is_read is not None:
            # Steps before this one may still read what is pinned.
            self._is_read.record(self._device.current_stream())
            if not self._is_read.query():
                self._is_read.synchronize()
        for target, source in zip(self._of_host, host.of_host, strict=True):
            target[:] = source

    def _placed(self, value: torch.Tensor, place: InputPlace) -> torch.Tensor:
        if place is InputPlace.DEVICE:
            return value.to(self._packed.device)
        if place is InputPlace.CPU:
            return value
        return torch.empty_like(value, pin_memory=self._can_pin).copy_(value)
