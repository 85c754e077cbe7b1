"""A forward is traced once at a size, and what is captured of it is what the passes made."""

from __future__ import annotations

import contextlib
import dataclasses
import inspect
from typing import TYPE_CHECKING, Any

import pytest
import torch

import fx_passes
from sglang_npu_graph.errors import OptionsError
from sglang_npu_graph.fused_forward import FusedForward, Fusions

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator


@dataclasses.dataclass
class Output:
    """Shaped as the engine's `LogitsProcessorOutput`."""

    logits: torch.Tensor | None
    hidden: torch.Tensor | None = None
    note: str | None = None


class Qwen3ForCausalLM(torch.nn.Module):
    """A model that the plugin fuses by its name; the cast is one that a rule removes."""

    def __init__(self) -> None:
        super().__init__()
        self.weight = torch.nn.Parameter(torch.randn(4, 4), requires_grad=False)
        self.runs = 0

    def forward(self, ids: torch.Tensor, batch: object, pp_proxy_tensors: object = None) -> Output:
        del batch, pp_proxy_tensors
        self.runs += 1
        return Output(logits=(ids @ self.weight).to(ids.dtype).relu(), note="mine")


@contextlib.contextmanager
def original(model: torch.nn.Module, *_others: object) -> Iterator[Any]:
    """Stand for the engine's choice of a forward."""
    yield model.forward


def test_the_first_run_is_the_models_own_and_the_next_are_the_fused_graph() -> None:
    model, ids, batch = Qwen3ForCausalLM(), torch.randn(2, 4), object()
    fusions = Fusions({"require": ["remove_cast"]})
    with fusions(original, model, False, 2, object()) as forward:
        first = forward(ids, batch)
        ids.mul_(3)
        again = forward(ids, batch)
    assert model.runs == 1
    torch.testing.assert_close(again.logits, 3 * first.logits)
    assert (again.hidden, again.note) == (None, "mine")
    (report,) = fusions.reports
    assert report.match_counts()["remove_cast"] == 1
    # The engine reads this to choose the arguments it passes on.
    assert "pp_proxy_tensors" in inspect.signature(forward).parameters


def test_other_static_buffers_are_traced_again() -> None:
    model, batch = Qwen3ForCausalLM(), object()
    forward = FusedForward(model.forward, Fusions({}), ("model", 2, 0))
    for ids in (torch.randn(2, 4), torch.randn(2, 4)):
        assert torch.equal(forward(ids, batch).logits, forward(ids, batch).logits)
        assert torch.equal(forward(ids, batch).logits, (ids @ model.weight).relu())
    assert model.runs == 2


def reads_back(ids: torch.Tensor) -> Output:
    return Output(logits=ids * (ids + 1).sum().item())


def returns_a_list(ids: torch.Tensor) -> Output:
    return Output(logits=ids * 16, note=[ids])  # type: ignore[arg-type]


@pytest.mark.parametrize("step", [reads_back, returns_a_list])
def test_model_that_cannot_be_traced_is_left_to_the_engine(
    caplog: pytest.LogCaptureFixture, step: Callable[[torch.Tensor], Output]
) -> None:
    ids = torch.ones(2, 4)
    forward = FusedForward(step, Fusions({}), ("mine", 2, 0))
    for _ in range(2):
        assert torch.equal(forward(ids).logits, ids * 16)
    (record,) = (each for each in caplog.records if each.name == "sglang.npu_graph")
    assert "leaves mine unfused: tracing mine of 2 tokens: " in record.getMessage()


@pytest.mark.parametrize(
    ("compiled", "reason"), [(True, "compiled by torch.compile"), (False, "not tried")]
)
def test_model_that_was_not_tested_is_left_to_the_engine(
    caplog: pytest.LogCaptureFixture, compiled: bool, reason: str
) -> None:
    model: torch.nn.Module = Qwen3ForCausalLM()
    if reason == "not tried":
        model = type("AnotherForCausalLM", (Qwen3ForCausalLM,), {})()
    with Fusions({})(original, model, compiled, 2, object()) as forward:
        assert forward == model.forward
    assert reason in caplog.records[0].getMessage()


def test_a_required_rule_that_matches_nothing_ends_the_capture() -> None:
    fusions = Fusions({"require": ["fuse_swiglu"]})
    forward = FusedForward(Qwen3ForCausalLM().forward, fusions, ("model", 2, 0))
    with pytest.raises(fx_passes.RuleError, match="fuse_swiglu"):
        forward(torch.randn(2, 4), object())


@pytest.mark.parametrize(
    ("settings", "expected"),
    [
        ({"disabled": ["fuse_swigly"]}, "'fuse_swigly'"),
        ({"require": ["fuse_swigly"]}, "'fuse_swigly'"),
        ({"exakt": True}, "no setting 'exakt'; near: .*'exact'"),
        ("all", "expected a mapping of enabled, disabled"),
    ],
)
def test_unknown_settings_of_fusions_are_refused(settings: Any, expected: str) -> None:
    with pytest.raises(OptionsError, match=expected):
        Fusions(settings)
