"""One test of the device contract, as a probe."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from npu_graph_testing import DeviceContract

if TYPE_CHECKING:
    from npu_graph_check.probe import Look


def run_test(look: Look, name: str) -> None:
    """Run a test of `DeviceContract` on the device."""
    device = look.opened
    look.doing(f"running DeviceContract.{name}")
    try:
        getattr(DeviceContract(), name)(device)
    except pytest.skip.Exception as reason:
        look.not_tried(str(reason))
    except AssertionError as error:
        look.expect("the contract", str(error), "holds")
    else:
        look.expect("the contract", "holds", "holds")
