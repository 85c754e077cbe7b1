"""vLLM's breakable graphs under vllm-ascend 0.30, captured and replayed by npu-graph-runtime.

In a PIECEWISE step vLLM's marked operators, such as attention, break the graph: the segments
between them are captured, and the operators run eagerly, with the metadata of the step. In a FULL
step nothing breaks; attention is captured, and its lengths have to be updated.
"""

from __future__ import annotations

import functools
import inspect
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

from vllm.compilation.breakable_cudagraph import BreakableCUDAGraphCapture
from vllm.compilation.monitor import validate_cudagraph_capturing_enabled
from vllm.config import CUDAGraphMode
from vllm.distributed.device_communicators.pynccl_allocator import set_graph_pool_id
from vllm.forward_context import get_forward_context, is_forward_context_available
from vllm.model_executor.offloader.base import get_offloader
from vllm.utils.torch_utils import LayerName
from vllm_ascend.compilation.acl_graph import ACLGraphWrapper
from vllm_ascend.compilation.breakable_aclgraph import BreakableACLGraphWrapper

from npu_graph_runtime import (
    CaptureSession,
    GraphedCallable,
    GraphRuntimeError,
    KeptMemory,
    RunMode,
    runs_eagerly,
    weights_of,
)
from vllm_npu_graph.released_entries import ReleasedEntries
from vllm_npu_graph.step_context import StepContext

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from npu_graph_runtime import GraphDevice


class BreakableGraphs(BreakableACLGraphWrapper):  # type: ignore[misc]
    """Replaces the engine's wrapper of a model whose graphs break.

    Args:
        runnable: The model.
        vllm_config: The engine's configuration.
        device: Captures and replays PIECEWISE steps; None leaves these to the engine.
        whole: The wrapper for FULL steps, or the model, if another graph captures it; None leaves
            these to the engine.
        given: Further arguments of the engine's wrapper.

    Attributes:
        whole: As given.
        step_context: Captures of PIECEWISE steps are made in its session.
    """

    def __init__(
        self,
        runnable: Callable[..., Any],
        vllm_config: Any,
        *,
        device: GraphDevice | None = None,
        whole: Callable[..., Any] | None = None,
        **given: Any,
    ) -> None:
        super().__init__(runnable, vllm_config, **given)
        self.whole = whole
        if isinstance(whole, ACLGraphWrapper):
            self.set_attn_backend = whole.set_attn_backend  # which the engine calls
        self.step_context = StepContext(piecewise=RunMode.BREAKABLE)
        self._names: frozenset[str] = frozenset()  # of keyword arguments at capture
        self._graphed: GraphedCallable | None = None
        if device is not None:
            self._graphed = GraphedCallable(
                self._run,
                device=device,
                context=self.step_context,
                run_mode=RunMode.BREAKABLE,
                name="model",
                weights=weights_of(runnable),
                # Models keep values of the step in their forward context, for its own layers.
                kept_memory=KeptMemory.WARN,
                # The engine warms up whole steps itself.
                warmup_runs=0,
                around_capture=lambda _key: self._capturing(),
            )
            self.entries = ReleasedEntries(self._graphed.release_all)

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        """Capture, replay or call through, as the engine's forward context says.

        Raises:
            GraphRuntimeError: From npu-graph-runtime, in PIECEWISE steps: a capture failed, as at
                an operator that needs a break and has none, or a replay would use other memory.
        """
        whole = self.whole if is_forward_context_available() else None
        if whole is None or get_forward_context().cudagraph_runtime_mode != CUDAGraphMode.FULL:
            return super().__call__(*args, **kwargs)
        return whole(*args, **kwargs)

    def _capture(self, entry: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        """Capture the graph of a batch descriptor, and return its outputs."""
        graphed = self._graphed_in_step()
        if graphed is None:
            return super()._capture(entry, args, kwargs)
        get_offloader().sync_prev_onload()
        outputs = graphed(*args, **kwargs)
        entry.capture, self._names = graphed, frozenset(kwargs)
        return outputs

    def _replay(self, entry: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        """Replay the graph of a batch descriptor, and return its outputs."""
        graphed = self._graphed_in_step()
        if graphed is None:
            return super()._replay(entry, args, kwargs)
        get_offloader().sync_prev_onload()
        # Model runner v2 passes None in steps for what it does not pass in captures.
        kwargs = {
            name: value
            for name, value in kwargs.items()
            if value is not None or name in self._names
        }
        return graphed(*args, **kwargs)

    def _graphed_in_step(self) -> GraphedCallable | None:
        """Return what runs this step, unless that is the engine's wrapper."""
        is_broken = get_forward_context().cudagraph_runtime_mode == CUDAGraphMode.PIECEWISE
        return self._graphed if is_broken else None

    def _run(self, *args: Any, **kwargs: Any) -> Any:
        """Run the model in a capture."""
        result = self.runnable(*args, **kwargs)
        # What the engine loads back on a stream of its own ends inside the capture.
        get_offloader().join_after_forward()
        return result

    @contextmanager
    def _capturing(self) -> Iterator[None]:
        """Do what the engine's own wrapper does around a capture."""
        validate_cudagraph_capturing_enabled()
        set_graph_pool_id(self.graph_pool)
        with _RuntimeBreaks(self.step_context):
            yield


@contextmanager
def capturing(graphs: BreakableGraphs, device: GraphDevice) -> Iterator[None]:
    """Allow captures of PIECEWISE steps in the block.

    Raises:
        GraphRuntimeError: From a capture; the engine puts it into an error without a type.
    """
    try:
        with CaptureSession(device, graphs.step_context, pool=graphs.graph_pool):
            yield
    except RuntimeError as error:
        named = _find_named(error)
        if named is None:
            raise
        raise named from named.__cause__


class _RuntimeBreaks(BreakableCUDAGraphCapture):  # type: ignore[misc]
    """The engine's current capture, as its marked operators see it; npu-graph-runtime captures."""

    def __init__(self, context: StepContext) -> None:
        super().__init__()
        self._context = context

    def _begin_segment(self) -> None:
        self._capturing = True

    def _end_segment(self) -> None:
        self._capturing = False

    def add_eager(self, fn: Callable[[], Any]) -> Any:
        """Break the graph, and call a function here and at each replay."""
        function, layers = _named(fn)
        return runs_eagerly(self._context)(function)(*layers)


def _find_named(error: BaseException | None) -> GraphRuntimeError | None:
    """Return the error of npu-graph-runtime that an error was raised because of."""
    while error is not None and not isinstance(error, GraphRuntimeError):
        error = error.__cause__ or error.__context__
    return error


def _named(call: Callable[[], Any]) -> tuple[Callable[..., Any], tuple[str, ...]]:
    """Return a function with the name of the operator, and its layers, for messages.

    The engine passes a closure over operator and arguments. The arguments stay there: they do not
    keep their memory alive, and npu-graph-runtime sees them as those of the operator.
    """
    inside = inspect.getclosurevars(call).nonlocals
    given = (*inside.get("weak_args", ()), *inside.get("weak_kwargs", {}).values())
    texts = [each.value if isinstance(each, LayerName) else each for each in given]

    @functools.wraps(inside.get("fn", call))
    def run(*_layers: str) -> Any:
        return call()

    return run, tuple(text for text in texts if isinstance(text, str))
