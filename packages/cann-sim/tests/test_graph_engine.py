"""torchair, the graph compiler in torch_npu, finds capture but no graph engine."""

from __future__ import annotations

import ctypes
from importlib.machinery import ExtensionFileLoader
from importlib.util import module_from_spec, spec_from_loader
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
import torch
import torch_npu

import cann_sim

if TYPE_CHECKING:
    from collections.abc import Iterator

CORE = Path(torch_npu.__file__).parent / "dynamo" / "torchair" / "core"


def native_module(name: str) -> Any:
    """Load a native module of torchair without torchair itself, which needs protobuf."""
    loader = ExtensionFileLoader(name, str(CORE / f"{name}.so"))
    spec = spec_from_loader(name, loader)
    assert spec is not None
    module = module_from_spec(spec)
    loader.exec_module(module)
    return module


@pytest.fixture
def dynamo() -> Iterator[None]:
    """Reset compiled code before and after."""
    torch.compiler.reset()
    yield
    torch.compiler.reset()


@pytest.mark.filterwarnings("ignore:.*torch.jit.script:DeprecationWarning")
@pytest.mark.filterwarnings("ignore:Cannot create tensor with internal format:UserWarning")
@pytest.mark.usefixtures("npu", "dynamo")
def test_npugraph_ex_backend_compiled_twice_replays_what_it_captured() -> None:
    torch.manual_seed(0)
    layer = torch.nn.Linear(16, 16, device="npu")
    compiled = torch.compile(layer, backend="npugraph_ex", dynamic=False)
    with torch.no_grad():
        compiled(torch.randn(4, 16, device="npu"))
        before = cann_sim.counters()
        for _ in range(2):
            values = torch.randn(4, 16, device="npu")
            assert torch.equal(compiled(values), layer(values))
        torch_npu.npu.synchronize()
        after = cann_sim.counters()
    assert after.replays - before.replays == 2
    assert after.captures == before.captures


@pytest.mark.usefixtures("npu")
@pytest.mark.parametrize("name", ["_torchair", "_npu_graph_executor", "_npu_utils"])
def test_native_module_of_torchair_is_linked_completely(name: str) -> None:
    native_module("_torchair")
    assert native_module(name).__name__ == name


@pytest.mark.usefixtures("npu")
def test_graph_engine_is_refused_with_its_name_and_what_to_use_instead() -> None:
    torchair = native_module("_torchair")
    with pytest.raises(RuntimeError, match=r"ge::.* is not simulated: .*'npugraph_ex'"):
        torchair.InitializeGraphEngine({"ge.exec.deviceId": "0"})


@pytest.mark.usefixtures("npu")
@pytest.mark.parametrize(
    ("size", "limit", "length", "text"),
    [(8, 7, 5, b"12345"), (6, 5, 5, b"12345"), (8, 3, -1, b"123"), (5, 5, -1, b"")],
)
def test_bounded_text_is_cut_at_the_limit_and_empty_without_room(
    size: int, limit: int, length: int, text: bytes
) -> None:
    place = ctypes.create_string_buffer(b"~" * 15)
    print_bounded = ctypes.CDLL("libge_runner.so").snprintf_s
    arguments = (ctypes.c_size_t(size), ctypes.c_size_t(limit), b"%d", ctypes.c_int(12345))
    assert print_bounded(place, *arguments) == length
    assert place.value == text
    assert place.raw[size:15] == b"~" * (15 - size)
