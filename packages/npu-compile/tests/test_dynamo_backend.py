from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest
import torch

from npu_compile import Backend, CompileConfig, CompileMode, ConfigError
from npu_graph_runtime import CaptureSession, FakeDevice, GraphContext, GraphKey, RunMode
from npu_graph_runtime.errors import InputAddressError

if TYPE_CHECKING:
    from conftest import AttentionOperator, Decoder


def _inputs(rows: int) -> tuple[torch.Tensor, torch.Tensor]:
    return torch.arange(rows) % 16, torch.ones(rows, 2)


def test_backend_found_by_name_runs_a_model(decoder: Decoder, attention: AttentionOperator) -> None:
    attention.lengths = [3, 4]
    ids, table = _inputs(2)
    expected = decoder(ids, table)

    compiled = torch.compile(decoder, backend="npu_compile", fullgraph=True)

    torch.testing.assert_close(compiled(ids, table), expected, rtol=0, atol=0)


def test_backend_found_by_name_splits_and_captures(
    decoder: Decoder, attention: AttentionOperator, device: FakeDevice
) -> None:
    context = GraphContext()
    options: dict[str, Any] = {
        "mode": "piecewise",
        "splitting_ops": [attention.name],
        "device": device,
        "context": context,
    }
    compiled = torch.compile(decoder, backend="npu_compile", fullgraph=True, options=options)
    ids, table = _inputs(3)
    attention.lengths = [1, 1, 1]
    key = GraphKey(num_tokens=3)
    with CaptureSession(device, context), context.run(RunMode.PIECEWISE, key), torch.no_grad():
        compiled(ids, table)

    attention.lengths = [5, 6, 7]
    ids += 1
    expected = decoder(ids, table)
    with context.run(RunMode.PIECEWISE, key), torch.no_grad():
        output = compiled(ids, table)
    device.synchronize()

    torch.testing.assert_close(output, expected, rtol=0, atol=0)


@pytest.mark.parametrize("check", [{}, {"address_check": "first_replay"}])
def test_piece_that_reads_what_a_splitting_op_returns_compares_at_every_replay(
    device: FakeDevice, check: dict[str, str]
) -> None:
    kept: list[torch.Tensor] = []

    @torch.library.custom_op(f"backend_tests::doubled_{len(check)}", mutates_args=())
    def doubled(x: torch.Tensor) -> torch.Tensor:
        kept.append(x * 2)
        return kept[-1].clone() if len(kept) < 3 else kept[-1]

    doubled.register_fake(torch.empty_like)
    context, key = GraphContext(), GraphKey(num_tokens=4)
    options: dict[str, Any] = {
        "mode": "piecewise",
        "splitting_ops": [f"backend_tests::doubled_{len(check)}"],
        "device": device,
        "context": context,
        **check,
    }

    def step(x: torch.Tensor) -> torch.Tensor:
        result: torch.Tensor = doubled(x + 1) * 2
        return result

    compiled = torch.compile(step, backend="npu_compile", fullgraph=True, options=options)
    x = torch.zeros(4)
    with CaptureSession(device, context), context.run(RunMode.PIECEWISE, key), torch.no_grad():
        compiled(x)

    def replay_until_it_lies_elsewhere() -> None:
        held = []
        for value in range(8):
            x.fill_(value)
            with context.run(RunMode.PIECEWISE, key), torch.no_grad():
                output = compiled(x)
            device.synchronize()
            assert output.tolist() == [(value + 1) * 4.0] * 4
            held.append(torch.empty(4))

    with pytest.raises(InputAddressError, match=r"replaying 'piece_2"):
        replay_until_it_lies_elsewhere()


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"mode": "full"}, "use npu_compile.compile_model"),
        ({"mode": "piecewise", "splitting_ops": ["a::b"]}, "a device and a context are needed"),
        ({"device": 3}, "`device` is 3"),
        ({"context": "x"}, "`context` is 'x'"),
        ({"modus": "eager"}, "did you mean 'mode'"),
    ],
)
def test_backend_bad_options_are_refused(
    decoder: Decoder, options: dict[str, Any], message: str
) -> None:
    compiled = torch.compile(decoder, backend="npu_compile", fullgraph=True, options=options)

    with pytest.raises(Exception, match=message):
        compiled(*_inputs(2))


def test_backend_without_fusions_reports_none(
    decoder: Decoder, attention: AttentionOperator
) -> None:
    backend = Backend(CompileConfig(fuse=False))
    attention.lengths = [1, 1]

    torch.compile(decoder, backend=backend, fullgraph=True)(*_inputs(2))

    assert backend.reports[0].fusions is None
    assert backend.reports[0].plan is None


def test_backend_with_an_unknown_disabled_fusion_names_near_ones() -> None:
    with pytest.raises(ConfigError, match=r"disabled_fusions: .*add_rms_nrm.*near.*add_rms_norm"):
        Backend(CompileConfig(disabled_fusions=("fuse_add_rms_nrm",)))


def test_backend_for_piecewise_mode_needs_a_device() -> None:
    config = CompileConfig(mode=CompileMode.PIECEWISE, splitting_ops=("a::b",))

    with pytest.raises(ConfigError, match="a device and a context are needed"):
        Backend(config)
