"""Changes that engines make to tensors between steps: caches, weights and attributes move.

Each function moves the values to other memory in the model of an engine, and keeps them in place in
the reference. The engine's old memory is either freed and filled with other tensors, or kept.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor, nn

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from engine_fuzz.engines.fuzzed_model import FuzzedModel
    from npu_graph_runtime import NpuDevice

_CANARY = 7.0
_NUM_CANARIES = 3


class OtherTensors:
    """Tensors of somebody else, put into memory that was freed; nobody may write them."""

    def __init__(self, device: NpuDevice) -> None:
        self._device = device
        self._canaries: list[Tensor] = []
        self._kept: list[Tensor] = []

    def keep(self, tensors: Sequence[Tensor]) -> None:
        """Keep tensors that an engine does not use any more."""
        self._kept.extend(tensors)

    def fill(self, shapes: Sequence[torch.Size], dtype: torch.dtype) -> None:
        """Make tensors where others of these shapes were freed."""
        for shape in shapes:
            for _ in range(_NUM_CANARIES):
                made = torch.full(shape, _CANARY, dtype=dtype, device=self._device.torch_device)
                self._canaries.append(made)

    def are_whole(self) -> bool:
        """Return whether nobody has written the tensors."""
        return all(bool((each == _CANARY).all()) for each in self._canaries)


def drawn_values(tensor: Tensor, draw: int) -> Tensor:
    """Return values like those of a tensor, on its device."""
    random = torch.Generator().manual_seed(draw)
    scale = tensor.shape[-1] ** -0.5
    values: Tensor = torch.randn(tensor.shape, generator=random) * scale
    return values.to(tensor.dtype).to(tensor.device)


def replace_caches(model: FuzzedModel, others: OtherTensors, *, keeps_old: bool) -> None:
    """Give a model caches in new memory, with the keys and values of the old ones."""
    for caches in (model.key_caches, model.value_caches):
        old = list(caches)
        shapes, dtype = [each.shape for each in old], old[0].dtype
        # Copied before the old ones are freed, so that the new ones have other addresses.
        caches[:] = [each.clone() for each in old]
        if keeps_old:
            others.keep(old)
        del old
        others.fill(shapes, dtype)


def move_weight(
    model: FuzzedModel,
    reference: FuzzedModel,
    others: OtherTensors,
    options: Mapping[str, Any],
) -> bool:
    """Change the values of a weight; return whether its address may have changed."""
    name, how = options["weight"], options["how"]
    weight = model.get_parameter(name)
    values = drawn_values(weight, options["draw"])
    reference.get_parameter(name).data.copy_(values)
    if how == "written":
        weight.data.copy_(values)
        return False
    if how == "loaded":
        model.load_state_dict({name: values}, strict=False)
        return False
    if how == "resized":
        resize_away([weight.data], others)
        weight.data.copy_(values)
        return True
    if options["keeps_old"]:
        others.keep([weight.data])
    shape, dtype = weight.shape, weight.dtype
    if how == "data":
        weight.data = values
        del weight
    else:
        del weight
        owner, _, leaf = name.rpartition(".")
        module = model.get_submodule(owner) if owner else model
        setattr(module, leaf, nn.Parameter(values, requires_grad=False))
    others.fill([shape], dtype)
    return True


def rebind(
    model: FuzzedModel,
    reference: FuzzedModel,
    others: OtherTensors,
    options: Mapping[str, Any],
) -> None:
    """Put a new tensor into a buffer, an attribute, a list or another object of a model."""
    get, put = _PLACES[options["place"]]
    old = get(model)
    values = drawn_values(old, options["draw"])
    get(reference).copy_(values)
    shape, dtype = old.shape, old.dtype
    if options["keeps_old"]:
        others.keep([old])
    del old
    put(model, values)
    others.fill([shape], dtype)


def resize_away(tensors: Sequence[Tensor], others: OtherTensors) -> None:
    """Give the memory of tensors up and take other memory, under the same storages."""
    sizes = [each.untyped_storage().nbytes() for each in tensors]
    for each in tensors:
        each.untyped_storage().resize_(0)
    others.fill([each.shape for each in tensors], tensors[0].dtype)
    for each, size in zip(tensors, sizes, strict=True):
        each.untyped_storage().resize_(size)


def sleep_and_wake(
    model: FuzzedModel,
    device: NpuDevice,
    others: OtherTensors,
    *,
    weights: str,
    caches: bool,
) -> None:
    """Release caches, and weights, for other users; then allocate new memory with the old values.

    Args:
        model: model of the engine.
        device: device of the model.
        others: gets the memory that is free meanwhile.
        weights: ``stay``; ``resized`` under their storages; ``replaced`` by new parameters.
        caches: whether caches are released.
    """
    device.synchronize()
    parameters = dict(model.named_parameters()) if weights != "stay" else {}
    stored = {name: each.detach().cpu() for name, each in parameters.items()}
    stored_caches = [each.cpu() for each in model.caches()] if caches else []
    count = len(model.key_caches)
    if caches:
        shapes, dtype = [each.shape for each in model.caches()], model.key_caches[0].dtype
        model.key_caches.clear()
        model.value_caches.clear()
        device.empty_cache()
        others.fill(shapes, dtype)
    if weights == "resized":
        resize_away([each.data for each in parameters.values()], others)
        for name, each in parameters.items():
            each.data.copy_(stored[name])
    parameters.clear()
    if weights == "replaced":
        _replace_parameters(model, stored, others)
    if caches:
        woken = [each.to(device.torch_device) for each in stored_caches]
        model.key_caches[:], model.value_caches[:] = woken[:count], woken[count:]


def _replace_parameters(
    model: FuzzedModel, stored: Mapping[str, Tensor], others: OtherTensors
) -> None:
    for name, values in stored.items():
        owner, _, leaf = name.rpartition(".")
        module = model.get_submodule(owner) if owner else model
        device, dtype = model.offset.device, values.dtype
        setattr(module, leaf, nn.Parameter(values.clone().to("meta"), requires_grad=False))
        others.fill([values.shape], dtype)
        setattr(module, leaf, nn.Parameter(values.to(device), requires_grad=False))


def _put_gain(model: FuzzedModel, value: Tensor) -> None:
    model.gain = value


def _put_offset(model: FuzzedModel, value: Tensor) -> None:
    model.offset = value


def _put_table(model: FuzzedModel, value: Tensor) -> None:
    model.tables[0] = value


def _put_shift(model: FuzzedModel, value: Tensor) -> None:
    model.settings.shift = value


_PLACES: Mapping[
    str, tuple[Callable[[FuzzedModel], Tensor], Callable[[FuzzedModel, Tensor], None]]
] = {
    "buffer": (lambda model: model.gain, _put_gain),
    "attribute": (lambda model: model.offset, _put_offset),
    "list": (lambda model: model.tables[0], _put_table),
    "object": (lambda model: model.settings.shift, _put_shift),
}
