"""The attention of one model in vLLM's FULL graphs: recorded at capture, updated at every step.

Nothing of the engine is imported here. A step's lengths come from the engine's metadata objects:
what reads them is given at capture, one reader for each kind of attention.
"""

from __future__ import annotations

from contextlib import contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from attn_update import Recorder, StepParameterError, StepParameters, UpdateLane, UpdatePlan

if TYPE_CHECKING:
    from collections.abc import Callable, Hashable, Iterator, Mapping

    from torch import Tensor

    from attn_update import Lengths, TaskDevice, UpdaterChoice


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
        self._groups: dict[Hashable, dict[str, _Group]] = {}
        self._captured: dict[tuple[int, str], _Group] = {}
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
            self._groups[key] = {each.layers[0]: each for each in self._captured.values()}
        else:
            self._recorder.release(key)

    def attention(
        self,
        layer_name: str,
        kind: str,
        metadata: object,
        arguments: Mapping[str, object],
        read: Callable[[Any], Mapping[str, Lengths]],
    ) -> tuple[Tensor, ...]:
        """Capture the attention of a layer; layers of one metadata object share step parameters.

        Args:
            layer_name: Of the layer.
            kind: Of `attn_update`.
            metadata: What the engine gives the layer for this capture.
            arguments: Of the kind.
            read: Returns the step parameters that are in the metadata of a step.
        """
        group = self._captured.setdefault((id(metadata), kind), _Group(layers=[], read=read))
        group.layers.append(layer_name)
        return self._recorder.attention(layer_name, kind, arguments, group=group.layers[0])

    def is_recorded(self, key: Hashable) -> bool:
        """Return whether the graph of a key was captured with recorded attention."""
        return key in self._plans

    def begin(self, key: Hashable, metadata: Mapping[str, Any] | None) -> None:
        """Begin a step in front of the engine's replay; nothing is launched if it is refused.

        Args:
            key: Of the graph.
            metadata: What the engine gives each layer in this step, by name.

        Raises:
            StepParameterError: A layer has no metadata, the layers share theirs otherwise than at
                capture, or it is not what the kind of attention reads.
            AttnUpdateError: From `attn_update.UpdateLane.begin`.
        """
        plan, groups = self._plans[key], {}
        given_by_layer = {} if metadata is None else metadata
        for name, group in self._groups[key].items():
            own = given_by_layer.get(name)
            if own is None or any(given_by_layer.get(layer) is not own for layer in group.layers):
                raise StepParameterError(
                    f"reading the lengths of a step of {key}: "
                    f"{_metadata_problem(group.layers, given_by_layer)}"
                )
            given = group.read(own)
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


@dataclass(frozen=True, kw_only=True)
class _Group:
    """Layers that were captured with one metadata object.

    Attributes:
        layers: Their names.
        read: Returns the step parameters that are in the metadata of a step.
    """

    layers: list[str]
    read: Callable[[Any], Mapping[str, Lengths]]


def read_lengths(metadata: Any) -> dict[str, Lengths]:
    """Return the step parameters of FIA v1, from the engine's metadata of a step."""
    return {
        "actual_seq_lengths": metadata.actual_seq_lengths_q,
        "actual_seq_lengths_kv": metadata.seq_lens_list,
        "block_table": metadata.block_tables,
    }


def latent_reader(table: Tensor) -> Callable[[Any], dict[str, Lengths]]:
    """Return what reads the step parameters of latent attention of one token a sequence.

    The engine gives the lengths of the sequences that a step has, and writes their blocks into the
    table that was captured.

    Args:
        table: The block table of the capture, [sequences, blocks of the longest].
    """
    count, address = len(table), table.data_ptr()

    def read(metadata: Any) -> dict[str, Lengths]:
        decode = metadata.decode
        if decode is None or decode.block_table.data_ptr() != address:
            found = "no sequence decodes" if decode is None else "it stands in other memory"
            raise StepParameterError(
                f"reading the lengths of latent attention: expected a step whose block table is "
                f"the captured one, of {count} rows, found that {found}"
            )
        lengths = decode.seq_lens_list
        return {"actual_seq_kvlen": [*lengths, *[0] * (count - len(lengths))]}

    return read


def _metadata_problem(layers: list[str], given: Mapping[str, Any]) -> str:
    """Return why what the engine gives layers that shared their metadata does not serve."""
    missing = next((layer for layer in layers if given.get(layer) is None), None)
    if missing is not None:
        return (
            "expected the engine's metadata of each layer that the graph was captured with, found "
            f"none of {missing!r}; run a step without attention eagerly, or give it metadata"
        )
    return (
        f"the layers of {layers[0]!r} shared their metadata when the graph was captured, and do "
        "not now"
    )
