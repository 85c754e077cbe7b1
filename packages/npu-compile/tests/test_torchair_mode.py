"""Mode torchair: a compiler of the device after the fusions, with our capture around it.

Those of torch_npu run in integration-tests; here it is torch's interpreter of graphs.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest
import torch

import npu_compile
from attn_update import Recorder, UpdateLane
from npu_compile import CompileConfig, ConfigError, DecodeRunner, InputSpec
from npu_graph_runtime import FakeDevice, RunMode

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from conftest import AttentionOperator, Decoder

SPECS = {
    "input_ids": InputSpec(dtype=torch.int64),
    "table": InputSpec(dtype=torch.float32, trailing_shape=(2,)),
}
DYNAMIC = dict.fromkeys(SPECS, (0,))


class CompilingFake(FakeDevice):
    """Provides a compiler of FX graphs, and records the requested names."""

    def __init__(self) -> None:
        super().__init__()
        self.asked: list[str] = []
        self.num_compiled = self.num_runs = 0

    def fx_compiler(self, name: str) -> Callable[..., Callable[..., Any]]:
        self.asked.append(name)

        def compile_graph(graph: torch.fx.GraphModule, inputs: Sequence[Any]) -> Callable[..., Any]:
            self.num_compiled += 1
            assert len(inputs) == sum(node.op == "placeholder" for node in graph.graph.nodes)

            def run(*values: Any) -> Any:
                self.num_runs += 1
                return torch.fx.Interpreter(graph).run(*values)

            return run

        return compile_graph


@pytest.mark.parametrize("options", [{}, {"inner_compiler": "torchair"}, {"fuse": False}])
def test_decode_replays_what_the_inner_compiler_made(
    options: dict[str, Any], decoder: Decoder, attention: AttentionOperator
) -> None:
    device = CompilingFake()
    config = CompileConfig.from_mapping({"mode": "torchair", "capture_sizes": [2, 4], **options})
    compiled = npu_compile.compile_model(decoder, config, device=device, dynamic_arg_dims=DYNAMIC)
    runner = DecodeRunner(
        compiled,
        inputs=SPECS,
        recorder=Recorder(device),
        lane=UpdateLane(device),
        set_lengths=lambda _: setattr(attention, "lengths", [0] * rows),
    )

    def prepare(size: int) -> None:
        attention.lengths = [0] * size

    runner.capture(prepare)
    num_compiled, num_runs = device.num_compiled, device.num_runs
    assert num_compiled > 0
    assert num_runs == 2 * 2  # to warm up and to capture, each size

    for rows in (4, 2, 3):
        values = {
            "input_ids": torch.arange(rows),
            "table": torch.randn(rows, 2, generator=torch.Generator().manual_seed(rows)),
        }
        found = runner.run(values, {}).clone()
        device.synchronize()
        prepare(rows)
        torch.testing.assert_close(found, decoder(**values))

    assert device.asked == [options.get("inner_compiler", "npugraph_ex")]
    assert (num_compiled, num_runs) == (device.num_compiled, device.num_runs)
    assert compiled.num_captured_graphs == 2
    assert config.decode_run_modes == (RunMode.FULL,)
    assert config.prefill_run_modes == (RunMode.FULL,)


def test_a_device_without_compilers_is_refused(decoder: Decoder, device: FakeDevice) -> None:
    with pytest.raises(ConfigError, match="mode 'torchair' on fake:0") as raised:
        npu_compile.compile_model(decoder, {"mode": "torchair"}, device=device)
    assert "use mode 'full' instead" in str(raised.value)


def test_an_unknown_inner_compiler_names_the_nearest() -> None:
    with pytest.raises(ConfigError, match="did you mean 'npugraph_ex'"):
        CompileConfig.from_mapping({"mode": "torchair", "inner_compiler": "npugraphex"})
