"""The attention of one model in vLLM's FULL graphs: recorded at capture, updated at every step.

Nothing of the engine is imported here. A step's lengths come from the engine's metadata objects,
which have ``actual_seq_lengths_q``, ``seq_lens_list`` and ``block_tables``.
"""

from __future__ import annotations

from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

from attn_update import Recorder, StepParameterError, StepParameters, UpdateLane, UpdatePlan

if TYPE_CHECKING:
    from collections.abc import Hashable, Iterator, Mapping

    from torch import Tensor

    from attn_update import TaskDevice, UpdaterChoice


class AttentionUpdate:
    """Records the layers of one model by graph key, and brackets the engine's replays.

    Args:
        device: Of the model.
        layers: The names of all layers whose attention is recorded; each graph has all or none.
        updater: How the lane issues updates.
    """

    def __init__(self, device: TaskDevice, layers: frozenset[str], updater: UpdaterChoice) -> None:
        self.lane = UpdateLane(device, updater=updater)
        self._recorder = Recorder(device)
        self._layers = layers
        self._plans: dict[Hashable, UpdatePlan] = {}
        # Layers captured with one metadata object are a group, named after the first of them.
        self._groups: dict[Hashable, dict[str, list[str]]] = {}
        self._captured: dict[tuple[int, str], list[str]] = {}
        self._is_open = False

    @contextmanager
    def recording(self, key: Hashable) -> Iterator[None]:
        """Record the attention that is captured inside; a former capture of the key is forgotten.

        Raises:
            MissingLayerError: Some layers were captured through here and others were not.
        """
        self._plans.pop(key, None)
        if key in self._recorder.keys:
            self._recorder.release(key)
        self._captured = {}
        with self._recorder.recording(key):
            yield
        if self._captured:
            self._plans[key] = UpdatePlan.compile(self._recorder, key, layers=self._layers)
            self._groups[key] = {layers[0]: layers for layers in self._captured.values()}
        else:
            self._recorder.release(key)

    def attention(
        self, layer_name: str, kind: str, metadata: object, arguments: Mapping[str, object]
    ) -> tuple[Tensor, ...]:
        """Capture the attention of a layer; layers of one metadata object share step parameters."""
        layers = self._captured.setdefault((id(metadata), kind), [])
        layers.append(layer_name)
        return self._recorder.attention(layer_name, kind, arguments, group=layers[0])

    def is_recorded(self, key: Hashable) -> bool:
        """Return whether the graph of a key was captured with recorded attention."""
        return key in self._plans

    def begin(self, key: Hashable, metadata: Mapping[str, Any]) -> None:
        """Begin a step in front of the engine's replay; nothing is launched if it is refused.

        Raises:
            StepParameterError: The layers share their metadata otherwise than at capture.
            AttnUpdateError: From `attn_update.UpdateLane.begin`.
        """
        plan, groups = self._plans[key], {}
        for name, layers in self._groups[key].items():
            own = metadata[name]
            if any(metadata[layer] is not own for layer in layers):
                raise StepParameterError(
                    f"reading the lengths of a step of {key}: the layers of {name!r} shared their "
                    f"metadata when the graph was captured, and do not now"
                )
            given = {
                "actual_seq_lengths": own.actual_seq_lengths_q,
                "actual_seq_lengths_kv": own.seq_lens_list,
                "block_table": own.block_tables,
            }
            groups[name] = {argument: given[argument] for argument in plan.groups[name].arguments}
        self.lane.begin(plan, StepParameters(key=key, groups=groups))
        self._is_open = True

    def finish(self) -> bool:
        """Issue the updates of the step that was begun; return whether there was one."""
        was_open, self._is_open = self._is_open, False
        if was_open:
            self.lane.finish()
        return was_open

    def abandon(self) -> None:
        """Release the graph of a step that was begun and not finished, if there is one."""
        was_open, self._is_open = self._is_open, False
        if was_open:
            self.lane.abandon()
