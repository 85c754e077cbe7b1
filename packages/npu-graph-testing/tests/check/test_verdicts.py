"""What a probe's observations and answers make of its verdict."""

from __future__ import annotations

import io
import json
from typing import TYPE_CHECKING

import pytest

from npu_graph_check import child
from npu_graph_check.probe import Look, Probe

if TYPE_CHECKING:
    from collections.abc import Callable


@pytest.mark.parametrize(
    ("look_at", "verdict"),
    [
        (lambda look: look.expect("a status", 0, 0), "confirmed"),
        (lambda look: look.expect("a status", 1, 0), "otherwise"),
        (lambda look: look.answer("how many", 3), "answered"),
        (lambda look: look.figure("a time", 1.5, "us"), "answered"),
        (lambda look: (look.answer("how many", 3), look.expect("a status", 0, 0)), "confirmed"),
        (lambda look: look.not_tried("no device"), "not tried"),
        (lambda look: None, "otherwise"),
    ],
)
def test_verdict_follows_from_what_was_seen(
    look_at: Callable[[Look], object], verdict: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(Probe, "function", lambda _: look_at)
    lines = io.StringIO()

    child.run_probe(Probe(id="a.b", title="", run=""), Look(lines, "npu"))

    assert json.loads(lines.getvalue().splitlines()[-1])["verdict"] == verdict
