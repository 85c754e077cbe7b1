"""Settings are looked at when the simulator starts."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest

import cann_sim
from cann_sim.errors import SettingError
from cann_sim.settings import check_settings, external_event_form

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

WRONG = [
    ("CANN_SIM_KERNELS", "nul", "expected real or null, found 'nul'"),
    ("CANN_SIM_EXTERNAL_EVENTS", "flag", "expected value or event, found 'flag'"),
    ("CANN_SIM_LOG", "some", "expected missing or all, found 'some'"),
    ("CANN_SIM_DEVICES", "0", "expected a whole number above 0, found '0'"),
    ("CANN_SIM_DEVICES", "1.5", "expected a whole number above 0"),
    ("CANN_SIM_STREAMS", "many", "expected a whole number above 0"),
    ("CANN_SIM_MEMORY_GB", "-1", "expected a number above 0"),
    ("CANN_SIM_MEMORY_GB", "inf", "expected a number above 0"),
    ("CANN_SIM_DEADLOCK_SECONDS", "nan", "expected a number above 0"),
    ("CANN_SIM_SCHEDULE", "fuzz:", "expected free or fuzz:<seed>"),
    ("CANN_SIM_SCHEDULE", "fuzz:-1", "expected free or fuzz:<seed>"),
    ("CANN_SIM_FAULTS", "allocation", "expected <kind>:<first>,"),
    ("CANN_SIM_CLOCK", "on", "expected given, given:<microseconds> or measured"),
    ("CANN_SIM_CLOCK", "given:", "expected given, given:<microseconds> or measured"),
    ("CANN_SIM_CLOCK", "given:-1", "expected given, given:<microseconds> or measured"),
    ("CANN_SIM_CLOCK", "measured:0", "expected given, given:<microseconds> or measured"),
    ("CANN_SIM_MEMORY_CHECK", "yes", "expected off or on or full"),
    ("CANN_SIM_SOC", "Ascend910B", "expected Ascend910B1 or "),
    ("CANN_SIM_UPDATE_CHECK", "of", "expected on or off"),
    ("CANN_SIM_TRACE", "/no/such/folder/trace.json", "expected a file in a folder that exists"),
    ("CANN_SIM_COVERAGE", "/tmp", "expected a file in a folder that exists"),
    ("CANN_SIM_KERNEL", "null", "none of that name. Unset it, or use CANN_SIM_KERNELS"),
]


@pytest.mark.parametrize(("name", "value", "said"), WRONG)
def test_wrong_setting_is_refused_in_one_line(name: str, value: str, said: str) -> None:
    with pytest.raises(SettingError) as refused:
        check_settings({name: value})
    text = str(refused.value)
    assert text.startswith(f"environment variable {name}: expected ")
    assert said in text
    assert "\n" not in text


def test_right_settings_are_taken(tmp_path: Path) -> None:
    check_settings(
        {
            "CANN_SIM_CACHE": str(tmp_path / "not" / "yet"),
            "CANN_SIM_CLOCK": "given:0",
            "CANN_SIM_COVERAGE": str(tmp_path / "coverage.jsonl"),
            "CANN_SIM_DEADLOCK_SECONDS": "0.5",
            "CANN_SIM_DEVICES": "8",
            "CANN_SIM_EXTERNAL_EVENTS": "event",
            "CANN_SIM_FAULTS": "allocation:3,run(aclnnAdd):2+,launch:1-4",
            "CANN_SIM_KERNELS": "null",
            "CANN_SIM_LOG": "",
            "CANN_SIM_MEMORY_GB": "0.25",
            "CANN_SIM_SCHEDULE": "fuzz:7",
            "CANN_SIM_STREAMS": "12",
            "CANN_SIM_TRACE": "trace.json",
            "PATH": "/bin",
        }
    )


@pytest.mark.parametrize("clock", ["given", "given:12.5", "measured", "measured:6.8"])
def test_clocks_are_taken(clock: str) -> None:
    check_settings({"CANN_SIM_CLOCK": clock})


def test_external_events_are_values_where_nothing_is_said() -> None:
    assert external_event_form({}) == "value"
    assert external_event_form({"CANN_SIM_EXTERNAL_EVENTS": "event"}) == "event"


@pytest.mark.parametrize(
    "faults",
    [
        "allocation:1",
        "allocation:0",
        "allocation:1-3",
        "allocation:3-1",
        "allocation:2+",
        "allocation:2+,",
        "stream(aclnnAdd):1",
        "run():1",
        "run(aclnnAdd):1",
        "launch(aclnnAdd):12,capture_end:1",
        "kernel:1",
        "run",
        ":1",
        "run:1:2",
    ],
)
def test_faults_are_taken_and_refused_as_the_device_does(npu: Any, faults: str) -> None:
    looked_at = is_refused(lambda: check_settings({"CANN_SIM_FAULTS": faults}))
    assert looked_at == is_refused(lambda: set_faults(faults))


def is_refused(ask: Callable[[], None]) -> bool:
    try:
        ask()
    except SettingError:
        return True
    return False


def set_faults(faults: str) -> None:
    try:
        cann_sim.set_faults(faults)
    finally:
        cann_sim.set_faults("")


def test_wrong_setting_keeps_activate_from_loading_anything(run_python: Any) -> None:
    done = run_python(
        "import cann_sim\n"
        "try:\n    cann_sim.activate()\n"
        "except ValueError as error:\n    print(error, cann_sim.is_active())",
        environment={"CANN_SIM_KERNELS": "nul"},
    )
    assert "CANN_SIM_KERNELS: expected real or null, found 'nul' False" in done.output, done.errors
