"""Memory that a function running eagerly allocates and keeps without returning it.

Each replay calls the function again, and it allocates other memory. Its result is copied to where
captured work reads it. Memory that it keeps in an attribute, a list or an object is not, so a
captured segment would continue to read the memory of the capture.
"""

from __future__ import annotations

import contextlib
import weakref
from typing import TYPE_CHECKING, Any, NoReturn

from npu_graph_runtime.capturing.fresh_memory import memory_of
from npu_graph_runtime.capturing.tensor_leaves import tensor_leaves
from npu_graph_runtime.capturing.watching.operator_watch import OperatorWatch
from npu_graph_runtime.errors import EagerSegmentError
from npu_graph_runtime.torch_internals import run_python_kernel

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    import torch
    from torch import Tensor

    from npu_graph_runtime.capturing.watching.operator_watch import Run


class UnreturnedMemory(OperatorWatch):  # type: ignore[no-untyped-call]
    """Sees the operators of a breakable capture, and rejects those that read such memory.

    Entered while a segment is captured, if there is such memory. Memory is identified by its
    storage.
    Memory that a C++ operator keeps internally, or that no operator reads, is not seen.
    """

    def __init__(self, subject: str) -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        self._subject = subject
        self._eager: str | None = None
        self._made: dict[int, tuple[weakref.ref[torch.UntypedStorage], str]] = {}

    @property
    def is_there(self) -> bool:
        """Whether a function has kept memory that it did not return."""
        return bool(self._made)

    @contextlib.contextmanager
    def made_by(self, name: str) -> Iterator[None]:
        """Track the memory that is allocated in the block, in which this function runs eagerly."""
        self._eager = name
        try:
            with self:
                yield
        finally:
            self._eager = None
            self._made = {
                memory: (storage, made_by)
                for memory, (storage, made_by) in self._made.items()
                if storage() is not None
            }

    def returned(self, value: Any) -> None:
        """Stop tracking the memory of a function's result, which is copied at each replay."""
        for _, tensor in tensor_leaves(value, ""):
            self._made.pop(memory_of(tensor), None)

    def check(self, value: Any, reader: str) -> None:
        """Reject tensors of a value whose memory was allocated and not returned.

        Raises:
            EagerSegmentError: A tensor is in such memory.
        """
        if not self._made:
            return
        for _, tensor in tensor_leaves(value, ""):
            known = self._made.get(memory_of(tensor))
            if known is not None and known[0]() is not None:
                self._refuse(reader, known[1], tensor)

    def check_operator(self, func: Any, args: Sequence[Any], kwargs: Mapping[str, Any]) -> None:
        """Reject such memory among the arguments of an operator.

        Raises:
            EagerSegmentError: as for `check`.
        """
        self.check((args, kwargs), str(func))

    def before(self, func: Any, args: Sequence[Any], kwargs: Mapping[str, Any]) -> Run | None:
        """Check that an operator of a segment reads no tracked memory."""
        if self._eager is None:
            self.check_operator(func, args, kwargs)
            return None
        kernel = run_python_kernel(func, args, kwargs)
        if kernel is None:
            return None

        # Written in Python, it may keep what it makes.
        def run() -> Any:
            result = kernel()
            self.after(func, args, kwargs, result)
            return result

        return run

    def after(self, func: Any, args: Sequence[Any], kwargs: Mapping[str, Any], result: Any) -> None:
        """Track what an operator has allocated in a function that runs eagerly."""
        del func
        if self._eager is None:
            return
        given = {memory_of(tensor) for _, tensor in tensor_leaves((args, kwargs), "")}
        for _, tensor in tensor_leaves(result, ""):
            memory = memory_of(tensor)
            if memory and memory not in given:
                self._made[memory] = (weakref.ref(tensor.untyped_storage()), self._eager)

    def _refuse(self, reader: str, made_by: str, tensor: Tensor) -> NoReturn:
        raise EagerSegmentError(
            f"capturing {self._subject}: {reader} reads memory that {made_by} made and did not "
            f"return, a tensor of {tensor.dtype}, shape {tuple(tensor.shape)}, expected memory "
            "that stays: each replay calls the function again and it makes other memory, which "
            "captured work would not see; return the tensor (in lists, tuples, dicts or "
            "dataclasses), write into a buffer that is given, or make it before the capture"
        )
