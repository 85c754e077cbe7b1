"""Sees the operators launched on a stream of the fake device, and runs or records them."""

from __future__ import annotations

import contextlib
from typing import TYPE_CHECKING, Any

import torch

from npu_graph_runtime.capturing.tensor_leaves import tensor_leaves
from npu_graph_runtime.devices.fake_graph import Launch
from npu_graph_runtime.devices.fake_operator import (
    UNWRITTEN,
    has_known_shape,
    is_composite,
    returned_arguments,
    schema_name,
    written_arguments,
)
from npu_graph_runtime.devices.fake_scheduler import Work, device_failure
from npu_graph_runtime.torch_internals import TorchDispatchMode, no_dispatch, run_python_kernel

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping, Sequence

    from npu_graph_runtime.devices.fake_scheduler import FakeScheduler
    from npu_graph_runtime.devices.fake_stream import FakeStream


class FakeRecorder(TorchDispatchMode):  # type: ignore[no-untyped-call]
    """A dispatch mode that is active while a stream of the fake device is used.

    On a free stream an operator runs at once. On a stream that is capturing, that is updating a
    task group, or that waits for something, it is recorded instead.
    """

    def __init__(self, scheduler: FakeScheduler, available: Callable[[], int]) -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        self._scheduler = scheduler
        self._available = available
        self._is_recording = False

    @classmethod
    def is_infra_mode(cls) -> bool:
        """Return true, since Dynamo runs compiled code under no other kind of mode."""
        return True

    def __torch_dispatch__(
        self,
        func: Any,
        types: Any,
        args: tuple[Any, ...] = (),
        kwargs: Mapping[str, Any] | None = None,
    ) -> Any:
        del types
        kwargs = kwargs or {}
        stream = self._scheduler.current
        is_free = stream.capture is None and stream.update is None and not stream.is_blocked
        if is_free or self._is_recording or self._scheduler.is_running_here():
            return func(*args, **kwargs)
        kernel = run_python_kernel(func, args, kwargs, device="cpu")
        if kernel is not None:
            # A device captures kernels, so it looks through an opaque operator; so does this.
            with self:
                return kernel()
        if is_composite(func):
            with self:
                return func.decompose(*args, **kwargs)
        if torch.Tag.data_dependent_output in func.tags or not has_known_shape(func, args, kwargs):
            self._refuse_host_result(func, stream)
        return self._record(func, args, kwargs, stream)

    @staticmethod
    def _refuse_host_result(func: Any, stream: FakeStream) -> None:
        if stream.capture is not None:
            stream.capture.invalidate()
            raise device_failure(107027, f"{func} hands a device value to the host in a capture")
        stream.synchronize()

    def _record(
        self, func: Any, args: Sequence[Any], kwargs: Mapping[str, Any], stream: FakeStream
    ) -> Any:
        written = written_arguments(func, args, kwargs)
        returned = returned_arguments(func, args, kwargs)
        outputs: tuple[torch.Tensor, ...] = ()
        if returned is not None:
            results = tuple(returned) if len(returned) > 1 else next(iter(returned), None)
        else:
            with self._recording():
                saved = [tensor.clone() for tensor in written]
                results = func(*args, **kwargs)
                for tensor, value in zip(written, saved, strict=True):
                    tensor.copy_(value)
            known = {_address(tensor) for _, tensor in tensor_leaves((args, kwargs), "")}
            outputs = tuple(_alias(tensor) for _, tensor in tensor_leaves(results, ""))
            if outputs and all(_address(tensor) in known for tensor in outputs):
                return results
            self._own(outputs, known, stream)
            if schema_name(func) in UNWRITTEN:
                return results
        self._issue(Launch(func, _copied(args), _copied(dict(kwargs)), outputs), stream)
        return results

    @contextlib.contextmanager
    def _recording(self) -> Iterator[None]:
        """Ignore operators in the block, which runs one that is recorded.

        Torch removes one mode from its stack while it is called. If a stream is used inside the use
        of another, as in every capture of a session, this recorder is on the stack twice.
        """
        self._is_recording = True
        try:
            yield
        finally:
            self._is_recording = False

    def _own(self, outputs: Sequence[torch.Tensor], known: set[int], stream: FakeStream) -> None:
        if stream.capture is None:
            return
        for tensor in outputs:
            if _address(tensor) in known:
                continue
            nbytes = tensor.untyped_storage().nbytes()
            if nbytes > self._available():
                raise device_failure(
                    207001, f"out of memory: {nbytes} bytes wanted, {self._available()} free"
                )
            stream.capture.own(tensor)

    @staticmethod
    def _issue(launch: Launch, stream: FakeStream) -> None:
        if stream.update is not None:
            stream.update[1].append(launch)
            return
        if stream.group is not None:
            stream.group.launches.append(launch)
        stream.issue(Work(f"operator {launch.function}", launch.run))


def _copied(value: Any) -> Any:
    """Return nested arguments with copied containers, so that the caller may change theirs.

    Tensors are replaced by others on the same memory: a device keeps memory, not the caller's
    objects.
    """
    if type(value) in {torch.Tensor, torch.nn.Parameter}:
        return _alias(value)
    if type(value) in {list, tuple}:
        return type(value)(_copied(item) for item in value)
    if type(value) is dict:
        return {key: _copied(item) for key, item in value.items()}
    return value


def _alias(tensor: torch.Tensor) -> torch.Tensor:
    with no_dispatch():
        return tensor.detach()


def _address(tensor: torch.Tensor) -> int:
    return tensor.untyped_storage().data_ptr()
