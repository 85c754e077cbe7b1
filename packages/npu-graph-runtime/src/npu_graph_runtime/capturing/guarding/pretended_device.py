"""Treats CPU tensors as device tensors, so that a function can be checked without a device."""

from __future__ import annotations

import weakref
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor
from torch.overrides import TorchFunctionMode

from npu_graph_runtime.capturing.fresh_memory import refers_to
from npu_graph_runtime.capturing.guarding.capture_finding import FindingKind
from npu_graph_runtime.capturing.tensor_leaves import tensor_leaves
from npu_graph_runtime.capturing.watching.captured_memory import describe
from npu_graph_runtime.capturing.watching.program_place import ProgramPlace, program_frame
from npu_graph_runtime.torch_internals import out_of_tree_backend

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from npu_graph_runtime.capturing.guarding.operator_findings import OperatorFindings

# They take tensors of the host beside those of a device, or are looked at as operators.
_MIXED = frozenset({"copy_", "tensor_split", "__setitem__", "__getitem__"})


class PretendedDevice(TorchFunctionMode):
    """Treats CPU tensors as device tensors, unless the run puts them on the host.

    On the host are: tensors made by `torch.tensor` without a device, tensors made on or moved to
    the CPU, pinned tensors, and everything computed from these alone. If a function names ``"npu"``
    or ``"cuda"``, the CPU is used. For all other tensors, the function sees a device of torch's
    out-of-tree backend, whose name is ``npu`` once torch_npu is imported.

    Attributes:
        is_elsewhere: false: operators see the CPU as the device of all tensors.
        operators: inspects copies; set it before the mode is entered.
    """

    is_elsewhere = False
    operators: OperatorFindings

    def __init__(self, add: Callable[[FindingKind, str, ProgramPlace, str], None]) -> None:
        super().__init__()
        self._add = add
        self._on_host: dict[int, weakref.ref[torch.UntypedStorage]] = {}
        self._pinned: dict[int, weakref.ref[torch.UntypedStorage]] = {}

    def is_on_host(self, tensor: Tensor) -> bool:
        """Return whether a tensor is on the host."""
        return refers_to(self._on_host, tensor.untyped_storage()) or self.is_pinned(tensor)

    def is_pinned(self, tensor: Tensor) -> bool:
        """Return whether a host tensor is in pinned memory."""
        return refers_to(self._pinned, tensor.untyped_storage()) or tensor.is_pinned()

    def __torch_function__(
        self,
        func: Any,
        types: Sequence[type],
        args: tuple[Any, ...] = (),
        kwargs: Mapping[str, Any] | None = None,
    ) -> Any:
        """Run a torch function, and track the tensors it moves."""
        del types
        name = getattr(func, "__name__", "")
        if name == "__get__":
            return self._attribute(func, args)
        kwargs = dict(kwargs or {})
        if name in {"cpu", "to", "cuda", "npu"} and args and isinstance(args[0], Tensor):
            return self._moved(func, name, args, kwargs)
        if name in {"tensor", "as_tensor", "new_tensor"}:
            return self._made(func, name, args, kwargs)
        if name in {"numpy", "tolist", "__array__"} and not self.is_on_host(args[0]):
            self._find(FindingKind.COPY_TO_HOST, f"Tensor.{name}", describe(args[0]))
        elif name in {"__getitem__", "__setitem__"} and _has_list(args[1]):
            self._find(FindingKind.COPY_FROM_HOST, f"Tensor.{name}", "an index on the host, a list")
        elif name == "pin_memory":
            return self._note(args[0].clone(), self._pinned)
        elif name == "is_pinned":
            return self.is_pinned(args[0])
        return self._run(func, name, args, kwargs)

    def _attribute(self, func: Any, args: tuple[Any, ...]) -> Any:
        name = getattr(func.__self__, "__name__", "")
        if name in {"device", "is_cpu"} and not self.is_on_host(args[0]):
            return False if name == "is_cpu" else torch.device(out_of_tree_backend(), 0)
        return func(*args)

    def _run(self, func: Any, name: str, args: Sequence[Any], kwargs: dict[str, Any]) -> Any:
        is_pinned = kwargs.pop("pin_memory", False)
        given = [tensor for _, tensor in tensor_leaves((args, kwargs), "")]
        on_host = [tensor for tensor in given if self.is_on_host(tensor)]
        target = _target(kwargs.get("device"))
        if target is not None:
            kwargs["device"] = "cpu"
        result = func(*args, **kwargs)
        if target == "host" or is_pinned or (on_host and len(on_host) == len(given)):
            return self._note(result, self._pinned if is_pinned else self._on_host)
        for tensor in on_host:
            if tensor.dim() and target is None and name not in _MIXED:
                detail = f"a tensor of the host beside one of the device, {describe(tensor)}"
                self._find(FindingKind.COPY_FROM_HOST, f"torch.{name}", detail)
        return result

    def _moved(self, func: Any, name: str, args: Sequence[Any], kwargs: dict[str, Any]) -> Any:
        source, is_async = args[0], bool(kwargs.get("non_blocking"))
        was_on_host = self.is_on_host(source)
        is_to_host = was_on_host
        if name != "to":
            is_to_host, args = name == "cpu", args[:1]
            kwargs.pop("device", None)
            func = Tensor.cpu
        else:
            asked = [value for value in args[1:] if not isinstance(value, (bool, torch.dtype))]
            asked += [kwargs.pop(key) for key in ("device", "other") if key in kwargs]
            kept = [value for value in args[1:] if isinstance(value, (bool, torch.dtype))]
            is_async = is_async or True in kept[:2]
            for value in asked:
                if isinstance(value, Tensor):
                    is_to_host = self.is_on_host(value)
                    kwargs.setdefault("dtype", value.dtype)
                elif not isinstance(value, torch.memory_format):
                    is_to_host = _target(value) == "host"
            dtypes = [value for value in kept if isinstance(value, torch.dtype)]
            if dtypes:
                kwargs["dtype"] = dtypes[0]
            args = [source]
            if not kwargs.keys() & {"dtype", "memory_format"}:
                kwargs["dtype"] = source.dtype
        result = func(*args, **kwargs)
        if is_to_host == was_on_host:
            return self._note(result, self._on_host) if was_on_host else result
        place = ProgramPlace.of(program_frame())
        self.operators.see_copy(
            f"Tensor.{name}", place, source, is_to_host=is_to_host, is_async=is_async
        )
        result = result.clone()
        return self._note(result, self._on_host) if is_to_host else result

    def _made(self, func: Any, name: str, args: Sequence[Any], kwargs: dict[str, Any]) -> Any:
        """Create a tensor from Python values."""
        is_pinned = kwargs.pop("pin_memory", False)
        target = _target(kwargs.pop("device", None))
        if name == "as_tensor" and isinstance(args[0], Tensor):
            where = {} if target is None else {"device": "cpu" if target == "host" else "npu"}
            kwargs = {key: value for key, value in kwargs.items() if value is not None}
            return self._moved(Tensor.to, "to", args[:1], {**kwargs, **where})
        if target is None:
            is_of_device = name == "new_tensor" and not self.is_on_host(args[0])
            target = "device" if is_of_device else "host"
        result = func(*args, **kwargs)
        if target == "host" or is_pinned:
            return self._note(result, self._pinned if is_pinned else self._on_host)
        self._find(FindingKind.COPY_FROM_HOST, f"torch.{name}", describe(result))
        return result

    def _find(self, kind: FindingKind, operator: str, detail: str) -> None:
        self._add(kind, operator, ProgramPlace.of(program_frame()), detail)

    def _note(self, result: Any, where: dict[int, weakref.ref[torch.UntypedStorage]]) -> Any:
        for _, tensor in tensor_leaves(result, ""):
            storage = tensor.untyped_storage()
            where[id(storage)] = weakref.ref(storage)
        return result


def _target(device: Any) -> str | None:
    """Return whether a device named by a function is the host or the device."""
    if device is None:
        return None
    return "host" if str(device).partition(":")[0] == "cpu" else "device"


def _has_list(index: Any) -> bool:
    if isinstance(index, tuple):
        return any(isinstance(part, list) for part in index)
    return isinstance(index, list)
