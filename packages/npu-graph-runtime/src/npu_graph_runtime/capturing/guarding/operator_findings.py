"""Finds operators that a captured graph cannot repeat."""

from __future__ import annotations

import weakref
from typing import TYPE_CHECKING, Any, NamedTuple

import torch
from torch import Tensor

from npu_graph_runtime.capturing.guarding.capture_finding import FindingKind
from npu_graph_runtime.capturing.tensor_leaves import tensor_leaves
from npu_graph_runtime.capturing.watching.captured_memory import describe
from npu_graph_runtime.capturing.watching.program_place import ProgramPlace, program_frame
from npu_graph_runtime.devices.fake_operator import has_known_shape
from npu_graph_runtime.torch_internals import OpOverload, schema_of

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from npu_graph_runtime.capturing.guarding.capture_guard import HostTensors

# They hand a value of the device to the host; most others have a tag that says so.
_SCALAR_READS = frozenset({"aten::_local_scalar_dense", "aten::equal", "aten::allclose"})
_INDEXED = frozenset({"aten::index", "aten::index_put", "aten::index_put_"})
_MASKS = frozenset({torch.bool, torch.uint8})


class OperatorFindings:
    """Inspects each operator of a run."""

    def __init__(
        self, add: Callable[[FindingKind, str, ProgramPlace, str], None], host: HostTensors
    ) -> None:
        self._add = add
        self._host = host
        self._is_on_host = host.is_on_host
        self._places: dict[str, ProgramPlace] = {}
        self._host_memory: list[_HostMemory] = []

    def place_of(self, made_by: str) -> ProgramPlace:
        """Return the source line of an operator, from the description in `MadeMemory`."""
        return self._places.get(made_by, ProgramPlace("", 0))

    def see(self, func: Any, args: Sequence[Any], kwargs: Mapping[str, Any]) -> None:
        """Inspect one operator before it runs."""
        place = ProgramPlace.of(program_frame())
        self._places[f"{func} at {place.file}:{place.line}"] = place
        if not isinstance(func, OpOverload):
            return
        name = schema_of(func).name
        operator = str(func)
        tensors = [tensor for _, tensor in tensor_leaves((args, dict(kwargs)), "")]
        if name in {"aten::copy_", "aten::_to_copy", "aten::lift_fresh"}:
            self._see_move(name, operator, place, args, kwargs)
        elif all(map(self._is_on_host, tensors)):
            return
        elif name in _SCALAR_READS or torch.Tag.data_dependent_output in func.tags:
            self._add(FindingKind.SCALAR_READ, operator, place, describe(tensors[0]))
        elif not has_known_shape(func, args, kwargs):
            self._add(FindingKind.DATA_DEPENDENT_SHAPE, operator, place, describe(tensors[0]))
        elif name in _INDEXED:
            self._see_index(operator, args, kwargs, place)

    def end(self) -> None:
        """Check whether host memory that was copied from or to still exists."""
        for memory in self._host_memory:
            if memory.storage() is None:
                self._add(memory.kind, memory.operator, memory.place, memory.detail)
        self._host_memory.clear()

    def _see_move(
        self,
        name: str,
        operator: str,
        place: ProgramPlace,
        args: Sequence[Any],
        kwargs: Mapping[str, Any],
    ) -> None:
        if name == "aten::copy_":
            is_async = bool(args[2] if len(args) > 2 else kwargs.get("non_blocking"))
            self.see_copy(operator, place, args[1], args[0], is_async=is_async)
        elif name == "aten::_to_copy":
            if kwargs.get("device") is not None and self._host.is_elsewhere:
                is_to_host = torch.device(kwargs["device"]).type == "cpu"
                is_async = bool(kwargs.get("non_blocking"))
                self.see_copy(operator, place, args[0], is_to_host=is_to_host, is_async=is_async)
        # What `torch.tensor` has copied already.
        elif self._host.is_elsewhere and not self._is_on_host(args[0]):
            detail = f"torch.tensor of {describe(args[0])}"
            self._add(FindingKind.COPY_FROM_HOST, operator, place, detail)

    def see_copy(
        self,
        operator: str,
        place: ProgramPlace,
        source: Tensor,
        target: Tensor | None = None,
        *,
        is_to_host: bool | None = None,
        is_async: bool,
    ) -> None:
        """Inspect a copy between host and device; other copies are fine.

        ``is_to_host`` says where the target is if the operator allocates it; ``is_async``,
        whether the host may continue.
        """
        if target is not None:
            is_to_host = self._is_on_host(target)
        is_from_host = self._is_on_host(source)
        if is_from_host == is_to_host:
            return
        kind = FindingKind.COPY_FROM_HOST if is_from_host else FindingKind.COPY_TO_HOST
        memory = source if is_from_host else target
        detail = describe(source)
        if memory is None:
            self._add(kind, operator, place, f"{detail}, into new memory of the host")
        elif is_async and self._host.is_pinned(memory):
            detail = f"{detail}; the pinned memory is freed at the end of the call"
            storage = weakref.ref(memory.untyped_storage())
            self._host_memory.append(_HostMemory(storage, kind, operator, place, detail))
        else:
            detail = f"{detail}; it waits, without pinned memory and non_blocking=True"
            self._add(kind, operator, place, detail)

    def _see_index(
        self, operator: str, args: Sequence[Any], kwargs: Mapping[str, Any], place: ProgramPlace
    ) -> None:
        indices = args[1] if len(args) > 1 else kwargs["indices"]
        for _, index in tensor_leaves(list(indices), ""):
            if index.dtype in _MASKS:
                detail = f"a mask, {describe(index)}"
                self._add(FindingKind.DATA_DEPENDENT_SHAPE, operator, place, detail)
            elif index.dim() and self._is_on_host(index):
                detail = f"an index on the host, {describe(index)}"
                self._add(FindingKind.COPY_FROM_HOST, operator, place, detail)


class _HostMemory(NamedTuple):
    storage: weakref.ref[torch.UntypedStorage]
    kind: FindingKind
    operator: str
    place: ProgramPlace
    detail: str
