"""The kernel updater: calls the CANN kernels of a plan from Python, without torch.

Most of the cost of an update in Python is not the kernel: torch parses some thirty arguments again,
and describes the same tensors to CANN again, for each layer of each step. This updater does it
once, when a plan is bound. It needs no compiler, unlike
`attn_update.issuing.native.native_updater`, which is faster still, supports any operator, and
releases the GIL. The updates and their order are the same: see `attn_update.lane.update_lane`.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import torch

from attn_update.issuing.kernels.kernel_launches import KernelLaunches
from attn_update.issuing.kernels.kernel_library import LIBRARY_FUNCTIONS
from attn_update.issuing.kernels.kernel_signature import KERNEL_SIGNATURES, kernel_functions
from attn_update.issuing.updater import Updater
from attn_update.operator_lookup import argument_names, find_operator
from attn_update.torch_internals import schema_of

if TYPE_CHECKING:
    from collections.abc import Mapping

    from attn_update.planning.update_plan import PlannedUpdate, UpdatePlan
    from attn_update.task_device import AddressedDevice


class KernelUpdater(Updater):
    """Binds plans of FIA v1 and v2, on devices that provide addresses of their kernels.

    The launches of a plan with any other operator are called one by one: see
    `UpdateLane.unbound_reason`.
    """

    def bind(
        self, plan: UpdatePlan, device: AddressedDevice, calls: Mapping[str, int]
    ) -> KernelLaunches | str:
        """See `Updater`."""
        kernels = device.kernel_calls((*LIBRARY_FUNCTIONS, *kernel_functions()))
        for update in plan.updates:
            missing = _find_missing(update, kernels)
            if missing is not None:
                return f"layer {update.layer_name!r}: {missing}"
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


def _find_missing(update: PlannedUpdate, kernels: Mapping[str, int]) -> str | None:
    """Return why the kernel of a launch cannot be called, or None."""
    signature = KERNEL_SIGNATURES.get(update.operator)
    if signature is None:
        return f"no kernel of {update.operator} is known"
    for name in (f"{signature.kernel}GetWorkspaceSize", signature.kernel, *LIBRARY_FUNCTIONS):
        if name not in kernels:
            return f"the device does not tell {name}"
    known = argument_names(find_operator(update.operator))
    for parameter in signature.parameters:
        if parameter.argument and parameter.argument not in known:
            return f"{update.operator} has no argument {parameter.argument!r}"
    for name, value in update.launch.items():
        # A tensor is described by the data type that torch knows.
        if value is not None and name.endswith("_dtype"):
            return f"{name!r} gives a tensor another data type than torch's"
    if not isinstance(update.launch.get("workspace"), torch.Tensor):
        return "it was captured without a workspace"
    return None


def _values(update: PlannedUpdate) -> dict[str, Any]:
    arguments = schema_of(find_operator(update.operator)).arguments
    defaults = {argument.name: argument.default_value for argument in arguments}
    for name in update.launch.keys() - defaults.keys():
        raise ValueError(f"argument {name!r} is unknown to the operator {update.operator}")
    return defaults | update.launch
