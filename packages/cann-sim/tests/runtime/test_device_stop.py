"""A device stops at its first failure, as torch_npu asks it to, until it is restarted."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, Any

import pytest
import torch

import cann_sim
from cann_sim.simulated_device.faults import untold_failure

if TYPE_CHECKING:
    from collections.abc import Callable

KERNEL_FAILED = 507015
STOPPED = rf"(?s){KERNEL_FAILED}.*has stopped at its first failure.*aclnnInplaceAdds"


@pytest.fixture
def stopped(npu: Any) -> Any:
    """Return `torch.npu` with a device that has stopped, as its host knows."""
    values = torch.ones(4, device="npu:0")
    npu.synchronize()
    cann_sim.set_faults("run(aclnnInplaceAdds):1")
    values.add_(1.0)
    with pytest.raises(RuntimeError, match=STOPPED):
        npu.synchronize()
    cann_sim.set_faults("")
    return npu


ASKS: dict[str, Callable[[Any], object]] = {
    "device": lambda npu: npu.synchronize(),
    "the stream that failed": lambda npu: npu.current_stream().synchronize(),
    "another stream": lambda npu: npu.Stream().synchronize(),
    "an event": lambda npu: npu.current_stream().record_event().synchronize(),
}


@pytest.mark.parametrize("asks", ASKS.values(), ids=ASKS)
def test_every_question_to_a_stopped_device_is_answered_with_its_failure(
    stopped: Any, asks: Callable[[Any], object]
) -> None:
    for _ in range(2):
        with pytest.raises(RuntimeError, match=STOPPED):
            asks(stopped)


def test_stopped_device_runs_nothing_on_any_stream(npu: Any, stopped: Any) -> None:
    value = torch.empty(4, device="npu:0")
    other = npu.Stream()
    with npu.stream(other):
        value.fill_(7.0)
    with pytest.raises(RuntimeError, match=STOPPED):
        other.synchronize()
    cann_sim.restart_devices()
    before = value.cpu()
    assert not torch.equal(before, torch.full((4,), 7.0))
    value.fill_(7.0)
    assert torch.equal(value.cpu(), torch.full((4,), 7.0))


def test_replay_on_a_stopped_device_is_refused_and_its_outputs_cannot_be_read(npu: Any) -> None:
    value, out = torch.ones(4, device="npu:0"), torch.zeros(4, device="npu:0")
    graph = npu.NPUGraph()
    with npu.graph(graph):
        torch.mul(value, 3.0, out=out)
    npu.synchronize()
    cann_sim.set_faults("run(aclnnInplaceAdds):1")
    value.add_(1.0)
    with pytest.raises(RuntimeError, match=STOPPED):
        npu.synchronize()
    cann_sim.set_faults("")
    with pytest.raises(RuntimeError, match=rf"(?s){KERNEL_FAILED}.*takes nothing any more"):
        graph.replay()
    with pytest.raises(RuntimeError, match=str(KERNEL_FAILED)):
        out.cpu()


def test_wait_of_another_stream_ends_with_the_failure(npu: Any) -> None:
    event, waits = npu.ExternalEvent(), npu.Stream()
    values = torch.ones(4, device="npu:0")
    npu.synchronize()
    event.wait(waits)  # nobody will ever record it
    cann_sim.set_faults("run(aclnnInplaceAdds):1")
    values.add_(1.0)
    with pytest.raises(RuntimeError, match=STOPPED):
        waits.synchronize()
    cann_sim.set_faults("")


def test_only_a_device_that_stopped_is_restarted(stopped: Any) -> None:
    assert cann_sim.restart_devices() == 1
    assert cann_sim.restart_devices() == 0
    stopped.synchronize()


def test_device_that_hangs_is_restarted_once_that_was_found_out(npu: Any) -> None:
    waits = npu.Stream()
    npu.ExternalEvent().wait(waits)
    assert cann_sim.restart_devices() == 0
    with pytest.raises(RuntimeError, match="deadlock"):
        npu.synchronize()
    assert cann_sim.restart_devices() == 1
    npu.synchronize()


def test_device_that_hung_and_went_on_is_not_restarted(npu: Any) -> None:
    waits, event = npu.Stream(), npu.ExternalEvent()
    event.wait(waits)
    with pytest.raises(RuntimeError, match="deadlock"):
        npu.synchronize()
    event.record(npu.current_stream())
    npu.synchronize()
    event.reset(npu.current_stream())
    event.wait(waits)
    assert cann_sim.restart_devices() == 0
    event.record(npu.current_stream())
    npu.synchronize()


def test_unreported_failure_outlives_the_block_that_injected_it(npu: Any) -> None:
    values = torch.ones(4, device="npu:0")
    npu.synchronize()
    with cann_sim.injected_faults("run(aclnnInplaceAdds):1"):
        values.add_(1.0)
        while not untold_failure():
            time.sleep(0.001)
    with pytest.raises(RuntimeError, match=STOPPED):
        npu.synchronize()


STOP_AND_RESTART = """
import cann_sim
cann_sim.activate()
import torch, torch_npu
npu = torch.npu
values, twos = torch.ones(4, device="npu:0"), torch.full((4,), 2.0, device="npu:0")
npu.synchronize()
cann_sim.set_faults("run(aclnnInplaceAdds):1")
values.add_(1.0)
for turn in range(2):
    try:
        npu.synchronize()
        print("goes on")
    except RuntimeError as error:
        print("507015" in str(error))
cann_sim.set_faults("")
if {restart}:
    npu.stop_device(0)
    npu.restart_device(0)
print((values * 0.0 + twos).tolist())
"""


@pytest.mark.parametrize("queue", ["0", "1"])
def test_torch_npus_own_restart_lets_the_device_work_again(run_forked: Any, queue: str) -> None:
    done = run_forked(
        STOP_AND_RESTART.format(restart=True), environment={"TASK_QUEUE_ENABLE": queue}
    )
    assert done.status == 0, done.errors[-2000:]
    assert done.output.splitlines()[-3:] == ["True", "True", "[2.0, 2.0, 2.0, 2.0]"]


def test_streams_not_set_to_stop_continue(run_forked: Any) -> None:
    # With these backends of Inductor torch_npu does not ask for it.
    done = run_forked(
        STOP_AND_RESTART.format(restart=False),
        environment={"TORCHINDUCTOR_NPU_BACKEND": "mlir"},
    )
    assert done.status == 0, done.errors[-2000:]
    assert done.output.splitlines()[-3:] == ["True", "goes on", "[2.0, 2.0, 2.0, 2.0]"]
