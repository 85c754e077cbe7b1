"""Steps with changing batches, the same for the same seed, and the results of a model."""

from __future__ import annotations

from dataclasses import dataclass, field
from enum import Enum
from random import Random
from typing import TYPE_CHECKING

import torch

from mode_matrix.served_model import DRAFT_STEPS, QUERY_LENGTH
from qwen3_engine import StepBatch
from qwen3_engine.qwen3.kv_cache import slot

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from mode_matrix.served_model import Drafter, ModelSettings, TargetModel

VOCABULARY = 512
LONGEST_CHUNK = 24
SHORTEST_TEXT, LONGEST_TEXT = 40, 160
# Of the drafts so many are spoiled, so that steps accept any number of them.
SPOILED = 0.25


class StepKind(str, Enum):
    """Kind of work in a step."""

    DECODE = "decode"
    PREFILL = "prefill"
    MIXED = "mixed"
    SPECULATIVE = "speculative"


@dataclass(kw_only=True)
class Text:
    """A sequence: its tokens so far, beginning with the prompt, and its part of the cache.

    Attributes:
        blocks: blocks of the cache.
        tokens: tokens so far.
        num_prompt: number of tokens that the model did not generate.
        length: length at which it ends.
        num_cached: number of tokens in the cache of the target model.
        logits: logits after each computed token that stays, by position.
    """

    blocks: tuple[int, ...]
    tokens: list[int]
    num_prompt: int
    length: int
    num_cached: int = 0
    logits: dict[int, torch.Tensor] = field(default_factory=dict)

    @property
    def is_prefilled(self) -> bool:
        return self.num_cached >= self.num_prompt - 1


@dataclass(kw_only=True)
class WorkloadResult:
    """The results of a model.

    Attributes:
        steps: values of each step on the CPU, for all rows of the batch: logits, followed by the
            drafts of a speculative step.
        texts: all sequences, with the logits after their tokens.
        num_sequences: number of sequences of each step.
        num_accepted: number of drafts that each sequence of a speculative step accepted.
        num_unspoiled: number of drafts of each such sequence before the first spoiled one.
        replayed: for each step, whether all models that ran replayed graphs for it.
    """

    steps: list[tuple[torch.Tensor, ...]] = field(default_factory=list)
    texts: list[Text] = field(default_factory=list)
    num_sequences: list[int] = field(default_factory=list)
    num_accepted: list[int] = field(default_factory=list)
    num_unspoiled: list[int] = field(default_factory=list)
    replayed: list[bool] = field(default_factory=list)

    def differing_steps(self, expected: WorkloadResult) -> list[int]:
        """Return the steps that are not, value by value and bit by bit, as expected."""
        pairs = zip(self.steps, expected.steps, strict=True)
        return [step for step, (left, right) in enumerate(pairs) if _bytes(left) != _bytes(right)]


def _bytes(values: tuple[torch.Tensor, ...]) -> list[bytes]:
    return [value.contiguous().view(torch.uint8).numpy().tobytes() for value in values]


