"""What sparse attention reads of a step on the device, and the producers that make it."""

from __future__ import annotations

from contextlib import contextmanager
from enum import Enum
from typing import TYPE_CHECKING, Any

import torch

from attn_update.kinds import DeviceLengthAttention, metadata_kinds
from attn_update.producers import Producer, ProducerLane, ProducerStep

if TYPE_CHECKING:
    from collections.abc import Hashable, Iterator, Sequence

    from attn_update import Recorder
    from npu_graph_runtime import GraphDevice

HEADS, WIDTH, WINDOW, CHOSEN = 2, 512, 128, 512


class Rule(str, Enum):
    """Which keys the rows of a layer see; layers of one rule share their metadata."""

    WINDOW = "window"
    CHOSEN = "window and chosen keys"


class StepMetadata:
    """The lengths of a step and the metadata of each rule, in buffers that stay.

    Args:
        device: of the buffers.
        max_sequences: the most of a step, padding included.
        max_tokens: the most of a captured step.
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
        self._captured: dict[Hashable, int] = {}
        self._made: dict[int, list[Producer]] = {}
        self._sequences = 0

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

    def make_now(self, query_ends: Sequence[int], keys: Sequence[int]) -> None:
        """Make the metadata of a step without a graph."""
        self._sequences = len(keys)
        self.lane.run_now(self.producers(len(keys)), (query_ends, keys))

    @contextmanager
    def recording(self, recorder: Recorder) -> Iterator[None]:
        """Let the layers captured inside the context wait for the producers.

        The graph is of as many sequences as the latest step. Does nothing where no layer is
        recorded, as in a piece between two layers.
        """
        key = recorder.recorded_key
        if key is None:
            yield
            return
        with self.lane.recording(recorder, self.producers(self._sequences)):
            yield
        self._captured[key] = self._sequences

    def step(self, key: Hashable, query_ends: Sequence[int], keys: Sequence[int]) -> ProducerStep:
        """Return the step of a graph; sequences that it does not have get no row and no key."""
        sequences = self._captured[key]
        missing = sequences - len(keys)
        total = query_ends[-1] if query_ends else 0
        ends, keys = [*query_ends, *[total] * missing], [*keys, *[0] * missing]
        rows = [end - start for start, end in zip([0, *ends[:-1]], ends, strict=True)]
        longest = {"batch_size": sequences, "max_seqlen_q": max(rows)}
        longest["max_seqlen_ori_kv"] = max(keys)
        needs = {
            rule.value: {
                **longest,
                "max_seqlen_cmp_kv": max(keys) if rule is Rule.CHOSEN else 0,
            }
            for rule in Rule
        }
        needs["lengths"] = {"sequences": sequences}
        return ProducerStep(key=key, needs=needs, values=(ends, keys))

    def producers(self, sequences: int) -> list[Producer]:
        """Return the producers of a step with so many sequences; the first makes its lengths."""
        if sequences not in self._made:
            made = [self._lengths_producer(sequences)]
            made += [self._metadata_producer(rule, sequences) for rule in Rule]
            self._made[sequences] = made
        return self._made[sequences]

    def _lengths_producer(self, sequences: int) -> Producer:
        ends, keys = self.query_ends[: sequences + 1], self.keys[:sequences]

        def launch(values: tuple[Sequence[int], Sequence[int]]) -> None:
            for buffer, own in ((ends, [0, *values[0]]), (keys, values[1])):
                pinned = torch.tensor(own, dtype=torch.int32).pin_memory()
                buffer.copy_(pinned, non_blocking=True)

        return Producer(
            name="lengths", launch=launch, buffers=(ends, keys), bounds={"sequences": sequences}
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
