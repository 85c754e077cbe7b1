"""Values that are computed from weights alone: once, and again when a weight changes."""

from __future__ import annotations

import copy
import pickle
import weakref
from typing import TYPE_CHECKING, Any

import torch
from torch.fx.experimental.proxy_tensor import get_proxy_mode

from fx_passes.memory.effect import PREPARED_VALUES
from fx_passes.torch_internals import FakeTensor, has_dispatch_modes, write_count

if TYPE_CHECKING:
    from collections.abc import Callable

    from torch import Tensor
    from torch.fx import GraphModule


class PreparedValues(torch.nn.Module):
    """Called with weights at every step; computes only where one of them has changed.

    A weight has changed if it is another tensor, lies elsewhere, or was written by an operator
    (its version counter). Values stay where they are in memory: those of changed weights are
    written in place, so captured graphs that read them stay right after `refresh`.

    A write through `weight.data`, or by a kernel that torch does not see, changes no counter:
    `refresh(compare=True)` finds it.

    Nothing is kept, and the values are computed within the step, while the call is traced, while
    the current stream is capturing, and of weights that are inference tensors.

    Args:
        compute: The graph from the weights to a tuple of tensors.
    """

    def __init__(self, compute: GraphModule) -> None:
        super().__init__()
        self._compute = compute
        # The weights that values were computed from, their versions and their addresses.
        self._seen: tuple[tuple[weakref.ref[Tensor], int, int], ...] = ()
        self._values: tuple[Tensor, ...] = ()

    def forward(self, *weights: Tensor) -> tuple[Tensor, ...]:
        """Return the values; those of an earlier call where no weight has changed since."""
        if get_proxy_mode() is None:
            if self._values and self._is_of(weights):
                return self._values
            if _may_keep(weights):
                self._update(weights)
                return self._values
        found: tuple[Tensor, ...] = self._compute(*weights)
        return found

    def refresh(self, *, compare: bool = False) -> bool:
        """Compute the values again if a weight of the last call has changed since.

        To be called before a captured graph is replayed, which does not call this object. Waits for
        the device where something is computed. Does nothing inside of a capture.

        Args:
            compare: Whether to compute them in any case, which also finds writes that change no
                version counter.

        Returns:
            Whether the values were another before.
        """
        weights = [weight() for weight, _, _ in self._seen]
        alive = [each for each in weights if each is not None]
        # A weight that is gone is replaced by another, which comes with the next call.
        if len(alive) < len(weights) or (not compare and self._is_of(tuple(alive))):
            return False
        return _may_keep(tuple(alive)) and self._update(tuple(alive))

    def __deepcopy__(self, memo: dict[int, Any]) -> PreparedValues:
        """Return one without values: a copy belongs to other weights."""
        return PreparedValues(copy.deepcopy(self._compute, memo))

    def __reduce_ex__(self, protocol: Any) -> Any:
        """Refuse to be pickled: FX traces graphs anew when it reads them, on the weights' values.

        Raises:
            PicklingError: Always.
        """
        raise pickle.PicklingError(
            "pickling a graph that calls PreparedValues: what is read again would hold values of "
            "today's weights as constants, and not see a weight that changes; pickle the graph "
            "as it is before the passes, or run them without 'fold_constants'"
        )

    def _is_of(self, weights: tuple[Tensor, ...]) -> bool:
        if len(weights) != len(self._seen):
            return False
        for weight, (seen, version, address) in zip(weights, self._seen, strict=True):
            if seen() is not weight or weight.data_ptr() != address:
                return False
            if write_count(weight) != version:
                return False
        return True

    def _update(self, weights: tuple[Tensor, ...]) -> bool:
        # Whoever reads the values may do so on another stream than this one, and at any time.
        _synchronize(weights[0].device)
        with torch.inference_mode(mode=False), torch.no_grad():
            found: tuple[Tensor, ...] = self._compute(*weights)
            changed = _write(self._values, found)
            if changed is None:
                changed, self._values = True, found
            self._seen = tuple(
                (weakref.ref(each), write_count(each), each.data_ptr()) for each in weights
            )
        _synchronize(weights[0].device)
        return changed


def _write(values: tuple[Tensor, ...], found: tuple[Tensor, ...]) -> bool | None:
    """Write values in place and return whether they differ; None where they are laid out so."""
    alike = len(values) == len(found) and all(
        (one.dtype, one.device, one.shape, one.stride())
        == (other.dtype, other.device, other.shape, other.stride())
        for one, other in zip(values, found, strict=True)
    )
    if not alike:
        return None
    changed = False
    for value, new in zip(values, found, strict=True):
        if not torch.equal(_bits(value), _bits(new)):
            value.copy_(new)
            changed = True
    return changed


def _bits(value: Tensor) -> Tensor:
    return value.reshape(-1).view(torch.uint8)


def _may_keep(weights: tuple[Tensor, ...]) -> bool:
    """Return whether values computed now remain valid for later calls."""
    if has_dispatch_modes() or torch.compiler.is_compiling() or not weights:
        return False
    device = weights[0].device
    if any(isinstance(each, FakeTensor) or each.is_inference() for each in weights):
        return False
    if device.type == "meta" or any(each.device != device for each in weights):
        return False
    if any(
        type(each).__torch_dispatch__ is not torch.Tensor.__torch_dispatch__ for each in weights
    ):
        return False
    asked: Callable[[], bool] | None = getattr(
        torch.get_device_module(device), "is_current_stream_capturing", None
    )
    return asked is None or not asked()


def _synchronize(device: torch.device) -> None:
    if device.type != "cpu":
        torch.get_device_module(device).synchronize()


def prepared_values_of(graph_module: GraphModule) -> tuple[PreparedValues, ...]:
    """Return the prepared values of a graph, for who captures it and replays it without calling it.

    Args:
        graph_module: A module that a pipeline with `FoldConstantsPass` was run on.
    """
    found = []
    for node in graph_module.graph.find_nodes(op="call_module"):
        if str(node.target).startswith(PREPARED_VALUES):
            module = graph_module.get_submodule(str(node.target))
            if isinstance(module, PreparedValues):
                found.append(module)
    return tuple(found)
