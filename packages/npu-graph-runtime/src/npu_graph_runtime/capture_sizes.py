"""Capture sizes, and the bucket that a batch is padded to."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

from npu_graph_runtime.errors import CaptureSizeError

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator


class CaptureSizes:
    """An immutable set of capture sizes with a bucket look-up in constant time.

    Args:
        sizes: token or batch counts, in any order; duplicates count once.

    Raises:
        CaptureSizeError: no size, or one below 1.
    """

    __slots__ = ("_buckets", "_sizes")

    def __init__(self, sizes: Iterable[int]) -> None:
        ordered = tuple(sorted(set(sizes)))
        if not ordered:
            raise CaptureSizeError(
                "making capture sizes: got none, expected at least one; without graphs run in "
                "RunMode.EAGER"
            )
        wrong = [size for size in ordered if isinstance(size, bool) or size < 1]
        if wrong:
            raise CaptureSizeError(
                f"making capture sizes from {list(ordered)}: {wrong} are out of range, expected "
                "integers of at least 1"
            )
        self._sizes = ordered
        buckets = [0] * (ordered[-1] + 1)
        low = 0
        for size in ordered:
            buckets[low : size + 1] = [size] * (size + 1 - low)
            low = size + 1
        self._buckets = tuple(buckets)

    def __iter__(self) -> Iterator[int]:
        return iter(self._sizes)

    def __len__(self) -> int:
        return len(self._sizes)

    def __contains__(self, size: object) -> bool:
        return size in self._sizes

    def __eq__(self, other: object) -> bool:
        return isinstance(other, CaptureSizes) and self._sizes == other._sizes

    def __hash__(self) -> int:
        return hash(self._sizes)

    def __repr__(self) -> str:
        return f"CaptureSizes({list(self._sizes)})"

    @property
    def largest(self) -> int:
        """The largest size."""
        return self._sizes[-1]

    def largest_first(self) -> tuple[int, ...]:
        """Return the sizes in the recommended order of capture."""
        return self._sizes[::-1]

    def bucket_for(self, count: int) -> int | None:
        """Return the smallest size of at least ``count``, or ``None`` if there is none.

        Args:
            count: tokens or sequences of a batch, at least 1.

        Raises:
            CaptureSizeError: The count is below 1.
        """
        if count < 1:
            raise CaptureSizeError(
                f"choosing a bucket: the batch has {count} rows, expected at least 1; an empty "
                "batch has nothing to replay"
            )
        return self._buckets[count] if count < len(self._buckets) else None

    def rounded_to_multiples(self, *factors: int) -> CaptureSizes:
        """Return the sizes rounded up to multiples of every factor.

        With sequence parallelism a batch is divided over the tensor-parallel ranks, and with
        speculative decoding every sequence has one row more than it has draft tokens. Every batch
        that fits these sizes also fits the rounded ones, so the largest size may grow, by less than
        the least common multiple of the factors. Create static buffers for `largest` of the result.
        vLLM's ``adjust_cudagraph_sizes_for_spec_decode`` drops a size that would exceed the maximum
        instead, so its largest batches run eagerly.

        Args:
            factors: such as the number of tensor-parallel ranks and ``1 + num_draft_tokens``.

        Raises:
            CaptureSizeError: A factor is below 1.
        """
        if any(factor < 1 for factor in factors):
            raise CaptureSizeError(
                f"rounding capture sizes to multiples: got factors {list(factors)}, expected "
                "integers of at least 1"
            )
        factor = math.lcm(*factors)
        return CaptureSizes(math.ceil(size / factor) * factor for size in self._sizes)


def vllm_capture_sizes(
    max_num_sequences: int,
    *,
    max_num_batched_tokens: int | None = None,
    num_draft_tokens: int = 0,
    scale: int = 2,
    max_capture_size: int = 512,
) -> CaptureSizes:
    """Return vLLM's default capture sizes, in tokens.

    Source: ``VllmConfig._set_cudagraph_sizes`` of vLLM 0.27: at most
    ``min(max_num_sequences * (1 + num_draft_tokens) * 2, 512)`` tokens; the sizes 1, 2 and 4,
    multiples of 8 below 256 and multiples of 16 from there on. vLLM-Ascend uses ``scale=1``. For
    speculative decoding, round the result with :meth:`CaptureSizes.rounded_to_multiples`.

    If the steps end below the largest decode batch, that batch is also a size. vLLM-Ascend omits it
    and runs batches of 9 to 12 eagerly for 12 sequences. As in vLLM, no size exceeds 512 tokens by
    default; for larger batches raise `max_capture_size`.

    Args:
        max_num_sequences: most sequences of a batch.
        max_num_batched_tokens: most tokens of a batch; also a size if it is below the maximum.
        num_draft_tokens: draft tokens per sequence, 0 without speculative decoding.
        scale: 2 as in vLLM, 1 as in vLLM-Ascend.
        max_capture_size: upper limit of all sizes; vLLM's ``max_cudagraph_capture_size``.

    Raises:
        CaptureSizeError: A limit is below 1.
    """
    _require_positive(
        max_num_sequences=max_num_sequences, scale=scale, max_capture_size=max_capture_size
    )
    limit = min(max_num_sequences * (1 + num_draft_tokens) * scale, max_capture_size)
    if max_num_batched_tokens is not None:
        _require_positive(max_num_batched_tokens=max_num_batched_tokens)
        limit = min(limit, max_num_batched_tokens)
    sizes = [size for size in (1, 2, 4) if size <= limit]
    sizes += range(8, min(limit + 1, 256), 8)
    sizes += range(256, limit + 1, 16)
    largest_batch = min(max_num_sequences * (1 + num_draft_tokens), limit)
    if max_num_batched_tokens == limit:
        sizes.append(limit)
    elif sizes[-1] < largest_batch:
        sizes.append(largest_batch)
    return CaptureSizes(sizes)


def sglang_decode_capture_sizes(
    max_batch_size: int, *, is_padded: bool = True, is_speculative: bool = False
) -> CaptureSizes:
    """Return SGLang's default decode capture sizes, in sequences.

    Source: ``cuda_graph_hook.py`` of SGLang 0.5.23. Usually 1, 2, 4, 8 and 12, then steps of 8 up
    to 256, of 16 up to 511, of 32 beyond; with speculative decoding 1 to 8, then steps of 2 up to
    32, of 4 up to 64, of 8 up to 256, of 16 beyond; without padding every size. The largest batch
    is always a size, even between two steps, where SGLang would run it eagerly.

    Args:
        max_batch_size: most sequences of a batch.
        is_padded: whether batches are padded to a bucket.
        is_speculative: whether decoding is speculative.

    Raises:
        CaptureSizeError: The batch size is below 1.
    """
    _require_positive(max_batch_size=max_batch_size)
    if not is_padded:
        sizes = [*range(1, max_batch_size + 1)]
    elif is_speculative:
        sizes = [*range(1, 9), *range(10, 33, 2), *range(40, 65, 4), *range(72, 257, 8)]
        sizes += range(272, max_batch_size + 1, 16)
    else:
        sizes = [1, 2, 4, 8, 12, *range(16, 257, 8), *range(272, 512, 16)]
        sizes += range(512, max_batch_size + 1, 32)
    return CaptureSizes([*(size for size in sizes if size < max_batch_size), max_batch_size])


def sglang_prefill_capture_sizes(max_num_tokens: int) -> CaptureSizes:
    """Return SGLang's default prefill capture sizes, in tokens.

    Source: SGLang 0.5.23: steps of 4 up to 32, of 16 up to 256, of 32 up to 512, of 64 up to 1024,
    of 256 up to 4096, of 512 beyond. The largest chunk is always a size, even between two steps.

    Args:
        max_num_tokens: most tokens of a chunk.

    Raises:
        CaptureSizeError: The number of tokens is below 1.
    """
    _require_positive(max_num_tokens=max_num_tokens)
    sizes = [*range(4, 33, 4), *range(48, 257, 16), *range(288, 513, 32), *range(576, 1025, 64)]
    sizes += [*range(1280, 4097, 256), *range(4608, max_num_tokens + 1, 512)]
    return CaptureSizes([*(size for size in sizes if size < max_num_tokens), max_num_tokens])


def _require_positive(**limits: int) -> None:
    for name, limit in limits.items():
        if limit < 1:
            raise CaptureSizeError(
                f"choosing capture sizes: {name} is {limit}, expected at least 1"
            )
