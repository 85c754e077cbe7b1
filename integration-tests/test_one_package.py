"""The engines of docs/how-to/adopt-one-package.md, which adopt one part each, run as described."""

from __future__ import annotations

import ast
import re
import subprocess
import sys
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
import torch

from attn_update import Recorder
from npu_compile import InputError, InputSpec, StaticInputs, StepSize
from npu_graph_runtime import GraphKey
from one_package.capturing import CapturingEngine
from one_package.fusing import FusingEngine
from one_package.replaying import ReplayingEngine
from one_package.splitting import SplittingEngine
from one_package.staging import StagingEngine
from one_package.updating import UpdatingEngine

if TYPE_CHECKING:
    from npu_graph_runtime import NpuDevice

ROOT = Path(__file__).parents[1]
PROGRAMS = {
    "fusing": {"fx_passes"},
    "splitting": {"piecewise_split"},
    "capturing": {"npu_graph_runtime"},
    "updating": {"attn_update"},
    "staging": {"npu_compile"},
    "replaying": {"npu_compile", "attn_update"},
}
PAGE = (ROOT / "docs" / "how-to" / "adopt-one-package.md").read_text(encoding="utf-8")


@pytest.mark.parametrize(("name", "packages"), PROGRAMS.items())
def test_program_imports_only_its_packages_and_is_on_the_page(
    name: str, packages: set[str]
) -> None:
    path = ROOT / "examples" / "one_package" / f"{name}.py"
    text = path.read_text(encoding="utf-8")
    needed = {
        node.module
        for node in ast.parse(text).body
        if isinstance(node, ast.ImportFrom) and node.module not in {"__future__", "typing"}
    }
    # Devices are of npu_graph_runtime; the engine's class takes any.
    assert needed - packages <= {"npu_graph_runtime"}
    assert needed >= packages
    assert f"```python\n{text}```\n" in PAGE
    _, _, program = text.partition("\n\nclass ")
    lines = [line for line in program.partition("\n\n\n")[0].splitlines() if line.strip()]
    assert len(lines) <= 35, f"{name}: {len(lines)} lines"
    assert re.search(rf"examples/one_package/{name}\.py", PAGE)


@pytest.mark.parametrize("name", PROGRAMS)
def test_program_prints_what_the_page_says(name: str) -> None:
    path = ROOT / "examples" / "one_package" / f"{name}.py"
    text = path.read_text(encoding="utf-8")
    below = PAGE.partition(f"```python\n{text}```\n")[2].partition("```python\n")[0]
    told = re.match(r"\s*Run it as `([^`]*)example\.py`.*?```text\n(.*?)```", below, re.DOTALL)
    assert told is not None
    assert (told[1] == "cann-sim run -- python ") == ("NpuDevice(0)" in text)
    simulated = ["-m", "cann_sim", "run", "--", sys.executable] if "cann-sim" in told[1] else []

    command = [sys.executable, *simulated, str(path)]
    done = subprocess.run(command, capture_output=True, text=True, check=False)

    assert done.stdout == told[2], done.stderr


def test_fusing_engine_fuses(device: NpuDevice) -> None:
    weight = torch.randn(16, dtype=torch.float16).to(device.torch_device)

    def layer(x: torch.Tensor, residual: torch.Tensor) -> torch.Tensor:
        total = x + residual
        normed: torch.Tensor = torch.ops.npu.npu_rms_norm(total, weight, 1e-6)[0]
        return normed + total

    x = torch.randn(4, 16, dtype=torch.float16).to(device.torch_device)
    engine = FusingEngine(layer)
    # The fused kernel rounds elsewhere, as its rule says: by one last bit of a large number.
    torch.testing.assert_close(engine.step(x, x), layer(x, x), rtol=2**-10, atol=4e-3)
    assert engine.fused["fuse_add_rms_norm"] == 1


def test_splitting_engine_leaves_attention_alone() -> None:
    library = torch.library.Library("one_package", "FRAGMENT")  # type: ignore[no-untyped-call]
    library.define("attention(Tensor x) -> Tensor")  # type: ignore[no-untyped-call]
    library.impl("attention", torch.cos, "CompositeExplicitAutograd")  # type: ignore[no-untyped-call]

    def model(x: torch.Tensor) -> torch.Tensor:
        for _ in range(3):
            x = torch.ops.one_package.attention(x + 1) * 2
        return x

    engine = SplittingEngine(model, "one_package::attention")
    torch.testing.assert_close(engine.step(torch.ones(3)), model(torch.ones(3)))
    assert engine.compiled == 4
    del library