class Workload:
    """One kind of step again and again, on sequences that come and go.

    Args:
        kind: of the steps.
        target: runs them.
        drafter: proposes tokens, required for speculative steps.
        settings: of the models.
        seed: of texts and batches.
    """

    def __init__(
        self,
        kind: StepKind,
        target: TargetModel,
        drafter: Drafter | None,
        *,
        settings: ModelSettings,
        seed: int,
    ) -> None:
        self._kind = kind
        self._target = target
        self._drafter = drafter
        self._max_blocks = settings.max_blocks
        self._random = Random(seed)
        self.result = WorkloadResult()
        self._texts = [self._new_text(place) for place in range(settings.max_sequences)]

    def run(self, num_steps: int) -> WorkloadResult:
        """Run a number of steps and return the results."""
        step: Callable[[], None] = {
            StepKind.DECODE: self._decode,
            StepKind.PREFILL: self._prefill,
            StepKind.MIXED: self._mix,
            StepKind.SPECULATIVE: self._speculate,
        }[self._kind]
        for _ in range(num_steps):
            for place, text in enumerate(self._texts):
                if len(text.tokens) >= text.length and text.num_cached >= text.length - 1:
                    self._texts[place] = self._new_text(place)
            models: list[TargetModel | Drafter] = [self._target]
            if self._drafter is not None and self._kind is StepKind.SPECULATIVE:
                models.append(self._drafter)
            for model in models:
                model.replayed.clear()
            step()
            # Others are those of prompts, which steps of one kind begin with as well.
            uniform = self._kind in {StepKind.DECODE, StepKind.SPECULATIVE}
            self.result.replayed.append(
                all(any(key.uniform == uniform for key in model.replayed) for model in models)
            )
        return self.result

    def _new_text(self, place: int) -> Text:
        length = self._random.randint(SHORTEST_TEXT, LONGEST_TEXT)
        is_prompt_alone = self._kind is StepKind.PREFILL
        num_prompt = length if is_prompt_alone else self._random.randint(1, length // 2)
        first = 1 + place * self._max_blocks
        text = Text(
            blocks=tuple(range(first, first + self._max_blocks)),
            tokens=[self._random.randrange(VOCABULARY) for _ in range(num_prompt)],
            num_prompt=num_prompt,
            length=length,
        )
        self.result.texts.append(text)
        return text

    def _some(self, texts: Sequence[Text]) -> list[Text]:
        return self._random.sample(list(texts), self._random.randint(1, len(texts)))

    def _decode(self) -> None:
        texts = self._some(self._texts)
        self._fill(texts)
        logits = self._target.run_uniform(self._batch(texts, [1] * len(texts)))
        self._take(texts, [1] * len(texts), logits.cpu())

    def _prefill(self) -> None:
        texts = self._some(self._texts)
        counts = [self._chunk(text) for text in texts]
        logits = self._target.run_any(self._batch(texts, counts))
        self._take(texts, counts, logits.cpu())

    def _mix(self) -> None:
        """Run some sequences that decode and some with a chunk of their prompt, if both exist."""
        ready = [text for text in self._texts if text.is_prefilled]
        others = [text for text in self._texts if not text.is_prefilled]
        texts = [*(self._some(ready) if ready else []), *(self._some(others) if others else [])]
        self._random.shuffle(texts)
        counts = [1 if text.is_prefilled else self._chunk(text) for text in texts]
        logits = self._target.run_any(self._batch(texts, counts))
        self._take(texts, counts, logits.cpu())

    def _speculate(self) -> None:
        texts = self._some(self._texts)
        self._fill(texts, also_draft=True)
        positions = torch.tensor([len(text.tokens) - 1 for text in texts])
        slots = [[slot(t.blocks, len(t.tokens) - 1 + n) for n in range(DRAFT_STEPS)] for t in texts]
        last = torch.tensor([text.tokens[-1] for text in texts], dtype=torch.int32)
        batch = self._batch(texts, [QUERY_LENGTH] * len(texts))
        assert self._drafter is not None
        proposed = self._drafter.propose(
            last,
            positions=positions,
            slots=torch.tensor(slots, dtype=torch.int32),
            block_table=batch.block_table,
        )
        spoils = self._spoils(len(texts))
        drafts = (proposed[:, :-1] + spoils.to(proposed.device)) % VOCABULARY
        self.result.num_unspoiled += (spoils == 0).int().cumprod(1).sum(1).tolist()
        # The drafts stay on the device; the host has not read one of them.
        ids = torch.cat([last.to(drafts.device).unsqueeze(1), drafts], dim=1).flatten()
        logits = self._target.run_uniform(_with_ids(batch, ids)).cpu()
        given = drafts.cpu()
        self.result.steps.append((logits, proposed.cpu()))
        self.result.num_sequences.append(len(texts))
        best = logits.view(len(texts), QUERY_LENGTH, -1).argmax(-1)
        for row, text in enumerate(texts):
            accepted = 0
            while accepted < QUERY_LENGTH - 1 and given[row, accepted] == best[row, accepted]:
                accepted += 1
            self.result.num_accepted.append(accepted)
            for number in range(accepted + 1):
                text.logits[len(text.tokens) - 1] = logits[row * QUERY_LENGTH + number]
                text.tokens.append(int(best[row, number]))
            text.num_cached = len(text.tokens) - 1

    def _spoils(self, rows: int) -> torch.Tensor:
        spoils = [
            [self._random.randrange(1, VOCABULARY) * (self._random.random() < SPOILED) for _ in row]
            for row in [range(DRAFT_STEPS - 1)] * rows
        ]
        return torch.tensor(spoils, dtype=torch.int32)

    def _chunk(self, text: Text) -> int:
        left = text.num_prompt - text.num_cached
        return min(left, self._random.randint(1, LONGEST_CHUNK))

    def _fill(self, texts: Sequence[Text], *, also_draft: bool = False) -> None:
        """Write the prompts of new sequences into the caches, but for their last token."""
        new = [text for text in texts if not text.is_prefilled]
        if not new:
            return
        counts = [len(text.tokens) - 1 - text.num_cached for text in new]
        batch = self._batch(new, counts)
        self._target.run_any(batch)
        if also_draft:
            assert self._drafter is not None
            self._drafter.prefill(batch)
        for text in new:
            text.num_cached = len(text.tokens) - 1

    def _batch(self, texts: Sequence[Text], counts: Sequence[int]) -> StepBatch:
        positions = [
            range(text.num_cached, text.num_cached + count)
            for text, count in zip(texts, counts, strict=True)
        ]
        pairs = list(zip(texts, positions, strict=True))
        tokens = [
            text.tokens[each] if each < len(text.tokens) else 0
            for text, own in pairs
            for each in own
        ]
        slots = [slot(text.blocks, each) for text, own in pairs for each in own]
        return StepBatch(
            input_ids=torch.tensor(tokens, dtype=torch.int32),
            positions=torch.tensor([each for own in positions for each in own]),
            slot_mapping=torch.tensor(slots, dtype=torch.int32),
            block_table=torch.tensor([text.blocks for text in texts], dtype=torch.int32),
            query_lengths=tuple(counts),
            kv_lengths=tuple(own.stop for own in positions),
        )

    def _take(self, texts: Sequence[Text], counts: Sequence[int], logits: torch.Tensor) -> None:
        """Store the results of a step, and extend sequences whose last token it computed."""
        self.result.steps.append((logits,))
        self.result.num_sequences.append(len(texts))
        row = 0
        for text, count in zip(texts, counts, strict=True):
            for _ in range(count):
                text.logits[text.num_cached] = logits[row]
                text.num_cached += 1
                row += 1
            if text.num_cached == len(text.tokens) and len(text.tokens) < text.length:
                text.tokens.append(int(logits[row - 1].argmax()))


def _with_ids(batch: StepBatch, ids: torch.Tensor) -> StepBatch:
    return StepBatch(
        input_ids=ids,
        positions=batch.positions,
        slot_mapping=batch.slot_mapping,
        block_table=batch.block_table,
        query_lengths=batch.query_lengths,
        kv_lengths=batch.kv_lengths,
    )
