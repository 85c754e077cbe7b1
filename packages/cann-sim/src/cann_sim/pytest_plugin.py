"""A pytest plugin that keeps a failed or hung device from affecting later tests.

Load it by ``pytest_plugins = "cann_sim.pytest_plugin"`` in a conftest.py. All tests of a process
share one device, so a failure left by one test would otherwise fail others.
"""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING, Any

import pytest

from cann_sim.activation import is_active
from cann_sim.simulated_device.faults import restart_devices, untold_failure

if TYPE_CHECKING:
    from collections.abc import Generator


@pytest.hookimpl(wrapper=True)
def pytest_runtest_teardown(item: pytest.Item) -> Generator[None, None, None]:
    """Synchronise the device after each test and its fixtures.

    A failure that the test left (a kernel that failed after the last synchronisation), or a stream
    that waits forever, is an error of the test's teardown. A simulated device that stopped or hangs
    is restarted. If the device cannot be synchronised at all (an open capture, a hang of hardware),
    or if the thread of torch_npu's task queue has ended (because a launch was rejected), the run
    ends and names the test, because all later tests would fail or wait forever.

    Args:
        item: The test.
    """
    yield
    torch_npu = sys.modules.get("torch_npu")
    if torch_npu is None or not torch_npu.npu.is_initialized():
        return
    # On hardware the same tests have nothing to restart.
    simulated = is_active()
    if simulated and not untold_failure():
        restart_devices()
    failure = _failure(torch_npu)
    if failure is not None:
        if simulated:
            restart_devices()
        error = _failure(torch_npu)
        if error is not None:
            pytest.exit(f"{item.nodeid} left a device that no later test can use: {error}", 1)
    if not _takes_launches(torch_npu):
        pytest.exit(
            f"{item.nodeid} left torch_npu's task queue dead: a launch was refused there"
            f"{'' if failure is None else f' ({failure})'}, which ends its thread; later launches "
            "are dropped, and a wait for an event never returns. Refuse launches in a process of "
            "their own, or with TASK_QUEUE_ENABLE=0",
            1,
        )
    if failure is not None:
        pytest.fail(f"{item.nodeid} left a failure of the device behind: {failure}", pytrace=False)


def _failure(torch_npu: Any) -> RuntimeError | None:
    try:
        torch_npu.npu.synchronize()
    except RuntimeError as failure:
        return failure
    return None


def _takes_launches(torch_npu: Any) -> bool:
    """Return whether the thread of torch_npu's task queue lives.

    An event counts as recorded once that thread has come to its record. It has when the device is
    synchronised, which waits until the queue is empty, as one whose thread ended always is.
    """
    event = torch_npu.npu.Event()
    event.record(torch_npu.npu.default_stream())
    torch_npu.npu.synchronize()
    return bool(event.query())
