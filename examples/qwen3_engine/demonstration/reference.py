"""Runs the same checkpoint with transformers on the CPU, as a reference for the engine."""

from __future__ import annotations

from typing import TYPE_CHECKING

import torch

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path


class ReferenceModel:
    """A checkpoint in float32 on the CPU, with the attention written out in plain torch.

    float32 makes its own rounding negligible beside that of the 16-bit dtypes it judges.

    Args:
        folder: a Hugging Face checkpoint of a causal language model.
    """

    def __init__(self, folder: str | Path) -> None:
        # transformers takes seconds to import, which the engine itself does not need.
        from transformers import AutoModelForCausalLM  # noqa: PLC0415

        # from_pretrained returns the model in evaluation mode.
        self._model = AutoModelForCausalLM.from_pretrained(
            folder, dtype=torch.float32, attn_implementation="eager", local_files_only=True
        )

    @torch.no_grad()
    def logits(self, tokens: Sequence[int]) -> torch.Tensor:
        """Return the logits after each token of a text: ``[num_tokens, vocab_size]``, float32.

        The text is given as a whole ("teacher forcing"), so an engine that chose one token of it
        differently is still compared at every later one.
        """
        input_ids = torch.tensor([list(tokens)], dtype=torch.int64)
        logits: torch.Tensor = self._model(input_ids=input_ids, use_cache=False).logits
        return logits[0].to(torch.float32)
