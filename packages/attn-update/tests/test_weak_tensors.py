"""Weak references to the tensors of launches."""

from __future__ import annotations

import torch

from attn_update.recording.tensor_memory import WeakTensors
from npu_graph_runtime import FakeDevice


def test_the_same_tensor_gives_the_same_reference() -> None:
    weak = WeakTensors(FakeDevice())
    mask, table = torch.ones(4, 4), torch.zeros(2, 3, dtype=torch.int32)

    reference = weak.replace(mask)

    assert isinstance(reference, torch.Tensor)
    assert reference is not mask
    assert reference.data_ptr() == mask.data_ptr()
    assert weak.replace(mask) is reference
    assert weak.replace(table) is not reference
    assert weak.replace([mask, 5, "TND"]) == [reference, 5, "TND"]


def test_another_view_of_the_same_memory_gives_another_reference() -> None:
    weak = WeakTensors(FakeDevice())
    cache = torch.arange(12.0)
    references = [weak.replace(view) for view in (cache, cache.view(3, 4), cache.view(3, 4).t())]
    assert [tuple(each.shape) for each in references] == [(12,), (3, 4), (4, 3)]  # type: ignore[attr-defined]


def test_a_tensor_whose_memory_was_exchanged_gives_a_new_reference() -> None:
    weak = WeakTensors(FakeDevice())
    tensor, other = torch.zeros(4), torch.ones(4)
    first = weak.replace(tensor)
    tensor.data = other
    second = weak.replace(tensor)
    assert isinstance(second, torch.Tensor)
    assert second is not first
    assert second.data_ptr() == other.data_ptr()


def test_references_keep_no_tensor_alive_and_a_reused_identity_gives_a_new_one() -> None:
    weak = WeakTensors(FakeDevice())
    shapes = set()
    for size in range(1, 200):
        # Each is gone before the next is made, which mostly gets its identity.
        reference = weak.replace(torch.zeros(size))
        assert isinstance(reference, torch.Tensor)
        shapes.add(tuple(reference.shape))
    assert len(shapes) == 199
