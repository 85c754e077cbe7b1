"""SGLang's decode graphs on Ascend, captured and replayed by npu_graph_runtime."""

from __future__ import annotations

from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

from npu_graph_runtime import (
    CaptureSession,
    GraphContext,
    GraphedCallable,
    GraphKey,
    KeptMemory,
    RunMode,
    weights_of,
)
from sglang_npu_graph.decode_backend import UpdatedDecodeBackend
from sglang_npu_graph.warm_up import warm_up

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from torch import Tensor

# Static buffers of the engine's runners: where they lie is compared at each replay.
_READ = ("input_ids", "positions")


class CapturedGraph:
    """A graph of a graphed callable, with torch_npu's records of its attention.

    Args:
        replay: Replays it.
        graph_dispatch_mode: torch_npu's records.
    """

    def __init__(self, replay: Callable[[], object], graph_dispatch_mode: object) -> None:
        self.replay = replay
        self.graph_dispatch_mode = graph_dispatch_mode


class CapturedDecodeBackend(UpdatedDecodeBackend):
    """Captures in a session of its own, compares inputs and weights, and names failures.

    The engine itself captures graphs of `torch.compile`, and graphs in the memory of its memory
    saver.
    """

    context: GraphContext

    def __init__(self, cuda_graph_runner: Any, *args: Any, **kwargs: Any) -> None:
        super().__init__(cuda_graph_runner, *args, **kwargs)
        self._runner = cuda_graph_runner
        self._body: Callable[[], Any] = _nothing
        self._steps = GraphedCallable(
            lambda *_read: self._body(),
            device=self.device,
            context=self.context,
            run_mode=RunMode.FULL,
            name="decode",
            weights=weights_of(cuda_graph_runner.model_runner.model),
            # The engine holds the outputs of all its graphs.
            weak_outputs=False,
            # Models keep values of the step in their forward context, for its own layers.
            kept_memory=KeptMemory.WARN,
            warmup_runs=0,
        )
        saver = self._memory_saver_adapter
        self._is_engines = self._enable_torch_compile or bool(saver and saver.enabled)

    @contextmanager
    def capture_session(self, stream: Any) -> Iterator[None]:
        """Open a session on the engine's capture stream, with its pool."""
        with (
            super().capture_session(stream),
            CaptureSession(self.device, self.context, self._pool, stream),
        ):
            yield

    def capture_one(
        self,
        shape_key: Any,
        forward_fn: Callable[[], Any],
        capture_inputs: Any = None,
        post_warmup_hook: Callable[[], None] | None = None,
    ) -> None:
        """Warm up as the engine does, capture, and take the records over.

        Raises:
            DeviceError: The device refused.
        """
        if self._is_engines:
            super().capture_one(shape_key, forward_fn, capture_inputs, post_warmup_hook)
            return
        self.updates.forget(shape_key)
        warm_up(self.device, self._tp_group, forward_fn, post_warmup_hook)
        key = GraphKey(num_tokens=shape_key.size, extra=(shape_key,))
        if self._steps.is_captured(key):
            self._steps.release(key)
        # What `torch.npu.graph(..., auto_dispatch_capture=True)` enters: it records attention.
        recording = self._device_module.NPUGraph().graph_dispatch_mode

        def body() -> Any:
            with recording:
                return forward_fn()

        def replay() -> Any:
            with self.context.run(RunMode.FULL, key):
                return self._steps(*self._read())

        self._body = body
        try:
            self._outputs[shape_key] = replay()
        finally:
            self._body = _nothing
        self._graphs[shape_key] = CapturedGraph(replay, recording)
        self.take_over(shape_key)
        if shape_key in self.updates.left_out:
            # What is not updated here has to be a graph that the engine can update.
            self._steps.release(key)
            super().capture_one(shape_key, forward_fn, capture_inputs, post_warmup_hook)

    def cleanup(self) -> None:
        """Release all graphs, which the host waits for."""
        super().cleanup()
        self._steps.release_all()

    def _read(self) -> list[Tensor]:
        buffers = self._runner.buffers
        return [getattr(buffers, name) for name in _READ if hasattr(buffers, name)]


def _nothing() -> None:
    """Stand for the body of a step, which is there while it is captured."""
