"""Records which memory the operators of a capture allocate, and which existing memory they use.

A captured graph contains addresses. Memory allocated inside belongs to the graph: each replay
writes it again, and other graphs of the pool may use it in between. Memory that existed before
belongs to somebody else, who may replace it while the graph continues to use the old address.
"""

from __future__ import annotations

import weakref
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor

from npu_graph_runtime.capturing.fresh_memory import refers_to
from npu_graph_runtime.capturing.plain_values import same_value
from npu_graph_runtime.capturing.tensor_leaves import tensor_leaves
from npu_graph_runtime.capturing.watching.operator_watch import OperatorWatch
from npu_graph_runtime.capturing.watching.program_place import program_frame
from npu_graph_runtime.torch_internals import (
    OpOverload,
    given_arguments,
    has_kernel,
    run_python_kernel,
    schema_of,
)

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping, MutableMapping, Sequence

    from npu_graph_runtime.capturing.watching.operator_watch import Run

# An operator's scratch memory: it finds nothing there and leaves nothing there.
_SCRATCH_ARGUMENT = "workspace"


class MadeMemory:
    """Memory that was allocated inside a capture.

    Attributes:
        described: the first tensor, for messages.
        made_by: operator, file and line.
        is_scratch: whether operators used it only as their workspace.
    """

    __slots__ = ("_tensors", "described", "is_scratch", "made_by")

    def __init__(self, tensor: Tensor, made_by: str) -> None:
        self.described = describe(tensor)
        self.made_by = made_by
        self.is_scratch = False
        self._tensors = [weakref.ref(tensor)]

    def add(self, tensor: Tensor) -> None:
        """Record another tensor on the same memory."""
        self._tensors.append(weakref.ref(tensor))

    @property
    def tensor(self) -> Tensor | None:
        """A tensor on it that is still in use."""
        # Of tensors, not of the storage: graphs of the fake device keep that.
        found = (tensor() for tensor in self._tensors)
        return next((tensor for tensor in found if tensor is not None), None)


class UsedMemory:
    """Existing memory that operators of a capture use.

    ``freed`` receives a weak reference when the memory is freed.

    Attributes:
        tensor: the tensor, if that object still exists. It may be on other memory now.
        address: address of the first tensor.
        storage_address: address of the memory.
        described: the first tensor, for messages.
        used_by: operator, file and line, or what else uses it.
    """

    __slots__ = ("address", "described", "storage", "storage_address", "tensor", "used_by")

    def __init__(self, tensor: Tensor, used_by: str, freed: list[object]) -> None:
        storage = tensor.untyped_storage()
        # A call of C: an interrupt in Python's would be ignored, and the freed memory too.
        self.storage = weakref.ref(storage, freed.append)
        self.tensor = weakref.ref(tensor)
        self.address = tensor.data_ptr()
        self.storage_address = storage.data_ptr()
        self.described = f"{describe(tensor)} at {self.address:#x}"
        self.used_by = used_by

    @property
    def problem(self) -> str | None:
        """What happened to the memory, or ``None`` if it is unchanged."""
        storage = self.storage()
        if storage is None:
            return "is freed"
        address = storage.data_ptr()
        if address == self.storage_address:
            return None
        return f"has its memory at {address:#x} now" if address else "has no memory now"


class TakenNumber:
    """A tensor of the host without dimensions, whose value is an argument of a captured kernel.

    Attributes:
        described: the tensor, for messages.
        used_by: operator, file and line.
    """

    __slots__ = ("_tensor", "_value", "described", "used_by")

    def __init__(self, tensor: Tensor, used_by: str) -> None:
        # Often a part of a buffer, which only the operator had. An alias stays on that memory.
        self._tensor = tensor.detach()
        self._value = tensor.item()
        self.described = describe(tensor)
        self.used_by = used_by

    @property
    def problem(self) -> str | None:
        """What happened to the value, or ``None`` if it is unchanged."""
        now = self._tensor.item()
        return None if same_value(now, self._value) else f"is {now!r} now, was {self._value!r}"


