"""A pipeline as custom pass of npugraph_ex, by the entries of the torch_npu wheel."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest
import torch
from torch import Tensor

import fx_passes
from fx_passes.errors import PatternError
from fx_passes.inductor import PostGradPasses, Replacements
from fx_passes.testing import random_tensors

if TYPE_CHECKING:
    from collections.abc import Callable

npu = torch.ops.npu
WHERE = ("post_grad_custom_pre_pass", "post_grad_custom_post_pass")


def layer(x: Tensor, residual: Tensor, weight: Tensor) -> tuple[Tensor, Tensor]:
    total = x + residual
    return npu.npu_rms_norm(total, weight, 1e-5)[0], total


def run_on_npu(backend: Any, **keywords: Any) -> None:
    """Compile the layer, run it, and hold its results against those of the layer itself."""
    given = random_tensors((4, 64), (4, 64), (64,), device="npu")
    torch.compiler.reset()
    run = torch.compile(layer, backend=backend, **keywords)
    with torch.no_grad():
        found, expected = run(*given), layer(*given)
    for own, theirs in zip(found, expected, strict=True):
        torch.testing.assert_close(own.cpu(), theirs.cpu())


@pytest.mark.parametrize("where", WHERE)
@pytest.mark.parametrize("is_captured", [False, True])
def test_npugraph_ex_runs_it_as_its_custom_pass(where: str, is_captured: bool) -> None:
    passes = PostGradPasses()

    run_on_npu("npugraph_ex", options={where: passes, "force_eager": not is_captured})

    assert passes.report.match_counts()["fuse_add_rms_norm"] == 1


def register_norms(register: Callable[..., None]) -> None:
    """Stands for a user's code that registers a pattern in npugraph_ex."""

    def search(x: Tensor, residual: Tensor, weight: Tensor) -> tuple[Tensor, Tensor]:
        total = torch.add(x, residual)
        return npu.npu_rms_norm(total, weight, 1e-5)[0], total

    def replace(x: Tensor, residual: Tensor, weight: Tensor) -> tuple[Tensor, Tensor]:
        out = npu.npu_add_rms_norm(x, residual, weight, 1e-5)
        return out[0], out[2]

    def examples() -> list[Tensor]:
        shapes: tuple[tuple[int, ...], ...] = ((2, 64), (2, 64), (64,))
        return [torch.randn(shape, dtype=torch.bfloat16, device="npu") for shape in shapes]

    register(search, replace, examples(), extra_check=lambda match: bool(match.nodes))
    register(search, replace, examples(), skip_duplicates=True)


def test_patterns_written_for_npugraph_ex_are_rules() -> None:
    replacements = Replacements()
    register_norms(replacements.register_replacement)
    passes = PostGradPasses(fx_passes.Pipeline(passes=(fx_passes.NormalizePass(),)))
    passes.add(replacements.rules)

    run_on_npu("npugraph_ex", options={WHERE[0]: passes, "force_eager": True})

    (rule,) = replacements.rules
    assert passes.report.match_counts() == {rule.name: 1}


def test_the_same_code_registers_in_npugraph_ex_itself() -> None:
    import npugraph_ex  # type: ignore[import-not-found]  # torch_npu brings it, under this name

    register_norms(npugraph_ex.register_replacement)


def test_names_of_rules_are_their_own() -> None:
    replacements = Replacements()
    for _ in range(3):
        register_norms(replacements.register_replacement)

    assert len({rule.name for rule in replacements.rules}) == 3


def test_a_compiled_pattern_is_refused() -> None:
    with pytest.raises(PatternError, match="search_fn_pattern"):
        Replacements().register_replacement(layer, layer, [], search_fn_pattern=object())
