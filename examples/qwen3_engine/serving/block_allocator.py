"""Which blocks of the paged key/value cache are in use."""

from __future__ import annotations

from qwen3_engine.errors import ConfigError, OutOfBlocksError

# The rows that pad a batch to its bucket write their keys and values somewhere, and the entries of
# a block table after a sequence's last block must point to some block: this one, without owner.
PADDING_BLOCK = 0


class BlockAllocator:
    """Allocates blocks; the most recently released block is reused first.

    Args:
        num_blocks: blocks of the cache, including the reserved one.

    Raises:
        ConfigError: fewer than 2 blocks, which leaves none to allocate.
    """

    def __init__(self, num_blocks: int) -> None:
        if num_blocks < 2:
            raise ConfigError(
                f"making the key/value cache: num_blocks is {num_blocks}, expected at least 2: "
                "block 0 is reserved for padding"
            )
        self.num_blocks = num_blocks
        self._free = list(range(num_blocks - 1, PADDING_BLOCK, -1))

    @property
    def num_usable(self) -> int:
        """Blocks that sequences can have at most."""
        return self.num_blocks - 1

    @property
    def num_free(self) -> int:
        """Blocks that can be allocated now."""
        return len(self._free)

    def allocate(self, count: int) -> list[int]:
        """Take blocks, all or none.

        Raises:
            OutOfBlocksError: fewer than ``count`` are free.
        """
        if count > len(self._free):
            raise OutOfBlocksError(
                f"allocating {count} blocks of the key/value cache: {len(self._free)} of "
                f"{self.num_usable} are free; release a sequence or enlarge num_blocks"
            )
        return [self._free.pop() for _ in range(count)]

    def release(self, blocks: list[int]) -> None:
        """Release blocks.

        Raises:
            ValueError: a block is not allocated, or is released twice.
        """
        free = set(self._free)
        for block in blocks:
            if block in free or not PADDING_BLOCK < block < self.num_blocks:
                raise ValueError(
                    f"releasing block {block} of the key/value cache: it is not handed out"
                )
            free.add(block)
        self._free.extend(reversed(blocks))
