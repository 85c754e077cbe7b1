from __future__ import annotations

import dataclasses
from typing import NamedTuple

import pytest
import torch

from npu_graph_runtime.capturing.tensor_leaves import map_tensors, tensor_leaves

A, B, C = torch.ones(1), torch.ones(2), torch.ones(3)


class Pair(NamedTuple):
    first: torch.Tensor
    second: int


@dataclasses.dataclass
class Metadata:
    lengths: torch.Tensor
    tables: list[torch.Tensor]
    name: str = "m"
    doubled: torch.Tensor | None = dataclasses.field(init=False, default=None)


def test_tensor_leaves_nested_gives_paths_and_tensors() -> None:
    value = [A, (B, {"k": C}), Pair(A, 3), Metadata(B, [C]), None, 7]
    found = list(tensor_leaves(value, "args[0]"))
    assert [path for path, _ in found] == [
        "args[0][0]",
        "args[0][1][0]",
        "args[0][1][1]['k']",
        "args[0][2][0]",
        "args[0][3].lengths",
        "args[0][3].tables[0]",
    ]
    assert [tensor.numel() for _, tensor in found] == [1, 2, 3, 1, 2, 3]


def test_map_tensors_nested_keeps_types_and_other_leaves() -> None:
    value = {"a": [A, 5], "b": (B, None), "c": Pair(C, 3), "d": Metadata(A, [B])}
    mapped = map_tensors(value, torch.neg)
    assert type(mapped["b"]) is tuple
    assert isinstance(mapped["c"], Pair)
    assert mapped["c"].second == 3
    assert mapped["d"].name == "m"
    assert mapped["a"][1] == 5
    leaves = [tensor for _, tensor in tensor_leaves(mapped, "")]
    assert all(bool((tensor == -1).all()) for tensor in leaves)
    assert len(leaves) == 5
    assert next(tensor_leaves(value, ""))[1] is A


def test_map_tensors_without_tensors_gives_same_object() -> None:
    value = [1, object(), {"a": None}]
    assert map_tensors(value, torch.neg) is value


def test_map_tensors_container_that_cannot_be_rebuilt_raises_type_error() -> None:
    class Odd(list[torch.Tensor]):
        def __init__(self, first: torch.Tensor, second: torch.Tensor) -> None:
            super().__init__([first, second])

    with pytest.raises(TypeError):
        map_tensors(Odd(A, B), torch.neg)
