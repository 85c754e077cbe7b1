"""The native updater: all launches of a plan in one call, without the GIL.

A Python loop over the layers spends most of its time converting the same arguments to C++ again,
and torch most of the rest describing the same tensors to CANN again. This updater does it once,
when a plan is bound. A step replaces only what changed, once for all layers that share it. The
updates and their order are the same: see `attn_update.lane.update_lane`.
"""

from __future__ import annotations

import importlib.util
from typing import TYPE_CHECKING, Any

from attn_update.errors import NativeUnavailableError
from attn_update.issuing.kernels.kernel_library import LIBRARY_FUNCTIONS
from attn_update.issuing.kernels.kernel_signature import kernel_functions
from attn_update.issuing.native.native_build import MODULE_NAME, build_native, default_folder
from attn_update.issuing.updater import BoundLaunches, LaunchFailure, Updater
from attn_update.kinds.attention_geometry import TensorForm

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping
    from pathlib import Path

    from attn_update.issuing.native.attn_update_native import Launches, ReplayEvent, ReplayEvents
    from attn_update.issuing.updater import Changes
    from attn_update.planning.update_plan import StepParameters, UpdatePlan
    from attn_update.task_device import AddressedDevice


class NativeLaunches(BoundLaunches):
    """Prepared launches in C++. Created by `NativeUpdater.bind`.

    Attributes:
        num_dispatched: Number of launches that torch dispatches to its current stream. The others,
            FIA v1 and v2 if the device provides its kernels, are two C calls on arguments that were
            described to CANN once.
    """

    def __init__(self, launches: Launches) -> None:
        self._launches = launches
        self.num_dispatched = launches.num_dispatched()

    def take(self, parameters: StepParameters) -> Changes | None:
        """See `BoundLaunches`; one pass over lengths and tensors."""
        return self._launches.take(parameters.groups)

    def run(self, changes: Changes, stream_address: int) -> LaunchFailure | None:
        """See `BoundLaunches`; without the GIL."""
        failure = self._launches.run(stream_address, changes)
        return None if failure is None else LaunchFailure(*failure)


class NativeUpdater(Updater):
    """Binds plans to native code. Created by `NativeUpdater.load`."""

    def __init__(self, module: Any) -> None:
        # What `attn_update_native.pyi` describes; it has no place of its own among the modules.
        self._module = module

    @classmethod
    def load(cls, folder: Path | None = None, compiler: str | None = None) -> NativeUpdater:
        """Build the extension if necessary (some 15 s), and load it.

        The arguments are those of `build_native`; the default folder is
        ``~/.cache/attn-update``.

        Raises:
            NativeUnavailableError: It cannot be built or loaded here.
        """
        path = build_native(folder or default_folder(), compiler)
        spec = importlib.util.spec_from_file_location(MODULE_NAME, path)
        if spec is None or spec.loader is None:
            raise NativeUnavailableError(f"loading the native updater: {path} is no module")
        try:
            module = importlib.util.module_from_spec(spec)
            spec.loader.exec_module(module)
        except ImportError as error:
            raise NativeUnavailableError(
                f"loading the native updater from {path}: {error}; remove the file to build it "
                f"again",
            ) from error
        return cls(module)

    def event_recorder(self, calls: Mapping[str, int]) -> Callable[[int], ReplayEvent]:
        """See `Updater`; in C++."""
        events: ReplayEvents = self._module.ReplayEvents(dict(calls))
        return events.record

    def bind(
        self, plan: UpdatePlan, device: AddressedDevice, calls: Mapping[str, int]
    ) -> NativeLaunches:
        """Convert the arguments of all launches of a plan to C++."""
        kernels = device.kernel_calls((*LIBRARY_FUNCTIONS, *kernel_functions()))
        launches: Launches = self._module.Launches(dict(calls), dict(kernels))
        for update in plan.updates:
            name, _, overload = update.operator.partition(".")
            launches.add(
                name,
                "" if overload == "default" else overload,
                dict(update.launch),
                device.task_group_address(update.handle),
                device.external_event_address(update.event),
                update.slot,
            )
        for slot, rules in enumerate(plan.step_rules() or ()):
            for argument, rule in rules.items():
                group = plan.group_of(slot)
                if isinstance(rule, TensorForm):
                    form = (list(rule.shape), rule.dtype, rule.device)
                    launches.add_tensor(group, argument, slot, *form)
                else:
                    limits = (rule.count, rule.cumulative, rule.total, rule.maximum)
                    launches.add_lengths(group, argument, slot, *limits)
        return NativeLaunches(launches)
