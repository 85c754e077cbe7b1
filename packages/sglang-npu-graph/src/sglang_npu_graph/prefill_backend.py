"""SGLang's breakable prefill graphs on Ascend, which the engine has for CUDA and XPU alone."""

from __future__ import annotations

import logging
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

from sglang.srt.model_executor.cuda_graph_config import Backend
from sglang.srt.model_executor.runner_backend.breakable_cuda_graph_backend import (
    BreakableCudaGraphBackend,
)
from sglang.srt.runtime_context import get_exec

from npu_graph_runtime import (
    CaptureSession,
    GraphContext,
    GraphedCallable,
    GraphKey,
    KeptMemory,
    NpuDevice,
    RunMode,
    runs_eagerly,
    weights_of,
)
from sglang_npu_graph.warm_up import warm_up

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator

    from torch import Tensor

_LOGGER = logging.getLogger("sglang.npu_graph")

# Static buffers that the first segment reads: where they lie is compared at each replay.
_READ = ("input_ids", "positions")


class BreakablePrefillBackend(BreakableCudaGraphBackend):  # type: ignore[misc]
    """Captures and replays a chunk's transformer layers in segments, with `npu_graph_runtime`.

    The engine's runner still chooses the size, fills static buffers, prepares attention and runs
    the head eagerly. Functions that it marks with `eager_on_graph` run eagerly between the
    segments.
    """

    context: GraphContext

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self._pool: Any = None
        self._device = NpuDevice(self._device_module.current_device())
        self._body: Callable[[], None] = _nothing
        self._keys: dict[Any, GraphKey] = {}
        self._steps = GraphedCallable(
            lambda *_read: self._body(),
            device=self._device,
            context=self.context,
            run_mode=RunMode.BREAKABLE,
            name="prefill",
            weights=self._weights,
            # Models keep values of the step in their forward context, for its own layers.
            kept_memory=KeptMemory.WARN,
            warmup_runs=0,
        )

    @contextmanager
    def capture_session(self, stream: Any) -> Iterator[None]:
        """Open a session on the engine's capture stream."""
        session = CaptureSession(self._device, self.context, self._pool, stream)
        self._pool, self._shared_output_buffer = session.pool, None
        with self.replay_session(), session:
            yield
        sizes = sorted(key.num_tokens for key in self._steps.captured_keys)
        told = (len(sizes), self._device.name, self._steps.num_graphs, sizes)
        _LOGGER.info(
            "sglang-npu-graph: hook took effect: %d prefill sizes on %s are %d segments, of %s "
            "tokens; other chunks run eagerly",
            *told,
        )

    def capture_one(
        self,
        shape_key: Any,
        forward_fn: Callable[[], Any],
        capture_inputs: Any = None,
        post_warmup_hook: Callable[[], None] | None = None,
    ) -> None:
        """Warm up as the engine does, and capture a size in segments.

        Raises:
            DeviceError: The device refused; the segment is named.
            EagerSegmentError: Captured work reads memory that an eager function keeps to itself.
        """
        output = warm_up(self._device, self._tp_group, forward_fn, post_warmup_hook)
        size = shape_key.size
        if self._shared_output_buffer is None:
            rows = self._cuda_graph_runner.cuda_graph_output_capacity_rows(output)
            self._shared_output_buffer = self._alloc_full_buffer(output, rows or size)
        rows, written = self._output_rows(output, size), self._shared_output_buffer

        def body() -> None:
            self._copy_output_to_buffer(forward_fn(), written, rows)

        self._body = runs_eagerly(self.context)(body) if self._debug_eager else body
        key = GraphKey(num_tokens=size, extra=(shape_key,))
        slots = map(self._cuda_graph_runner.buffer_registry.get_slot, _READ)
        read = [slot.slice_for(1, size) for slot in slots]
        try:
            with self.context.run(RunMode.BREAKABLE, key):
                self._steps(*read)
        finally:
            self._body = _nothing
        self._keys[shape_key] = key
        self._outputs[shape_key] = self._slice_output(written, rows)
        # Captured segments hold addresses; who owns the memory is kept here.
        self._capture_inputs[shape_key] = capture_inputs

    def can_run(self, forward_batch: Any, shape_key: Any) -> bool:
        """Return whether a size is captured."""
        del forward_batch
        return shape_key in self._keys

    def replay(self, shape_key: Any, static_forward_batch: Any, **_kwargs: Any) -> Any:
        """Replay the segments of a size, with the eager functions between them."""
        with self.context.run(RunMode.BREAKABLE, self._keys[shape_key]):
            self._steps(*[getattr(static_forward_batch, name) for name in _READ])
        return self._outputs[shape_key]

    def cleanup(self) -> None:
        """Release all graphs, which the host waits for."""
        self._device.synchronize()
        self._steps.release_all()
        self._keys.clear()
        super().cleanup()

    def _weights(self) -> Iterable[tuple[str, Tensor]]:
        # The runner finds the layers only when it has this backend.
        return weights_of(self._cuda_graph_runner.layer_model)()


def choose_prefill(context: GraphContext) -> Callable[..., Any]:
    """Return a wrapper for the engine's choice of a prefill backend.

    Args:
        context: Context shared by the created backends.
    """
    made = type(BreakablePrefillBackend.__name__, (BreakablePrefillBackend,), {"context": context})

    def choose(original: Callable[..., Any], runner: Any) -> Any:
        if runner.model_runner.device != "npu" or runner.prefill_backend_name != Backend.BREAKABLE:
            return original(runner)
        executes = get_exec()
        return made(
            runner,
            enable_memory_saver=executes.features.enable_memory_saver,
            debug_eager=executes.graph.debug_cuda_graph,
        )

    return choose


def _nothing() -> None:
    """Stand for the body of a step, which is there while it is captured."""
