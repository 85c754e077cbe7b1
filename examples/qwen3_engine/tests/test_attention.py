"""Tests of qwen3_engine.qwen3.attention."""

from __future__ import annotations

from itertools import accumulate
from typing import TYPE_CHECKING

import pytest
import torch

from qwen3_engine.errors import BatchError, ConfigError
from qwen3_engine.qwen3.attention import AttentionOperator, attend_at_once
from qwen3_engine.qwen3.kv_cache import new_layer_cache, slot, write_cache
from qwen3_engine.serving.step_state import StepState

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from qwen3_engine.qwen3.attention import Attend
    from qwen3_engine.qwen3.model_config import Qwen3Config

LAYER = "layers.0"


def _operator(
    config: Qwen3Config, device: torch.device, *, attend: Attend = attend_at_once
) -> AttentionOperator:
    operator = AttentionOperator(
        config, dtype=torch.float16, device=device, attend=attend, step_state=StepState()
    )
    operator.add_layer(LAYER)
    return operator


class _Cache:
    """Two sequences of a layer: the dense keys and values, and the same in a paged cache."""

    def __init__(self, config: Qwen3Config, device: torch.device) -> None:
        self._config = config
        self._device = device
        self._generator = torch.Generator().manual_seed(5)
        self.blocks = ([3, 1], [2])
        self.keys: list[list[torch.Tensor]] = [[], []]
        self.values: list[list[torch.Tensor]] = [[], []]
        self.paged_keys, self.paged_values = (
            new_layer_cache(config, num_blocks=5, dtype=torch.float16, device=device)
            for _ in range(2)
        )

    def random(self, *shape: int) -> torch.Tensor:
        return torch.randn(shape, generator=self._generator).to(torch.float16)

    def run(
        self, attention: AttentionOperator, query_lengths: list[int], *, padding_rows: int = 0
    ) -> torch.Tensor:
        """Write new tokens of each sequence, run the operator, check it and return its output."""
        config = self._config
        num_tokens = sum(query_lengths) + padding_rows
        query = self.random(num_tokens, config.num_heads, 128)
        # The value is a part of a larger matrix, as in the model: it is not contiguous.
        states = self.random(num_tokens, 2, config.num_kv_heads, 128).to(self._device)
        slots: list[int] = []
        for index, count in enumerate(query_lengths):
            start = len(self.keys[index])
            slots += [slot(self.blocks[index], start + offset) for offset in range(count)]
            rows = states.cpu()[len(slots) - count : len(slots)]
            self.keys[index] += list(rows[:, 0])
            self.values[index] += list(rows[:, 1])
        slots += [0] * padding_rows
        table = torch.tensor([*([3, 1], [2, 0]), *[[0, 0]] * padding_rows], dtype=torch.int32)
        lengths = [len(keys) for keys in self.keys]
        attention.step_state.load(
            [*query_lengths, *[1] * padding_rows], [*lengths, *[0] * padding_rows]
        )
        out = torch.full_like(query, float("nan")).to(self._device)
        slot_mapping = torch.tensor(slots, dtype=torch.int32).to(self._device)
        write_cache(states[:, 0], self.paged_keys, slot_mapping)
        write_cache(states[:, 1], self.paged_values, slot_mapping)
        attention.operator(
            query.to(self._device),
            self.paged_keys,
            self.paged_values,
            table.to(self._device),
            out,
            LAYER,
        )
        self._check(query, query_lengths, out.cpu())
        return out.cpu()

    def _check(self, query: torch.Tensor, query_lengths: list[int], out: torch.Tensor) -> None:
        ends = accumulate(query_lengths)
        for index, (count, end) in enumerate(zip(query_lengths, ends, strict=True)):
            keys, values = torch.stack(self.keys[index]), torch.stack(self.values[index])
            expected = torch.nn.functional.scaled_dot_product_attention(
                query[end - count : end].transpose(0, 1).float(),
                keys.transpose(0, 1).float(),
                values.transpose(0, 1).float(),
                attn_mask=torch.ones(count, len(keys)).tril(len(keys) - count).bool(),
                enable_gqa=True,
            ).transpose(0, 1)
            # float16 stores the result with a relative error of 2^-11; values are of order 1.
            torch.testing.assert_close(
                out[end - count : end].float(), expected, rtol=2**-9, atol=2**-9
            )


@pytest.fixture
def attention(config: Qwen3Config, npu: torch.device) -> Iterator[AttentionOperator]:
    operator = _operator(config, npu)
    yield operator
    operator.close()


