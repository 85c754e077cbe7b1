"""vllm-ascend 0.30's graphs of a vision encoder, whose attention is updated by a lane."""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING, Any

import torch
from vllm_ascend.worker.encoder_acl_graph import (
    EncoderAclGraphManager,
    get_encoder_graph_params,
    maybe_compute_actual_seq_lengths,
)

from attn_update import AttnUpdateError, CapturedLaunch, Recorder, UpdatableGraph
from attn_update.kinds import FIA_V1, FusedInferAttention

if TYPE_CHECKING:
    from attn_update import UpdateLane

_LOGGER = logging.getLogger("vllm.npu_graph")

_LEFT = "vllm-npu-graph leaves to the engine the encoder's graph"

# The engine captures one sequence; a step has one for each image or frame, and one of padding.
_KIND = FusedInferAttention(family=FIA_V1, allows_fewer_sequences=True)
# The arguments of a launch, in the order in which the engine stores them.
_STORED = (
    "query",
    "key",
    "value",
    "block_table",
    "atten_mask",
    "block_size",
    "num_key_value_heads",
    "num_heads",
    "scale",
)


class LaneEncoderGraphs(EncoderAclGraphManager):  # type: ignore[misc]
    """Takes over the state of the engine's manager; the lane updates the graphs that it captures.

    A graph that the lane cannot update is left to the engine, and the log says why.

    Attributes:
        updated: The graphs that the lane updates, by their budget of tokens.
    """

    def __init__(self, manager: EncoderAclGraphManager, lane: UpdateLane) -> None:
        self.__dict__.update(manager.__dict__)
        self.updated: dict[int, _UpdatedGraph] = {}
        self._lane = lane
        self._recorder = Recorder(lane.device, kinds={"encoder": _KIND})

    def capture(self, graph_pool: Any | None = None) -> None:
        """Capture the graph of each budget."""
        self._release()
        super().capture(graph_pool)
        for path, graphs in self.budget_graphs.items():
            for budget, captured in graphs.items():
                reason = self._take(budget, captured)
                if reason is not None:
                    _LOGGER.warning("%s of %s tokens, path %s: %s", _LEFT, budget, path, reason)
        told = (len(self.updated), self._lane.updater)
        _LOGGER.info("vllm-npu-graph updates %s graphs of the encoder by %s", *told)

    def clear(self) -> None:
        """Release all graphs."""
        self._release()
        super().clear()

    def _release(self) -> None:
        self.updated.clear()
        self._recorder.close()

    def _take(self, budget: int, captured: Any) -> str | None:
        """Let the lane update a graph; return why not, or None."""
        named = [name for name in captured.input_buffers if name.startswith("cu_")]
        if named != ["cu_seqlens"]:
            return f"expected lengths in cu_seqlens alone, found {', '.join(named) or 'none'}"
        if len(self.budget_graphs) > 1:
            return "the engine stores the launches of several paths together"
        try:
            self.updated[budget] = _UpdatedGraph(captured, budget, self._recorder, self._lane)
        except AttnUpdateError as error:
            return str(error)
        return None

    def _run_budget_graph(
        self,
        mm_kwargs: dict[str, Any],
        token_budget: int,
        path: str = "default",
        axis_keys: tuple[Any, ...] = (),
    ) -> torch.Tensor | None:
        """Replay the graph of a budget; return its output, or None if there is no graph."""
        graph = self.updated.get(token_budget)
        if graph is None or axis_keys:
            given = (mm_kwargs, token_budget, path, axis_keys)
            return super()._run_budget_graph(*given)  # type: ignore[no-any-return]
        sizes = (self.max_batch_size, self.max_frames_per_batch, path)
        given = self.model.prepare_encoder_cudagraph_replay_buffers(mm_kwargs, *sizes).values
        for name, buffer in graph.captured.input_buffers.items():
            value = given.get(name)
            if value is not None and value.ndim == 0:
                buffer.copy_(value)
            elif value is not None:
                copy = self.config.padding_logics.get(name, self._copy_padded_buffer)
                copy(buffer, value)
        graph.replay()
        self.graph_hits += len(self._get_item_specs(mm_kwargs))
        return graph.captured.output_buffer  # type: ignore[no-any-return]


class _UpdatedGraph:
    """A graph whose launches are updated from the engine's buffer of lengths.

    Raises:
        AttnUpdateError: From `attn_update.UpdatableGraph`, for instance if the workspace does not
            suffice for as many sequences as a step can have.
    """

    def __init__(self, captured: Any, budget: int, recorder: Recorder, lane: UpdateLane) -> None:
        self.captured = captured
        params = get_encoder_graph_params()
        stored = (params.handles[budget], params.events[budget], params.attn_params[budget])
        # As many as the buffer has ends, and one of padding.
        most = captured.input_buffers["cu_seqlens"].numel()
        self._tokens: list[tuple[int, int]] = []
        launches = []
        for position, (handle, event, packed) in enumerate(zip(*stored, strict=True)):
            *values, output, softmax_lse = packed
            given = dict(zip(_STORED, values, strict=True))
            tokens = (len(given["query"]), len(given["key"]))
            if tokens not in self._tokens:
                self._tokens.append(tokens)
            arguments = {
                **given,
                **_lengths(torch.arange(most), tokens),
                "input_layout": "TND",
                "sparse_mode": 0,
                "workspace": params.workspaces[budget],
                "out": [output, softmax_lse],
            }
            launches.append(
                CapturedLaunch(
                    layer_name=f"block {position}",
                    operator=_KIND.operator,
                    handle=handle,
                    event=event,
                    arguments=arguments,
                    group=f"{tokens[0]} and {tokens[1]} tokens",
                )
            )
        operators = {_KIND.operator: "encoder"}
        self._updatable = UpdatableGraph(
            recorder, budget, captured.graph, lane, operators=operators, launches=launches
        )

    def replay(self) -> None:
        """Replay with the lengths that are in the buffer; the host waits for them, not for more."""
        ends = self.captured.input_buffers["cu_seqlens"].cpu()
        self._updatable.update([_lengths(ends, tokens) for tokens in self._tokens])


def _lengths(ends: torch.Tensor, tokens: tuple[int, int]) -> dict[str, list[int]]:
    """Return the step arguments, computed as the engine does."""
    query, key = maybe_compute_actual_seq_lengths(ends, *tokens, cudagraph_mm_encoder=True)
    return {"actual_seq_lengths": query, "actual_seq_lengths_kv": key}
