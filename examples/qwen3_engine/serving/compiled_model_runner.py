"""Runs a model compiled with npu_compile: how an engine adopts the packages.

This file has everything that an engine must provide: the attention operator launches through a
recorder, the decode runner knows the model's inputs and their padding, and each step passes its
lengths.
"""

from __future__ import annotations

from itertools import accumulate
from typing import TYPE_CHECKING, Any

import torch

import npu_compile
from attn_update import ParameterGroup, Recorder, UpdateLane
from attn_update.kinds import default_kinds, metadata_kinds
from npu_compile import CompileConfig, DecodeRunner, InputSpec, PrefillRunner, TokenSampler
from npu_graph_runtime import GraphContext, runs_eagerly
from qwen3_engine.layer_kinds.other_layers import LayerParts
from qwen3_engine.qwen3.kv_cache import BLOCK_SIZE, num_blocks_for
from qwen3_engine.qwen3.model_loader import load_model
from qwen3_engine.serving.block_allocator import PADDING_BLOCK
from qwen3_engine.serving.token_steps import advance_by

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping
    from pathlib import Path

    from attn_update import Lengths
    from npu_compile import CompiledModel, DecodeObserver
    from npu_graph_runtime import GraphDevice
    from npu_graph_runtime.planning import RunModeChoice
    from qwen3_engine.layer_kinds.other_layers import OtherLayers
    from qwen3_engine.qwen3.model import Qwen3Model
    from qwen3_engine.serving.step_batch import StepBatch
    from qwen3_engine.serving.token_runner import SamplingBatch

_ATTENTION_KIND = "fused_infer_attention_v1"
_GROUP = "default"
_STEP_ARGUMENTS = ("actual_seq_lengths", "actual_seq_lengths_kv")

# A row of padding is a sequence of one query token without a key; see `pad_decode_batch`.
_PADDING_KV_LENGTH = 0


