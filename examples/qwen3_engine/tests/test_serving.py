"""The engine with its real model on the simulated NPU, against transformers on the CPU."""

from __future__ import annotations

import random
from typing import TYPE_CHECKING

import pytest
import torch

from qwen3_engine.demonstration.comparison import compare_with_reference
from qwen3_engine.demonstration.reference import ReferenceModel
from qwen3_engine.qwen3.attention import attend_at_once
from qwen3_engine.qwen3.model_loader import load_model
from qwen3_engine.serving.engine import Engine, EngineConfig
from qwen3_engine.serving.model_runner import EagerModelRunner
from qwen3_engine.serving.sampling import SamplingParameters
from qwen3_engine.serving.scheduler import SchedulerConfig
from qwen3_engine.serving.sequence import FinishReason, Request, RequestOutput
from qwen3_engine.serving.step_batch import StepBatch, pad_decode_batch
from qwen3_engine.tiny_checkpoint import TinyShape, write_tiny_checkpoint

if TYPE_CHECKING:
    from collections.abc import Mapping
    from pathlib import Path

    from qwen3_engine.qwen3.attention import Attend

# Prompt and output lengths; the blocks of 128 tokens are crossed in prompts and in outputs.
LENGTHS = ((1, 40), (7, 25), (120, 30), (300, 12), (40, 60), (128, 20))


def _requests(*lengths: tuple[int, int], **sampling: float) -> list[Request]:
    numbers = random.Random(7)
    return [
        Request(
            prompt=tuple(numbers.randrange(512) for _ in range(prompt)),
            sampling=SamplingParameters(max_tokens=output, **sampling),  # type: ignore[arg-type]
        )
        for prompt, output in lengths
    ]


class _PaddingRunner(EagerModelRunner):
    """Pads each decode batch to a bucket of 4 or 8, as a captured step needs it."""

    def decode(self, batch: StepBatch) -> torch.Tensor:
        rows = batch.num_sequences
        return super().decode(pad_decode_batch(batch, 4 if rows <= 4 else 8))[:rows]


def _serve(
    folder: Path,
    device: torch.device,
    requests: list[Request],
    *,
    dtype: torch.dtype = torch.bfloat16,
    attend: Attend = attend_at_once,
    num_blocks: int = 24,
    padding: bool = False,
) -> list[RequestOutput]:
    """Serve requests that join two at a time, at most four running; return their outputs."""
    model = load_model(
        folder, device=device, dtype=dtype, num_blocks=num_blocks, max_length=512, attend=attend
    )
    runner = (_PaddingRunner if padding else EagerModelRunner)(model, device=device)
    config = EngineConfig(
        num_blocks=num_blocks,
        max_length=512,
        scheduler=SchedulerConfig(max_num_sequences=4),
        record_logits=True,
    )
    engine = Engine(runner, model.config, config)
    outputs: list[RequestOutput] = []
    waiting = list(requests)
    while waiting or engine.has_work:
        for request in waiting[:2]:
            engine.add_request(request)
        del waiting[:2]
        outputs += engine.step()
    model.attention.close()
    assert engine.num_free_blocks == num_blocks - 1
    return sorted(outputs, key=lambda output: output.request_id)


@pytest.fixture(scope="module")
def reference(checkpoint_folder: Path) -> ReferenceModel:
    return ReferenceModel(checkpoint_folder)


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16])
@pytest.mark.parametrize("padding", [False, True], ids=["unpadded", "padded"])
def test_greedy_decoding_agrees_with_transformers(
    checkpoint_folder: Path,
    npu: torch.device,
    reference: ReferenceModel,
    dtype: torch.dtype,
    padding: bool,
) -> None:
    outputs = _serve(checkpoint_folder, npu, _requests(*LENGTHS), dtype=dtype, padding=padding)

    verdict = compare_with_reference(outputs, reference, dtype=dtype, num_layers=4)
    assert verdict.agrees, str(verdict)
    assert verdict.num_tokens == sum(output for _, output in LENGTHS)
    assert verdict.num_decided > verdict.num_tokens // 2


def test_greedy_decoding_of_sharded_tied_checkpoint_agrees_with_transformers(
    tmp_path: Path, npu: torch.device
) -> None:
    shape = TinyShape(num_layers=2, tie_word_embeddings=True)
    folder = write_tiny_checkpoint(tmp_path, shape=shape, max_shard_size="1MB", seed=3)
    assert len(list(folder.glob("*.safetensors"))) > 1

    outputs = _serve(folder, npu, _requests((5, 10), (130, 5)))

    reference = ReferenceModel(folder)
    verdict = compare_with_reference(outputs, reference, dtype=torch.bfloat16, num_layers=2)
    assert verdict.agrees, str(verdict)


def test_full_cache_with_preemption_agrees_with_transformers(
    checkpoint_folder: Path, npu: torch.device, reference: ReferenceModel
) -> None:
    requests = _requests((120, 30), (125, 20), (100, 50))

    outputs = _serve(checkpoint_folder, npu, requests, num_blocks=4)

    verdict = compare_with_reference(outputs, reference, dtype=torch.bfloat16, num_layers=4)
    assert verdict.agrees, str(verdict)


def _one_key_less(layer_name: str, arguments: Mapping[str, object], /) -> object:
    lengths = arguments["actual_seq_lengths_kv"]
    query = arguments["query"]
    assert isinstance(lengths, list)
    assert isinstance(query, torch.Tensor)
    decodes = len(lengths) == query.shape[0]
    shorter = [length - 1 if decodes else length for length in lengths]
    return attend_at_once(layer_name, {**arguments, "actual_seq_lengths_kv": shorter})


def test_wrong_key_lengths_are_found_by_the_comparison(
    checkpoint_folder: Path, npu: torch.device, reference: ReferenceModel
) -> None:
    """The comparison can fail: lengths of the step before are enough."""
    outputs = _serve(checkpoint_folder, npu, _requests((20, 40)), attend=_one_key_less)

    verdict = compare_with_reference(outputs, reference, dtype=torch.bfloat16, num_layers=4)
    assert not verdict.agrees
    assert verdict.mismatches


def test_request_longer_than_the_cache_is_refused_and_others_finish(
    checkpoint_folder: Path, npu: torch.device, reference: ReferenceModel
) -> None:
    requests = _requests((10, 8), (500, 100), (20, 8))

    first, refused, second = _serve(checkpoint_folder, npu, requests)

    assert refused.finish_reason is FinishReason.REFUSED
    assert "600 in all are more than max_length, 512" in str(refused.error)
    outputs = [first, refused, second]
    verdict = compare_with_reference(outputs, reference, dtype=torch.bfloat16, num_layers=4)
    assert verdict.agrees, str(verdict)
    assert verdict.num_tokens == 16


def test_sampled_decoding_with_a_seed_is_repeatable(
    checkpoint_folder: Path, npu: torch.device
) -> None:
    requests = _requests((10, 12), (30, 12), temperature=1.0, top_p=0.9, seed=11)

    first = _serve(checkpoint_folder, npu, requests)
    second = _serve(checkpoint_folder, npu, requests)

    assert [output.tokens for output in first] == [output.tokens for output in second]
    greedy = _serve(checkpoint_folder, npu, _requests((10, 12), (30, 12)))
    assert [output.tokens for output in first] != [output.tokens for output in greedy]
