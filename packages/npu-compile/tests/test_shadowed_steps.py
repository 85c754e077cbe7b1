"""Steps of the runners that run eagerly too, and guarded captures, by the configuration."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest
import torch

import npu_compile
from attn_update import Recorder, UpdateLane
from npu_compile import CompileConfig, ConfigError, DecodeRunner, InputSpec
from npu_graph_runtime.errors import ShadowDifferenceError, UncapturableError

if TYPE_CHECKING:
    from collections.abc import Callable

    from conftest import AttentionOperator, Decoder
    from npu_graph_runtime import FakeDevice

SPECS = {
    "input_ids": InputSpec(dtype=torch.int64),
    "table": InputSpec(dtype=torch.float32, trailing_shape=(2,)),
}
DYNAMIC = {"input_ids": (0,), "table": (0,)}


def inputs(rows: int, seed: int) -> dict[str, torch.Tensor]:
    generator = torch.Generator().manual_seed(seed)
    return {
        "input_ids": torch.randint(0, 16, (rows,), generator=generator),
        "table": torch.randn(rows, 2, generator=generator),
    }


def runner_of(
    decoder: torch.nn.Module,
    attention: AttentionOperator,
    device: FakeDevice,
    mode: str,
    set_lengths: Callable[..., None] | None,
    **options: Any,
) -> DecodeRunner:
    config = CompileConfig.from_mapping(
        {
            "mode": mode,
            "capture_sizes": [1, 2, 4],
            "splitting_ops": [attention.name],
            "shadow_every": 3,
            **options,
        }
    )
    compiled = npu_compile.compile_model(decoder, config, device=device, dynamic_arg_dims=DYNAMIC)
    runner = DecodeRunner(
        compiled,
        inputs=SPECS,
        recorder=Recorder(device) if mode == "full" else None,
        lane=UpdateLane(device) if mode == "full" else None,
        set_lengths=set_lengths,
    )

    def prepare(size: int) -> None:
        attention.lengths = [0] * size

    runner.capture(prepare)
    return runner


def step(runner: DecodeRunner, attention: AttentionOperator, rows: int, seed: int) -> torch.Tensor:
    """Run a step whose lengths are 0; its attention adds them."""
    size = runner.padded_size(rows)
    attention.lengths = [0] * size
    result: torch.Tensor = runner.run(inputs(rows, seed), {})
    return result


@pytest.mark.parametrize("mode", ["eager", "piecewise", "full"])
def test_good_steps_are_the_same_with_it(
    mode: str, decoder: Decoder, attention: AttentionOperator, device: FakeDevice
) -> None:
    shown: list[object] = []
    runner = runner_of(decoder, attention, device, mode, shown.append)
    for turn in range(60):
        rows = turn % 4 + 1
        calls = attention.num_calls
        output = step(runner, attention, rows, turn).clone()
        device.synchronize()
        is_compared = mode != "eager" and turn % 3 == 2
        # A whole graph does not call it.
        assert attention.num_calls - calls == 2 * (is_compared + (mode != "full"))
        attention.lengths = [0] * rows
        torch.testing.assert_close(output, decoder(**inputs(rows, turn)))

    assert len(shown) == (20 if mode == "full" else 60)


def test_value_fixed_at_capture_is_found_at_the_compared_step(
    attention: AttentionOperator, device: FakeDevice
) -> None:
    class Scaled(torch.nn.Module):
        scale = 1.0

        def forward(self, input_ids: torch.Tensor, table: torch.Tensor) -> torch.Tensor:
            return table * self.scale + input_ids[:, None]

    model = Scaled()
    runner = runner_of(model, attention, device, "full", lambda _: None, splitting_ops=[])
    model.scale = 2.0
    for turn in range(2):
        step(runner, attention, 2, turn)
    with pytest.raises(ShadowDifferenceError, match=r"comparing step 3 .*differed: result at"):
        step(runner, attention, 2, 2)


def test_rows_of_padding_are_not_compared(attention: AttentionOperator, device: FakeDevice) -> None:
    paddings = iter(range(100))

    class Padded(torch.nn.Module):
        def forward(self, input_ids: torch.Tensor, table: torch.Tensor) -> torch.Tensor:
            result = table + input_ids[:, None]
            result[3:] = next(paddings)
            return result

    runner = runner_of(
        Padded(),
        attention,
        device,
        "full",
        lambda _: None,
        fuse=False,
        capture_sizes=[4],
        shadow_every=1,
    )

    assert step(runner, attention, 3, 0).shape == (3, 2)
    with pytest.raises(ShadowDifferenceError, match=r"result at \(3, 0\)"):
        step(runner, attention, 4, 0)


def test_mode_full_needs_to_know_how_attention_sees_lengths(
    decoder: Decoder, attention: AttentionOperator, device: FakeDevice
) -> None:
    with pytest.raises(ConfigError, match="shadow_every: set_lengths is needed"):
        runner_of(decoder, attention, device, "full", None)


@pytest.mark.parametrize("mode", ["piecewise", "full"])
def test_capture_is_guarded_by_the_configuration(
    mode: str, decoder: Decoder, attention: AttentionOperator, device: FakeDevice
) -> None:
    class Reading(torch.nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.decoder = decoder

        def forward(self, input_ids: torch.Tensor, table: torch.Tensor) -> torch.Tensor:
            result: torch.Tensor = self.decoder(input_ids, table)
            read = getattr(torch.ops.npu_compile_tests, f"read_{mode}")
            return read(result)  # type: ignore[no-any-return]

    library: Any = torch.library.Library
    mine = library("npu_compile_tests", "FRAGMENT")
    mine.define(f"read_{mode}(Tensor x) -> Tensor")
    mine.impl(f"read_{mode}", lambda x: x * x.max().item(), "CompositeExplicitAutograd")
    torch.library.register_fake(f"npu_compile_tests::read_{mode}", torch.empty_like, lib=mine)

    with pytest.raises(UncapturableError, match=r"test_shadowed_steps.*_local_scalar_dense"):
        runner_of(Reading(), attention, device, mode, lambda _: None, capture_guard="raise")
