"""A target model and its draft model, compiled in one mode, with a runner for each kind of step."""

from __future__ import annotations

from dataclasses import dataclass, field
from itertools import accumulate
from typing import TYPE_CHECKING, Any

import torch

import npu_compile
from attn_update import ParameterGroup, Recorder, UpdateLane
from attn_update.kinds import default_kinds
from mode_matrix.draft_model import DraftModel
from npu_compile import (
    CompileConfig,
    DecodeRunner,
    InputSpec,
    PrefillRunner,
    StepProducers,
    draft_lengths,
)
from npu_graph_runtime import GraphContext, runs_eagerly
from npu_graph_runtime.observer import GraphReplayed
from qwen3_engine import load_model
from qwen3_engine.qwen3.kv_cache import BLOCK_SIZE

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence
    from pathlib import Path

    from attn_update.kinds import Kind
    from npu_compile import CompiledModel
    from npu_graph_runtime import GraphDevice, GraphKey
    from npu_graph_runtime.observer import RuntimeEvent
    from qwen3_engine import Qwen3Model, StepBatch

KIND = "fused_infer_attention_v1"
QUERIES, KEYS = "actual_seq_lengths", "actual_seq_lengths_kv"
MAX_BLOCKS = 2
MAX_SEQUENCES = 5
# The last draft step proposes nothing that is verified: it writes the last draft into the cache.
DRAFT_STEPS = 4
QUERY_LENGTH = DRAFT_STEPS
CAPTURE_SIZES = (1, 2, 4, 16)
PREFILL_SIZES = (16, 64)

Lengths = dict[str, dict[str, list[int]]]


@dataclass(frozen=True, kw_only=True)
class ModelSettings:
    """Settings shared by all modes.

    Attributes:
        folder: the checkpoint of target and draft model.
        max_blocks: maximum number of blocks of a sequence.
        max_sequences: maximum number of sequences of a step.
        options: keys of ``npu_compile.CompileConfig``, replacing those of the models.
    """

    folder: Path
    max_blocks: int = MAX_BLOCKS
    max_sequences: int = MAX_SEQUENCES
    options: Mapping[str, Any] = field(default_factory=dict)

    @property
    def num_blocks(self) -> int:
        return 1 + self.max_blocks * self.max_sequences


class _Compiled:
    """A model with recorded attention, and its compiled form."""

    def __init__(self, settings: ModelSettings, device: GraphDevice) -> None:
        self.settings = settings
        self.device = device
        self.recorder = Recorder(device, self.kinds)
        self.context = GraphContext()
        self.replayed: list[GraphKey] = []
        # By draft step; empty where attention takes the lengths of the step state.
        self.draft_lengths: Mapping[str, Mapping[str, Any]] = {}
        self.model = self.load_model(settings, device)

    def load_model(self, settings: ModelSettings, device: GraphDevice) -> Qwen3Model:
        return load_model(
            settings.folder,
            device=device.torch_device,
            num_blocks=settings.num_blocks,
            max_length=settings.max_blocks * BLOCK_SIZE,
            attend=self._attend,
            mark=runs_eagerly(self.context),
        )

    @property
    def splitting_ops(self) -> list[str]:
        return [self.model.attention.name]

    @property
    def kinds(self) -> dict[str, Kind]:
        """The kinds of attention that are recorded."""
        return default_kinds()

    def _attend(self, layer_name: str, arguments: Mapping[str, object], /) -> object:
        step, _, is_draft = layer_name.partition("/")
        group, lengths = (step, self.draft_lengths[step]) if is_draft else ("default", {})
        given = {**arguments, **lengths}
        return self.recorder.attention(layer_name, KIND, given, group=group)

    def compile(
        self, model: torch.nn.Module, mode: str, options: Mapping[str, Any]
    ) -> CompiledModel:
        names = ("input_ids", "positions", "slot_mapping", "block_table")
        options = {**options, **self.settings.options}
        config = {**options, "mode": mode, "splitting_ops": self.splitting_ops}
        return npu_compile.compile_model(
            model,
            CompileConfig.from_mapping(config),
            device=self.device,
            dynamic_arg_dims=dict.fromkeys(names, (0,)),
            context=self.context,
            observer=self,
        )

    def observe(self, event: RuntimeEvent, /) -> None:
        """Keep the keys of replays."""
        if isinstance(event, GraphReplayed):
            self.replayed.append(event.key)

    def inputs(self, *, slots: tuple[int, ...] = ()) -> dict[str, InputSpec]:
        """Return the declarations; rows of padding write to slot 0 and read block 0."""
        return {
            "input_ids": InputSpec(dtype=torch.int32),
            "positions": InputSpec(dtype=torch.int64),
            "slot_mapping": InputSpec(dtype=torch.int32, trailing_shape=slots),
            "block_table": InputSpec(
                dtype=torch.int32, trailing_shape=(self.settings.max_blocks,), per_sequence=True
            ),
        }

    def load(self, lengths: Mapping[str, Any], *, is_padded: bool = False) -> None:
        self.model.attention.step_state.load_sums(
            lengths[QUERIES], lengths[KEYS], is_padded=is_padded
        )

    def close(self) -> None:
        self.recorder.close()
        self.model.attention.close()


