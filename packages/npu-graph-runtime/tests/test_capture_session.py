from __future__ import annotations

import gc
import pickle
from typing import TYPE_CHECKING

import pytest
import torch

from npu_graph_runtime import CaptureSession, FakeDevice, GraphContext
from npu_graph_runtime.errors import (
    CaptureSessionError,
    DeadlockError,
    FeatureNotSupportedError,
    IllegalWhileCapturingError,
    KernelError,
    OutOfDeviceMemoryError,
)
from npu_graph_runtime.observer import CaptureSessionClosed, CaptureSessionOpened, RuntimeEvent

if TYPE_CHECKING:
    from pathlib import Path

    from npu_graph_runtime import NpuDevice


class Log:
    def __init__(self) -> None:
        self.events: list[RuntimeEvent] = []

    def observe(self, event: RuntimeEvent, /) -> None:
        self.events.append(event)


def test_session_open_makes_its_stream_current_and_restores(
    fake: FakeDevice, context: GraphContext
) -> None:
    before = fake.current_stream()
    with CaptureSession(fake, context) as session:
        assert fake.current_stream() is session.stream
        assert context.capture_session is session
    assert fake.current_stream() is before
    assert context.capture_session is None


def test_session_given_pool_and_stream_uses_them(fake: FakeDevice, context: GraphContext) -> None:
    pool, stream = fake.create_memory_pool(), fake.create_stream()
    with CaptureSession(fake, context, pool, stream) as session:
        assert session.pool is pool
        assert fake.current_stream() is stream


@pytest.mark.parametrize("is_enabled", [True, False])
def test_session_holds_garbage_collection_off_and_restores(
    fake: FakeDevice, context: GraphContext, is_enabled: bool
) -> None:
    was_enabled, was_frozen = gc.isenabled(), gc.get_freeze_count()
    try:
        (gc.enable if is_enabled else gc.disable)()
        with CaptureSession(fake, context):
            assert not gc.isenabled()
            assert gc.get_freeze_count() > 0
        assert gc.isenabled() is is_enabled
        assert gc.get_freeze_count() == was_frozen
    finally:
        (gc.enable if was_enabled else gc.disable)()


def test_session_where_host_froze_objects_leaves_them_frozen(
    fake: FakeDevice, context: GraphContext
) -> None:
    gc.freeze()
    try:
        frozen = gc.get_freeze_count()
        with CaptureSession(fake, context):
            pass
        # Objects that die leave the count; unfreezing would have made it 0.
        assert 0 < gc.get_freeze_count() <= frozen
    finally:
        gc.unfreeze()


def test_session_left_by_exception_restores_everything(
    fake: FakeDevice, context: GraphContext
) -> None:
    before = fake.current_stream()
    with pytest.raises(KeyError), CaptureSession(fake, context):
        raise KeyError("left")
    assert fake.current_stream() is before
    assert context.capture_session is None
    assert gc.isenabled()
    with CaptureSession(fake, context) as session:
        assert session.capture(lambda: torch.zeros(1), subject="again").result.shape == (1,)


def test_session_inside_session_raises(fake: FakeDevice, context: GraphContext) -> None:
    with CaptureSession(fake, context) as outer:
        with (
            pytest.raises(CaptureSessionError, match="already has an open one"),
            CaptureSession(fake, context),
        ):
            pass
        assert context.capture_session is outer


def test_session_entered_while_capturing_raises(fake: FakeDevice, context: GraphContext) -> None:
    graph, pool = fake.create_graph(), fake.create_memory_pool()
    with (
        fake.capture(graph, pool=pool),
        pytest.raises(CaptureSessionError, match="fake:0: the current stream is capturing"),
        CaptureSession(fake, context),
    ):
        pass
    assert gc.isenabled()


def test_session_that_cannot_open_leaves_nothing_behind(context: GraphContext) -> None:
    class Broken(FakeDevice):
        def empty_cache(self) -> None:
            raise RuntimeError("broken")

    device = Broken()
    with pytest.raises(RuntimeError, match="broken"), CaptureSession(device, context):
        pass
    assert gc.isenabled()
    assert context.capture_session is None
    assert device.current_stream() is device.default_stream


def test_capture_runs_warmups_then_captures_once(fake: FakeDevice, context: GraphContext) -> None:
    capturing: list[bool] = []
    values = torch.zeros(2)

    def call() -> torch.Tensor:
        capturing.append(fake.is_capturing())
        return values.add_(1)

    with CaptureSession(fake, context) as session:
        capture = session.capture(call, subject="'add'", warmup_runs=2)
        assert session.num_graphs == 1
    assert capturing == [False, False, True]
    assert values.tolist() == [2.0, 2.0]
    capture.graph.replay()
    assert values.tolist() == [3.0, 3.0]


def test_capture_outside_open_session_raises(fake: FakeDevice, context: GraphContext) -> None:
    session = CaptureSession(fake, context)
    with pytest.raises(CaptureSessionError, match="capturing 'add': the capture session is closed"):
        session.capture(lambda: None, subject="'add'")


