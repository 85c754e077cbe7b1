"""Events after replays, as created by each updater."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from addressed.writing_device import STREAM, WritingDevice

if TYPE_CHECKING:
    from attn_update.issuing.updater import Updater


def test_replay_event_is_recorded_once_waited_for_and_destroyed(updater: Updater) -> None:
    device = WritingDevice()
    event = updater.event_recorder(device.native_calls())(STREAM)
    event.wait(STREAM)
    event.wait(STREAM)
    del event
    synchronises_streams = 1
    steps = [("record", 99), ("wait", 99), ("wait", 99), ("destroy", 99)]
    assert device.seen == [("create", synchronises_streams), *steps]


@pytest.mark.parametrize(
    ("failing", "call", "destroyed"),
    [
        (("create", 1), "aclrtCreateEventExWithFlag", False),
        (("record", 99), "aclrtRecordEvent", True),
        (("wait", 99), "aclrtStreamWaitEvent", True),
    ],
)
def test_replay_event_that_the_device_refuses_is_an_error_and_released(
    updater: Updater, failing: tuple[str, int], call: str, *, destroyed: bool
) -> None:
    device = WritingDevice()
    device.failing = failing
    with pytest.raises(RuntimeError, match=f"{call} returned 107000"):
        updater.event_recorder(device.native_calls())(STREAM).wait(STREAM)
    assert (device.seen[-1] == ("destroy", 99)) == destroyed