def test_operator_prefill_then_decode_equals_dense_attention(
    config: Qwen3Config, npu: torch.device, attention: AttentionOperator
) -> None:
    cache = _Cache(config, npu)

    cache.run(attention, [127, 5])
    for _ in range(3):
        cache.run(attention, [1, 1])


def test_operator_padding_rows_are_zero_and_touch_the_padding_block_only(
    config: Qwen3Config, npu: torch.device, attention: AttentionOperator
) -> None:
    cache = _Cache(config, npu)
    cache.run(attention, [4, 2])
    before = cache.paged_keys.cpu().clone()

    out = cache.run(attention, [1, 1], padding_rows=3)

    assert torch.equal(out[2:], torch.zeros_like(out[2:]))
    changed = (cache.paged_keys.cpu() != before).any(dim=-1).nonzero().tolist()
    assert changed == [[0, 0], [2, 2], [3, 4]]


@pytest.mark.parametrize(
    ("query_lengths", "kv_lengths"), [([], []), ([2], [2]), ([1, 2], [1, 2]), ([1, 1], [1])]
)
def test_operator_lengths_of_another_step_are_refused(
    config: Qwen3Config,
    npu: torch.device,
    attention: AttentionOperator,
    query_lengths: list[int],
    kv_lengths: list[int],
) -> None:
    cache = new_layer_cache(config, num_blocks=3, dtype=torch.float16, device=npu)
    query = torch.zeros(2, 4, 128, dtype=torch.float16, device=npu)
    table = torch.zeros(2, 1, dtype=torch.int32, device=npu)
    attention.step_state.load(query_lengths, kv_lengths)

    with pytest.raises(BatchError, match=r"2 tokens and 2 sequences.*load the step state"):
        attention.operator(query, cache, cache, table, query, LAYER)


def test_operator_unknown_layer_names_the_nearest(
    npu: torch.device, attention: AttentionOperator
) -> None:
    one = torch.zeros(1, 4, 128, dtype=torch.float16, device=npu)
    table = torch.zeros(1, 1, dtype=torch.int32, device=npu)
    attention.step_state.load([1], [1])

    with pytest.raises(BatchError, match=r"no layer 'layer\.0'; did you mean 'layers\.0'"):
        attention.operator(one, one, one, table, one, "layer.0")


def test_operator_passes_layer_and_lengths_to_attend(
    config: Qwen3Config, npu: torch.device
) -> None:
    calls: list[tuple[str, object, object]] = []

    def attend(layer_name: str, arguments: Mapping[str, object], /) -> object:
        lengths = (arguments["actual_seq_lengths"], arguments["actual_seq_lengths_kv"])
        calls.append((layer_name, *lengths))
        return attend_at_once(layer_name, arguments)

    attention = _operator(config, npu, attend=attend)
    cache = _Cache(config, npu)

    cache.run(attention, [3, 2])
    cache.run(attention, [1, 1], padding_rows=1)

    attention.close()
    assert calls == [(LAYER, [3, 5], [3, 2]), (LAYER, [1, 2, 3], [4, 3, 0])]


def test_operator_each_object_has_a_name_of_its_own(config: Qwen3Config) -> None:
    first, second = (_operator(config, torch.device("cpu")) for _ in range(2))

    names = {first.name, second.name}

    first.close()
    second.close()
    assert len(names) == 2
    assert all(name.startswith("qwen3_engine::attention_") for name in names)


def test_close_frees_the_name(config: Qwen3Config) -> None:
    first = _operator(config, torch.device("cpu"))
    first.close()

    second = _operator(config, torch.device("cpu"))
    second.close()

    assert second.name == first.name


def test_operator_on_fake_tensors_does_nothing(config: Qwen3Config) -> None:
    attention = _operator(config, torch.device("cpu"))
    one = torch.zeros(1, 4, 128, device="meta")

    attention.operator(one, one, one, one, one, LAYER)

    attention.close()


def test_add_layer_taken_name_is_refused(config: Qwen3Config) -> None:
    attention = _operator(config, torch.device("cpu"))

    with pytest.raises(ConfigError, match=r"'layers\.0': the name is taken"):
        attention.add_layer(LAYER)
    attention.close()


def test_operator_float32_is_refused(config: Qwen3Config) -> None:
    with pytest.raises(ConfigError, match=r"dtype is torch\.float32"):
        AttentionOperator(
            config,
            dtype=torch.float32,
            device=torch.device("cpu"),
            attend=attend_at_once,
            step_state=StepState(),
        )