class CapturedMemory(OperatorWatch):  # type: ignore[no-untyped-call]
    """Sees the operators of one capture. Enter it while the device is capturing.

    Memory that kernels use without having it as an argument, such as memory kept inside a C++
    operator, is not seen. Neither are kernels launched without a torch operator.

    Args:
        device: device whose memory is tracked.
        exempt: tensors whose memory is watched elsewhere, such as the arguments of the capture.
        of_pool: memory allocated in captures of the same pool, by the identity of its storage;
            memory allocated by this capture is added.
        freed: receives an item when existing memory that the capture uses is freed.

    Attributes:
        numbers: existing numbers of the host that kernels of the capture were launched with.
        on_operator: called with each operator, its arguments and its keyword arguments before it
            runs; may raise.
        takes_apart: look into composite operators, which torch does not decompose in inference
            mode.
        written: addresses of existing memory that the capture writes, including that of
            exempt tensors.
        written_elsewhere: an operator that writes memory of another device, which replays do not
            write; ``None`` if there is none.
    """

    def __init__(
        self,
        device: torch.device,
        exempt: Sequence[Tensor],
        of_pool: MutableMapping[int, weakref.ref[torch.UntypedStorage]],
        freed: list[object],
    ) -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        self._device_type = device.type
        self._of_pool = of_pool
        self._freed = freed
        self._exempt: dict[int, weakref.ref[torch.UntypedStorage]] = {}
        for part in plain_leaves(exempt):
            storage = part.untyped_storage()
            self._exempt[id(storage)] = weakref.ref(storage)
        self._made: dict[int, tuple[weakref.ref[torch.UntypedStorage], MadeMemory]] = {}
        self._made_elsewhere: dict[int, weakref.ref[torch.UntypedStorage]] = {}
        self._used: dict[int, UsedMemory] = {}
        self._lost: list[UsedMemory] = []
        self.numbers: list[TakenNumber] = []
        self.on_operator: Callable[[Any, Sequence[Any], Mapping[str, Any]], None] | None = None
        self.takes_apart = False
        self.written: set[int] = set()
        self.written_elsewhere: str | None = None

    @property
    def used(self) -> list[UsedMemory]:
        """The existing memory, in the order of its first use."""
        return [*self._lost, *self._used.values()]

    @property
    def addresses(self) -> frozenset[int]:
        """Addresses of the memory in `used`."""
        return frozenset(each.storage_address for each in self.used)

    def kept(self) -> dict[int, MadeMemory]:
        """Return memory allocated inside that a live tensor still uses, by its storage."""
        return {
            key: made
            for key, (_, made) in self._made.items()
            if made.tensor is not None and not made.is_scratch
        }

    def use(self, value: Any, used_by: str) -> None:
        """Record tensors that the capture uses outside operators."""
        for part in plain_leaves(value):
            self._use(part, lambda: used_by)

    def before(self, func: Any, args: Sequence[Any], kwargs: Mapping[str, Any]) -> Run | None:
        """Record the memory an operator uses."""
        if self.takes_apart and _is_composite(func):
            return lambda: func.decompose(*args, **kwargs)
        if self.on_operator is not None:
            self.on_operator(func, args, kwargs)
        if str(func).startswith("aten.lift_fresh"):
            # What `torch.tensor` makes: no operator is seen before this one.
            for part in plain_tensors(args[0]):
                self._make(part, func, is_empty=False)
        source = _host_source(func, args, kwargs)
        if source is not None:
            # Even where the capture made it: the graph reads it anew at each replay.
            self._note_used(source, lambda: _place(func))
        else:
            self._take_numbers(func, args, kwargs)
        for tensor, is_scratch in _arguments(func, args, kwargs):
            made = self._use(tensor, lambda: _place(func))
            if made is not None and not is_scratch:
                made.is_scratch = False
        self._note_writes(func, args, kwargs)
        # Written in Python, it may use and make more than it is given and returns.
        return run_python_kernel(func, args, kwargs)

    def _take_numbers(self, func: Any, args: Sequence[Any], kwargs: Mapping[str, Any]) -> None:
        # Arguments of a device's own operators may be rewritten in the graph.
        if self._device_type == "cpu" or not str(func).startswith("aten."):
            return
        # No generator: an interrupt while one is closed would be dropped, and keep its tensors.
        tensors = [tensor for tensor, _ in _arguments(func, args, kwargs)]
        if self._device_type not in [tensor.device.type for tensor in tensors]:
            return
        for tensor in tensors:
            is_number = tensor.device.type == "cpu" and not tensor.dim()
            if is_number and not refers_to(self._made_elsewhere, tensor.untyped_storage()):
                self.numbers.append(TakenNumber(tensor, _place(func)))

    def _use(self, tensor: Tensor, used_by: Callable[[], str]) -> MadeMemory | None:
        made = self._made_on(tensor)
        if made is None and self._is_new(tensor):
            self._note_used(tensor, used_by)
        return made

    def _made_on(self, tensor: Tensor) -> MadeMemory | None:
        storage = tensor.untyped_storage()
        known = self._made.get(id(storage))
        return known[1] if known is not None and known[0]() is storage else None

    def _is_new(self, tensor: Tensor) -> bool:
        """Return whether memory of the device is neither used so far, nor exempt or the pool's."""
        storage = tensor.untyped_storage()
        used = self._used.get(id(storage))
        if used is not None:
            if used.storage() is storage:
                return False
            self._lost.append(self._used.pop(id(storage)))
        if refers_to(self._exempt, storage) or refers_to(self._of_pool, storage):
            return False
        return tensor.device.type == self._device_type and storage.nbytes() > 0

    def write(self, value: Any, written_by: str) -> None:
        """Record tensors that the capture may write outside operators."""
        for part in plain_leaves(value):
            self._write(part, lambda: written_by)

    def _note_writes(self, func: Any, args: Sequence[Any], kwargs: Mapping[str, Any]) -> None:
        if not isinstance(func, OpOverload):
            # A higher-order operator does not say what it writes.
            self.write((args, kwargs), str(func))
            return
        if not schema_of(func).is_mutable:
            return
        for argument, value in given_arguments(func, args, kwargs):
            if argument.alias_info is not None and argument.alias_info.is_write:
                for tensor in _listed(value):
                    self._write(tensor, lambda: _place(func))

    def _write(self, tensor: Tensor, written_by: Callable[[], str]) -> None:
        storage = tensor.untyped_storage()
        if self._made_on(tensor) is not None or not storage.nbytes():
            return
        if refers_to(self._made_elsewhere, storage):
            return
        if tensor.device.type == self._device_type:
            self.written.add(storage.data_ptr())
        elif self.written_elsewhere is None:
            self.written_elsewhere = written_by()

    def _make_elsewhere(self, tensor: Tensor, arguments: Any) -> None:
        """Record memory of another device that an operator has allocated."""
        storage = tensor.untyped_storage()
        if all(part.untyped_storage() is not storage for part in plain_leaves(arguments)):
            self._made_elsewhere[id(storage)] = weakref.ref(storage)

    def _note_used(self, tensor: Tensor, used_by: Callable[[], str]) -> None:
        key = id(tensor.untyped_storage())
        known = self._used.get(key)
        if known is not None:
            if known.storage() is tensor.untyped_storage():
                return
            self._lost.append(known)
        self._used[key] = UsedMemory(tensor, used_by(), self._freed)

    def after(self, func: Any, args: Sequence[Any], kwargs: Mapping[str, Any], result: Any) -> None:
        """Record the memory an operator has allocated."""
        is_empty = str(func).startswith("aten.empty")
        for part in plain_leaves(result):
            self._make(part, func, is_empty=is_empty)
            if part.device.type != self._device_type:
                self._make_elsewhere(part, (args, kwargs))

    def _make(self, tensor: Tensor, func: Any, *, is_empty: bool) -> None:
        made = self._made_on(tensor)
        if made is not None:
            made.add(tensor)
        elif self._is_new(tensor):
            storage = tensor.untyped_storage()
            made = MadeMemory(tensor, _place(func))
            made.is_scratch = is_empty
            self._made[id(storage)] = (weakref.ref(storage), made)
            self._of_pool[id(storage)] = self._made[id(storage)][0]