class CompiledModelRunner:
    """Runs a compiled model; implements `ModelRunner`. Create it with :meth:`load`, and close it.

    Prefill and decode run as configured, padded to a capture size if one fits.

    Attributes:
        model: the original model.
        compiled: the compiled model, with its reports.
        decode_steps: number of tokens that a decode step samples for each sequence on the device; 0
            if it returns logits.
    """

    def __init__(
        self,
        model: Qwen3Model,
        compiled: CompiledModel,
        decode_runner: DecodeRunner,
        prefill_runner: PrefillRunner,
        *,
        recorder: Recorder,
        lane: UpdateLane,
        decode_steps: int,
        sampler: TokenSampler,
        layers: OtherLayers | None = None,
    ) -> None:
        self.decode_steps = decode_steps
        self._sampler = sampler
        self.model = model
        self.compiled = compiled
        self._decode_runner = decode_runner
        self._prefill_runner = prefill_runner
        self._recorder = recorder
        self._lane = lane
        self._layers = layers

    @classmethod
    def load(
        cls,
        folder: str | Path,
        options: Mapping[str, Any],
        *,
        device: GraphDevice,
        num_blocks: int,
        max_length: int,
        max_num_sequences: int = 16,
        decode_steps: int = 0,
        dtype: torch.dtype | None = None,
        observer: DecodeObserver | None = None,
        make_layers: Callable[[LayerParts], OtherLayers] | None = None,
    ) -> CompiledModelRunner:
        """Load a checkpoint and compile it; graphs are captured by :meth:`capture`.

        Args:
            folder: a Hugging Face checkpoint of a dense Qwen3 model.
            options: keys of ``npu_compile.CompileConfig`` except ``splitting_ops``, which is the
                model's attention operator.
            device: the device.
            num_blocks: blocks of the key/value cache, including block 0 (reserved).
            max_length: tokens of the longest sequence.
            max_num_sequences: sequences of a captured prefill step; a step with more runs eagerly.
            decode_steps: number of tokens that a decode step samples for each sequence inside its
                graph; fits `TokenRunner`. 0 returns logits, see `ModelRunner`.
            dtype: dtype of the model; by default that of the checkpoint.
            observer: receives every decode step.
            make_layers: replaces layers of the model by others, see `qwen3_engine.layer_kinds`.

        Raises:
            EngineError: the checkpoint or a limit is invalid.
            NpuCompileError: the options are invalid.
        """
        recorder = Recorder(device, {**default_kinds(), **metadata_kinds()})
        context = GraphContext()
        # Rows continue after their end, up to this many positions.
        longest = max_length + max(decode_steps - 1, 0)

        def attend(layer_name: str, arguments: Mapping[str, object], /) -> object:
            return recorder.attention(layer_name, _ATTENTION_KIND, arguments, group=_GROUP)

        model = load_model(
            folder,
            device=device.torch_device,
            num_blocks=num_blocks,
            max_length=longest,
            dtype=dtype,
            attend=attend,
            # What breaks a capture in mode `breakable`; all other modes just call it.
            mark=runs_eagerly(context),
        )
        layers = None
        try:
            if make_layers is not None:
                layers = make_layers(
                    LayerParts(
                        model=model,
                        recorder=recorder,
                        device=device,
                        mark=runs_eagerly(context),
                        num_blocks=num_blocks,
                        # Each sequence has a block, also in steps without a graph.
                        max_sequences=max(
                            num_blocks, max_num_sequences + 1, *options.get("capture_sizes", ())
                        ),
                        max_tokens=longest,
                        max_keys=longest,
                    )
                )
            splitting = [model.attention.name] if layers is None else layers.splitting_ops
            config = CompileConfig.from_mapping(
                {"mode": "eager", **options, "splitting_ops": splitting}
            )
            dynamic = ("input_ids", "positions", "slot_mapping", "block_table")
            compiled = npu_compile.compile_model(
                model,
                config,
                device=device,
                dynamic_arg_dims=dict.fromkeys(dynamic, (0,)),
                context=context,
            )
            lane = UpdateLane(device)
            state = model.attention.step_state
            specs = _input_specs(num_blocks_for(longest))
            sampler = TokenSampler(model.config.vocab_size, device=device.torch_device)
            repeated: dict[str, Any] = {}
            if decode_steps:
                repeated = {
                    "steps": decode_steps,
                    "advance": advance_by(model, sampler, decode_steps),
                    "growing": _STEP_ARGUMENTS[1:],
                }
            groups = {_GROUP: ParameterGroup(arguments=frozenset(_STEP_ARGUMENTS))}
            if layers is not None and not layers.has_updates:
                groups = {}
            producers = None if layers is None else layers.producers
            decode_runner = DecodeRunner(
                compiled,
                inputs={**specs, **_sampling_specs(decode_steps)} if decode_steps else specs,
                recorder=recorder,
                lane=lane,
                groups=groups,
                observer=observer,
                set_lengths=lambda lengths: state.load_sums(*_step_arguments(lengths)),
                producers=producers,
                **repeated,
            )
            prefill_runner = PrefillRunner(
                compiled,
                inputs=specs,
                max_sequences=max_num_sequences,
                set_lengths=lambda lengths: state.load_sums(
                    *_step_arguments(lengths), is_padded=True
                ),
                recorder=recorder,
                lane=lane,
                groups=groups,
                producers=producers,
            )
        except BaseException:
            if layers is not None:
                layers.close()
            model.attention.close()
            raise
        return cls(
            model,
            compiled,
            decode_runner,
            prefill_runner,
            recorder=recorder,
            lane=lane,
            decode_steps=decode_steps,
            sampler=sampler,
            layers=layers,
        )

    def capture(self, *, on_captured: Callable[[int, int, int], None] | None = None) -> None:
        """Capture all graphs, before the first step.

        Args:
            on_captured: called after each capture size with (size, sizes done, sizes in all).
        """
        self._prefill_runner.capture(self._show_prefill_padding, on_captured=on_captured)
        self._decode_runner.capture(self._show_padding, on_captured=on_captured)

    def capture_next(self) -> bool:
        """Capture one graph between two steps instead; return whether there was one to capture."""
        size = self._prefill_runner.capture_next(self._show_prefill_padding)
        if size is None:
            size = self._decode_runner.capture_next(self._show_padding)
        return size is not None

    def _show_prefill_padding(self, size: int) -> object:
        empty = self._prefill_runner.padded_sequences(size) - 1
        kv_lengths = (_PADDING_KV_LENGTH,) * (empty + 1)
        return self._show((size, *[0] * empty), kv_lengths)

    def _show_padding(self, size: int) -> object:
        return self._show((1,) * size, (_PADDING_KV_LENGTH,) * size)

    def _show(self, query_lengths: tuple[int, ...], kv_lengths: tuple[int, ...]) -> object:
        self.model.attention.step_state.load(query_lengths, kv_lengths)
        return _lengths(query_lengths, kv_lengths)

    @property
    def run_mode_choices(self) -> tuple[RunModeChoice, ...]:
        """The choices of mode ``measured`` per prefill and decode capture size, with reasons."""
        runners = (self._prefill_runner, self._decode_runner)
        return tuple(choice for each in runners for choice in each.run_mode_choices.values())

    def prefill(self, batch: StepBatch) -> torch.Tensor:
        """Return the logits of each sequence's last token, on the device."""
        if self._layers is not None:
            # A prompt is never prefilled in parts, so every sequence begins here.
            self._layers.begin(batch.block_table[:, 0].tolist())
        lengths = _lengths(batch.query_lengths, batch.kv_lengths)
        hidden: torch.Tensor = self._prefill_runner.run(_inputs(batch), lengths)
        if batch.num_tokens != batch.num_sequences:
            hidden = hidden.index_select(0, batch.last_token_rows().to(hidden.device))
        return self._logits(hidden)

    def decode(self, batch: StepBatch) -> torch.Tensor:
        """Return the logits of each sequence's only token, on the device."""
        parts = self._decode_runner.split_rows(batch.num_sequences)
        if len(parts) == 1:
            return self._decode_part(batch)
        return torch.cat([self._decode_part(part) for part in batch.split_decode(parts)])

    def prefill_tokens(self, batch: StepBatch, sampling: SamplingBatch) -> torch.Tensor:
        """Return the next token of each sequence, ``[S, 1]``, on the device."""
        logits = self.prefill(batch)
        temperatures, seeds, positions = (
            values.to(logits.device)
            for values in (
                sampling.temperatures,
                sampling.seeds,
                torch.tensor(batch.kv_lengths) - 1,
            )
        )
        sampled = self._sampler(logits, temperatures=temperatures, seeds=seeds, positions=positions)
        return sampled[:, None]

    def decode_tokens(self, batch: StepBatch, sampling: SamplingBatch) -> torch.Tensor:
        """Return the next tokens of each sequence, ``[S, decode_steps]``, on the device."""
        further = {
            "temperatures": sampling.temperatures,
            "seeds": sampling.seeds,
            "slots": sampling.slots,
        }
        tokens: torch.Tensor = self._decode_runner.run(
            {**_inputs(batch), **further}, self._decode_lengths(batch)
        )
        return tokens

    def _decode_part(self, batch: StepBatch) -> torch.Tensor:
        return self._logits(self._decode_runner.run(_inputs(batch), self._decode_lengths(batch)))

    def _decode_lengths(self, batch: StepBatch) -> dict[str, dict[str, list[int]]]:
        padding = self._decode_runner.padded_size(batch.num_sequences) - batch.num_sequences
        query_lengths = batch.query_lengths + (1,) * padding
        kv_lengths = batch.kv_lengths + (_PADDING_KV_LENGTH,) * padding
        return _lengths(query_lengths, kv_lengths)

    def release(self) -> None:
        """Wait for the device and give up the graphs, which may be captured again."""
        self._prefill_runner.release()
        self._decode_runner.release()

    def close(self) -> None:
        """Wait for the device and give up graphs, records and the attention operator."""
        self.release()
        self._lane.close()
        self._recorder.close()
        if self._layers is not None:
            self._layers.close()
        self.model.attention.close()

    @torch.no_grad()
    def _logits(self, hidden: torch.Tensor) -> torch.Tensor:
        return self.model.compute_logits(hidden)


