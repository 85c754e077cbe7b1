"""The attention of one model in vLLM's FULL graphs: recorded at capture, updated at every step.

Nothing of the engine is imported here. A step's lengths come from the engine's metadata objects:
what reads them is given at capture, one reader for each kind of attention.
"""

from __future__ import annotations

from contextlib import contextmanager
from typing import TYPE_CHECKING, Any, NamedTuple

from attn_update import Recorder, StepParameterError, StepParameters, UpdatePlan

if TYPE_CHECKING:
    from collections.abc import Callable, Hashable, Iterator, Mapping

    from torch import Tensor

    from attn_update import Lengths, UpdateLane


class AttentionUpdate:
    """Records the layers of one model by graph key, and brackets the engine's replays.

    Args:
        lane: Of the device; a model and its draft share it.
        layers: The names of all layers whose attention is recorded; each graph has all or none.
    """

    def __init__(self, lane: UpdateLane, layers: frozenset[str]) -> None:
        self.lane = lane
        self._recorder = Recorder(lane.device)
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

    def release_all(self) -> None:
        """Forget all captures, whose graphs are gone, and give back what is held of their pool."""
        self._plans.clear()
        self._recorder.close()

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

    def metadata(self, context: Any) -> Mapping[str, Any] | None:
        """Return what the engine's forward context gives each layer in a step, by name."""
        return context.attn_metadata  # type: ignore[no-any-return]

    @contextmanager
    def step(self, context: Any) -> Iterator[None]:
        """Update the graph that is replayed inside, by what the engine's forward context says."""
        self.begin(context.batch_descriptor, self.metadata(context))
        try:
            yield
            self.finish()
        finally:
            self.abandon()

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
        for name, group in self._groups[key].items():
            own = [(metadata or {}).get(layer) for layer in group.layers]
            if any(each is not own[0] for each in own) or own[0] is None:
                problem = _metadata_problem(group.layers, own)
                raise StepParameterError(f"reading the lengths of a step of {key}: {problem}")
            given = group.read(own[0])
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


class _Group(NamedTuple):
    """Layers captured with one metadata object, and what reads their step parameters from one."""

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
    table that was captured, [sequences, blocks of the longest].
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


def _metadata_problem(layers: list[str], given: list[object]) -> str:
    """Return why what the engine gives layers that shared their metadata does not serve."""
    for layer, own in zip(layers, given, strict=True):
        if own is None:
            return (
                "expected the engine's metadata of each layer that the graph was captured with, "
                f"found none of {layer!r}; run a step without attention eagerly, or give it some"
            )
    return f"the layers of {layers[0]!r} shared their metadata at capture, and do not now"
