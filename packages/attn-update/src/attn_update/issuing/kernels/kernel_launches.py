"""The launches of one plan as prepared calls of CANN's kernels from Python."""

from __future__ import annotations

import ctypes
from typing import TYPE_CHECKING, Any, NamedTuple

from attn_update.issuing.device_calls import DeviceCalls, find_address, find_call, pointer
from attn_update.issuing.kernels.kernel_library import KernelLibrary, KernelVariable, absent_value
from attn_update.issuing.updater import BoundLaunches, LaunchFailure

if TYPE_CHECKING:
    from collections.abc import Mapping

    import torch

    from attn_update.issuing.device_calls import Call
    from attn_update.issuing.kernels.kernel_signature import KernelSignature
    from attn_update.issuing.updater import Changes


class _RefusedError(Exception):
    def __init__(self, message: str, *, is_open: bool = False) -> None:
        super().__init__(message)
        self.open = is_open


class _Launch(NamedTuple):
    """Functions and their arguments: a step only calls them."""

    slot: int
    kernel: str
    begin: tuple[Any, ...]
    prepare: Call
    prepared: tuple[Any, ...]
    workspace_bytes: int
    launch: Call
    launched: tuple[Any, ...]
    set_event: Call
    event_set: tuple[Any, ...]


class KernelLaunches(BoundLaunches):
    """Prepared launches of operators with known kernels; torch dispatches none of them.

    Used by one thread at a time. It takes no arguments in advance, because in Python that is not
    faster than `UpdatePlan.check`. It keeps the workspace alive, and the tensors of the launches as
    far as their records do, which refer weakly to device memory.

    Args:
        calls: The result of `AddressedDevice.native_calls`.
        kernels: The result of `AddressedDevice.kernel_calls` for the kernels passed to `add`
            and for `attn_update.issuing.kernels.kernel_library.LIBRARY_FUNCTIONS`.

    Raises:
        ValueError: A function is missing.
    """

    def __init__(self, calls: Mapping[str, int], kernels: Mapping[str, int]) -> None:
        self._calls = DeviceCalls(calls)
        self._kernels = kernels
        self._library = KernelLibrary(kernels)
        # All calls share these, since they are made one after the other.
        self._stream = ctypes.c_void_p()
        self._needed_bytes = ctypes.c_uint64()
        self._executor = ctypes.c_void_p()
        self._functions: dict[str, tuple[Call, Call]] = {}
        self._launches: list[_Launch] = []
        self._signatures: list[KernelSignature] = []
        self._variables: dict[tuple[int, str], KernelVariable] = {}
        self._workspaces: list[torch.Tensor] = []

    def add(
        self,
        signature: KernelSignature,
        values: Mapping[str, object],
        *,
        workspace: torch.Tensor,
        group: int,
        event: int,
        slot: int,
    ) -> None:
        """Append a launch.

        ``values`` has all arguments of the operator, defaults too. ``group`` and ``event``
        are addresses; ``slot`` is the index of those changes of a step that apply to it.

        Raises:
            ValueError: A value is invalid for its parameter, or a function is missing.
        """
        arguments = [
            self._library.constant(parameter, values[parameter.argument])
            if parameter.argument
            else absent_value(parameter)
            for parameter in signature.parameters
        ]
        written = (ctypes.byref(self._needed_bytes), ctypes.byref(self._executor))
        num_bytes = workspace.nbytes
        memory = (pointer(workspace.data_ptr()), ctypes.c_uint64.from_param(num_bytes))
        set_event, event_set = self._calls.setting_external(event, self._stream)
        prepare, launch = self._phases(signature.kernel)
        self._launches.append(
            _Launch(
                slot=slot,
                kernel=signature.kernel,
                begin=(self._stream, pointer(group)),
                prepare=prepare,
                prepared=(*arguments, *written),
                workspace_bytes=num_bytes,
                launch=launch,
                launched=(*memory, self._executor, self._stream),
                set_event=set_event,
                event_set=event_set,
            )
        )
        self._signatures.append(signature)
        self._workspaces.append(workspace)

    def run(self, changes: Changes, stream_address: int) -> LaunchFailure | None:
        """See `BoundLaunches`."""
        for slot, changed in enumerate(changes):
            if changed is not None:
                for name, value in changed.items():
                    self._set(slot, name, value)
        self._stream.value = stream_address
        position = 0
        try:
            for position, launch in enumerate(self._launches):
                if changes[launch.slot] is not None:
                    self._update(launch)
                status = launch.set_event(*launch.event_set)
                if status:
                    message = f"recording its external event returned {status}"
                    return LaunchFailure(position=position, open=False, message=message)
        except _RefusedError as error:
            return LaunchFailure(position=position, open=error.open, message=str(error))
        except BaseException:
            # An interrupt, at any point: where no update is open, ending one is refused.
            self._calls.end(self._stream)
            raise
        return None

    def _phases(self, kernel: str) -> tuple[Call, Call]:
        found = self._functions.get(kernel)
        if found is None:
            # The first phase only computes, so the interpreter lock is kept.
            first = find_address(self._kernels, f"{kernel}GetWorkspaceSize")
            prepare = ctypes.PYFUNCTYPE(ctypes.c_int)(first)
            found = self._functions[kernel] = prepare, find_call(self._kernels, kernel)
        return found

    def _update(self, launch: _Launch) -> None:
        status = self._calls.begin(*launch.begin)
        if status:
            raise _RefusedError(f"aclmdlRICaptureTaskUpdateBegin returned {status}")
        status = launch.prepare(*launch.prepared)
        if status:
            raise self._refused_kernel(f"{launch.kernel}GetWorkspaceSize", status)
        if self._needed_bytes.value > launch.workspace_bytes:
            self._library.destroy_executor(self._executor)
            raise _RefusedError(
                f"{launch.kernel} needs a workspace of {self._needed_bytes.value} bytes, found "
                f"{launch.workspace_bytes}",
                is_open=True,
            )
        status = launch.launch(*launch.launched)
        if status:
            raise self._refused_kernel(launch.kernel, status)
        status = self._calls.end(self._stream)
        if status:
            raise _RefusedError(f"aclmdlRICaptureTaskUpdateEnd returned {status}")

    def _refused_kernel(self, call: str, status: int) -> _RefusedError:
        said = self._library.recent_message()
        message = f"{call} returned {status}{': ' if said else ''}{said}"
        return _RefusedError(message, is_open=True)

    def _set(self, slot: int, name: str, value: object) -> None:
        variable = self._variables.get((slot, name))
        if variable is not None:
            variable.set(value)
            return
        # The first step that gives it: from now on the launches of the slot read a variable.
        for index, (launch, signature) in enumerate(
            zip(self._launches, self._signatures, strict=True)
        ):
            if launch.slot != slot:
                continue
            position = signature.position_of(name)
            if variable is None:
                variable = KernelVariable(signature.parameters[position], self._library)
                variable.set(value)
            prepared = list(launch.prepared)
            prepared[position] = variable.argument
            self._launches[index] = launch._replace(prepared=tuple(prepared))
        if variable is not None:
            self._variables[slot, name] = variable
