"""The native updater: all launches of a plan in one call, without the interpreter lock.

A Python loop over the layers spends most of its time on turning the same arguments into C++ again,
and torch most of the rest on describing the same tensors to CANN again. Here that is done once,
when a plan is bound; a step replaces only what changed, once for all layers that share it. The
update is the same, and so is its order: see `attn_update.lane.update_lane`.
"""

from __future__ import annotations

import importlib.util
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from attn_update.errors import NativeUnavailableError
from attn_update.issuing.kernels.kernel_library import LIBRARY_FUNCTIONS
from attn_update.issuing.kernels.kernel_signature import kernel_functions
from attn_update.issuing.native.native_build import MODULE_NAME, build_native, default_folder
from attn_update.issuing.updater import BoundLaunches, LaunchFailure, Updater
from attn_update.kinds.attention_geometry import TensorForm

if TYPE_CHECKING:
    from collections.abc import Mapping
    from pathlib import Path

    from attn_update.issuing.native.attn_update_native import Launches, ReplayEvents
    from attn_update.issuing.updater import Changes
    from attn_update.planning.step_parameters import StepParameters
    from attn_update.planning.update_plan import UpdatePlan
    from attn_update.task_device import AddressedDevice


class NativeLaunches(BoundLaunches):
    """Bound launches in C++. Made by `NativeUpdater.bind`.

    Attributes:
        num_dispatched: How many launches torch dispatches to its current stream. The others, FIA
            v1 and v2 where the device tells its kernels, are two C calls on arguments that were
            described to CANN once.
    """

    def __init__(self, launches: Launches) -> None:
        self._launches = launches
        self.num_dispatched = launches.num_dispatched()

    def take(self, parameters: StepParameters) -> Changes | None:
        """See `BoundLaunches`; one pass over lengths and tensors."""
        return self._launches.take(parameters.groups)

    def run(self, changes: Changes, stream_address: int) -> LaunchFailure | None:
        """See `BoundLaunches`; without the interpreter lock."""
        failure = self._launches.run(stream_address, changes)
        if failure is None:
            return None
        position, is_open, message = failure
        return LaunchFailure(position=position, open=is_open, message=message)


class NativeUpdater(Updater):
    """Binds plans to native code. Made by `find_native_updater` or `NativeUpdater.load`."""

    def __init__(self, module: Any) -> None:
        # What `attn_update_native.pyi` describes; it has no place of its own among the modules.
        self._module = module

    @classmethod
    def load(cls, folder: Path | None = None, compiler: str | None = None) -> NativeUpdater:
        """Build the extension where that was not done before (some 15 s), and load it.

        Args:
            folder: Of the built files; default ``~/.cache/attn-update``.
            compiler: Default the first of g++, c++ and clang++ on the path.

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

    def replay_events(self, calls: Mapping[str, int]) -> ReplayEvents:
        """Return the maker of events after replays.

        Args:
            calls: What the device's `native_calls` returned.
        """
        events: ReplayEvents = self._module.ReplayEvents(dict(calls))
        return events

    def bind(
        self, plan: UpdatePlan, device: AddressedDevice, calls: Mapping[str, int]
    ) -> NativeLaunches:
        """Turn the arguments of all launches of a plan into C++.

        Args:
            plan: Whose `PlannedUpdate.launch` is read now and not later.
            device: Of the plan.
            calls: What the device's `native_calls` returned.
        """
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


@dataclass(frozen=True, kw_only=True)
class NativeSupport:
    """Whether there is a native updater on this machine.

    Attributes:
        updater: The updater, or None; `UpdateLane` takes either.
        reason: Why there is none; None if there is one.
    """

    updater: NativeUpdater | None
    reason: str | None


def find_native_updater(folder: Path | None = None, compiler: str | None = None) -> NativeSupport:
    """Return the native updater, or why there is none, for callers that can do without.

    Args:
        folder: As for `NativeUpdater.load`.
        compiler: As for `NativeUpdater.load`.
    """
    try:
        return NativeSupport(updater=NativeUpdater.load(folder, compiler), reason=None)
    except NativeUnavailableError as error:
        return NativeSupport(updater=None, reason=str(error))
