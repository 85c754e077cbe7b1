"""Tracing of patterns."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest
import torch
from torch import Tensor

from fx_passes import label
from fx_passes.errors import PatternError
from fx_passes.matching.pattern import (
    PatternCall,
    PatternElement,
    PatternParameter,
    compile_pattern,
)

if TYPE_CHECKING:
    from collections.abc import Sequence

aten = torch.ops.aten


def test_compile_pattern_reads_calls_elements_and_labels() -> None:
    def pattern(x: Tensor, weight: Tensor, eps: float) -> dict[str, Tensor]:
        norm = label(torch.ops.npu.npu_rms_norm(x * 2, weight, epsilon=eps), "norm")
        return {"y": norm[0]}

    compiled = compile_pattern(pattern)

    kinds = [type(node) for node in compiled.nodes]
    assert kinds == [*[PatternParameter] * 3, PatternCall, PatternCall, PatternElement]
    mul, norm = compiled.calls
    assert mul.operators == (aten.mul.Tensor, aten.mul.Scalar)
    assert norm.operators == (torch.ops.npu.npu_rms_norm.default,)
    assert norm.arguments[2] is compiled.nodes[2]
    assert compiled.labels == {"norm": norm}


def test_compile_pattern_fills_in_defaults() -> None:
    def pattern(x: Tensor, weight: Tensor) -> dict[str, Tensor]:
        return {"y": torch.ops.npu.npu_rms_norm(x, weight)[0]}

    assert compile_pattern(pattern).calls[0].arguments[2] == 1e-6


def test_compile_pattern_takes_methods_builtins_and_functions() -> None:
    def pattern(x: Tensor, shape: Sequence[int]) -> dict[str, Tensor]:
        return {"y": torch.nn.functional.silu(-x.reshape(shape))}

    operators = [call.operators[0] for call in compile_pattern(pattern).calls]

    assert operators == [aten.reshape.default, aten.neg.default, aten.silu.default]


def test_label_on_a_tensor_does_nothing() -> None:
    tensor = torch.ones(2)

    assert label(tensor, "name") is tensor


@pytest.mark.parametrize(
    ("pattern", "message"),
    [
        (lambda x: x + 1, "expected a dict"),
        (lambda x: {"y": x, "z": x + 1}, "is a parameter"),
        (lambda x: {"y": x.add_(1)}, "free of side effects"),
        (lambda x: {"y": x.item()}, "not the call of a known operator"),
        (lambda x: 1 / 0, "division by zero"),
        (lambda x, y: {"z": x + 1}, "nothing uses `y`"),
        (lambda x: {}, "calls no operator"),
    ],
)
def test_bad_pattern_is_refused_with_its_reason(pattern: object, message: str) -> None:
    with pytest.raises(PatternError, match=message):
        compile_pattern(pattern)  # type: ignore[arg-type]


def test_unknown_annotation_is_refused() -> None:
    def pattern(x: Tensor, names: dict[str, int]) -> dict[str, Tensor]:
        return {"y": x + 1}

    with pytest.raises(PatternError, match="'names'"):
        compile_pattern(pattern)


def test_addition_commutes_only_if_alpha_is_known() -> None:
    def plain(x: Tensor, y: Tensor) -> dict[str, Tensor]:
        return {"z": x + y}

    def scaled(x: Tensor, y: Tensor, alpha: float) -> dict[str, Tensor]:
        return {"z": torch.add(x, y, alpha=alpha)}

    assert compile_pattern(plain).calls[0].commutative
    assert not compile_pattern(scaled).calls[0].commutative