@pytest.mark.parametrize("warmup_runs", [0, 1])
def test_capture_inside_capture_raises_and_names_both(
    fake: FakeDevice, context: GraphContext, warmup_runs: int
) -> None:
    with CaptureSession(fake, context) as session:

        def outer() -> object:
            return session.capture(lambda: None, subject="'inner'")

        with pytest.raises(CaptureSessionError, match="capturing 'inner': 'outer' is being"):
            session.capture(outer, subject="'outer'", warmup_runs=warmup_runs)
        assert session.capturing is None
        session.capture(lambda: None, subject="'inner'")


def test_capture_of_illegal_call_raises_diagnosed_error_and_session_stays_usable(
    fake: FakeDevice, context: GraphContext
) -> None:
    x = torch.ones(())
    with CaptureSession(fake, context) as session:
        with pytest.raises(IllegalWhileCapturingError, match="capturing 'decode': ") as caught:
            session.capture(lambda: float(x + 1), subject="'decode'")
        assert caught.value.code == 107027
        assert isinstance(caught.value.__cause__, RuntimeError)
        assert session.num_graphs == 0
        capture = session.capture(lambda: x + 1, subject="'decode'")
        capture.graph.replay()
    assert capture.result.item() == 2


def test_capture_call_raising_its_own_error_propagates_it(
    fake: FakeDevice, context: GraphContext
) -> None:
    def call() -> torch.Tensor:
        return torch.ones(2) @ torch.ones(3)

    with CaptureSession(fake, context) as session:
        with pytest.raises(RuntimeError, match="inconsistent tensor size") as caught:
            session.capture(call, subject="'decode'")
        assert type(caught.value) is RuntimeError
        session.capture(lambda: None, subject="'decode'")


def test_capture_beyond_memory_raises_diagnosed_error(context: GraphContext) -> None:
    device = FakeDevice(memory_bytes=1024)
    with CaptureSession(device, context) as session:
        with pytest.raises(OutOfDeviceMemoryError, match="capture the largest first"):
            session.capture(lambda: torch.zeros(1000), subject="'decode'")
        session.capture(lambda: torch.zeros(100), subject="'decode'")
    assert device.memory_figures().free == 1024 - 400


def test_session_observed_reports_opening_and_closing(
    fake: FakeDevice, context: GraphContext
) -> None:
    log = Log()
    with CaptureSession(fake, context, observer=log) as session:
        capture = session.capture(lambda: torch.zeros(4), subject="a")
    opened, closed = log.events
    assert isinstance(opened, CaptureSessionOpened)
    assert opened.memory.allocated == 0
    assert isinstance(closed, CaptureSessionClosed)
    assert (closed.num_graphs, closed.memory.allocated) == (1, 16)
    assert closed.seconds > 0
    capture.graph.reset()
    assert fake.memory_figures().allocated == 0


def test_session_closed_after_kernel_failed_raises_diagnosed_error(
    fake: FakeDevice, context: GraphContext
) -> None:
    indices, table = torch.zeros(1, dtype=torch.int64), torch.ones(2)

    def replay_out_of_range() -> None:
        with CaptureSession(fake, context) as session:
            capture = session.capture(lambda: table.index_select(0, indices), subject="'embed'")
            indices.fill_(9)
            capture.graph.replay()

    with pytest.raises(KernelError, match="closing a capture session on fake:0") as caught:
        replay_out_of_range()
    assert caught.value.code == 507015
    assert context.capture_session is None
    assert gc.isenabled()


def test_session_left_by_exception_with_stream_stuck_raises_that_exception(
    fake: FakeDevice, context: GraphContext
) -> None:
    event = fake.create_external_event()

    def get_stuck(error: Exception | None) -> None:
        with CaptureSession(fake, context) as session:
            event.wait(session.stream)
            if error is not None:
                raise error

    with pytest.raises(KeyError):
        get_stuck(KeyError("left"))
    event.record(fake.create_stream())
    fake.synchronize()
    event = fake.create_external_event()
    with pytest.raises(DeadlockError):
        get_stuck(None)


def test_session_that_ends_writes_a_memory_snapshot(
    npu: NpuDevice, context: GraphContext, tmp_path: Path
) -> None:
    path = tmp_path / "session.pickle"
    with CaptureSession(npu, context, memory_snapshot=path) as session:
        capture = session.capture(
            lambda: torch.zeros(1 << 20, device=npu.torch_device) + 1, subject="'model'"
        )
        assert not path.exists()
    blocks = [
        block
        for segment in pickle.loads(path.read_bytes())["segments"]
        for block in segment["blocks"]
    ]
    address = capture.result.data_ptr()
    assert [block["state"] for block in blocks if block["address"] == address] == [
        "active_allocated"
    ]
    path.unlink()
    with pytest.raises(KeyError), CaptureSession(npu, context, memory_snapshot=path):
        raise KeyError("left")
    assert path.exists()


def test_session_with_a_snapshot_of_a_device_without_is_refused(
    fake: FakeDevice, context: GraphContext
) -> None:
    with pytest.raises(FeatureNotSupportedError, match="a memory snapshot is wanted"):
        CaptureSession(fake, context, memory_snapshot="session.pickle")
