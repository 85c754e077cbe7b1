"""vllm-ascend 0.30's model runner v2, with decode graphs that an update lane updates."""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING, Any

from vllm.config import CUDAGraphMode
from vllm_ascend.compilation.updatable_graph import ContextSource, SharedSource
from vllm_ascend.utils import use_updatable_graph
from vllm_ascend.worker.v2.aclgraph_utils import ModelAclGraphManager, ModelWithContext
from vllm_ascend.worker.v2.model_runner import NPUModelRunner
from vllm_ascend.worker.v2.spec_decode.autoregressive.aclgraph import AutoRegressiveAclGraphManager
from vllm_ascend.worker.v2.spec_decode.dflash.aclgraph import DFlashAclGraphManager
from vllm_ascend.worker.v2.spec_decode.dflash.speculator import AscendDFlashSpeculator

from npu_graph_runtime import NpuDevice
from vllm_npu_graph.opened_lane import open_lane
from vllm_npu_graph.recording.attention_update import AttentionUpdate
from vllm_npu_graph.released_entries import ReleasedEntries
from vllm_npu_graph.v0_30.adopted_graphs import AdoptedGraphs
from vllm_npu_graph.v0_30.breakable_graphs import BreakableGraphs, capturing
from vllm_npu_graph.v0_30.recorded_graph_manager import RecordedDraftManager, RecordedGraphManager
from vllm_npu_graph.v0_30.recorded_latent_impl import find_layers, find_uncovered, record_layers

if TYPE_CHECKING:
    from collections.abc import Callable

    import torch

    from vllm_npu_graph.options import Options

_LOGGER = logging.getLogger("vllm.npu_graph")

# Methods of drafting that were tested, without latent attention and with it.
_DRAFTS = (("eagle3", "dflash"), ("mtp",))


class NpuGraphModelRunner(NPUModelRunner):  # type: ignore[misc]
    """The engine's runner; `attention_update` is None for models and modes that are not covered."""

    attention_update: AdoptedGraphs | AttentionUpdate | None = None

    def __init__(self, vllm_config: Any, device: torch.device, options: Options) -> None:
        super().__init__(vllm_config, device)
        self.cudagraph_manager: Any
        self._options = options
        # One for all captures: the engine captures again when it wakes up.
        self._npu = NpuDevice(self.device.index or 0)

    def initialize_kv_cache(self, *args: Any, **kwargs: Any) -> None:
        """Create the engine's graph manager, and replace it if its graphs are covered."""
        super().initialize_kv_cache(*args, **kwargs)
        if self._options.graphs:
            self._take_breakable()
        if not self._options.attention:
            return
        reason = self._find_reason()
        if reason is not None:
            _LOGGER.warning("vllm-npu-graph leaves attention update to the engine: %s", reason)
            return
        lane = open_lane(self._npu, self._options)
        if self._has_tasks():
            adopted = self.attention_update = AdoptedGraphs(lane)
            self.cudagraph_manager = _LaneGraphManager(self.cudagraph_manager, adopted)
            self._replace_draft(lambda engine: _make_draft_manager(engine, AdoptedGraphs(lane)))
        else:
            layers = find_layers(self.compilation_config)
            names = () if self.speculator is None else self.speculator.draft_attn_layer_names
            drafted = {name: layers.pop(name) for name in names}
            update = self.attention_update = AttentionUpdate(lane, layers)
            record_layers(layers, update)
            self.cudagraph_manager = RecordedGraphManager(self.cudagraph_manager, update)
            self._replace_draft(lambda engine: RecordedDraftManager(engine, lane, drafted))
        told = (lane.updater, lane.updater_reason)
        _LOGGER.info("vllm-npu-graph updates attention by %s (%s)", *told)

    def capture_model(self, *args: Any, **kwargs: Any) -> int:
        """Capture all graphs; return the bytes that they took.

        Raises:
            GraphRuntimeError: With the key ``graphs``: the device refused a capture, or a graph
                would use memory that does not stay.
        """
        graphs = self.cudagraph_manager.breakable_cg_runner
        if not isinstance(graphs, BreakableGraphs):
            return super().capture_model(*args, **kwargs)  # type: ignore[no-any-return]
        with capturing(graphs, self._npu):
            return super().capture_model(*args, **kwargs)  # type: ignore[no-any-return]

    def _take_breakable(self) -> None:
        """Let npu-graph-runtime capture and replay the engine's breakable graphs."""
        manager = self.cudagraph_manager
        if not manager.use_breakable_cg or self.speculative_config is not None:
            _LOGGER.warning("vllm-npu-graph leaves the graphs of this mode to the engine")
            return
        # As the engine makes it at its captures, where it finds none.
        metadata = getattr(self.model_state, "device_metadata", None)
        model = ModelWithContext(self.model, device_metadata=metadata)
        made = BreakableGraphs(model, self.vllm_config, device=self._npu)
        manager.breakable_cg_runner = made

    def _replace_draft(self, make: Callable[[Any], Any]) -> None:
        """Replace the engine's managers of a draft's graphs.

        There is one of its first step and one of the rest, or one if it drafts all tokens at once.
        """
        for part in ("prefill", "decode", "query"):
            name = f"{part}_cudagraph_manager"
            manager = getattr(self.speculator, name, None)
            if manager is not None:
                setattr(self.speculator, name, make(manager))

    def _find_reason(self) -> str | None:
        mode, parallel = self.cudagraph_manager.cudagraph_mode, self.parallel_config
        if mode.decode_mode() != CUDAGraphMode.FULL or mode.mixed_mode() == CUDAGraphMode.FULL:
            return f"mode {mode.name} captures no decode step of a fixed number of sequences"
        parts = parallel.decode_context_parallel_size, parallel.prefill_context_parallel_size
        if min(parts) > 1:
            return "DCP together with PCP was not tested"
        if self.lora_config is not None:
            return "LoRA was not tested with model runner v2"
        drafts = self.speculative_config
        if drafts is not None:
            if (
                drafts.method not in _DRAFTS[self.model_config.use_mla]
                or (drafts.parallel_drafting and not self._is_plain_dflash())
                or drafts.enable_adaptive_verification
                or drafts.uses_dynamic_speculative_decoding()
            ):
                return (
                    f"drafts by {drafts.method}, of this form or in varying number, were not tested"
                )
            if max(*parts, parallel.data_parallel_size) > 1:
                return "drafts under data or context parallelism were not tested"
        return None if self._has_tasks() else find_uncovered(self.compilation_config)

    def _is_plain_dflash(self) -> bool:
        """Return whether DFlash drafts, with attention over all keys and without sinks."""
        if type(self.speculator) is not AscendDFlashSpeculator:
            return False
        layers = find_layers(self.compilation_config)
        impls = [layers[name].impl for name in self.speculator.draft_attn_layer_names]
        return self.speculator.requires_non_causal and not any(
            impl.sliding_window or impl.sinks is not None for impl in impls
        )

    def _has_tasks(self) -> bool:
        backends = {group.backend for groups in self.attn_groups for group in groups}
        return all(use_updatable_graph(backend) for backend in backends)


