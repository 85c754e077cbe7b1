"""The weights that captured graphs depend on, and whether they are still at their addresses.

A graph contains the addresses of a model's weights as it does those of its inputs, but weights are
not passed at a replay, and comparing hundreds of them each time would cost more than the replay.
Torch keeps one Python object for each storage as long as the storage is used. A weak reference to
that object calls back when the memory is freed, and costs nothing until then.
"""

from __future__ import annotations

import weakref
from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import TYPE_CHECKING, NamedTuple, TypeAlias

from torch import Tensor, nn

from npu_graph_runtime.capturing.fresh_memory import refers_to
from npu_graph_runtime.capturing.weak_tensor import lazy_bits
from npu_graph_runtime.errors import ReplacedWeightError

if TYPE_CHECKING:
    import torch

NamedTensors: TypeAlias = Callable[[], Iterable[tuple[str, Tensor]]]
"""Returns tensors with their names, as they are at the moment of the call."""


class TensorPlace(NamedTuple):
    """Address and layout of a tensor."""

    address: int
    shape: tuple[int, ...]
    stride: tuple[int, ...]
    dtype: torch.dtype
    lazy_bits: str

    @classmethod
    def of(cls, tensor: Tensor) -> TensorPlace:
        """Return the place of a tensor."""
        layout = (tuple(tensor.shape), tensor.stride(), tensor.dtype)
        return cls(tensor.data_ptr(), *layout, lazy_bits(tensor))

    def __str__(self) -> str:
        return (
            f"a {self.lazy_bits}tensor of {self.dtype}, shape {self.shape}, stride {self.stride} "
            f"at {self.address:#x}"
        )


def weights_of(function: object) -> NamedTensors:
    """Return a function that reads the parameters and buffers of a module, for `GraphedCallable`.

    Args:
        function: an ``nn.Module``; anything else has none.
    """
    if not isinstance(function, nn.Module):
        return tuple

    def read() -> Iterable[tuple[str, Tensor]]:
        yield from function.named_parameters()
        yield from function.named_buffers()

    return read


class WatchedWeights:
    """Reads weights, and notices when memory of one is freed.

    ``freed`` receives a weak reference to the memory, on the thread that frees it.
    """

    def __init__(self, read: NamedTensors, freed: list[object]) -> None:
        self._read = read
        self._freed = freed
        self._places: Mapping[str, TensorPlace] = {}
        self._storages: dict[int, weakref.ref[torch.UntypedStorage]] = {}

    def baked(self) -> Mapping[str, TensorPlace]:
        """Return the places of the weights for a capture, and watch them from now on."""
        weights = self._weights()
        for weight in weights.values():
            self._watch(weight.untyped_storage())
        places = _places(weights)
        if places != self._places:
            self._places = places
        return self._places

    def check(
        self, baked: Mapping[str, TensorPlace], subject: str, *, doing: str = "replaying"
    ) -> None:
        """Compare the weights with those of a capture.

        Raises:
            ReplacedWeightError: A weight is at another address, has another layout, or is gone.
        """
        now = _places(self._weights())
        differences = [
            f"{name} is {now.get(name, 'gone')}, expected {place}"
            for name, place in baked.items()
            if now.get(name) != place
        ]
        if differences:
            raise ReplacedWeightError(
                f"{doing} {subject}: {len(differences)} of {len(baked)} weights differ from the "
                f"capture: {'; '.join(differences)}; write new values into the weights of the "
                "capture (copy_), or release the graph and capture it again"
            )

    def _weights(self) -> dict[str, Tensor]:
        return dict(part for name, weight in self._read() for part in _with_memory(name, weight))

    def _watch(self, storage: torch.UntypedStorage) -> None:
        if not refers_to(self._storages, storage):
            # A call of C: an interrupt in Python's would be ignored, and the freed memory too.
            self._storages[id(storage)] = weakref.ref(storage, self._freed.append)


def _with_memory(name: str, weight: Tensor) -> Iterator[tuple[str, Tensor]]:
    """Yield a weight, or the tensors inside a wrapper tensor, such as a quantised one."""
    flatten = getattr(weight, "__tensor_flatten__", None)
    if flatten is None:
        yield name, weight
        return
    attributes, _ = flatten()
    for attribute in attributes:
        yield from _with_memory(f"{name}.{attribute}", getattr(weight, attribute))


def _places(weights: Mapping[str, Tensor]) -> dict[str, TensorPlace]:
    return {name: TensorPlace.of(weight) for name, weight in weights.items()}
