"""The engine's forward context, as npu-graph-runtime reads it."""

from __future__ import annotations

from typing import TYPE_CHECKING

from vllm.config import CUDAGraphMode
from vllm.forward_context import get_forward_context

from npu_graph_runtime import GraphKey, RunMode

if TYPE_CHECKING:
    from npu_graph_runtime import CaptureSession


class StepContext:
    """Adapts the engine's forward context to the context interface of npu-graph-runtime.

    Args:
        piecewise: The run mode of the engine's mode PIECEWISE: of its pieces, or ``BREAKABLE``.

    Attributes:
        capture_session: The open session, set by npu-graph-runtime.
    """

    def __init__(self, piecewise: RunMode = RunMode.PIECEWISE) -> None:
        self.capture_session: CaptureSession | None = None
        self._modes = {
            CUDAGraphMode.NONE: RunMode.EAGER,
            CUDAGraphMode.PIECEWISE: piecewise,
            CUDAGraphMode.FULL: RunMode.FULL,
        }
        self._keys: dict[object, GraphKey] = {}

    @property
    def mode(self) -> RunMode:
        """The engine's run mode of this step."""
        return self._modes[get_forward_context().cudagraph_runtime_mode]

    @property
    def key(self) -> GraphKey:
        """The engine's batch descriptor; one object for each."""
        batch = get_forward_context().batch_descriptor
        key = self._keys.get(batch)
        if key is None:
            key = self._keys[batch] = GraphKey(
                num_tokens=batch.num_tokens,
                num_sequences=batch.num_reqs,
                uniform=batch.uniform,
                num_active_loras=batch.num_active_loras,
                extra=("lora",) if batch.has_lora else (),
            )
        return key

    def run_mode(self, mode: CUDAGraphMode) -> RunMode:
        """Return the run mode of a mode of the engine."""
        return self._modes[mode]
