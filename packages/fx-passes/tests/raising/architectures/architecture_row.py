"""The result of raising one architecture: places by kind, and values compared with eager."""

from __future__ import annotations

import math
import re
import sys
from collections import Counter
from contextlib import suppress
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import torch

from fx_passes.raising import SITE_KINDS, raise_model
from fx_passes.testing import tolerance_of
from raising.architectures.tiny_models import tiny_model

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence
    from types import FrameType

    from torch import Tensor
    from torch.fx import GraphModule
    from torch.nn import Module

    from fx_passes.raising import RaisingReport

__all__ = ["ArchitectureRow", "raise_architecture"]

# Roundings in a row in two layers; see `allowed_error` of test_model_raising.
_ROUNDINGS = 41
_ROTATION = re.compile(r"_?rotate_(half|every_two|pairwise)\w*")


@dataclass
class ArchitectureRow:
    """The result of raising one architecture.

    Attributes:
        kind: The kind of model, as transformers names it.
        skipped: Why there is no tiny model of it.
        crashed: The error of raising or running it.
        found: Places by kind: in the graph, or the calls of the model if there are more.
        raised: Places raised, by kind.
        left: Number of places that were not raised, by reason and kind.
        values: Dtype in which the logits equal those of eager: `bfloat16`, or `float32` if
            roundings change the model's choices, such as experts; `wrong` if in neither.
    """

    kind: str
    skipped: str = ""
    crashed: str = ""
    found: dict[str, int] = field(default_factory=dict)
    raised: dict[str, int] = field(default_factory=dict)
    left: dict[str, dict[str, int]] = field(default_factory=dict)
    values: str = ""


def raise_architecture(kind: str) -> ArchitectureRow:
    """Raise a tiny model of a kind and run it."""
    row = ArchitectureRow(kind=kind)
    tokens = torch.arange(14).reshape(2, 7) + 3
    try:
        model = tiny_model(kind)
        called = _called(model, tokens)
        exact = _exact_logits(model, tokens)
    except Exception as error:  # noqa: BLE001 - transformers raises all kinds for what does not fit
        row.skipped = f"{type(error).__name__}: {error}".splitlines()[0][:120]
        return row
    try:
        reports = _compare(row, model, tokens, exact)
    except Exception as error:  # noqa: BLE001 - is told in the row
        row.crashed = f"{type(error).__name__}: {error}".splitlines()[0][:200]
        return row
    sites = [site for report in reports for site in report.sites]
    for name in SITE_KINDS:
        mine = [site for site in sites if site.kind == name]
        row.raised[name] = sum(site.raised for site in mine)
        row.found[name] = max(len(mine), called[name])
        row.left[name] = dict(Counter(site.reason for site in mine if not site.raised))
        if len(mine) < called[name]:
            row.left[name]["the graph does not show it"] = called[name] - len(mine)
    return row


def _compare(
    row: ArchitectureRow, model: Module, tokens: Tensor, exact: Tensor
) -> list[RaisingReport]:
    first: list[RaisingReport] = []
    for dtype in (torch.bfloat16, torch.float32):
        model = model.to("cpu").to(dtype).to("npu")
        plain = _logits(model, tokens.to("npu")).cpu().double()
        raised, reports = _raised_logits(model, tokens.to("npu"))
        first = first or reports
        scale = float(exact.abs().max())
        allowed = tolerance_of(dtype, roundings=1) / 2 * math.sqrt(_ROUNDINGS) * scale
        error = float((raised - exact).abs().max())
        if error <= max(allowed, 2 * float((plain - exact).abs().max())):
            row.values = str(dtype).removeprefix("torch.")
            return first
    row.values = "wrong"
    return first


def _exact_logits(model: Module, tokens: Tensor) -> Tensor:
    """Return the logits in float64, or in float32 where torch has no grouped product in float64."""
    exact = _logits(model, tokens).double()
    with suppress(RuntimeError):
        exact = _logits(model.double(), tokens)
    return exact


def _logits(model: Module, tokens: Tensor) -> Tensor:
    with torch.no_grad():
        found: Tensor = model(input_ids=tokens, use_cache=False).logits
    return found


def _raised_logits(model: Module, tokens: Tensor) -> tuple[Tensor, list[RaisingReport]]:
    reports: list[RaisingReport] = []

    def backend(graph_module: GraphModule, inputs: Sequence[object]) -> Callable[..., object]:
        del inputs
        reports.append(raise_model(graph_module).report)
        return graph_module.forward

    torch._dynamo.reset()

    def run(given: Tensor) -> Tensor:
        return _logits(model, given)

    compiled: Any = torch.compile(run, backend=backend)
    return compiled(tokens).cpu().double(), reports


def _called(model: Module, tokens: Tensor) -> Counter[str]:
    """Count the calls of each kind by name, independently of rules and graphs."""
    counts: Counter[str] = Counter()

    def count(name: str) -> Callable[..., None]:
        def hook(module: object, arguments: object) -> None:
            del module, arguments
            counts[name] += 1

        return hook

    for module in model.modules():
        name = type(module).__name__
        if "RMSNorm" in name:
            module.register_forward_pre_hook(count("norm"))

    def profile(frame: FrameType, event: str, argument: object) -> None:
        del argument
        if event == "call" and _ROTATION.fullmatch(frame.f_code.co_name):
            counts["rope"] += 1

    sys.setprofile(profile)
    try:
        _logits(model, tokens)
    finally:
        sys.setprofile(None)
    for module in model.modules():
        module._forward_pre_hooks.clear()
    return counts