def _lengths(
    query_lengths: tuple[int, ...], kv_lengths: tuple[int, ...]
) -> dict[str, dict[str, list[int]]]:
    """Return the lengths of a step for the runners: attention's arguments by parameter group."""
    values = (list(accumulate(query_lengths)), list(kv_lengths))
    return {_GROUP: dict(zip(_STEP_ARGUMENTS, values, strict=True))}


def _step_arguments(lengths: Mapping[str, Mapping[str, Lengths]]) -> list[list[int]]:
    return [torch.as_tensor(lengths[_GROUP][name]).tolist() for name in _STEP_ARGUMENTS]


def _inputs(batch: StepBatch) -> dict[str, torch.Tensor]:
    return {
        "input_ids": batch.input_ids,
        "positions": batch.positions,
        "slot_mapping": batch.slot_mapping,
        "block_table": batch.block_table,
    }


def _input_specs(max_blocks: int) -> dict[str, InputSpec]:
    return {
        "input_ids": InputSpec(dtype=torch.int32),
        "positions": InputSpec(dtype=torch.int64),
        "slot_mapping": InputSpec(dtype=torch.int32, pad_value=PADDING_BLOCK * BLOCK_SIZE),
        "block_table": InputSpec(
            dtype=torch.int32,
            trailing_shape=(max_blocks,),
            pad_value=PADDING_BLOCK,
            per_sequence=True,
        ),
    }


def _sampling_specs(steps: int) -> dict[str, InputSpec]:
    """Return inputs in addition to the model's arguments: sampling, and slots of the steps."""
    padding_slot = PADDING_BLOCK * BLOCK_SIZE
    return {
        "temperatures": InputSpec(dtype=torch.float32),
        "seeds": InputSpec(dtype=torch.int64),
        "slots": InputSpec(dtype=torch.int32, trailing_shape=(steps,), pad_value=padding_slot),
    }
