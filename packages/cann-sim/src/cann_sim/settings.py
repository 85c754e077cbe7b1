"""The simulator's environment variables, checked before anything is built or loaded.

The native libraries read most of these variables themselves, when they first need them; a wrong
value would end the process there. All are therefore checked when the simulator starts.
"""

from __future__ import annotations

import difflib
import math
import re
from pathlib import Path
from types import MappingProxyType
from typing import TYPE_CHECKING, Final

from cann_sim.errors import SettingError

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

EXTERNAL_EVENT_FORMS: Final = ("value", "event")
"""What torch_npu makes external events of: values in memory, or the older events."""

SOCS: Final = ("Ascend910B1", "Ascend910B3", "Ascend910_9391", "Ascend310P3")
"""The systems on a chip that can be simulated, as in ``native/runtime/soc.cpp``."""

_PREFIX: Final = "CANN_SIM_"
_FAULT: Final = re.compile(
    r"(allocation|stream|capture_end|task_update|(launch|run|two_kernels)(\([^,]+\))?)"
    r":([1-9][0-9]*)(?:-([1-9][0-9]*)|\+)?"
)


def check_settings(environment: Mapping[str, str]) -> None:
    """Look at every setting of the simulator.

    Args:
        environment: Where they are read. A variable that is empty counts as not set.

    Raises:
        SettingError: A setting has a value that is not one of the expected, or there is no setting
            of that name.
    """
    for name, value in sorted(environment.items()):
        if not name.startswith(_PREFIX) or not value:
            continue
        if name not in _EXPECTED:
            nearest = difflib.get_close_matches(name, _EXPECTED, n=1)
            known = nearest[0] if nearest else ", ".join(sorted(_EXPECTED))
            raise SettingError(
                f"environment variable {name}: expected a setting of cann-sim, found none of that "
                f"name. Unset it, or use {known}"
            )
        expected, fits = _EXPECTED[name]
        if not fits(value):
            raise SettingError(f"environment variable {name}: expected {expected}, found {value!r}")


def external_event_form(environment: Mapping[str, str]) -> str:
    """Return the value of ``CANN_SIM_EXTERNAL_EVENTS``; by default values in memory.

    Args:
        environment: The environment, after `check_settings`.
    """
    return environment.get("CANN_SIM_EXTERNAL_EVENTS") or EXTERNAL_EVENT_FORMS[0]


def _is_amount(text: str) -> bool:
    try:
        number = float(text)
    except ValueError:
        return False
    return math.isfinite(number) and number > 0


def _is_count(text: str) -> bool:
    return text.isascii() and text.isdigit() and int(text) > 0


def _is_clock(text: str) -> bool:
    kind, colon, number = text.partition(":")
    if kind == "measured":
        return not colon or _is_amount(number)
    return kind == "given" and (not colon or number == "0" or _is_amount(number))


def _are_faults(text: str) -> bool:
    for part in text.split(","):
        found = _FAULT.fullmatch(part)
        if found is None:
            return False
        first, last = found.group(4, 5)
        if last is not None and int(last) < int(first):
            return False
    return True


def _is_writable_place(text: str) -> bool:
    path = Path(text)
    return path.parent.is_dir() and not path.is_dir()


def _one_of(*values: str) -> tuple[str, Callable[[str], bool]]:
    return " or ".join(values), values.__contains__


_FAULTS: Final = (
    "<kind>:<first>, <kind>:<first>-<last> or <kind>:<first>+ with commas between them; a kind is "
    "allocation, stream, capture_end, task_update, or launch, run or two_kernels with or without "
    "an operator in brackets"
)
_FILE: Final = ("a file in a folder that exists", _is_writable_place)

_EXPECTED: Final[Mapping[str, tuple[str, Callable[[str], bool]]]] = MappingProxyType(
    {
        "CANN_SIM_CACHE": ("a folder", lambda text: not Path(text).expanduser().is_file()),
        "CANN_SIM_CLOCK": (
            "given, given:<microseconds> or measured, measured:<factor above 0>",
            _is_clock,
        ),
        "CANN_SIM_COVERAGE": _FILE,
        "CANN_SIM_DEADLOCK_SECONDS": ("a number above 0", _is_amount),
        "CANN_SIM_DEVICES": ("a whole number above 0", _is_count),
        "CANN_SIM_EXTERNAL_EVENTS": _one_of(*EXTERNAL_EVENT_FORMS),
        "CANN_SIM_FAULTS": (_FAULTS, _are_faults),
        "CANN_SIM_KERNELS": _one_of("real", "null"),
        "CANN_SIM_LOG": _one_of("missing", "all"),
        "CANN_SIM_MEMORY_CHECK": _one_of("off", "on", "full"),
        "CANN_SIM_MEMORY_GB": ("a number above 0", _is_amount),
        "CANN_SIM_SCHEDULE": (
            "free or fuzz:<seed> with a seed of 0 or above",
            lambda text: re.fullmatch(r"free|fuzz:[0-9]+", text, re.ASCII) is not None,
        ),
        "CANN_SIM_SOC": _one_of(*SOCS),
        "CANN_SIM_STREAMS": ("a whole number above 0", _is_count),
        "CANN_SIM_TRACE": _FILE,
        "CANN_SIM_UPDATE_CHECK": _one_of("on", "off"),
    }
)
