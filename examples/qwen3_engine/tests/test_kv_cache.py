"""Tests of qwen3_engine.qwen3.kv_cache."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest
import torch

from qwen3_engine.qwen3.kv_cache import new_layer_cache, num_blocks_for, slot, write_cache

if TYPE_CHECKING:
    from qwen3_engine.qwen3.model_config import Qwen3Config


@pytest.mark.parametrize(("tokens", "blocks"), [(0, 0), (1, 1), (128, 1), (129, 2), (256, 2)])
def test_num_blocks_for_rounds_up(tokens: int, blocks: int) -> None:
    assert num_blocks_for(tokens) == blocks


@pytest.mark.parametrize(("position", "expected"), [(0, 896), (127, 1023), (128, 256), (129, 257)])
def test_slot_follows_the_blocks_of_the_sequence(position: int, expected: int) -> None:
    assert slot([7, 2], position) == expected


def test_new_layer_cache_is_zero_and_paged(config: Qwen3Config) -> None:
    cache = new_layer_cache(config, num_blocks=3, dtype=torch.bfloat16, device=torch.device("cpu"))

    assert cache.shape == (3, 128, 2 * 128)
    assert cache.dtype == torch.bfloat16
    assert not cache.any()


def test_write_cache_changes_the_named_slots_only(config: Qwen3Config, npu: torch.device) -> None:
    cache = new_layer_cache(config, num_blocks=3, dtype=torch.float16, device=npu)
    states = torch.randn(3, 2, 128).to(torch.float16)
    slots = torch.tensor([slot([2], 5), slot([1], 127), slot([2], 6)], dtype=torch.int32)

    write_cache(states.to(npu), cache, slots.to(npu))

    expected = torch.zeros(3 * 128, 256, dtype=torch.float16)
    expected[slots.long()] = states.view(3, 256)
    assert torch.equal(cache.cpu(), expected.view(3, 128, 256))
