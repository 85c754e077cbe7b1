"""An engine whose steps the runners of npu-compile run."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import torch

from attn_update import Recorder, UpdateLane
from engine_fuzz.engines.engine_attention import EngineAttention
from engine_fuzz.engines.fuzzed_model import FuzzedModel
from engine_fuzz.engines.sequences import (
    DECODE_SIZES,
    NUM_COLUMNS,
    PREFILL_SIZE,
    padding_batch,
)
from npu_compile import CompileConfig, DecodeRunner, InputSpec, PrefillRunner, compile_model
from npu_graph_runtime import AddressCheck, GraphContext

if TYPE_CHECKING:
    from collections.abc import Mapping

    from torch import Tensor

    from engine_fuzz.engines.sequences import Batch
    from engine_fuzz.episode import Shape
    from npu_graph_runtime import NpuDevice


class RunnerEngine:
    """A decode runner and a prefill runner on one compiled model, without a compiler.

    Args:
        device: the device.
        shape: how the engine is built.
        seed: seed of the weights.

    Attributes:
        device: as passed.
        model: the served model.
        lane: the update lane.
        attention: attention of the model.
    """

    def __init__(self, device: NpuDevice, shape: Shape, *, seed: int) -> None:
        self.device = device
        self.shape = shape
        self.factor: Any = 1
        self.model = FuzzedModel(device.torch_device, seed=seed, quirk=shape.quirk)
        self.context = GraphContext()
        self.recorder = Recorder(device)
        updater: Any = shape.updater
        self.lane = UpdateLane(device, updater=updater, worker=shape.worker)
        self.attention = EngineAttention(self.model, shape, self.context, self.recorder)
        self.model.attention = self.attention
        self.compiled = compile_model(
            self.model,
            CompileConfig(
                mode=shape.mode,  # type: ignore[arg-type]
                fuse=False,
                capture_sizes=DECODE_SIZES,
                # In mode full prefill runs eagerly, as in the engine that calls the wrappers.
                prefill_capture_sizes=() if shape.mode == "full" else (PREFILL_SIZE,),
                address_check=AddressCheck(shape.address_check),
                warmup_runs=shape.warmup_runs,
            ),
            device=device,
            dynamic_arg_dims={"tokens": (0,), "slots": (0,), "table": (0,)},
            context=self.context,
        )
        inputs = {
            "tokens": InputSpec(dtype=torch.int64),
            "slots": InputSpec(dtype=torch.int64),
            "table": InputSpec(dtype=torch.int32, trailing_shape=(NUM_COLUMNS,), per_sequence=True),
        }
        self._decode = DecodeRunner(
            self.compiled,
            inputs=inputs,
            recorder=self.recorder,
            lane=self.lane,
            set_lengths=self._set_lengths,
        )
        self._prefill = PrefillRunner(
            self.compiled, inputs=inputs, max_sequences=2, set_lengths=self._set_lengths
        )

    def capture(self) -> None:
        """Capture all graphs."""
        self._prefill.capture(lambda size: self._prepare(size, is_decode=False))
        self._decode.capture(lambda size: self._prepare(size, is_decode=True))

    def run(self, batch: Batch) -> Tensor:
        """Run a step, and return the hidden states of its own rows, in the graph's memory."""
        self.device.bind_thread()
        # A prefill step brings its padding as a sequence of its own.
        rows = batch.num_rows if batch.is_decode else batch.size
        sequences = batch.num_rows if batch.is_decode else len(batch.table)
        inputs = {
            "tokens": torch.tensor(batch.tokens[:rows]),
            "slots": torch.tensor(batch.slots[:rows]),
            "table": torch.tensor(batch.table[:sequences], dtype=torch.int32),
        }
        lengths = {
            "default": {
                "actual_seq_lengths": list(batch.queries),
                "actual_seq_lengths_kv": list(batch.keys),
            }
        }
        runner = self._decode if batch.is_decode else self._prefill
        hidden: Tensor = runner.run(inputs, lengths)
        return hidden[: batch.num_rows]

    def drain(self) -> None:
        """Wait for the lane's thread to end, and raise its failure if there was one."""
        self.lane.drain()

    def check_weights(self) -> None:
        """Compare weights with the captures, as after an update of them."""
        self.compiled.check_weights()

    def release(self) -> None:
        """Give all graphs up, with their plans and records."""
        self._decode.release()
        self._prefill.release()

    def mend(self) -> None:
        """Give the quirk up, as a user does whose capture was refused for it."""
        self.model.mend()
        self.attention.records = self.shape.records

    def close(self) -> None:
        """Give everything up."""
        self.release()
        self.lane.close()

    def _prepare(self, size: int, *, is_decode: bool) -> None:
        batch = padding_batch(size, is_decode=is_decode)
        self.attention.queries, self.attention.keys = batch.queries, batch.keys

    def _set_lengths(self, lengths: Mapping[str, Mapping[str, Any]]) -> None:
        given = lengths["default"]
        self.attention.queries = given["actual_seq_lengths"]
        self.attention.keys = given["actual_seq_lengths_kv"]