def describe(tensor: Tensor) -> str:
    """Return a tensor's dtype and shape for messages."""
    return f"a tensor of {tensor.dtype}, shape {tuple(tensor.shape)}"


def plain_tensors(tensor: Tensor) -> Iterator[Tensor]:
    """Yield a tensor, or the tensors inside a wrapper tensor, such as a quantised one."""
    if tensor.layout is not torch.strided:
        return  # no storage of its own
    flatten = getattr(tensor, "__tensor_flatten__", None)
    if flatten is None:
        yield tensor
        return
    attributes, _ = flatten()
    for attribute in attributes:
        yield from plain_tensors(getattr(tensor, attribute))


def plain_leaves(value: object) -> Iterator[Tensor]:
    """Yield the plain tensors of each tensor inside nested values; see :func:`plain_tensors`."""
    for _, tensor in tensor_leaves(value, ""):
        yield from plain_tensors(tensor)


def _arguments(
    func: Any, args: Sequence[Any], kwargs: Mapping[str, Any]
) -> Iterator[tuple[Tensor, bool]]:
    """Yield each tensor argument of an operator, and whether it is its workspace."""
    if not isinstance(func, OpOverload):
        for part in plain_leaves((args, kwargs)):
            yield part, False
        return
    for argument, value in given_arguments(func, args, kwargs):
        for tensor in _listed(value):
            yield tensor, argument.name == _SCRATCH_ARGUMENT


def _host_source(func: Any, args: Sequence[Any], kwargs: Mapping[str, Any]) -> Tensor | None:
    """Return the host tensor that an operator copies to a device, or ``None``."""
    name = str(func)
    if name.startswith("aten._to_copy"):
        source, target = args[0], kwargs.get("device")
        is_to_device = target is not None and torch.device(target).type != "cpu"
    elif name.startswith("aten.copy_"):
        source = args[1]
        is_to_device = args[0].device.type != "cpu"
    else:
        return None
    return source if is_to_device and source.device.type == "cpu" else None


def _is_composite(func: Any) -> bool:
    """Return whether an operator is composite; some devices also have a kernel for it."""
    return isinstance(func, OpOverload) and has_kernel(func, "CompositeImplicitAutograd")


def _listed(value: Any) -> Iterator[Tensor]:
    if isinstance(value, Tensor):
        yield from plain_tensors(value)
    elif isinstance(value, (list, tuple)):
        for item in value:
            if isinstance(item, Tensor):
                yield from plain_tensors(item)


def _place(func: Any) -> str:
    """Return an operator with the line of the program that called it."""
    frame = program_frame()
    if frame is None:
        return f"{func}"
    return f"{func} at {frame.f_code.co_filename}:{frame.f_lineno}"
