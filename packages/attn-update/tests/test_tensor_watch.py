"""A watch sees memory die, and only memory."""

from __future__ import annotations

import torch

from attn_update.recording.record import TensorWatch


def test_tensor_watch_of_a_freed_tensor_lists_it() -> None:
    watch = TensorWatch()
    tensor = torch.zeros(4)
    watch.add(tensor, "cache")
    assert watch.dead == []

    del tensor

    assert watch.dead == ["cache"]


def test_tensor_watch_of_memory_that_a_view_keeps_lists_nothing() -> None:
    watch = TensorWatch()
    cache = torch.zeros(2, 4)
    watch.add(cache[0], "layer 0")
    view = cache[1]

    del cache
    assert watch.dead == []
    del view

    assert watch.dead == ["layer 0"]


def test_tensor_watch_of_shared_memory_lists_it_once() -> None:
    watch = TensorWatch()
    cache = torch.zeros(2, 4)
    watch.add(cache[0], "layer 0")
    watch.add(cache[1], "layer 1")

    del cache

    assert watch.dead == ["layer 0"]


def test_tensor_watch_cleared_lists_nothing_more() -> None:
    watch = TensorWatch()
    tensor = torch.zeros(4)
    watch.add(tensor, "cache")
    watch.clear()

    del tensor

    assert watch.dead == []
