"""Prefill chunks in SGLang's scheduler process: counted, timed, and captured by several sides."""

from __future__ import annotations

import json
import statistics
import time
from collections import defaultdict
from pathlib import Path
from typing import Any

import torch

import cann_sim


def first_page(_prefix: Any, _prefix_cpu: Any, lengths: Any, *given: Any, **_named: Any) -> Any:
    """Replace `alloc_extend` of the engine's pool, for kernels that do nothing.

    The engine counts free pages on the device, where nothing writes a number: every sequence gets
    the first page.
    """
    _lengths_cpu, _last, num_tokens, *_ = given
    return lengths.new_zeros(num_tokens).int()


class MeasuredChunks:
    """Methods added to the engine's scheduler, for the session of prefill."""

    def begin_chunks(self: Any, is_wrong: bool) -> None:
        """Start counting.

        Args:
            is_wrong: Captured layers read another last token of each chunk.
        """
        self.chunks: list[dict[str, Any]] = []
        self.num_retracted = 0
        if not hasattr(self, "is_counting_chunks"):
            self.is_counting_chunks = False
            self.watch_chunks()
        if is_wrong:
            runner = self.tp_worker.model_runner.prefill_cuda_graph_runner
            load = runner.load_batch

            def load_wrongly(*args: Any, **kwargs: Any) -> Any:
                loaded = load(*args, **kwargs)
                loaded[0].input_ids[runner.raw_num_tokens - 1].bitwise_xor_(1)
                return loaded

            runner.load_batch = load_wrongly

    def watch_chunks(self: Any) -> None:
        """Observe each chunk that runs, and each sequence that must free its pages."""
        model = self.tp_worker.model_runner
        forward, add = model.forward, self._add_request_to_queue

        def watched(batch: Any, *args: Any, **kwargs: Any) -> Any:
            if not batch.forward_mode.is_extend():
                return forward(batch, *args, **kwargs)
            if self.is_counting_chunks:
                torch.npu.synchronize()
            before, began = cann_sim.counters(), time.perf_counter()
            result = forward(batch, *args, **kwargs)
            microseconds = 1e6 * (time.perf_counter() - began)
            if self.is_counting_chunks:
                torch.npu.synchronize()
            counted = cann_sim.counters() - before
            self.chunks.append(
                {
                    "tokens": sum(batch.extend_seq_lens_cpu),
                    "sequences": batch.batch_size,
                    "prefix": sum(batch.extend_prefix_lens_cpu),
                    "is_continued": self.chunked_req is not None,
                    "is_graph": result.can_run_graph,
                    "us": microseconds,
                    "launches": counted.launches,
                    "replays": counted.replays,
                }
            )
            return result

        def counted_add(request: Any, is_retracted: bool = False) -> Any:
            self.num_retracted += is_retracted
            return add(request, is_retracted=is_retracted)

        model.forward, self._add_request_to_queue = watched, counted_add

    def end_chunks(self: Any, out: str) -> None:
        """Write the counts."""
        graphs = [chunk for chunk in self.chunks if chunk["is_graph"]]
        runner = self.tp_worker.model_runner.prefill_cuda_graph_runner
        most = getattr(runner, "max_num_tokens", 0)
        row = {
            "backend": type(getattr(runner, "backend", None)).__name__,
            "chunks": len(self.chunks),
            "chunks_by_graph": len(graphs),
            "larger": sum(chunk["tokens"] > most for chunk in self.chunks) if most else 0,
            "several_sequences": sum(chunk["sequences"] > 1 for chunk in graphs),
            "behind_a_prefix": sum(chunk["prefix"] > 0 for chunk in graphs),
            "continued": sum(chunk["is_continued"] for chunk in graphs),
            "retracted": self.num_retracted,
        }
        Path(out).write_text(json.dumps(row))

    def make_chunk_sides(self: Any) -> None:
        """Capture prefill for both sides: the engine's segments, and ours."""
        from sglang.srt.model_executor.runner_backend.breakable_cuda_graph_backend import (
            BreakableCudaGraphBackend,
        )

        allocator = self.token_to_kv_pool_allocator
        allocator.alloc_extend = first_page
        allocator.free = lambda *_: None
        self.begin_chunks(is_wrong=False)
        model = self.tp_worker.model_runner
        runner = model.prefill_cuda_graph_runner
        self.chunk_sides = {"ours": (runner, runner.backend)}
        theirs = BreakableCudaGraphBackend(runner)
        runner.backend = theirs
        runner.capture()
        self.chunk_sides |= {"breakable": (runner, theirs), "eager": (model.eager_runner, None)}
        self.chunks_taken: dict[Any, list[list[dict[str, Any]]]] = defaultdict(list)

    def begin_chunk_turn(self: Any, number: int, is_counting: bool) -> None:
        """Continue with another side."""
        names = sorted(self.chunk_sides)
        self.chunk_side = names[number % len(names)]
        runner, backend = self.chunk_sides[self.chunk_side]
        if backend is not None:
            runner.backend = backend
        self.tp_worker.model_runner.prefill_cuda_graph_runner = runner
        self.chunks.clear()
        self.is_counting_chunks = is_counting

    def end_chunk_turn(self: Any) -> None:
        """Keep the chunks of a turn."""
        for key in {(chunk["tokens"], chunk["sequences"]) for chunk in self.chunks}:
            same = [each for each in self.chunks if (each["tokens"], each["sequences"]) == key]
            self.chunks_taken[(self.chunk_side, *key, self.is_counting_chunks)].append(same)

    def write_chunk_turns(self: Any, out: str) -> None:
        """Write time and launches of a chunk, for each side and shape of chunk."""
        rows = []
        for (side, tokens, sequences, is_counting), turns in self.chunks_taken.items():
            if is_counting:
                continue
            counted = self.chunks_taken[side, tokens, sequences, True]
            launches = {chunk["launches"] for turn in counted for chunk in turn}
            # The turn that others on the machine disturbed least counts, for every side.
            least = min(statistics.median(chunk["us"] for chunk in turn) for turn in turns)
            row = {
                "name": side,
                "tokens_of_chunk": tokens,
                "sequences": sequences,
                "chunk_us": least,
                "launches": sorted(launches),
                "by_graph": all(chunk["is_graph"] for turn in turns for chunk in turn),
            }
            rows.append(row)
        Path(out).write_text(json.dumps(rows))