def test_capturing_engine_replays_what_fits(device: NpuDevice) -> None:
    engine = CapturingEngine(lambda rows: torch.tanh(rows) * 2, device, width=3)

    for rows in (1, 3, 8):
        batch = torch.randn(rows, 3).to(device.torch_device)
        torch.testing.assert_close(engine.run(batch), torch.tanh(batch) * 2)
    with pytest.raises(ValueError, match="9 rows, expected at most 8"):
        engine.run(torch.zeros(9, 3))


def test_updating_engine_gives_each_step_its_lengths(device: NpuDevice) -> None:
    engine, place = UpdatingEngine(device), device.torch_device
    query = torch.randn(2, 4, 64, dtype=torch.float16).to(place)
    cache = torch.randn(8, 16, 4 * 64, dtype=torch.float16).to(place)
    table = torch.arange(8, dtype=torch.int32).reshape(2, 4).to(place)

    def attention(lengths: list[int]) -> torch.Tensor:
        arguments = {"query": query, "key": cache, "value": cache, "block_table": table}
        sizes = {"block_size": 16, "num_heads": 4, "num_key_value_heads": 4, "scale": 0.125}
        given = {"actual_seq_lengths": [1, 2], "actual_seq_lengths_kv": lengths}
        return engine.attend("layers.0", {**arguments, **sizes, "input_layout": "TND", **given})

    output = engine.capture(lambda: attention([1, 1]))
    for lengths in ([7, 30], [8, 31]):
        engine.run([1, 2], lengths)
        device.synchronize()
        torch.testing.assert_close(output, attention(lengths), rtol=0, atol=0)


def test_replaying_engine_gives_each_key_its_graph_and_its_lengths(device: NpuDevice) -> None:
    place, recorder = device.torch_device, Recorder(device)
    cache = torch.randn(8, 16, 4 * 64, dtype=torch.float16).to(place)
    table = torch.arange(8, dtype=torch.int32).reshape(2, 4).to(place)
    given: dict[str, list[int]] = {}
    scales = {"plain": 1.0, "adapted": 3.0}
    keys = {name: GraphKey(num_tokens=2, extra=(name,)) for name in scales}
    current = ["plain"]

    def model(query: torch.Tensor) -> torch.Tensor:
        tensors = {"query": query, "key": cache, "value": cache, "block_table": table}
        sizes = {"block_size": 16, "num_heads": 4, "num_key_value_heads": 4, "scale": 0.125}
        arguments = {**tensors, **sizes, "input_layout": "TND", **given}
        output = recorder.attention("layers.0", "fused_infer_attention_v1", arguments)[0]
        return output * scales[current[0]]

    def prepare(key: GraphKey) -> None:
        current[0] = str(key.extra[0])
        given.update(actual_seq_lengths=[1, 2], actual_seq_lengths_kv=[1, 1])

    query = torch.randn(2, 4, 64, dtype=torch.float16).to(place)
    inputs = {key: {"query": query} for key in keys.values()}
    engine = ReplayingEngine(model, device, recorder, inputs)
    engine.capture(prepare)
    for name, lengths in (("plain", [7, 30]), ("adapted", [8, 31]), ("plain", [9, 2])):
        query.copy_(torch.randn(2, 4, 64, dtype=torch.float16))
        output = engine.run(keys[name], [1, 2], lengths).clone()
        device.synchronize()
        current[0] = name
        given.update(actual_seq_lengths_kv=lengths)
        torch.testing.assert_close(output, model(query), rtol=0, atol=0)


def test_staging_engine_gives_each_step_its_batch(device: NpuDevice) -> None:
    engine = StagingEngine(lambda ids, slots: ids * 100 + slots, device)
    full = engine.run(range(1, 9), range(8))
    assert full.tolist() == [100 * (row + 1) + row for row in range(8)]

    # More steps in flight than there are host buffers, each on tokens of the one before.
    sampled = engine.run([4, 5], [1, 2]) // 100
    for step in range(10):
        sampled = engine.run([], [step, step + 1], sampled) // 100 + 1
    assert sampled.tolist() == [14, 15]


def test_static_inputs_refuse_a_value_inside_their_buffers(device: NpuDevice) -> None:
    size = StepSize(tokens=2, sequences=2)
    specs = {"ids": InputSpec(dtype=torch.int64)}
    inputs = StaticInputs(specs, largest=size, device=device)
    inputs.load({"ids": torch.tensor([3, 4])}, size=size)

    with pytest.raises(InputError, match="`ids` lies in the static inputs themselves"):
        inputs.load({"ids": inputs.views(size)["ids"]}, size=size)
    inputs.staging(size, size=size)
    with pytest.raises(InputError, match=r"`ids` is on cpu, expected npu.* the staging view"):
        inputs.commit({"ids": torch.tensor([5, 6])})
    assert inputs.views(size)["ids"].tolist() == [3, 4]
