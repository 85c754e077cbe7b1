"""What is read from the engine's metadata and forward context, without the engine."""

from __future__ import annotations

from types import SimpleNamespace
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest

import cann_sim
from attn_update import UpdateLane
from npu_graph_runtime import NpuDevice
from npu_graph_testing.attention import assert_layers_equal
from npu_graph_testing.attention.cases import CaseModel, all_kinds, find_case
from vllm_npu_graph.recording.attention_update import (
    AttentionUpdate,
    read_latent,
    read_lengths,
    read_part,
)
from vllm_npu_graph.recording.draft_update import DraftUpdate, by_launch

if TYPE_CHECKING:
    from collections.abc import Callable

NAMES = ("layers.0", "layers.1")
SEQUENCES = 2


def plain(lengths: list[int], table: object) -> Any:
    """Return metadata of the engine's attention with grouped queries."""
    return SimpleNamespace(
        actual_seq_lengths_q=[1, 2], seq_lens_list=lengths, block_tables=table, decode_meta=None
    )


def part(lengths: list[int], table: object) -> Any:
    """Return those over a part of the keys: the second of two that share them in decode."""
    tokens = np.array([[[40, length]] for length in lengths])
    decode = SimpleNamespace(num_computed_tokens_of_pcp_dcp=tokens, block_tables=table)
    return SimpleNamespace(actual_seq_lengths_q=[1, 2], decode_meta=decode)


def latent(lengths: list[int], table: object) -> Any:
    """Return metadata of the engine's latent attention."""
    decode = SimpleNamespace(
        seq_lens_list=lengths, actual_seq_lengths_q=[1, 2], cp_seq_len=lengths, block_table=table
    )
    return SimpleNamespace(decode=decode)


def read_second_part(metadata: Any) -> dict[str, Any]:
    return read_part(metadata, (0, 1))


@pytest.mark.parametrize(
    ("case", "argument", "metadata_of", "read"),
    [
        ("v1 rebound", "actual_seq_lengths_kv", plain, read_lengths),
        ("paged attention rebound", "context_lens", plain, read_lengths),
        ("v1 decode", "actual_seq_lengths_kv", part, read_second_part),
        ("latent_attention_v2 BNSD_NBSD", "actual_seq_kvlen", latent, read_latent),
        ("latent_attention_v1 BNSD", "actual_seq_lengths_kv", latent, read_latent),
    ],
)
def test_a_step_is_what_the_engine_says(
    case: str,
    argument: str,
    metadata_of: Callable[[list[int], object], Any],
    read: Callable[[Any], dict[str, Any]],
) -> None:
    cann_sim.activate()
    device = NpuDevice(0)
    with device.use_stream(device.create_stream()):
        model = CaseModel(device=device, case=find_case(case), kinds=all_kinds())
        captured = model.captured_step(SEQUENCES)
        table = model.arguments(SEQUENCES, 0, captured)["block_table"]
        update = AttentionUpdate(UpdateLane(device), frozenset(NAMES))
        first = metadata_of([1, 1], table)
        graph = device.create_graph()
        with (
            update.recording("decode"),
            device.capture(graph, pool=device.create_memory_pool()),
        ):
            outputs = [
                update.attention(
                    name,
                    all_kinds()[model.kind_name],
                    first,
                    model.arguments(SEQUENCES, layer, captured),
                    read,
                    pad=metadata_of is not plain,
                )[0]
                for layer, name in enumerate(NAMES)
            ]
        for lengths in ([5, 40], [6, 41], [48, 1]):
            given = dict.fromkeys(NAMES, metadata_of(lengths, table))
            context = SimpleNamespace(batch_descriptor="decode", attn_metadata=given)
            with update.replaying(context):
                graph.replay()
            step = {**captured, argument: lengths}
            assert_layers_equal(outputs, model.eager(SEQUENCES, step))
    device.synchronize()


def test_without_decode_steps_nothing_is_read() -> None:
    assert read_latent(SimpleNamespace(decode=None))["block_table"] is None
    none = SimpleNamespace(decode_meta=None, actual_seq_lengths_q=[])
    assert read_second_part(none)["actual_seq_lengths_kv"] is None


def test_a_draft_has_the_lengths_of_each_of_its_steps() -> None:
    cann_sim.activate()
    device = NpuDevice(0)
    with device.use_stream(device.create_stream()):
        model = CaseModel(device=device, case=find_case("v1 rebound"), kinds=all_kinds())
        captured = model.captured_step(SEQUENCES)
        table = model.arguments(SEQUENCES, 0, captured)["block_table"]
        update = DraftUpdate(UpdateLane(device), ["draft"], steps=2)
        graph = device.create_graph()
        with (
            update.recording("draft"),
            device.capture(graph, pool=device.create_memory_pool()),
        ):
            outputs = [
                update.attention(
                    "draft",
                    all_kinds()[model.kind_name],
                    plain([1, 1], table),
                    model.arguments(SEQUENCES, layer, captured),
                    read_lengths,
                )[0]
                for layer in range(2)
            ]
        for lengths in ([5, 40], [6, 41]), ([47, 1], [48, 2]):
            metadata = [{"draft": plain(each, table)} for each in lengths]
            with update.step("draft", by_launch(metadata)):
                graph.replay()
            eager = [
                model.eager(SEQUENCES, {**captured, "actual_seq_lengths_kv": each})[layer]
                for layer, each in enumerate(lengths)
            ]
            assert_layers_equal(outputs, eager)
    device.synchronize()
