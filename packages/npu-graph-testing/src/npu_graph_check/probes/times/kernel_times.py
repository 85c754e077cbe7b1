"""Times of kernels on the device, by torch_npu's profiler."""

from __future__ import annotations

import csv
import statistics
import sys
import tempfile
from pathlib import Path
from typing import TYPE_CHECKING, Any

import torch

if TYPE_CHECKING:
    from collections.abc import Iterable

    from npu_graph_check.probe import Look

_ROUNDS = 10
_TABLE = "kernel_details.csv"


def kernel_times(look: Look) -> None:
    """Profile kernels of a decode step, and give the median of each kind of kernel."""
    device = look.opened
    # The device has imported it; nothing else of this package does.
    profiler: Any = sys.modules["torch_npu"].profiler
    step = _step(device.torch_device)
    step()
    device.synchronize()
    look.doing("profiling kernels")
    with tempfile.TemporaryDirectory() as folder:
        kinds = profiler.ProfilerActivity
        with profiler.profile(
            activities=[kinds.CPU, kinds.NPU],
            on_trace_ready=profiler.tensorboard_trace_handler(folder),
        ):
            for _ in range(_ROUNDS):
                step()
            device.synchronize()
        tables = sorted(Path(folder).rglob(_TABLE))
        if not tables:
            look.not_tried(
                f"torch_npu.profiler wrote no {_TABLE}; its own messages say why (on cann-sim "
                "there is nothing to profile)"
            )
        with tables[0].open(encoding="utf-8", newline="") as lines:
            found = medians(csv.DictReader(lines))
    for kind, (count, median) in sorted(found.items()):
        look.figure(f"{kind}, {count} calls, median", round(median, 3), "us")


def medians(rows: Iterable[dict[str, str]]) -> dict[str, tuple[int, float]]:
    """Return calls and median in microseconds, by type of kernel.

    Args:
        rows: of ``kernel_details.csv``, as torch_npu 2.10 to 2.14 write it.
    """
    taken: dict[str, list[float]] = {}
    for row in rows:
        taken.setdefault(row["Type"], []).append(float(row["Duration(us)"]))
    return {kind: (len(times), statistics.median(times)) for kind, times in taken.items()}


def _step(on: torch.device) -> Any:
    half = torch.float16
    hidden, weight = torch.randn(16, 4096, dtype=half), torch.randn(4096, 4096, dtype=half)
    gamma, cache = torch.ones(4096, dtype=half), torch.randn(256, 128, 1024, dtype=half)
    table = torch.arange(256, dtype=torch.int32).view(16, 16)
    hidden, weight, gamma, cache, table = (
        each.to(on) for each in (hidden, weight, gamma, cache, table)
    )

    def step() -> None:
        normed = torch.ops.npu.npu_rms_norm(hidden, gamma)[0]
        query = torch.nn.functional.silu(normed @ weight) + hidden
        torch.ops.npu.npu_fused_infer_attention_score(
            query.view(16, 32, 128),
            cache,
            cache,
            block_table=table,
            actual_seq_lengths=list(range(1, 17)),
            actual_seq_lengths_kv=[2048] * 16,
            num_heads=32,
            num_key_value_heads=8,
            scale=128**-0.5,
            input_layout="TND",
            block_size=128,
        )

    return step
