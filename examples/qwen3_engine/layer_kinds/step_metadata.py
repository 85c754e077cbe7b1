"""What sparse attention reads of a step on the device, and the producers that make it."""

from __future__ import annotations

from enum import Enum
from functools import partial
from typing import TYPE_CHECKING, Any

import torch

from attn_update.kinds import DeviceLengthAttention, metadata_kinds
from attn_update.producers import Producer, ProducerLane
from npu_compile import StepProducers, StepSize

if TYPE_CHECKING:
    from collections.abc import Mapping

    from npu_graph_runtime import GraphDevice

HEADS, WIDTH, WINDOW, CHOSEN = 2, 512, 128, 512
GROUP, QUERIES, KEYS = "default", "actual_seq_lengths", "actual_seq_lengths_kv"


class Rule(str, Enum):
    """Which keys the rows of a layer see; layers of one rule share their metadata."""

    WINDOW = "window"
    CHOSEN = "window and chosen keys"


class StepMetadata:
    """The lengths of a step and the metadata of each rule, in buffers that stay.

    Args:
        device: of the buffers.
        max_sequences: the most of a step, padding and steps without a graph included.
        max_tokens: the most of a sequence in such a step.
        max_keys: the most of a sequence.

    Attributes:
        query_ends: int32 ``[max_sequences + 1]``; the first is 0.
        keys: int32 ``[max_sequences]``.
        buffers: int32 ``[1024]`` for each rule.
        lane: runs the producers.
    """

    def __init__(
        self, device: GraphDevice, *, max_sequences: int, max_tokens: int, max_keys: int
    ) -> None:
        def zeros(size: int) -> torch.Tensor:
            return torch.zeros(size, dtype=torch.int32, device=device.torch_device)

        self.query_ends, self.keys = zeros(max_sequences + 1), zeros(max_sequences)
        self.buffers = {rule: zeros(1024) for rule in Rule}
        self.lane = ProducerLane(device)
        self._most = {"max_seqlen_q": max_tokens, "max_seqlen_ori_kv": max_keys}
        self._made: dict[int, list[Producer]] = {}

    def lengths(self, rule: Rule, sequences: int) -> dict[str, Any]:
        """Return what attention and the operator that makes its metadata are both given."""
        given: dict[str, Any] = {
            "cu_seqlens_q": self.query_ends[: sequences + 1],
            "seqused_ori_kv": self.keys[:sequences],
            "ori_mask_mode": 4,
            "ori_win_left": WINDOW - 1,
            "ori_win_right": 0,
            "layout_q": "TND",
            "layout_kv": "PA_BBND",
        }
        if rule is Rule.CHOSEN:
            given |= {"seqused_cmp_kv": self.keys[:sequences], "cmp_ratio": 1, "cmp_mask_mode": 3}
        return given

    def step_producers(self, *, captured: bool) -> StepProducers:
        """Return the door of a runner: the lengths are made beside a graph, the rest anywhere.

        Args:
            captured: whether metadata is made inside the graphs, from lengths that each step
                writes.
        """
        return StepProducers(
            lane=self.lane,
            make=lambda size: self.producers(size.sequences)[1 if captured else 0 :],
            needs=partial(self.needs, is_whole=not captured),
            captured=captured,
            write_inputs=self.write_lengths if captured else None,
            groups={GROUP},
        )

    def write_lengths(self, size: StepSize, lengths: Mapping[str, Mapping[str, Any]]) -> None:
        """Write the lengths of a step; sequences that it does not have get no row and no key."""
        ends, keys = _filled(size.sequences, lengths)
        for buffer, own in ((self.query_ends, [0, *ends]), (self.keys, keys)):
            pinned = torch.tensor(own, dtype=torch.int32).pin_memory()
            buffer[: len(own)].copy_(pinned, non_blocking=True)

    def producers(self, sequences: int) -> list[Producer]:
        """Return the producers of a step with so many sequences; the first makes its lengths."""
        if sequences not in self._made:
            made = [self._lengths_producer(sequences)]
            made += [self._metadata_producer(rule, sequences) for rule in Rule]
            self._made[sequences] = made
        return self._made[sequences]

    def needs(
        self, size: StepSize, lengths: Mapping[str, Mapping[str, Any]], *, is_whole: bool
    ) -> dict[str, dict[str, int]]:
        """Return what a step of a graph needs of each bound; `is_whole` with its lengths."""
        ends, keys = _filled(size.sequences, lengths)
        rows = [end - start for start, end in zip([0, *ends[:-1]], ends, strict=True)]
        longest = {"batch_size": size.sequences, "max_seqlen_q": max(rows)}
        longest["max_seqlen_ori_kv"] = max(keys)
        needs = {"lengths": {"sequences": size.sequences}} if is_whole else {}
        for rule in Rule:
            chosen = max(keys) if rule is Rule.CHOSEN else 0
            needs[rule.value] = {**longest, "max_seqlen_cmp_kv": chosen}
        return needs

    def _lengths_producer(self, sequences: int) -> Producer:
        size = StepSize(tokens=sequences, sequences=sequences)
        return Producer(
            name="lengths",
            launch=partial(self.write_lengths, size),
            buffers=(self.query_ends[: sequences + 1], self.keys[:sequences]),
            bounds={"sequences": sequences},
        )

    def _metadata_producer(self, rule: Rule, sequences: int) -> Producer:
        kind = metadata_kinds()["sparse_flash_mla"]
        assert isinstance(kind, DeviceLengthAttention)
        is_chosen = rule is Rule.CHOSEN
        arguments = {
            "num_heads_q": HEADS,
            "num_heads_kv": 1,
            "head_dim": WIDTH,
            **self.lengths(rule, sequences),
            **self._most,
            "batch_size": sequences,
            "max_seqlen_cmp_kv": self._most["max_seqlen_ori_kv"] if is_chosen else 0,
            "cmp_topk": CHOSEN if is_chosen else 0,
            "has_cmp_kv": is_chosen,
        }
        return Producer.calling(
            kind.metadata[0], name=rule.value, arguments=arguments, buffer=self.buffers[rule]
        )


def _filled(
    sequences: int, lengths: Mapping[str, Mapping[str, Any]]
) -> tuple[list[int], list[int]]:
    given = lengths[GROUP]
    missing = sequences - len(given[KEYS])
    ends = given[QUERIES]
    return [*ends, *[ends[-1]] * missing], [*given[KEYS], *[0] * missing]
