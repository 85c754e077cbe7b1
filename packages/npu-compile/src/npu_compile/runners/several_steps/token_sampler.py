"""Sampling on the device, in a captured graph too: greedy, or by Gumbel noise.

The largest of logits divided by a temperature, with Gumbel noise added to each, is a sample of
their softmax (the Gumbel-max trick). The noise of a token is a function of the seed of its request,
the position in its sequence and the token: no generator has a state, so a sample does not depend on
the batch, on padding, or on how many steps a replay holds.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import torch

from npu_compile.configuration.config_values import is_whole
from npu_compile.errors import ConfigError

if TYPE_CHECKING:
    from torch import Tensor

# Numbers are of 31 bits, and a factor of 27, so that products fit int64 without overflow.
_BITS = 0x7FFFFFFF
_FACTOR = 73244475
_HALF = 1 << 16
# So many bits and a half are whole in float32, and the quotient stays below 1.
_NUMBERS = 1 << 23


class TokenSampler:
    """Samples the next token of each row; owns a table of the vocabulary.

    Keep it as long as the graphs that were captured with it. Launches some 25 operators.

    Args:
        vocab_size: of the logits.
        device: where they lie.

    Raises:
        ConfigError: ``vocab_size`` is out of range.
    """

    def __init__(self, vocab_size: int, *, device: torch.device) -> None:
        if not is_whole(vocab_size, least=1) or vocab_size > _BITS:
            raise ConfigError(
                f"making a token sampler: vocab_size is {vocab_size!r}, expected 1 to {_BITS}"
            )
        self._tokens = _mixed(torch.arange(1, vocab_size + 1)).to(device)

    def __call__(
        self, logits: Tensor, *, temperatures: Tensor, seeds: Tensor, positions: Tensor
    ) -> Tensor:
        """Return a token for each row: ``[rows]``, int32, on the device.

        Args:
            logits: ``[rows, vocab_size]``, floating point, on the device.
            temperatures: ``[rows]``, float32: 0 takes the best token (greedy), and the lowest of
                equally good ones.
            seeds: ``[rows]``, int64, not negative: of the request of each row.
            positions: ``[rows]``, int64, not negative: of the last token of each row in its
                sequence.
        """
        keys = _mixed((_mixed(seeds.bitwise_and(_BITS)) + positions).bitwise_and(_BITS))
        drawn = _mixed(self._tokens.bitwise_xor(keys[:, None])).bitwise_and(_NUMBERS - 1)
        uniform = (drawn.to(torch.float32) + 0.5) * (1 / _NUMBERS)
        noise = uniform.log().neg().log()
        return (logits.float() - noise * temperatures[:, None]).argmax(-1).to(torch.int32)


def _mixed(numbers: Tensor) -> Tensor:
    """Return numbers of 31 bits, each bit of which depends on all bits of the one given."""
    for _ in range(2):
        numbers = numbers.div(_HALF, rounding_mode="floor").bitwise_xor(numbers)
        numbers = (numbers * _FACTOR).bitwise_and(_BITS)
    return numbers.div(_HALF, rounding_mode="floor").bitwise_xor(numbers)
