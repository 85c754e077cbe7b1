"""vLLM-Ascend's FULL and PIECEWISE graphs, captured and replayed by npu_graph_runtime."""

from __future__ import annotations

from contextlib import contextmanager, nullcontext
from typing import TYPE_CHECKING, Any

import torch
from vllm.compilation.counter import compilation_counter
from vllm.config import CUDAGraphMode
from vllm.forward_context import get_forward_context
from vllm.model_executor.offloader.base import get_offloader
from vllm_ascend.compilation import acl_graph
from vllm_ascend.compilation.acl_graph import ACLGraphWrapper, _acl_graph_wrappers

from npu_graph_runtime import GraphedCallable, KeptMemory, weights_of
from vllm_npu_graph.options import Options
from vllm_npu_graph.released_entries import ReleasedEntries

if TYPE_CHECKING:
    from collections.abc import Iterator

    from npu_graph_runtime import GraphDevice
    from vllm_npu_graph.recording.attention_update import AttentionUpdate
    from vllm_npu_graph.step_context import StepContext


class RuntimeGraphs(ACLGraphWrapper):  # type: ignore[misc]
    """Replaces the engine's wrapper of a model, or of a piece of one.

    Before `serve` is called, which happens before the engine's captures, it calls the function.
    """

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self._graphed: GraphedCallable | None = None
        self._update: AttentionUpdate | None = None
        self.concrete_aclgraph_entries = ReleasedEntries(self._release)

    def serve(
        self, device: GraphDevice, context: StepContext, update: AttentionUpdate | None, name: str
    ) -> None:
        """Capture and replay from now on.

        Args:
            device: Of the model.
            context: Shared by the wrappers of a model; captures are made in its session.
            update: Records the attention of FULL graphs; None where the engine updates it.
            name: For messages.
        """
        self._update = update
        self._graphed = GraphedCallable(
            self._run,
            device=device,
            context=context,
            run_mode=context.run_mode(self.runtime_mode),
            name=name,
            weights=weights_of(self.runnable),
            # Models keep values of the step in their forward context, for its own layers.
            kept_memory=KeptMemory.WARN,
            # The engine warms up whole steps itself.
            warmup_runs=0,
            around_capture=lambda _key: self._capturing(),
        )

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        """Capture, replay or call through, as the engine's forward context says."""
        if self._graphed is None:
            return self.runnable(*args, **kwargs)
        context, update = get_forward_context(), self._update
        if context.cudagraph_runtime_mode == CUDAGraphMode.FULL == self.runtime_mode:
            if update is not None and update.is_recorded(context.batch_descriptor):
                with update.replaying(context):
                    return self._graphed(*args, **kwargs)
            if not self.enable_enpu:
                # As the engine does where its own updates follow this replay.
                torch.get_device_module("npu").current_stream().synchronize()
        return self._graphed(*args, **kwargs)

    def _run(self, *args: Any, **kwargs: Any) -> Any:
        """Run the captured function."""
        result = self.runnable(*args, **kwargs)
        context = get_forward_context()
        if context.capturing and context.cudagraph_runtime_mode == self.runtime_mode:
            # What the engine loads back on a stream of its own ends inside the capture.
            get_offloader().join_after_forward()
        return result

    @contextmanager
    def _capturing(self) -> Iterator[None]:
        """Do what the engine's own wrapper does around a capture."""
        context = get_forward_context()
        get_offloader().sync_prev_onload()
        # For the engine's attention, which captures itself otherwise than it runs.
        context.capturing = True
        # None where this is a piece: attention is not in it.
        update = self._update if self.runtime_mode == CUDAGraphMode.FULL else None
        with nullcontext() if update is None else update.recording(context.batch_descriptor):
            yield
        acl_graph.weak_ref_workspaces(acl_graph.get_graph_params())
        acl_graph.weak_ref_workspaces(acl_graph.get_draft_graph_params())
        acl_graph.weak_ref_workspaces(acl_graph.get_draft_graph_prefill_params())
        compilation_counter.num_cudagraph_captured += 1

    def _release(self) -> None:
        if self._graphed is not None:
            self._graphed.release_all()
        if self._update is not None:
            self._update.release_all()


def make_piece_graphs(*, vllm_config: Any, **given: Any) -> ACLGraphWrapper:
    """Return the wrapper of a piece: ours where the engine's configuration asks for it."""
    options = Options.read(vllm_config.additional_config)
    ours = options is not None and options.graphs
    return (RuntimeGraphs if ours else ACLGraphWrapper)(vllm_config=vllm_config, **given)


def unserved_graphs() -> list[RuntimeGraphs]:
    """Return the wrappers of this process that capture nothing yet."""
    # The engine's own list of what its sleep mode releases.
    made = [each for each in _acl_graph_wrappers if isinstance(each, RuntimeGraphs)]
    return [each for each in made if each._graphed is None]  # noqa: SLF001 - of this module
