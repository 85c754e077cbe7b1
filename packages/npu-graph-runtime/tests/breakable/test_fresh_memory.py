from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest
import torch
from torch import Tensor

from npu_graph_runtime.capturing.fresh_memory import memory_held_alone, memory_of
from npu_graph_runtime.capturing.tensor_leaves import tensor_leaves

if TYPE_CHECKING:
    from collections.abc import Callable

HELD = torch.ones(8)
HELD_ALSO = HELD.detach()
KEPT: list[object] = []


class Layer(torch.nn.Module):
    cache: Tensor

    def __init__(self) -> None:
        super().__init__()
        self.buffers_in_turn = [torch.ones(3), torch.ones(3)]
        self.register_buffer("cache", torch.ones(4))


LAYER = Layer()


def ones() -> Tensor:
    return torch.ones(8)


def kept_view() -> Tensor:
    tensor = ones()
    KEPT.append(tensor[:2])
    return tensor


def kept_storage() -> Tensor:
    tensor = ones()
    KEPT.append(tensor.untyped_storage())
    return tensor


def with_its_view() -> dict[str, Tensor]:
    tensor = ones()
    return {"tensor": tensor, "view": tensor.view(2, 4)}


def with_its_view_first() -> dict[str, Tensor]:
    tensor = ones()
    return {"view": tensor.view(2, 4), "tensor": tensor}


def twice() -> list[Tensor]:
    tensor = ones()
    return [tensor, tensor]


@torch.inference_mode()
def views_in_inference() -> tuple[Tensor, Tensor]:
    tensor = torch.ones(8)
    return tensor.view(2, 4), tensor[:3]


@torch.inference_mode()
def held_view_in_inference() -> Tensor:
    return HELD[2:]


ALONE: dict[str, Callable[[], Any]] = {
    "new": ones,
    "view": lambda: ones().view(2, 4),
    "result of an operator, viewed": lambda: (ones() + 1).view(4, 2),
    "parts": lambda: ones().add(1).chunk(2),
    "unequal parts": lambda: torch.split_with_sizes(torch.ones(4, 12), [4, 6, 2], -1),
    "twice": twice,
    "with its view": with_its_view,
    "with its view first": with_its_view_first,
    "nested": lambda: (ones(), [ones(), {"deep": ones()}], 5),
    "views in inference mode": views_in_inference,
}
HELD_BY_OTHERS: dict[str, Callable[[], Any]] = {
    "variable": lambda: HELD,
    "view of a variable": lambda: HELD[:4],
    "alias of a variable": HELD.detach,
    "view in inference mode": held_view_in_inference,
    "other strides": lambda: torch.as_strided(HELD, (2,), (1,)),
    "buffer": lambda: LAYER.cache,
    "view of a buffer": lambda: LAYER.cache.view(2, 2),
    "one of a list": lambda: LAYER.buffers_in_turn[0],
    "kept view": kept_view,
    "kept storage": kept_storage,
}


def is_alone(function: Callable[[], Any]) -> list[bool]:
    results = [function()]
    alone = memory_held_alone(results)
    return [memory_of(tensor) in alone for _, tensor in tensor_leaves(results, "")]


@pytest.mark.parametrize("function", ALONE.values(), ids=ALONE)
def test_memory_of_a_new_result_has_one_owner(function: Callable[[], Any]) -> None:
    assert all(is_alone(function))


@pytest.mark.parametrize("function", HELD_BY_OTHERS.values(), ids=HELD_BY_OTHERS)
def test_memory_with_another_owner_is_reported(function: Callable[[], Any]) -> None:
    assert not any(is_alone(function))


def test_each_memory_of_a_result_is_distinguished() -> None:
    assert is_alone(lambda: (ones(), HELD)) == [True, False]
