"""One request and the tokens it has so far."""

from __future__ import annotations

from dataclasses import dataclass, field
from enum import Enum
from typing import TYPE_CHECKING

from qwen3_engine.qwen3.kv_cache import num_blocks_for, slot
from qwen3_engine.serving.sampling import Sampler, SamplingParameters

if TYPE_CHECKING:
    import torch

    from qwen3_engine.errors import RequestError


@dataclass(frozen=True, kw_only=True, slots=True)
class Request:
    """A user's request.

    Attributes:
        prompt: token ids, at least one.
        sampling: sampling options and stop conditions.
    """

    prompt: tuple[int, ...]
    sampling: SamplingParameters


class FinishReason(str, Enum):
    """Why a request is finished.

    Attributes:
        LENGTH: it has all the requested tokens.
        STOP: it generated one of its stop tokens, or an end token of the model.
        REFUSED: it was rejected; its output has the error.
    """

    LENGTH = "length"
    STOP = "stop"
    REFUSED = "refused"


@dataclass(frozen=True, kw_only=True, slots=True)
class RequestOutput:
    """The result of a finished request.

    Attributes:
        request_id: as :meth:`~qwen3_engine.serving.engine.Engine.add_request` returned it.
        prompt: token ids of the request.
        tokens: generated token ids.
        finish_reason: why it is over.
        error: the reason of a refusal, else ``None``.
        logits: ``[num_tokens, vocab_size]``, float32, CPU: the logits each token was chosen from;
            ``None`` unless the engine records them.
    """

    request_id: int
    prompt: tuple[int, ...]
    tokens: tuple[int, ...]
    finish_reason: FinishReason
    error: RequestError | None = None
    logits: torch.Tensor | None = None


@dataclass(kw_only=True, slots=True, eq=False)
class Sequence:
    """A request in progress; owned and changed by the engine and its scheduler.

    Attributes:
        request_id: number of the request in its engine.
        request: the request.
        sampler: samples its tokens.
        tokens: tokens generated so far.
        blocks: blocks of the key/value cache, in the order of positions; empty while waiting.
        num_cached: positions whose keys and values are in the cache.
        logits: one row for each generated token, if they are recorded.
    """

    request_id: int
    request: Request
    sampler: Sampler
    tokens: list[int] = field(default_factory=list)
    blocks: list[int] = field(default_factory=list)
    num_cached: int = 0
    logits: list[torch.Tensor] = field(default_factory=list)

    @classmethod
    def start(cls, request_id: int, request: Request) -> Sequence:
        """Return the sequence of a new request."""
        sampler = Sampler(request.sampling)
        return cls(request_id=request_id, request=request, sampler=sampler)

    @property
    def num_tokens(self) -> int:
        """Tokens of the prompt and generated so far."""
        return len(self.request.prompt) + len(self.tokens)

    @property
    def max_num_tokens(self) -> int:
        """Number of tokens when the request is complete."""
        return len(self.request.prompt) + self.request.sampling.max_tokens

    @property
    def pending_tokens(self) -> list[int]:
        """The tokens that are not in the cache yet: the input of its next forward pass."""
        num_prompt = len(self.request.prompt)
        if self.num_cached >= num_prompt:
            return self.tokens[self.num_cached - num_prompt :]
        return [*self.request.prompt[self.num_cached :], *self.tokens]

    def num_missing_blocks(self, *, steps: int = 1) -> int:
        """Return the blocks it must get before its next forward pass, or so many decode steps."""
        return num_blocks_for(self.num_tokens + self.num_wanted(steps) - 1) - len(self.blocks)

    def num_wanted(self, steps: int) -> int:
        """Return of so many decode steps those whose tokens it still wants; at least 1."""
        return max(1, min(steps, self.max_num_tokens - self.num_tokens))

    def slots(self) -> list[int]:
        """Return the cache slots of the pending tokens."""
        return [slot(self.blocks, position) for position in range(self.num_cached, self.num_tokens)]