class _Adopting:
    """Takes over one of the engine's managers, and adopts each of its graphs at its first step."""

    graphs: ReleasedEntries

    def __init__(self, manager: object, adopted: AdoptedGraphs) -> None:
        self.__dict__.update(manager.__dict__)
        self._adopted = adopted
        self._seen: set[Any] = set()
        self.graphs = ReleasedEntries(self._release)

    def _updatable_graph_replay(self, desc: Any, metadata: Any) -> Any:
        """Replay a graph; at its first step, replace it by one that the lane updates."""
        if desc not in self._seen:
            source = self._source(desc, metadata)
            self._seen.add(desc)
            self.graphs[desc] = self._adopted.adopt(self.graphs[desc], desc, source)
        return super()._updatable_graph_replay(desc, metadata)  # type: ignore[misc]

    def _source(self, _desc: Any, metadata: Any) -> Any:
        return ContextSource(metadata)

    def _release(self) -> None:
        self._seen.clear()
        self._adopted.release_all()


class _LaneGraphManager(_Adopting, ModelAclGraphManager):  # type: ignore[misc]
    """The engine's manager of the model's graphs."""


class _LaneDraftManager(_Adopting, AutoRegressiveAclGraphManager):  # type: ignore[misc]
    """The engine's manager of a draft's graphs, of its first step or of all others."""

    def _source(self, desc: Any, steps: Any) -> Any:
        given = (desc.num_reqs, steps[0], self.is_draft_model_prefill)
        return SharedSource(self.speculator.build_fia_params(*given))


class _LaneParallelDraftManager(_Adopting, DFlashAclGraphManager):  # type: ignore[misc]
    """The engine's manager of the graphs of a draft that drafts all tokens at once."""

    def _source(self, _desc: Any, steps: Any) -> Any:
        return ContextSource(steps[0])


def _make_draft_manager(manager: Any, adopted: AdoptedGraphs) -> _Adopting:
    """Return the replacement of one of the engine's managers of a draft's graphs."""
    is_parallel = isinstance(manager, DFlashAclGraphManager)
    return (_LaneParallelDraftManager if is_parallel else _LaneDraftManager)(manager, adopted)
