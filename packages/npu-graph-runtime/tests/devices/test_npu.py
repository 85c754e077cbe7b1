from __future__ import annotations

import ctypes
import signal
import subprocess
import sys

import pytest
import torch

import cann_sim
from npu_graph_runtime import (
    CaptureSession,
    GraphContext,
    GraphDevice,
    GraphedCallable,
    GraphKey,
    NpuDevice,
    RunMode,
)
from npu_graph_runtime.device import Event, ExternalEvent, Stream
from npu_graph_runtime.errors import (
    DeviceUnavailableError,
    FeatureNotSupportedError,
    IllegalWhileCapturingError,
)

KEY = GraphKey(num_tokens=4)


def test_npu_device_fits_the_seam(npu: NpuDevice) -> None:
    device: GraphDevice = npu
    assert device.name == "npu:0"
    assert repr(npu) == "<NpuDevice npu:0>"


def test_npu_device_returns_native_objects(npu: NpuDevice) -> None:
    stream, event = npu.create_stream(), npu.create_event()
    external = npu.create_external_event()
    import torch_npu

    assert type(stream) is torch_npu.npu.Stream
    assert type(event) is torch_npu.npu.Event
    assert type(external) is torch_npu.npu.ExternalEvent
    assert isinstance(stream, Stream)
    assert isinstance(event, Event)
    assert isinstance(external, ExternalEvent)


def test_native_addresses_are_those_of_torch_npu_and_of_the_loaded_library(npu: NpuDevice) -> None:
    stream, event = npu.create_direct_stream(), npu.create_external_event()
    event.wait(npu.create_stream())
    event.record(npu.create_stream())
    # A wait uses up one record, and two records before it are one: this pair is done first.
    npu.synchronize()
    assert npu.stream_address(stream) == vars(type(stream).__base__)["npu_stream"].__get__(stream)
    assert npu.external_event_address(event) > 0

    calls = npu.native_calls()

    assert set(calls) == {
        "aclmdlRICaptureTaskUpdateBegin",
        "aclmdlRICaptureTaskUpdateEnd",
        "aclrtCreateEventExWithFlag",
        "aclrtRecordEvent",
        "aclrtStreamWaitEvent",
        "aclrtDestroyEvent",
        "aclrtValueWrite",
    }
    # A call through the address sets the word, so that the wait below ends.
    write = ctypes.CFUNCTYPE(
        ctypes.c_int, ctypes.c_void_p, ctypes.c_uint64, ctypes.c_uint32, ctypes.c_void_p
    )(calls["aclrtValueWrite"])
    waiting = npu.create_direct_stream()
    event.wait(waiting)
    assert write(npu.external_event_address(event), 1, 0, npu.stream_address(stream)) == 0
    waiting.synchronize()


def test_kernel_addresses_are_those_that_torch_npu_finds(npu: NpuDevice) -> None:
    names = ["aclCreateIntArray", "aclDestroyIntArray", "aclnnNoSuchKernel"]

    calls = npu.kernel_calls(names)

    assert set(calls) == {"aclCreateIntArray", "aclDestroyIntArray", "describe_tensor"}
    make = ctypes.CFUNCTYPE(ctypes.c_void_p, ctypes.POINTER(ctypes.c_int64), ctypes.c_uint64)(
        calls["aclCreateIntArray"]
    )
    destroy = ctypes.CFUNCTYPE(ctypes.c_int, ctypes.c_void_p)(calls["aclDestroyIntArray"])
    made = make((ctypes.c_int64 * 2)(3, 4), 2)
    assert made
    assert destroy(made) == 0


def test_current_stream_is_the_same_object_until_another_is_current(npu: NpuDevice) -> None:
    first, second = npu.create_stream(), npu.create_direct_stream()
    with npu.use_stream(first):
        current = npu.current_stream()
        assert current == first
        assert npu.current_stream() is current
        with npu.use_stream(second):
            assert npu.current_stream() == second
        assert npu.current_stream() is current


def test_npu_device_out_of_range_raises(npu: NpuDevice) -> None:
    with pytest.raises(DeviceUnavailableError, match="opening device npu:99: torch_npu sees"):
        NpuDevice(99)


