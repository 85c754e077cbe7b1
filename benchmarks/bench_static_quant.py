"""What the fusion of static W8A8 saves in the form in which engines call it, by every door.

Run by ``./nox -s bench -- static-quant``; options as ``--rows=16``, ``--hidden=4096``. Two layers
of two sites each: `npu_add_rms_norm` and `npu_quantize(..., div_mode=False)` by a reciprocal, which
is a parameter as in SGLang, or a plain tensor (`1 / Parameter`) as in vLLM-Ascend. torch_npu runs
over cann-sim with its virtual clock. Prints a table and writes rows ``{form, dtype, door,
launches_before, launches_after, speedup}`` to build/bench/static-quant.json. The row "fused kernel
alone" is a model that calls `npu_add_rms_norm_quant` itself, with scales to divide by.
"""

from __future__ import annotations

import argparse
import json
import os
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from rich.console import Console
from rich.table import Table

import cann_sim

if TYPE_CHECKING:
    from collections.abc import Callable

    import torch

SITES = 4
CALLS = 20
FORMS = ("SGLang", "vLLM-Ascend")


@dataclass(frozen=True, kw_only=True)
class Row:
    """One measurement."""

    form: str
    dtype: str
    door: str
    launches_before: int
    launches_after: int
    speedup: float


def model_of(form: str, dtype: torch.dtype, hidden: int, *, fused: bool = False) -> Any:
    """Return two layers of two sites each.

    Args:
        form: How the reciprocal of the scale is stored, as in one of the engines.
        dtype: Of activations and weights.
        hidden: Size of a row.
        fused: Whether it calls the fused kernel itself.
    """
    import torch

    npu = torch.ops.npu

    def parameter(value: torch.Tensor, kind: torch.dtype = dtype) -> torch.nn.Parameter:
        return torch.nn.Parameter(value.to("npu", kind), requires_grad=False)

    class Site(torch.nn.Module):
        def __init__(self) -> None:
            super().__init__()
            scale = torch.rand(hidden) / 8 + 0.125
            half = dtype == torch.float16
            self.weight = parameter(torch.ones(hidden))
            self.scale = parameter(scale, torch.float32 if fused and half else dtype)
            offset = torch.int32 if fused and half else dtype
            self.offset = parameter(torch.zeros(hidden), offset)
            self.reciprocal: torch.Tensor = 1 / parameter(scale)
            if form == "SGLang":
                self.reciprocal = parameter(1 / scale)

        def forward(
            self, x: torch.Tensor, residual: torch.Tensor
        ) -> tuple[torch.Tensor, torch.Tensor]:
            if fused:
                found = npu.npu_add_rms_norm_quant(
                    x, residual, self.weight, self.scale, self.offset, epsilon=1e-6
                )
                return found[0], found[2]
            normed, _, total = npu.npu_add_rms_norm(x, residual, self.weight, 1e-6)
            scales = self.reciprocal, self.offset
            return npu.npu_quantize(normed, *scales, torch.qint8, -1, False), total

    class Layers(torch.nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.sites = torch.nn.ModuleList(Site() for _ in range(SITES))

        def forward(self, x: torch.Tensor, residual: torch.Tensor) -> list[torch.Tensor]:
            results = []
            for site in self.sites:
                quantized, residual = site(x, residual)
                results.append(quantized)
            return [*results, residual]

    return Layers()


def doors(model: Any, inputs: list[torch.Tensor]) -> dict[str, Callable[..., object]]:
    """Return the model for each way to run it, warmed up, and captured if the way captures."""
    import torch
    from torch.fx.experimental.proxy_tensor import make_fx

    from fx_passes import default_npu_pipeline
    from npu_compile import compile_model
    from npu_graph_runtime import GraphKey, NpuDevice, RunMode

    def backend(module: torch.fx.GraphModule, _: object = None) -> Callable[..., object]:
        default_npu_pipeline().run(module)
        return module.forward

    traced = make_fx(model)(*inputs)
    default_npu_pipeline().run(traced)
    full = compile_model(model, {"mode": "full", "capture_sizes": [16]}, device=NpuDevice())
    key = GraphKey(num_tokens=16)

    def replayed(*given: torch.Tensor) -> object:
        with full.context.run(RunMode.FULL, key):
            return full(*given)

    with full.capture_session():
        replayed(*inputs)
    found: dict[str, Callable[..., object]] = {
        "graph of Dynamo": torch.compile(model, backend=backend, fullgraph=True),
        "graph of ATen (make_fx)": traced,
        "torch.compile(backend='npu_compile')": torch.compile(
            model, backend="npu_compile", fullgraph=True
        ),
        "compile_model": compile_model(model, None, device=NpuDevice()),
        "compile_model, mode full": replayed,
    }
    for run in found.values():
        run(*inputs)
    return found


def launches_of(run: Callable[..., object], inputs: list[torch.Tensor]) -> int:
    """Return the number of kernels of a step, including those of replays."""
    import torch

    torch.accelerator.synchronize()
    before = cann_sim.counters()
    run(*inputs)
    torch.accelerator.synchronize()
    done = cann_sim.counters() - before
    return done.launches + done.replayed_kernels


def time_of(run: Callable[..., object], inputs: list[torch.Tensor]) -> float:
    """Return the microseconds of a step on the device, by its virtual clock."""
    import torch

    begin, end = (torch.Event("npu", enable_timing=True) for _ in range(2))
    torch.accelerator.synchronize()
    begin.record()
    for _ in range(CALLS):
        run(*inputs)
    end.record()
    torch.accelerator.synchronize()
    return begin.elapsed_time(end) * 1000 / CALLS


def measure(rows: int, hidden: int) -> list[Row]:
    """Return one row for each form, dtype and way to run."""
    import torch

    found = []
    for dtype in (torch.bfloat16, torch.float16):
        inputs = [torch.randn(rows, hidden).to("npu", dtype) for _ in range(2)]
        for form in FORMS:
            torch.compiler.reset()
            model = model_of(form, dtype, hidden)
            alone = model_of(form, dtype, hidden, fused=True)
            before, unfused = launches_of(model, inputs), time_of(model, inputs)
            runs = {"fused kernel alone": alone, **doors(model, inputs)}
            found += [
                Row(
                    form=form,
                    dtype=str(dtype).removeprefix("torch."),
                    door=name,
                    launches_before=before,
                    launches_after=launches_of(run, inputs),
                    speedup=round(unfused / time_of(run, inputs), 2),
                )
                for name, run in runs.items()
            ]
    return found


def main() -> None:
    """Measure, print, write."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--rows", type=int, default=16)
    parser.add_argument("--hidden", type=int, default=4096)
    options = parser.parse_args()
    os.environ["CANN_SIM_CLOCK"] = "given"
    cann_sim.activate()
    import torch

    from npu_graph_runtime import NpuDevice

    # Loads torch_npu.
    NpuDevice()
    with torch.no_grad():
        rows = measure(options.rows, options.hidden)
    table = Table("form", "dtype", "door", "launches before", "after", "speedup, virtual clock")
    for row in rows:
        launches = str(row.launches_before), str(row.launches_after)
        table.add_row(row.form, row.dtype, row.door, *launches, f"{row.speedup:.2f}")
    Console(width=120).print(table)
    path = Path("build/bench/static-quant.json")
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(json.dumps([asdict(row) for row in rows], indent=2) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
