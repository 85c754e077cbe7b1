"""Finds memory of a call's result that nothing else refers to, so that it may be reused."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor

from npu_graph_runtime.capturing.tensor_leaves import map_tensors, tensor_leaves
from npu_graph_runtime.torch_internals import base_of, storage_owners

if TYPE_CHECKING:
    import weakref
    from collections.abc import Mapping


def memory_of(tensor: Tensor) -> int:
    """Return the address of a tensor's memory, the same for all views of it."""
    return tensor.untyped_storage().data_ptr()


def extent_of(tensor: Tensor) -> int:
    """Return the number of memory elements from a tensor's first to its last one; 0 for none."""
    steps = zip(tensor.shape, tensor.stride(), strict=True)
    return 1 + sum((size - 1) * stride for size, stride in steps) if tensor.numel() else 0


def bytes_of(tensor: Tensor) -> tuple[int, int]:
    """Return the address range that a tensor spans: first address, and one past the last."""
    begin = tensor.data_ptr()
    return begin, begin + extent_of(tensor) * tensor.element_size()


def refers_to(
    known: Mapping[int, weakref.ref[torch.UntypedStorage]], storage: torch.UntypedStorage
) -> bool:
    """Return whether a storage is among those known by their identity, which comes again."""
    reference = known.get(id(storage))
    return reference is not None and reference() is storage


def memory_held_alone(results: list[Any]) -> frozenset[int]:
    """Return the addresses of memory that only the tensors of the results refer to.

    A tensor that a module, a list or a closure also refers to is recognised by its Python reference
    count; a view of one by that of its base; any other alias by the owners of the storage. The
    reference count of a tensor without other references depends on the version of Python, so the
    counts are compared with those of an imitation of the results. If the results cannot be
    imitated, none counts.

    Args:
        results: Nested outputs, to which this list has the only reference.
    """
    found = _holders(results)
    try:
        imitation = _imitation(results)
    except TypeError:
        return frozenset()
    expected = _holders(imitation)
    is_alone: dict[int, bool] = {}
    for (memory, counts), (_, alone) in zip(found, expected, strict=True):
        is_alone[memory] = is_alone.get(memory, True) and counts == alone
    return frozenset(memory for memory, alone in is_alone.items() if alone)


def _holders(result: Any) -> list[tuple[int, tuple[int, int, int, int]]]:
    """Return for each tensor its memory, and the references to it, its base and its storage."""
    tensors = [tensor for _, tensor in tensor_leaves(result, "")]
    bases = [base_of(tensor) for tensor in tensors]
    return [
        (
            memory_of(tensor),
            (
                sys.getrefcount(tensor),
                0 if base is None else sys.getrefcount(base),
                sys.getrefcount(tensor.untyped_storage()),
                storage_owners(tensor) - _known_owners(memory_of(tensor), [*tensors, *bases]),
            ),
        )
        for tensor, base in zip(tensors, bases, strict=True)
    ]


def _known_owners(memory: int, tensors: list[Tensor | None]) -> int:
    found = {id(each) for each in tensors if each is not None and memory_of(each) == memory}
    return len(found)


def _imitation(result: Any) -> Any:
    """Return a result of the same structure whose tensors nothing else refers to."""
    made: dict[int, Tensor] = {}

    def new(tensor: Tensor) -> Tensor:
        base = base_of(tensor)
        if id(tensor) not in made and base is None:
            made[id(tensor)] = torch.empty(1)
        elif id(tensor) not in made:
            made[id(tensor)] = made.setdefault(id(base), torch.empty(1)).view(1)
        return made[id(tensor)]

    imitation = map_tensors(result, new)
    made.clear()
    return imitation