def test_npu_device_without_torch_npu_raises(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "torch_npu", None)
    with pytest.raises(ImportError, match="torch_npu cannot be imported"):
        NpuDevice()


def test_weak_reference_of_host_tensor_is_itself(npu: NpuDevice) -> None:
    tensor = torch.ones(2)
    assert npu.weak_reference(tensor) is tensor


def test_graphed_callable_on_npu_captures_and_replays(npu: NpuDevice) -> None:
    context = GraphContext()
    wrapper = GraphedCallable(
        lambda x: x * 2 + 1, device=npu, context=context, run_mode=RunMode.FULL, name="decode"
    )
    x = torch.ones(4, device="npu:0")
    with CaptureSession(npu, context), context.run(RunMode.FULL, KEY):
        wrapper(x)
    for value in (3.0, 5.0):
        x.fill_(value)
        with context.run(RunMode.FULL, KEY):
            assert wrapper(x).tolist() == [value * 2 + 1] * 4
    wrapper.release_all()
    with CaptureSession(npu, context), context.run(RunMode.FULL, KEY):
        wrapper(x)
    with context.run(RunMode.FULL, KEY):
        assert wrapper(x).tolist() == [11.0] * 4


def test_illegal_call_in_capture_on_npu_is_diagnosed_and_leaves_it_usable(npu: NpuDevice) -> None:
    context = GraphContext()
    is_bad = True

    def step(x: torch.Tensor) -> torch.Tensor:
        return x * float(x.sum()) if is_bad else x * 2

    wrapper = GraphedCallable(
        step, device=npu, context=context, run_mode=RunMode.FULL, name="decode"
    )
    x = torch.ones(4, device="npu:0")
    before = npu.current_stream()
    with (
        pytest.raises(IllegalWhileCapturingError, match="capturing 'decode'"),
        CaptureSession(npu, context),
        context.run(RunMode.FULL, KEY),
    ):
        wrapper(x)
    assert npu.current_stream() == before
    is_bad = False
    with CaptureSession(npu, context), context.run(RunMode.FULL, KEY):
        wrapper(x)
    with context.run(RunMode.FULL, KEY):
        assert wrapper(x).tolist() == [2.0] * 4


