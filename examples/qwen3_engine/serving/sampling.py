"""Samples the next token from logits."""

from __future__ import annotations

from dataclasses import dataclass

import torch

from qwen3_engine.errors import RequestError


@dataclass(frozen=True, kw_only=True, slots=True)
class SamplingParameters:
    """Sampling options of one request.

    Attributes:
        max_tokens: maximum number of generated tokens.
        temperature: 0 selects the best token (greedy); otherwise logits are divided by it.
        top_k: sample among this many best tokens; 0 means all.
        top_p: sample among the fewest best tokens whose probabilities reach this sum.
        seed: seed of this request's generator, so its tokens do not depend on other requests.
        stop_token_ids: tokens that end the text; such a token is the last one of the output.

    Raises:
        RequestError: a value is out of its range.
    """

    max_tokens: int
    temperature: float = 0.0
    top_k: int = 0
    top_p: float = 1.0
    seed: int = 0
    stop_token_ids: tuple[int, ...] = ()

    def __post_init__(self) -> None:
        rules = {
            "max_tokens": (self.max_tokens >= 1, "at least 1"),
            "temperature": (self.temperature >= 0, "0 or more"),
            "top_k": (self.top_k >= 0, "0 (all) or more"),
            "top_p": (0 < self.top_p <= 1, "above 0 and at most 1"),
        }
        for name, (holds, expected) in rules.items():
            if not holds:
                raise RequestError(
                    f"reading the sampling parameters: {name} is {getattr(self, name)!r}, "
                    f"expected {expected}"
                )


class Sampler:
    """Chooses the tokens of one request; owns its random generator.

    Args:
        parameters: of the request.
    """

    def __init__(self, parameters: SamplingParameters) -> None:
        self._parameters = parameters
        self._generator = torch.Generator("cpu")
        self._generator.manual_seed(parameters.seed)

    def choose(self, logits: torch.Tensor) -> int:
        """Return the next token.

        Greedy choice takes the lowest of equally good tokens; sampling draws once from the
        generator, so the tokens are a function of the logits and the seed.

        Args:
            logits: ``[vocab_size]``, float32, CPU; not changed.
        """
        parameters = self._parameters
        if parameters.temperature == 0:
            return int(torch.argmax(logits))
        probabilities = torch.softmax(logits / parameters.temperature, dim=-1)
        sorted_probabilities, tokens = torch.sort(probabilities, descending=True, stable=True)
        kept = parameters.top_k or len(tokens)
        if parameters.top_p < 1:
            # A token is kept if the sum before it has not reached top_p; the best one always is.
            before = torch.cumsum(sorted_probabilities, dim=-1) - sorted_probabilities
            kept = min(kept, int((before < parameters.top_p).sum()))
        drawn = torch.multinomial(sorted_probabilities[:kept], 1, generator=self._generator)
        return int(tokens[drawn])
