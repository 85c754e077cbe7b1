"""The largest decode batch is a capture size, unless the user limited the sizes."""

from __future__ import annotations

import logging
from types import SimpleNamespace
from typing import Any

import pytest

from vllm_npu_graph.planning.largest_batch import add_largest_batch


def configuration(
    sizes: list[int], sequences: int, *, drafts: int | None = None, **others: Any
) -> Any:
    """Return the parts of the engine's configuration that are read."""
    given = {"tokens": 2048, "ranks": 1, "divides": False} | others
    return SimpleNamespace(
        compilation_config=SimpleNamespace(
            cudagraph_capture_sizes=sizes,
            max_cudagraph_capture_size=max(sizes, default=0),
            pass_config=SimpleNamespace(enable_sp=given["divides"]),
        ),
        scheduler_config=SimpleNamespace(
            max_num_seqs=sequences, max_num_batched_tokens=given["tokens"]
        ),
        parallel_config=SimpleNamespace(tensor_parallel_size=given["ranks"]),
        speculative_config=drafts and SimpleNamespace(num_speculative_tokens=drafts),
    )


@pytest.mark.parametrize(
    ("config", "added"),
    [
        (configuration([1, 2, 4, 8], 12), 12),
        (configuration([1, 2, 4], 7), 7),
        (configuration([1, 2, 4, 8], 5, drafts=2), 15),
        (configuration([1, 2, 4, 8], 64, tokens=12), 12),
        (configuration([240, 248, 256], 270), 270),
        (configuration([480, 496], 511), 511),
        (configuration([2, 4, 8], 12, ranks=2, divides=True), 12),
    ],
)
def test_a_batch_off_the_strides_becomes_a_size(config: Any, added: int) -> None:
    sizes = config.compilation_config.cudagraph_capture_sizes

    assert add_largest_batch(config) == added

    assert config.compilation_config.cudagraph_capture_sizes == [*sizes, added]
    assert config.compilation_config.max_cudagraph_capture_size == added
    assert add_largest_batch(config) is None


@pytest.mark.parametrize(
    ("config", "limits"),
    [
        (configuration([1, 2, 4, 8], 256), (9, 256, 8)),
        (configuration([1, 2, 4, 8], 17), (9, 17, 8)),
        (configuration([496, 512], 520), (513, 520, 512)),
        (configuration([2, 4, 8], 11, ranks=2, divides=True), (9, 11, 8)),
    ],
)
def test_limited_sizes_stay_and_are_logged(
    config: Any, limits: tuple[int, int, int], caplog: pytest.LogCaptureFixture
) -> None:
    sizes = list(config.compilation_config.cudagraph_capture_sizes)

    with caplog.at_level(logging.WARNING):
        assert add_largest_batch(config) is None

    assert config.compilation_config.cudagraph_capture_sizes == sizes
    assert caplog.records[0].args == limits


@pytest.mark.parametrize("config", [configuration([1, 2, 4, 8, 16], 12), configuration([], 12)])
def test_covered_batches_and_engines_without_graphs_stay(
    config: Any, caplog: pytest.LogCaptureFixture
) -> None:
    assert add_largest_batch(config) is None
    assert not caplog.records
