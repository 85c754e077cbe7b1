"""What operators do that a captured graph cannot repeat."""

from __future__ import annotations

import weakref
from typing import TYPE_CHECKING, Any, NamedTuple

import torch
from torch import Tensor

from npu_graph_runtime.capturing.guarding.capture_finding import FindingKind
from npu_graph_runtime.capturing.tensor_leaves import tensor_leaves
from npu_graph_runtime.capturing.watching.program_place import ProgramPlace, program_frame
from npu_graph_runtime.devices.fake_operator import has_known_shape
from npu_graph_runtime.torch_internals import OpOverload, schema_of

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

# They hand a value of the device to the host; most others have a tag that says so.
_SCALAR_READS = frozenset({"aten::_local_scalar_dense", "aten::equal", "aten::allclose"})
_INDEXED = frozenset({"aten::index", "aten::index_put", "aten::index_put_"})
_MASKS = frozenset({torch.bool, torch.uint8})


class OperatorFindings:
    """Looks at each operator of a run.

    Args:
        add: called with what was found: its kind, the operator, the place and a detail.
        is_on_host: whether a tensor is one of the host.
    """

    def __init__(
        self,
        add: Callable[[FindingKind, str, ProgramPlace, str], None],
        is_on_host: Callable[[Tensor], bool],
    ) -> None:
        self._add = add
        self._is_on_host = is_on_host
        self._places: dict[str, ProgramPlace] = {}
        self._host_memory: list[_HostMemory] = []

    def place_of(self, made_by: str) -> ProgramPlace:
        """Return the place of an operator, by what `MadeMemory` says of it."""
        return self._places.get(made_by, ProgramPlace("", 0))

    def see(self, func: Any, args: Sequence[Any], kwargs: Mapping[str, Any]) -> None:
        """Look at one operator before it runs.

        Args:
            func: the operator.
            args: its positional arguments.
            kwargs: its keyword arguments.
        """
        place = ProgramPlace.of(program_frame())
        self._places[f"{func} at {place.file}:{place.line}"] = place
        if not isinstance(func, OpOverload):
            return
        name = schema_of(func).name
        operator = str(func)
        tensors = [tensor for _, tensor in tensor_leaves((args, dict(kwargs)), "")]
        if name in {"aten::_to_copy", "aten::copy_"}:
            self._see_copy(func, args, kwargs, place)
        elif name == "aten::lift_fresh":
            # What `torch.tensor` has copied already.
            if not self._is_on_host(args[0]):
                detail = f"torch.tensor of {_described(args[0])}"
                self._add(FindingKind.COPY_FROM_HOST, operator, place, detail)
        elif all(map(self._is_on_host, tensors)):
            return
        elif name in _SCALAR_READS or torch.Tag.data_dependent_output in func.tags:
            self._add(FindingKind.SCALAR_READ, operator, place, _described(tensors[0]))
        elif not has_known_shape(func, args, kwargs):
            self._add(FindingKind.DATA_DEPENDENT_SHAPE, operator, place, _described(tensors[0]))
        elif name in _INDEXED:
            self._see_index(operator, args, kwargs, place)

    def end(self) -> None:
        """Look at memory of the host that was copied from or to: is it still there?"""
        for memory in self._host_memory:
            if memory.storage() is None:
                self._add(memory.kind, memory.operator, memory.place, memory.detail)
        self._host_memory.clear()

    def _see_copy(
        self, func: Any, args: Sequence[Any], kwargs: Mapping[str, Any], place: ProgramPlace
    ) -> None:
        operator = str(func)
        if "copy_" in operator:
            target, source = args[0], args[1]
            is_to_host = self._is_on_host(target)
            is_async = bool(args[2] if len(args) > 2 else kwargs.get("non_blocking"))
        else:
            target, source = None, args[0]
            device = kwargs.get("device")
            if device is None:
                return
            is_to_host = torch.device(device).type == "cpu"
            is_async = bool(kwargs.get("non_blocking"))
        is_from_host = self._is_on_host(source)
        if is_from_host == is_to_host:
            return
        kind = FindingKind.COPY_FROM_HOST if is_from_host else FindingKind.COPY_TO_HOST
        memory = source if is_from_host else target
        if memory is None:
            self._add(kind, operator, place, f"{_described(source)}, into new memory of the host")
        elif is_async and memory.is_pinned():
            self._host_memory.append(
                _HostMemory(
                    weakref.ref(memory.untyped_storage()),
                    kind,
                    operator,
                    place,
                    f"{_described(memory)} in pinned memory that is freed at the end of the call",
                )
            )
        else:
            self._add(
                kind,
                operator,
                place,
                f"{_described(source)}, waiting: expected pinned memory and non_blocking=True",
            )

    def _see_index(
        self, operator: str, args: Sequence[Any], kwargs: Mapping[str, Any], place: ProgramPlace
    ) -> None:
        indices = args[1] if len(args) > 1 else kwargs["indices"]
        for _, index in tensor_leaves(list(indices), ""):
            if index.dtype in _MASKS:
                detail = f"a mask, {_described(index)}"
                self._add(FindingKind.DATA_DEPENDENT_SHAPE, operator, place, detail)
            elif index.dim() and self._is_on_host(index):
                detail = f"an index on the host, {_described(index)}"
                self._add(FindingKind.COPY_FROM_HOST, operator, place, detail)


class _HostMemory(NamedTuple):
    storage: weakref.ref[torch.UntypedStorage]
    kind: FindingKind
    operator: str
    place: ProgramPlace
    detail: str


def _described(tensor: Tensor) -> str:
    return f"a tensor of {tensor.dtype}, shape {tuple(tensor.shape)}"
