"""The engine: accepts requests, runs steps, returns outputs."""

from __future__ import annotations

import time
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, cast

import torch

from qwen3_engine.errors import ConfigError, EngineError, RequestError
from qwen3_engine.qwen3.kv_cache import BLOCK_SIZE, num_blocks_for
from qwen3_engine.serving.block_allocator import BlockAllocator
from qwen3_engine.serving.scheduler import ScheduledStep, Scheduler, SchedulerConfig, StepKind
from qwen3_engine.serving.sequence import FinishReason, Request, RequestOutput, Sequence
from qwen3_engine.serving.step_batch import build_batch
from qwen3_engine.serving.token_runner import SamplingBatch

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    from qwen3_engine.qwen3.model_config import Qwen3Config
    from qwen3_engine.serving.model_runner import ModelRunner
    from qwen3_engine.serving.token_runner import TokenRunner

_US_PER_S = 1e6


@dataclass(frozen=True, kw_only=True, slots=True)
class EngineConfig:
    """Limits of an engine.

    Attributes:
        num_blocks: blocks of the key/value cache, block 0 (reserved) included; as in the model.
        max_length: tokens of the longest sequence, prompt and output together; as in the model.
        scheduler: limits of a batch.
        record_logits: whether outputs hold the logits of each of their tokens.
        samples_on_device: whether the runner samples, a `TokenRunner`, as many tokens a decode step
            as it says. Requests are then greedy or have a temperature and a seed of 0 or more;
            what follows the end of one is cut off. No logits come to the host.
        refuse_non_finite: whether logits that are not finite end the step with an error. Only a
            measurement with kernels that compute nothing has a reason to switch it off.

    Raises:
        ConfigError: ``max_length`` is below 2, or ``record_logits`` with ``samples_on_device``.
    """

    num_blocks: int
    max_length: int
    scheduler: SchedulerConfig = field(default_factory=SchedulerConfig)
    record_logits: bool = False
    samples_on_device: bool = False
    refuse_non_finite: bool = True

    def __post_init__(self) -> None:
        if self.max_length < 2:
            raise ConfigError(
                f"making the engine: max_length is {self.max_length}, expected at least 2: a "
                "prompt token and an output token"
            )
        if self.samples_on_device and self.record_logits:
            raise ConfigError(
                "making the engine: record_logits with samples_on_device, which brings no logits "
                "to the host; leave one of the two out"
            )

    @property
    def max_blocks_per_sequence(self) -> int:
        """Columns of the block table: blocks of the longest sequence."""
        return num_blocks_for(self.max_length)


@dataclass(frozen=True, kw_only=True, slots=True)
class StepStatistics:
    """The work and the host cost of one step.

    Attributes:
        kind: prefill or decode.
        num_sequences: number of sequences in the step.
        num_tokens: tokens computed.
        num_preempted: sequences that lost their blocks to make room for this step.
        run_us: microseconds in the runner, until it returned; the device may still compute.
        step_us: microseconds of the whole step: scheduling, run, wait for logits, sampling.
    """

    kind: StepKind
    num_sequences: int
    num_tokens: int
    num_preempted: int
    run_us: float
    step_us: float


