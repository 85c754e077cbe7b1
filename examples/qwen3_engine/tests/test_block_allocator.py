"""Tests of qwen3_engine.serving.block_allocator."""

from __future__ import annotations

import pytest

from qwen3_engine.errors import ConfigError, OutOfBlocksError
from qwen3_engine.serving.block_allocator import PADDING_BLOCK, BlockAllocator


def test_allocate_everything_never_returns_the_padding_block() -> None:
    allocator = BlockAllocator(5)

    blocks = allocator.allocate(4)

    assert sorted(blocks) == [1, 2, 3, 4]
    assert PADDING_BLOCK not in blocks
    assert allocator.num_free == 0


def test_allocate_too_many_takes_none() -> None:
    allocator = BlockAllocator(4)
    allocator.allocate(1)

    with pytest.raises(OutOfBlocksError, match=r"allocating 3 blocks.*2 of 3 are free"):
        allocator.allocate(3)
    assert allocator.num_free == 2


def test_release_blocks_can_be_allocated_again_latest_first() -> None:
    allocator = BlockAllocator(4)
    blocks = allocator.allocate(3)

    allocator.release(blocks[:2])

    assert allocator.allocate(2) == blocks[:2]


@pytest.mark.parametrize("blocks", [[0], [9], [2], [1, 1]])
def test_release_of_a_block_not_allocated_is_refused(blocks: list[int]) -> None:
    allocator = BlockAllocator(4)
    assert allocator.allocate(1) == [1]

    with pytest.raises(ValueError, match="not handed out"):
        allocator.release(blocks)
    assert allocator.num_free == 2


def test_allocator_without_a_usable_block_is_refused() -> None:
    with pytest.raises(ConfigError, match="num_blocks is 1"):
        BlockAllocator(1)
