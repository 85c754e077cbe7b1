"""What fails on purpose in a scheduler of an SGLang engine that has our attention update."""

from __future__ import annotations

import os
import signal
from typing import Any

import cann_sim


class FailingSteps:
    """Methods added to the engine's scheduler, for the session of faults."""

    def begin_failing(self: Any, kind: str, first: int, rank: int) -> None:
        """Make something fail from now on, if this is the rank of the fault.

        Args:
            kind: What fails.
            first: The occasion on which it fails first.
            rank: Rank in tensor parallelism.
        """
        from sglang.srt.runtime_context import get_parallel

        if get_parallel().tp_rank != rank:
            return
        if kind == "update":
            cann_sim.set_faults(f"task_update:{first}")
            return
        backend = self.graph_runner().backend
        replay = backend.replay_with_input_update
        steps: list[Any] = []

        def fail(key: Any, seq_lens: list[int], *args: Any, **kwargs: Any) -> Any:
            steps.append(key)
            if len(steps) != first:
                return replay(key, seq_lens, *args, **kwargs)
            if kind == "death":
                os.kill(os.getpid(), signal.SIGKILL)
            given = {"lengths": [-1, *seq_lens[1:]], "fewer lengths": seq_lens[1:]}
            result = replay(key, given.get(kind, seq_lens), *args, **kwargs)
            if kind == "replay":
                raise RuntimeError("injected replay")
            return result

        backend.replay_with_input_update = fail

    def end_failing(self: Any) -> None:
        """End the fault."""
        cann_sim.set_faults("")
        vars(self.graph_runner().backend).pop("replay_with_input_update", None)