class TargetModel(_Compiled):
    """Decode, prefill, mixed and verification steps of one compiled model.

    Attributes:
        query_lengths: rows per sequence of the uniform steps.
    """

    query_lengths: tuple[int, ...] = (1, QUERY_LENGTH)

    def __init__(
        self,
        settings: ModelSettings,
        mode: str,
        *,
        device: GraphDevice,
        lane: UpdateLane,
    ) -> None:
        super().__init__(settings, device)
        options = {"capture_sizes": CAPTURE_SIZES, "prefill_capture_sizes": PREFILL_SIZES}
        self.compiled = self.compile(self.model, mode, options)
        groups = self.groups
        self._prefill = PrefillRunner(
            self.compiled,
            inputs=self.inputs(),
            max_sequences=settings.max_sequences,
            set_lengths=lambda lengths: self.load(lengths["default"], is_padded=True),
            recorder=self.recorder,
            lane=lane,
            groups=groups,
            producers=self.producers,
        )
        self._decoding = {
            query_length: DecodeRunner(
                self.compiled,
                inputs=self.inputs(),
                recorder=self.recorder,
                lane=lane,
                groups=groups,
                set_lengths=lambda lengths: self.load(lengths["default"]),
                query_length=query_length,
                producers=self.producers,
            )
            for query_length in self.query_lengths
        }

    @property
    def groups(self) -> dict[str, ParameterGroup]:
        """The parameter groups of the layers that are updated."""
        return {"default": ParameterGroup(arguments=frozenset({QUERIES, KEYS}))}

    @property
    def producers(self) -> StepProducers | None:
        """What makes the metadata of attention, if it reads any."""
        return None

    def capture(self) -> None:
        self._prefill.capture(self._show_padding)
        for query_length, runner in self._decoding.items():

            def prepare(size: int, query_length: int = query_length) -> Lengths:
                return self._show(_padded((), (), size // query_length, query_length))

            runner.capture(prepare)

    def _show_padding(self, size: int) -> Lengths:
        sequences = self._prefill.padded_sequences(size)
        return self._show({QUERIES: [size] * sequences, KEYS: [0] * sequences})

    def _show(self, lengths: dict[str, list[int]]) -> Lengths:
        self.load(lengths)
        return {"default": lengths}

    def run_any(self, batch: StepBatch) -> torch.Tensor:
        """Return the logits of all tokens ``[T, vocab_size]`` of a prefill or mixed step."""
        sums = list(accumulate(batch.query_lengths))
        lengths = {QUERIES: sums, KEYS: list(batch.kv_lengths)}
        return self._logits(self._prefill.run(_tensors(batch), {"default": lengths}))

    def run_uniform(self, batch: StepBatch) -> torch.Tensor:
        """Return the logits of all tokens of a decode or a verification step."""
        query_length = batch.query_lengths[0]
        runner = self._decoding[query_length]
        size = runner.padded_size(batch.num_tokens) // query_length
        lengths = _padded(batch.query_lengths, batch.kv_lengths, size, query_length)
        return self._logits(runner.run(_tensors(batch), {"default": lengths}))

    @torch.no_grad()
    def _logits(self, hidden: torch.Tensor) -> torch.Tensor:
        return self.model.compute_logits(hidden)

    def close(self) -> None:
        self._prefill.release()
        for runner in self._decoding.values():
            runner.release()
        super().close()


class Drafter(_Compiled):
    """All draft steps as one step of a compiled draft model."""

    def __init__(
        self,
        settings: ModelSettings,
        mode: str,
        *,
        device: GraphDevice,
        lane: UpdateLane,
    ) -> None:
        super().__init__(settings, device)
        draft = DraftModel(self.model, num_steps=DRAFT_STEPS)
        self.compiled = self.compile(draft, mode, {"capture_sizes": CAPTURE_SIZES[:3]})
        group = ParameterGroup(arguments=frozenset({QUERIES, KEYS}))
        self._runner = DecodeRunner(
            self.compiled,
            inputs=self.inputs(slots=(DRAFT_STEPS,)),
            recorder=self.recorder,
            lane=lane,
            groups={f"draft.{step}": group for step in range(DRAFT_STEPS)},
            set_lengths=self._show,
        )

    def capture(self) -> None:
        self._runner.capture(lambda size: self._show(self._lengths((), size)))

    def prefill(self, batch: StepBatch) -> None:
        """Write prompts into the cache, without any graph."""
        sums = list(accumulate(batch.query_lengths))
        self.load({QUERIES: sums, KEYS: list(batch.kv_lengths)})
        on_device = {k: v.to(self.device.torch_device) for k, v in _tensors(batch).items()}
        with torch.no_grad():
            self.model(**on_device)

    def propose(
        self,
        tokens: torch.Tensor,
        *,
        positions: torch.Tensor,
        slots: torch.Tensor,
        block_table: torch.Tensor,
    ) -> torch.Tensor:
        """Return the drafts ``[S, DRAFT_STEPS]`` after one token of each sequence."""
        inputs = {
            "input_ids": tokens,
            "positions": positions,
            "slot_mapping": slots,
            "block_table": block_table,
        }
        kv_lengths = tuple(int(each) + 1 for each in positions)
        size = self._runner.padded_size(len(kv_lengths))
        proposed: torch.Tensor = self._runner.run(inputs, self._lengths(kv_lengths, size))
        return proposed

    def close(self) -> None:
        self._runner.release()
        super().close()

    def _lengths(self, kv_lengths: Sequence[int], size: int) -> dict[str, dict[str, list[int]]]:
        first = _padded((1,) * len(kv_lengths), kv_lengths, size, 1)
        return draft_lengths(first, num_steps=DRAFT_STEPS, growing=(KEYS,))

    def _show(self, lengths: Mapping[str, Mapping[str, Any]]) -> None:
        self.draft_lengths = lengths
        self.load(lengths["draft.0"])


def _padded(
    query_lengths: Sequence[int], kv_lengths: Sequence[int], size: int, query_length: int
) -> dict[str, list[int]]:
    """Return attention's lengths, filled up by sequences that have no key."""
    missing = max(size - len(kv_lengths), 0)
    return {
        QUERIES: list(accumulate([*query_lengths, *[query_length] * missing])),
        KEYS: [*kv_lengths, *[0] * missing],
    }


def _tensors(batch: StepBatch) -> dict[str, torch.Tensor]:
    return {
        "input_ids": batch.input_ids,
        "positions": batch.positions,
        "slot_mapping": batch.slot_mapping,
        "block_table": batch.block_table,
    }