class Engine:
    """Serves requests with continuous batching.

    Each call of :meth:`step` is one forward pass of one batch; requests may be added between any
    two steps. The only wait for the device in a step is the one that reads its logits.

    Args:
        runner: runs the model; its cache has the blocks of ``config``.
        model_config: of the model that the runner runs.
        config: limits.
        on_step: called after each step with its statistics.
    """

    def __init__(
        self,
        runner: ModelRunner | TokenRunner,
        model_config: Qwen3Config,
        config: EngineConfig,
        *,
        on_step: Callable[[StepStatistics], None] | None = None,
    ) -> None:
        self._runner = runner
        self._model_config = model_config
        self._config = config
        self._on_step = on_step
        self._allocator = BlockAllocator(config.num_blocks)
        self._scheduler = Scheduler(config.scheduler, self._allocator)
        self._refused: list[RequestOutput] = []
        self._next_id = 0

    @property
    def has_work(self) -> bool:
        """Whether there is work for a step."""
        scheduler = self._scheduler
        return bool(self._refused or scheduler.num_waiting or scheduler.num_running)

    @property
    def num_free_blocks(self) -> int:
        """Blocks of the cache that no sequence has."""
        return self._allocator.num_free

    def add_request(self, request: Request) -> int:
        """Take a request and return its number.

        A request that cannot be served is rejected alone: it does not raise, it disturbs no
        other, and the next step returns its output with the error.
        """
        request_id = self._next_id
        self._next_id += 1
        error = self._refusal(request)
        if error is None:
            self._scheduler.add(Sequence.start(request_id, request))
        else:
            self._refused.append(
                RequestOutput(
                    request_id=request_id,
                    prompt=request.prompt,
                    tokens=(),
                    finish_reason=FinishReason.REFUSED,
                    error=error,
                )
            )
        return request_id

    def step(self) -> tuple[RequestOutput, ...]:
        """Run one batch and return the finished requests, including rejected ones.

        Raises:
            EngineError: the logits of a sequence are not finite.
            Exception: whatever the runner raises. Either way no sequence is lost: those of the
                failed step compute it again at a later one.
        """
        started = time.perf_counter()
        outputs, self._refused = self._refused, []
        tokens_of = self._token_runner
        steps = 1 if tokens_of is None else tokens_of.decode_steps
        scheduled = self._scheduler.schedule(decode_steps=steps)
        if scheduled is None:
            return tuple(outputs)
        try:
            if tokens_of is None:
                logits, num_tokens, run_s = self._run(scheduled)
                chosen = self._choose(scheduled.sequences, logits)
            else:
                chosen, num_tokens, run_s = self._sample(scheduled, tokens_of)
        except BaseException:
            self._scheduler.withdraw(scheduled)
            self._refused = outputs
            raise
        for sequence, tokens in zip(scheduled.sequences, chosen, strict=True):
            reason = self._advance(sequence, tokens)
            if reason is not None:
                self._scheduler.finish(sequence)
                outputs.append(_output(sequence, reason))
        if self._on_step is not None:
            self._on_step(
                StepStatistics(
                    kind=scheduled.kind,
                    num_sequences=len(scheduled.sequences),
                    num_tokens=num_tokens,
                    num_preempted=scheduled.num_preempted,
                    run_us=run_s * _US_PER_S,
                    step_us=(time.perf_counter() - started) * _US_PER_S,
                )
            )
        return tuple(outputs)

    def generate(self, requests: Iterable[Request]) -> list[RequestOutput]:
        """Run until nothing is left to do and return the outputs of these requests, in order.

        Requests added before finish as well, but their outputs are not returned.
        """
        ids = [self.add_request(request) for request in requests]
        outputs: dict[int, RequestOutput] = {}
        while self.has_work:
            outputs.update((output.request_id, output) for output in self.step())
        return [outputs[request_id] for request_id in ids]

    @property
    def _token_runner(self) -> TokenRunner | None:
        return cast("TokenRunner", self._runner) if self._config.samples_on_device else None

    def _refusal(self, request: Request) -> RequestError | None:
        vocab_size = self._model_config.vocab_size
        prompt, max_tokens = request.prompt, request.sampling.max_tokens
        wanted = len(prompt) + max_tokens
        doing = f"taking a request of {len(prompt)} prompt tokens and {max_tokens} output tokens"
        if self._config.samples_on_device and (
            request.sampling.top_k or request.sampling.top_p < 1 or request.sampling.seed < 0
        ):
            return RequestError(
                f"{doing}: the engine samples on the device, by temperature and a seed of 0 or "
                "more alone; leave top_k and top_p out"
            )
        if not prompt:
            return RequestError(f"{doing}: the prompt is empty, expected at least one token")
        outside = next((token for token in prompt if not 0 <= token < vocab_size), None)
        if outside is not None:
            return RequestError(
                f"{doing}: the prompt holds the token {outside}, expected 0 to {vocab_size - 1}; "
                "is it of another tokeniser?"
            )
        if wanted > self._config.max_length:
            return RequestError(
                f"{doing}: {wanted} in all are more than max_length, {self._config.max_length}; "
                "shorten the prompt, lower max_tokens or enlarge max_length"
            )
        if num_blocks_for(wanted) > self._allocator.num_usable:
            return RequestError(
                f"{doing}: {wanted} in all need {num_blocks_for(wanted)} blocks of {BLOCK_SIZE}, "
                f"the whole cache has {self._allocator.num_usable}; shorten it or enlarge "
                "num_blocks"
            )
        return None

    def _run(self, scheduled: ScheduledStep) -> tuple[torch.Tensor, int, float]:
        """Return the step's logits ``[S, vocab_size]`` (float32, CPU), tokens, and run seconds."""
        batch = build_batch(scheduled.sequences, max_blocks=self._config.max_blocks_per_sequence)
        runner = cast("ModelRunner", self._runner)
        run = runner.decode if scheduled.kind is StepKind.DECODE else runner.prefill
        started = time.perf_counter()
        device_logits = run(batch)
        run_s = time.perf_counter() - started
        logits = device_logits.to("cpu").to(torch.float32)
        expected = (batch.num_sequences, self._model_config.vocab_size)
        if tuple(logits.shape) != expected:
            raise EngineError(
                f"running a {scheduled.kind.value} step: the runner returned logits of shape "
                f"{tuple(logits.shape)}, expected {expected}"
            )
        if self._config.refuse_non_finite and not bool(torch.isfinite(logits).all()):
            finite = torch.isfinite(logits).all(dim=-1).tolist()
            request_id = scheduled.sequences[finite.index(False)].request_id
            raise EngineError(
                f"running a {scheduled.kind.value} step: the logits of request {request_id} are "
                "not finite; the checkpoint may not fit the dtype"
            )
        return logits, batch.num_tokens, run_s

    def _sample(
        self, scheduled: ScheduledStep, runner: TokenRunner
    ) -> tuple[list[list[int]], int, float]:
        """Return the tokens of each sequence that the device sampled, tokens, and run seconds."""
        sequences, is_decode = scheduled.sequences, scheduled.kind is StepKind.DECODE
        batch = build_batch(sequences, max_blocks=self._config.max_blocks_per_sequence)
        sampling = SamplingBatch.of(sequences, steps=runner.decode_steps if is_decode else 1)
        run = runner.decode_tokens if is_decode else runner.prefill_tokens
        started = time.perf_counter()
        on_device = run(batch, sampling)
        run_s = time.perf_counter() - started
        return on_device.tolist(), batch.num_tokens, run_s

    def _choose(self, sequences: Iterable[Sequence], logits: torch.Tensor) -> list[list[int]]:
        """Return the next token of each sequence, sampled on the host."""
        chosen = []
        for sequence, row in zip(sequences, logits, strict=True):
            chosen.append([sequence.sampler.choose(row)])
            if self._config.record_logits:
                sequence.logits.append(row)
        return chosen

    def _advance(self, sequence: Sequence, tokens: list[int]) -> FinishReason | None:
        """Take the next tokens of a sequence up to its end; return why it is over, if it is."""
        sampling = sequence.request.sampling
        for token in tokens:
            sequence.num_cached = sequence.num_tokens
            sequence.tokens.append(token)
            if token in sampling.stop_token_ids or token in self._model_config.eos_token_ids:
                return FinishReason.STOP
            if len(sequence.tokens) >= sampling.max_tokens:
                return FinishReason.LENGTH
        return None


def _output(sequence: Sequence, reason: FinishReason) -> RequestOutput:
    return RequestOutput(
        request_id=sequence.request_id,
        prompt=sequence.request.prompt,
        tokens=tuple(sequence.tokens),
        finish_reason=reason,
        logits=torch.stack(sequence.logits) if sequence.logits else None,
    )
