"""What makes a start another one: a plan of the former is then not found."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest

from vllm_npu_graph import Options
from vllm_npu_graph.planning import fingerprint
from vllm_npu_graph.planning.fingerprint import describe_start

DEVICE = {"device": "Ascend910B1", "memory": 64}


def configuration(**changes: Any) -> Any:
    """Return the parts of the engine's configuration that are read."""
    given: dict[str, Any] = {
        "hash": "a", "mode": "FULL", "sizes": [2, 1], "sequences": 4, "tokens": 64, "length": 512,
        "ranks": 1, "drafts": None,
    } | changes  # fmt: skip
    return SimpleNamespace(
        compute_hash=lambda: given["hash"],
        compilation_config=SimpleNamespace(
            cudagraph_mode=SimpleNamespace(name=given["mode"]),
            cudagraph_capture_sizes=given["sizes"],
        ),
        scheduler_config=SimpleNamespace(
            max_num_seqs=given["sequences"], max_num_batched_tokens=given["tokens"]
        ),
        model_config=SimpleNamespace(max_model_len=given["length"]),
        parallel_config=SimpleNamespace(world_size_across_dp=given["ranks"]),
        speculative_config=given["drafts"],
    )


def drafts(tokens: int, model: str | None) -> Any:
    draft = model and SimpleNamespace(compute_hash=lambda: model)
    return SimpleNamespace(method="x", num_speculative_tokens=tokens, draft_model_config=draft)


@pytest.mark.parametrize(
    "changes",
    [
        {"hash": "b"},
        {"mode": "PIECEWISE"},
        {"sizes": [1, 2, 4]},
        {"sequences": 5},
        {"tokens": 65},
        {"length": 513},
        {"ranks": 2},
        {"drafts": drafts(1, None)},
    ],
)
def test_another_configuration_is_another_start(changes: dict[str, Any]) -> None:
    first = describe_start(configuration(), Options(plan=True), DEVICE, 0)

    assert describe_start(configuration(**changes), Options(plan=True), DEVICE, 0) != first


def test_other_drafts_options_devices_and_ranks_are_another_start() -> None:
    def described(*, tokens: int = 1, model: str = "m", rank: int = 0, **given: Any) -> Any:
        config = configuration(drafts=drafts(tokens, model))
        return describe_start(config, Options(plan=True, **given), DEVICE, rank)

    starts = [described(), described(tokens=2), described(model="n"), described(rank=1)]
    starts.append(described(attention=False))
    starts.append(describe_start(configuration(), Options(plan=True), {**DEVICE, "memory": 32}, 0))
    assert all(starts.count(each) == 1 for each in starts)


def test_another_version_is_another_start(monkeypatch: pytest.MonkeyPatch) -> None:
    first = describe_start(configuration(), Options(), DEVICE, 0)
    assert first["sizes"] == "[1, 2]"

    monkeypatch.setattr(fingerprint, "version", lambda _name: "9.9")

    assert describe_start(configuration(), Options(), DEVICE, 0)["torch"] == "9.9"
