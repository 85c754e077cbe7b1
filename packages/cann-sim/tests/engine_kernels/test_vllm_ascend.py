"""Kernels of vllm-ascend against the results of their Triton source, computed on the CPU."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

import pytest
import torch

import cann_sim
from cann_sim.engine_kernels.vllm_ascend import register

EPS = 1e-6
ROWS = 64
NAME = "vllm::qkv_rmsnorm_rope"


@pytest.fixture(autouse=True)
def operator(npu: Any) -> None:
    register()
    register()


@dataclass(frozen=True, kw_only=True)
class Call:
    """Inputs on the CPU, bfloat16."""

    qkv: torch.Tensor
    table: torch.Tensor
    positions: torch.Tensor
    weights: tuple[torch.Tensor, torch.Tensor]
    biases: tuple[torch.Tensor | None, torch.Tensor | None]
    heads: tuple[int, int]
    head_dim: int

    def launch(self) -> tuple[torch.Tensor, ...]:
        """Return q, k and v, on the device."""
        tensors = (self.qkv, self.table, self.positions, *self.weights)
        widths = [count * self.head_dim for count in self.heads]
        biases = (None if bias is None else bias.to("npu") for bias in self.biases)
        given = (each.to("npu") for each in tensors)
        result: tuple[torch.Tensor, ...] = torch.ops.vllm.qkv_rmsnorm_rope(
            *given, *widths, self.head_dim, EPS, *biases
        )
        return result

    def expected(self) -> tuple[torch.Tensor, ...]:
        """Return q, k and v."""
        q_heads, kv_heads = self.heads
        heads = self.qkv.view(len(self.qkv), q_heads + 2 * kv_heads, self.head_dim)
        parts = torch.split(heads, [q_heads, kv_heads, kv_heads], 1)
        made = [
            self._rotated(self._normed(part, weight, bias))
            for part, weight, bias in zip(parts[:2], self.weights, self.biases, strict=True)
        ]
        return tuple(part.flatten(1) for part in (*made, parts[2]))

    def _normed(
        self, part: torch.Tensor, weight: torch.Tensor, bias: torch.Tensor | None
    ) -> torch.Tensor:
        mean = part.double().square().sum(-1, keepdim=True).float() / self.head_dim
        normed = part.float() * (1 / (mean + EPS).sqrt()) * weight.float()
        return (normed if bias is None else normed + bias.float()).bfloat16()

    def _rotated(self, part: torch.Tensor) -> torch.Tensor:
        size = self.table.shape[1]
        cos, sin = self.table[self.positions].unsqueeze(1).chunk(2, -1)
        first, second = part[..., :size].chunk(2, -1)
        turned = (first * cos - second * sin, second * cos + first * sin)
        return torch.cat([*turned, part[..., size:]], -1)


def draw(
    *, tokens: int, heads: tuple[int, int], head_dim: int, rotary_dim: int, biased: bool
) -> Call:
    torch.manual_seed(0)

    def drawn(*shape: int) -> torch.Tensor:
        return torch.randn(shape).bfloat16()

    angles = torch.randn(ROWS, rotary_dim // 2)
    return Call(
        qkv=drawn(tokens, (heads[0] + 2 * heads[1]) * head_dim),
        table=torch.cat([angles.cos(), angles.sin()], -1).bfloat16(),
        positions=torch.randint(ROWS, (tokens,)),
        weights=(drawn(head_dim), drawn(head_dim)),
        biases=(drawn(head_dim), drawn(head_dim)) if biased else (None, None),
        heads=heads,
        head_dim=head_dim,
    )


PLAIN: dict[str, Any] = {
    "tokens": 5,
    "heads": (4, 2),
    "head_dim": 128,
    "rotary_dim": 128,
    "biased": False,
}


@pytest.mark.parametrize(
    "changes",
    [
        {},
        {"biased": True},
        {"rotary_dim": 64},
        {"tokens": 1, "heads": (7, 1)},
        {"tokens": 0},
        {"head_dim": 32, "rotary_dim": 16, "heads": (3, 3), "biased": True},
    ],
)
def test_values_are_those_of_the_source_to_the_bit(npu: Any, changes: dict[str, Any]) -> None:
    call = draw(**{**PLAIN, **changes})
    before = cann_sim.counters()
    found = call.launch()
    npu.synchronize()
    counted = cann_sim.counters() - before
    assert counted.launches_by_operator[NAME] == 1
    for part, expected in zip(found, call.expected(), strict=True):
        assert torch.equal(part.cpu(), expected)


def test_a_captured_launch_reads_new_positions(npu: Any) -> None:
    call = draw(**PLAIN)
    given = [each.to("npu") for each in (call.qkv, call.table, call.positions, *call.weights)]
    graph = npu.NPUGraph()
    with npu.graph(graph):
        found = torch.ops.vllm.qkv_rmsnorm_rope(*given, 512, 256, 128, EPS)
    for seed in (1, 2):
        torch.manual_seed(seed)
        positions = torch.randint(ROWS, call.positions.shape)
        given[2].copy_(positions)
        graph.replay()
        expected = replace(call, positions=positions).expected()
        for part, each in zip(found, expected, strict=True):
            assert torch.equal(part.cpu(), each)


def test_the_fake_has_the_shapes_of_the_kernel() -> None:
    call = draw(**PLAIN)
    arguments = (call.qkv, call.table, call.positions, *call.weights)
    given = [each.to("meta") for each in arguments]
    found = torch.ops.vllm.qkv_rmsnorm_rope(*given, 512, 256, 128, EPS, q_bias=None)
    for part, each in zip(found, call.expected(), strict=True):
        assert (part.shape, part.dtype) == (each.shape, each.dtype)


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"qkv": torch.zeros(5, 1024)}, "expected 'input' to be torch.bfloat16"),
        ({"positions": torch.zeros(4, dtype=torch.int64)}, "expected 'positions' to be"),
        ({"table": torch.zeros(ROWS, 256).bfloat16()}, "expected 'cos_sin_cache' to be"),
        ({"heads": (4, 2), "head_dim": 96}, "expected 'input'"),
    ],
)
def test_what_the_kernel_does_not_read_is_refused(changes: dict[str, Any], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        replace(draw(**PLAIN), **changes).launch()


def test_a_position_outside_the_table_fails_by_name(npu: Any) -> None:
    call = draw(**PLAIN)
    outside = call.positions.clone()
    outside[3] = ROWS
    replace(call, positions=outside).launch()
    with pytest.raises(RuntimeError, match="token 3 has position 64, the table has 64 rows"):
        npu.synchronize()
