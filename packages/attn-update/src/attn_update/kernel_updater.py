"""The kernel updater: CANN's kernels of a plan called from Python, past torch.

Most of what an update costs in Python is not the kernel: torch parses some thirty arguments again,
and describes the same tensors to CANN again, for each layer of each step. Here that is done once,
when a plan is bound. It needs no compiler, which `attn_update.native_updater` does; that one is
faster still, takes any operator, and gives the interpreter lock up. The update is the same, and so
is its order: see `attn_update.update_lane`.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import torch

from attn_update.addressed_event import AddressedEvents
from attn_update.kernel_launches import KernelLaunches
from attn_update.kernel_library import LIBRARY_FUNCTIONS
from attn_update.kernel_signature import KERNEL_SIGNATURES, kernel_functions
from attn_update.operator_lookup import find_operator

if TYPE_CHECKING:
    from collections.abc import Mapping

    from attn_update.addressed_device import AddressedDevice
    from attn_update.update_plan import PlannedUpdate, UpdatePlan


class KernelUpdater:
    """Binds plans of FIA v1 and v2, on devices that tell their kernels.

    A plan with any other launch is not bound, and updated one by one.
    """

    def bind(
        self, plan: UpdatePlan, device: AddressedDevice, calls: Mapping[str, int]
    ) -> KernelLaunches | None:
        """See `attn_update.updater.Updater`."""
        kernels = device.kernel_calls((*LIBRARY_FUNCTIONS, *kernel_functions()))
        if not kernels or not all(_has_kernel(update, kernels) for update in plan.updates):
            return None
        launches = KernelLaunches(calls, kernels)
        for update in plan.updates:
            launches.add(
                KERNEL_SIGNATURES[update.operator],
                _values(update),
                workspace=update.launch["workspace"],
                group=device.task_group_address(update.handle),
                event=device.external_event_address(update.event),
                slot=update.slot,
            )
        return launches

    def replay_events(self, calls: Mapping[str, int]) -> AddressedEvents:
        """See `attn_update.updater.Updater`."""
        return AddressedEvents(calls)


def _has_kernel(update: PlannedUpdate, kernels: Mapping[str, int]) -> bool:
    signature = KERNEL_SIGNATURES.get(update.operator)
    if signature is None or signature.kernel not in kernels:
        return False
    # Tensors have the data types that torch knows, and the workspace is the recorder's.
    has_other_types = any(
        value is not None and name.endswith("_dtype") for name, value in update.launch.items()
    )
    return not has_other_types and isinstance(update.launch.get("workspace"), torch.Tensor)


def _values(update: PlannedUpdate) -> dict[str, Any]:
    arguments = find_operator(update.operator)._schema.arguments  # noqa: SLF001
    defaults = {argument.name: argument.default_value for argument in arguments}
    for name in update.launch.keys() - defaults.keys():
        raise ValueError(f"argument {name!r} is unknown to the operator {update.operator}")
    return defaults | update.launch