@pytest.mark.parametrize("weak", [True, False])
def test_graphs_of_session_share_memory_of_weak_outputs(npu: NpuDevice, weak: bool) -> None:
    context = GraphContext()
    wrapper = GraphedCallable(
        lambda x: (x + 1) * 2,
        device=npu,
        context=context,
        run_mode=RunMode.FULL,
        name="decode",
        weak_outputs=weak,
        warmup_runs=0,
    )
    num_bytes = 32 * 2**20
    x = torch.ones(num_bytes // 4, device=npu.torch_device)
    reserved: list[int] = []
    with CaptureSession(npu, context):
        for num_tokens in (4, 3, 2, 1):
            with context.run(RunMode.FULL, GraphKey(num_tokens=num_tokens)):
                wrapper(x)
            reserved.append(npu.memory_figures().reserved)
    growth = reserved[-1] - reserved[0]
    # The allocator rounds large blocks up.
    assert growth == 0 if weak else growth >= 3 * num_bytes
    before = npu.memory_figures().reserved
    wrapper.release_all()
    npu.empty_cache()
    assert npu.memory_figures().reserved <= before - num_bytes


def test_direct_stream_launches_before_the_call_returns(npu: NpuDevice) -> None:
    tensor = torch.ones(4, device="npu")
    stream = npu.create_direct_stream()
    npu.synchronize()

    for _ in range(50):
        before = cann_sim.counters()
        with npu.use_stream(stream):
            tensor.add_(1)
        assert (cann_sim.counters() - before).launches == 1
    npu.synchronize()

    assert tensor.tolist() == [51.0] * 4


def test_flush_launches_empties_the_task_queue(npu: NpuDevice) -> None:
    tensor = torch.ones(4, device="npu")
    npu.synchronize()
    before = cann_sim.counters()

    for _ in range(200):
        tensor.add_(1)
    npu.flush_launches()
    used = cann_sim.counters() - before
    npu.synchronize()

    assert used.launches == 200
    assert used.synchronisations == 0


def test_fused_update_exists_for_fused_attention_only(npu: NpuDevice) -> None:
    assert callable(npu.fused_update("npu::npu_fused_infer_attention_score.out"))
    assert npu.fused_update("npu::npu_rms_norm") is None


def test_memory_pool_is_torch_npus_own_handle(npu: NpuDevice) -> None:
    """An engine may capture into it by torch_npu, and into its own handle by the device."""
    import torch_npu

    pool = npu.create_memory_pool()
    stream, value = npu.create_stream(), torch.zeros(4, device="npu")
    graph = npu.create_graph()
    with npu.capture(graph, pool=pool, stream=stream):
        value + 1
    other = torch_npu.npu.NPUGraph()

    assert graph.pool() == pool  # type: ignore[attr-defined]
    with torch_npu.npu.graph(other, pool=pool, stream=stream):
        value + 2
    assert other.pool() == pool
    third = npu.create_graph()
    with npu.capture(third, pool=other.pool(), stream=stream):
        value + 3
    assert third.pool() == pool  # type: ignore[attr-defined]


FX_COMPILER_PROGRAM = """
import signal, sys
import cann_sim
cann_sim.activate()
import torch
from npu_graph_runtime import CaptureSession, GraphContext, GraphedCallable, GraphKey, NpuDevice
from npu_graph_runtime import RunMode

device, context = NpuDevice(), GraphContext()
handlers = signal.getsignal(signal.SIGINT), signal.getsignal(signal.SIGTERM)
compiler = device.fx_compiler(sys.argv[1])
graphs = []

def layer(x, weight, cache):
    total = torch.relu(x @ weight) + x
    cache.add_(total.sum())
    return total

def backend(graph, inputs):
    graphs.append(graph)
    return compiler(graph, inputs)

x = torch.randn(4, 64, device="npu", dtype=torch.bfloat16)
weight, cache = torch.randn(64, 64).to(x), torch.zeros(1).to(x)
run = torch.compile(layer, backend=backend, fullgraph=True)
graphed = GraphedCallable(run, device=device, context=context, run_mode=RunMode.FULL, name="layer")
key = GraphKey(num_tokens=4)
with torch.no_grad():
    with CaptureSession(device, context) as session, context.run(RunMode.FULL, key):
        graphed(x, weight, cache)
    for _ in range(3):
        x.copy_(torch.randn(4, 64))
        expected_cache = cache.clone()
        expected = layer(x, weight, expected_cache)
        with context.run(RunMode.FULL, key):
            found = graphed(x, weight, cache)
        assert torch.equal(found.cpu(), expected.cpu())
        assert torch.equal(cache.cpu(), expected_cache.cpu())
assert handlers == (signal.getsignal(signal.SIGINT), signal.getsignal(signal.SIGTERM))
print("compiled", len(graphs), "captured", session.num_graphs)
"""


def test_graph_compiled_by_torch_npu_is_captured_only_by_us(fx_compiler: str) -> None:
    # A process of its own: where npugraph_ex has compiled, torchair cannot be loaded.
    command = [sys.executable, "-W", "ignore", "-c", FX_COMPILER_PROGRAM, fx_compiler]

    done = subprocess.run(command, check=False, capture_output=True, text=True)

    assert done.stdout.splitlines()[-1:] == ["compiled 1 captured 1"], done.stderr


def test_missing_fx_compiler_is_a_typed_error(
    npu: NpuDevice, monkeypatch: pytest.MonkeyPatch
) -> None:
    # A process whose parent ignores it begins so.
    handler = signal.getsignal(signal.SIGINT)
    with pytest.raises(ValueError, match="'inductor', expected one of npugraph_ex, torchair"):
        npu.fx_compiler("inductor")

    # As where torch_npu was built without it.
    monkeypatch.setitem(sys.modules, "npugraph_ex", None)
    with pytest.raises(FeatureNotSupportedError, match=r"wheels of 2\.10 to 2\.14") as raised:
        npu.fx_compiler("npugraph_ex")
    assert isinstance(raised.value.__cause__, ImportError)
    assert signal.getsignal(signal.SIGINT) is handler
