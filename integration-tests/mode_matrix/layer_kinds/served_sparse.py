"""A model with sparse attention, whose metadata producers make in front of each step."""

from __future__ import annotations

from contextlib import contextmanager, nullcontext
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from attn_update import UpdateLane
from attn_update.kinds import default_kinds, metadata_kinds
from mode_matrix.layer_kinds.kept_model import KeptModel
from mode_matrix.layer_kinds.sparse_layer import SparseAttentionOperator, SparseLayer
from mode_matrix.layer_kinds.step_metadata import StepMetadata
from mode_matrix.served_model import CAPTURE_SIZES, KEYS, PREFILL_SIZES, QUERIES
from npu_graph_runtime import NpuDevice, runs_eagerly
from qwen3_engine.qwen3.kv_cache import BLOCK_SIZE
from qwen3_engine.qwen3.model import Qwen3Layer

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping
    from contextlib import AbstractContextManager

    from attn_update import ParameterGroup, StepParameters, UpdatePlan
    from attn_update.kinds import Kind
    from mode_matrix.served_model import ModelSettings
    from npu_graph_runtime import GraphDevice
    from npu_graph_runtime.device import DeviceGraph, Stream
    from qwen3_engine import Qwen3Model


class ProducingDevice(NpuDevice):
    """Enters a context in each capture.

    Attributes:
        around: makes the context.
    """

    around: Callable[[], AbstractContextManager[None]] = staticmethod(nullcontext)

    @contextmanager
    def capture(
        self, graph: DeviceGraph, *, pool: object, stream: Stream | None = None
    ) -> Iterator[object]:
        """Capture into a graph."""
        with super().capture(graph, pool=pool, stream=stream) as captured, self.around():
            yield captured


class ProducingLane(UpdateLane):
    """Runs the producers of a step in front of its replay.

    Attributes:
        metadata: has the producers.
    """

    metadata: StepMetadata

    def run(
        self,
        plan: UpdatePlan,
        parameters: StepParameters,
        replay: Callable[[], Any] | None = None,
    ) -> Any:
        """Run one step, whose lengths go to the producers: no layer is updated."""
        assert replay is not None
        # What measures a captured graph gives no lengths.
        lengths: Mapping[str, Any] = parameters.groups.get("default", {QUERIES: (), KEYS: ()})
        step = self.metadata.step(plan.key, lengths[QUERIES], lengths[KEYS])
        own = replace(parameters, groups={})
        return super().run(plan, own, lambda: self.metadata.lane.run(step, replay))


class SparseModel(KeptModel):
    """The target model of the matrix with sparse attention in all its layers.

    Attributes:
        metadata: the buffers of a step.
    """

    def __init__(
        self, settings: ModelSettings, mode: str, *, device: ProducingDevice, lane: ProducingLane
    ) -> None:
        super().__init__(settings, mode, device=device, lane=lane)
        lane.metadata = self.metadata
        device.around = lambda: self.metadata.recording(self.recorder)

    def load_model(self, settings: ModelSettings, device: GraphDevice) -> Qwen3Model:
        """Load the checkpoint, and replace the attention of all layers; the first has a window."""
        model = super().load_model(settings, device)
        self.metadata = StepMetadata(
            device,
            max_sequences=max(*CAPTURE_SIZES, settings.max_sequences + 1),
            max_tokens=max(PREFILL_SIZES),
            max_keys=settings.max_blocks * BLOCK_SIZE,
        )
        self.sparse = SparseAttentionOperator(
            model.attention.step_state, self.recorder, self.metadata, runs_eagerly(self.context)
        )
        for index, layer in enumerate(model.layers):
            assert isinstance(layer, Qwen3Layer)
            model.layers[index] = SparseLayer(
                layer,
                self.sparse,
                num_blocks=settings.num_blocks,
                has_indexer=index > 0,
                seed=index,
            )
        return model

    @property
    def kinds(self) -> dict[str, Kind]:
        """Also those whose metadata is made on the device."""
        return {**default_kinds(), **metadata_kinds()}

    @property
    def groups(self) -> dict[str, ParameterGroup]:
        """None: all lengths are read on the device."""
        return {}

    @property
    def splitting_ops(self) -> list[str]:
        """The sparse attention."""
        return [self.sparse.name]

    def load(self, lengths: Mapping[str, Any], *, is_padded: bool = False) -> None:
        """Also make the metadata of a step that no graph runs as a whole."""
        super().load(lengths, is_padded=is_padded)
        self.make_metadata(lengths)

    def make_metadata(self, lengths: Mapping[str, Any]) -> None:
        """Run the producers at once."""
        self.metadata.make_now(lengths[QUERIES], lengths[KEYS])

    def close(self) -> None:
        """Release graphs and both operators."""
        super().close()
        self.sparse.close()
