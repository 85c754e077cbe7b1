"""The device interface on torch_npu; the only module of the product that imports it.

It is also the only module that uses private names of torch_npu. All of them exist in torch_npu 2.10
to 2.14, in the wheels for x86-64 of 2.10.0.post4, 2.11.0.post3, 2.12.0.post3, 2.13.0 and 2.14.0:
`_C._npu_getCurrentStream`, `_C._npu_fused_infer_attention_score_out_graph`, `_C._weak_ref_tensor`,
`_C._npu_endAllocateCurrentStreamToPool`, `npu.memory._snapshot`,
`npu.memory._record_memory_history` (seen in 2.13.0 alone), two C++ functions that it exports for
extensions, and two compilers that it puts into `sys.modules` as `npugraph_ex` and `torchair`.
Each use below gives the reason, and what happens if a later version lacks the name.
"""

from __future__ import annotations

import contextlib
import ctypes
import functools
import importlib
import signal
import threading
from pathlib import Path
from types import MappingProxyType
from typing import TYPE_CHECKING, Any

from npu_graph_runtime.devices.memory_history import MemoryHistory
from npu_graph_runtime.devices.native_device import NativeDevice
from npu_graph_runtime.errors import (
    DeviceUnavailableError,
    FeatureNotSupportedError,
)

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping, Sequence
    from contextlib import AbstractContextManager

    import torch
    from torch import Tensor

    from npu_graph_runtime.device import DeviceGraph, ExternalEvent, Stream
    from npu_graph_runtime.devices.native_device import CaptureErrorMode

    FxCompiler = Callable[[torch.fx.GraphModule, Sequence[Any]], Callable[..., Any]]


# Begin, launch, end and record in one call; torch_npu 2.10 to 2.14 have it for this operator.
_FUSED_UPDATES = MappingProxyType(
    {"npu::npu_fused_infer_attention_score.out": "_npu_fused_infer_attention_score_out_graph"}
)

# void* GetOpApiFuncAddr(const char*) and aclTensor* ConvertType(const at::Tensor&), exported by
# torch_npu 2.10 to 2.14: the kernels that it would call, past its dispatcher.
_FIND_KERNEL = "_Z16GetOpApiFuncAddrPKc"
_DESCRIBE_TENSOR = "_Z11ConvertTypeRKN2at6TensorE"

_UPDATE_CALLS = (
    "aclmdlRICaptureTaskUpdateBegin",
    "aclmdlRICaptureTaskUpdateEnd",
    "aclrtCreateEventExWithFlag",
    "aclrtRecordEvent",
    "aclrtStreamWaitEvent",
    "aclrtDestroyEvent",
)


class NpuDevice(NativeDevice):
    """One NPU, through torch_npu's own streams, events and graphs.

    Streams and events are not wrapped (``torch.npu.Stream``, ``torch.npu.Event``,
    ``torch.npu.ExternalEvent``), and graphs are ``torch.npu.NPUGraph``. torch_npu is imported on
    construction, and the device becomes the current one of the constructing thread; other threads
    must call `bind_thread`.

    Differences from ``torch.npu.graph``: a capture neither synchronises nor empties caches, because
    a capture session does this once instead of once per piece. After an exception the capture is
    ended, the previous stream is current again, and the first error is raised.

    Objects with the same index are equal and represent the same device: a callable of one can be
    captured in a session of another.

    Args:
        index: device index.
        capture_error_mode: which threads' unsafe calls break a capture, as in ``torch.npu.graph``.

    Attributes:
        name: ``npu:<index>``.
        torch_device: the same as a torch device.
        index: as given.
        expected_replay: what the calling thread is about to replay; see `GuardingDevice`.
        stream_identity: identifies the thread's current stream; see `WrappingDevice`.

    Raises:
        DeviceUnavailableError: torch_npu cannot be imported, or finds no such device.
    """

    def __init__(self, index: int = 0, *, capture_error_mode: CaptureErrorMode = "global") -> None:
        self._torch_npu = _import_torch_npu(f"npu:{index}")
        self._npu = self._torch_npu.npu
        count = self._npu.device_count()
        if not 0 <= index < count:
            raise DeviceUnavailableError(
                f"opening device npu:{index}: torch_npu sees {count} devices, expected at least "
                f"{index + 1}; check npu-smi and ASCEND_RT_VISIBLE_DEVICES"
            )
        # Only now: torch learns the device type from torch_npu.
        super().__init__(self._npu, "npu", index, capture_error_mode)
        self._streams: dict[object, Any] = {}
        # torch_npu 2.10 to 2.14: what its current_stream() makes a Stream object from.
        identity: Any = getattr(self._torch_npu._C, "_npu_getCurrentStream", None)  # noqa: SLF001
        self.stream_identity: Callable[[], object] = functools.partial(
            identity or self._npu.current_stream, index
        )

    def current_stream(self) -> Stream:
        """Return the thread's current stream of this device."""
        # An engine asks several times a step, and a new Stream object costs more than the replay.
        identity = self.stream_identity()
        known = self._streams.get(identity)
        return self.stream_of(identity) if known is None else known

    def stream_of(self, identity: object) -> Stream:
        """Return the stream of a result of `stream_identity`."""
        known: Any = self._streams.get(identity)
        if known is None:
            known = identity
            if isinstance(identity, tuple):
                names = ("stream_id", "device_index", "device_type")
                known = self._npu.Stream(**dict(zip(names, identity, strict=True)))
            self._streams[identity] = known
        stream: Stream = known
        return stream

    def use_stream(self, stream: Stream) -> AbstractContextManager[object]:
        """Return a context manager in which ``stream`` is current."""
        # torch_npu's own makes three Stream objects and looks for CUDA each time, 10 times the cost
        # of the switch. It is needed where the thread has another device.
        if self._npu.current_device() == self.index:
            return _UsedStream(self, stream)
        context: AbstractContextManager[object] = self._npu.stream(stream)
        return context

    def create_external_event(self) -> ExternalEvent:
        """Return a new external event.

        torch_npu never frees its device word (read in 2.13), so create events once, at capture.
        """
        event: ExternalEvent = self._npu.ExternalEvent()
        return event

    def begin_task_group(self, stream: Stream) -> None:
        """Begin a task group of the graph that ``stream`` is capturing."""
        self._npu.graph_task_group_begin(stream)

    def end_task_group(self, stream: Stream) -> object:
        """End the task group and return torch_npu's handle."""
        handle: object = self._npu.graph_task_group_end(stream)
        return handle

    def begin_task_update(self, stream: Stream, handle: object) -> None:
        """Begin to relaunch a task group on ``stream``."""
        self._npu.graph_task_update_begin(stream, handle)

    def end_task_update(self, stream: Stream) -> None:
        """End the update."""
        self._npu.graph_task_update_end(stream)

    def create_direct_stream(self) -> Stream:
        """Return a stream that launches on the calling thread, bypassing torch_npu's task queue."""
        stream: Any = self._npu.SyncLaunchStream(device=self.index)
        # torch_npu would tell the current one as a plain Stream, which is never equal to it.
        self._streams[stream.stream_id, stream.device_index, stream.device_type] = stream
        direct: Stream = stream
        return direct

    def flush_launches(self) -> None:
        """Wait until torch_npu's task queue has passed all its launches to the device.

        The device may still be running them: this is not a device synchronisation.
        """
        # Reading the native handle empties the queue; torch_npu has no other call for it.
        stream: Any = self.current_stream()
        _ = stream.npu_stream

    def fused_update(self, operator: str) -> Callable[..., object] | None:
        """Return torch_npu's function that updates a task group and records its event, or ``None``.

        Args:
            operator: the operator of the task group, with its overload.

        Returns:
            A function of (stream, handle, external event, **arguments of the operator).
        """
        name = _FUSED_UPDATES.get(operator)
        # torch_npu 2.10 to 2.14; where it is missing the caller issues the four calls itself.
        call: Callable[..., object] | None
        call = getattr(self._torch_npu._C, name, None) if name else None  # noqa: SLF001
        return call

    def native_calls(self) -> dict[str, int]:
        """Return addresses of the CANN functions that update task groups and order streams.

        They take effect at once, so use them only on a stream from `create_direct_stream`, or when
        the task queue is empty.

        Returns:
            Addresses by name (acl/acl_rt.h of CANN 8): the two calls of a task update, the
            four of an event between streams, and ``aclrtValueWrite`` if external events are
            words of memory, as torch_npu creates them if CANN has value wait and write. Empty
            if the loaded CANN lacks one.
        """
        # Loaded by torch_npu before, so this finds it by its name.
        library = ctypes.CDLL("libascendcl.so")
        has_words = hasattr(library, "aclrtValueWait") and hasattr(library, "aclrtValueWrite")
        names = (*_UPDATE_CALLS, "aclrtValueWrite") if has_words else _UPDATE_CALLS
        if not all(hasattr(library, name) for name in names):
            return {}
        pointers = {name: ctypes.cast(library[name], ctypes.c_void_p) for name in names}
        return {name: pointer.value or 0 for name, pointer in pointers.items()}

    def kernel_calls(self, names: Sequence[str]) -> dict[str, int]:
        """Return addresses of functions of CANN's operator library, as torch_npu finds them.

        Args:
            names: names of C functions, such as ``aclCreateIntArray``.

        Returns:
            Addresses by name, without those that torch_npu would not find. Also
            ``describe_tensor``, torch_npu's C++ function of ``const at::Tensor&`` that returns a
            new ``aclTensor`` of it. Empty if this torch_npu exports neither, and on devices
            other than the Ascend 910 family, for which op-plugin uses other kernels.
        """
        if not self._npu.get_device_name(self.index).startswith("Ascend910"):
            return {}
        library = ctypes.CDLL(str(Path(self._torch_npu.__file__).parent / "lib/libtorch_npu.so"))
        # Exported for extensions (op_api_common_base.h), under the names that C++ gives them.
        if not all(hasattr(library, name) for name in (_FIND_KERNEL, _DESCRIBE_TENSOR)):
            return {}
        find = ctypes.CFUNCTYPE(ctypes.c_void_p, ctypes.c_char_p)((_FIND_KERNEL, library))
        found: dict[str, int] = {name: find(name.encode()) for name in names}
        describe = ctypes.cast(library[_DESCRIBE_TENSOR], ctypes.c_void_p).value
        found["describe_tensor"] = describe or 0
        return {name: address for name, address in found.items() if address}

    def stream_address(self, stream: Stream) -> int:
        """Return the ``aclrtStream`` of a stream, when the task queue is empty.

        For a stream from `create_direct_stream`, the queue does not matter.
        """
        native: Any = stream
        address: int = native.npu_stream
        return address

    def task_group_address(self, handle: object) -> int:
        """Return the ``aclrtTaskGrp`` of a handle from `end_task_group`."""
        native: Any = handle
        # A prototype of its own: setting types on ctypes.pythonapi would be seen by everyone.
        prototype = ctypes.PYFUNCTYPE(ctypes.c_void_p, ctypes.py_object, ctypes.c_char_p)
        get_pointer = prototype(("PyCapsule_GetPointer", ctypes.pythonapi))
        address: int = get_pointer(native.task_group, None)
        return address

    def external_event_address(self, event: ExternalEvent) -> int:
        """Return the word or the ``aclrtEvent`` of an external event that was waited for."""
        native: Any = event
        address: int = native.npu_event
        return address

    def weak_reference(self, tensor: Tensor) -> Tensor:
        """Return a tensor on the same device memory that does not keep it alive.

        A tensor that is not on an NPU is returned unchanged: its memory is not in a graph's pool,
        so only a strong reference keeps it alive.

        Raises:
            DeviceUnavailableError: This version of torch_npu cannot create weak references.
        """
        if tensor.device.type != "npu":
            return tensor
        # torch_npu 2.10 to 2.14, whose own graph update and vLLM-Ascend rely on it as well.
        # There is no public way to make a tensor on device memory that it does not own.
        weak_ref_tensor = getattr(self._torch_npu._C, "_weak_ref_tensor", None)  # noqa: SLF001
        if weak_ref_tensor is None:
            raise DeviceUnavailableError(
                f"making a weak reference on {self.name}: torch_npu "
                f"{self._torch_npu.__version__} has no _C._weak_ref_tensor, expected one as in "
                "2.10 to 2.14; pass weak_outputs=False"
            )
        weak: Tensor = weak_ref_tensor(tensor)
        return weak

    def fx_compiler(self, name: str) -> FxCompiler:
        """Return a torch_npu compiler for Dynamo's graphs that captures nothing.

        It runs its own passes and returns Python code that launches the operators one by one, on
        the current stream, for the caller to capture. Both are in torch_npu 2.10 to 2.14.

        Args:
            name: ``npugraph_ex``, or ``torchair`` for its older form, whose mode is
                ``reduce-overhead``, and which torch_npu says will be removed. After one of them is
                loaded, the other cannot be loaded.

        Raises:
            ValueError: The name is another one.
            FeatureNotSupportedError: This torch_npu was built without it, or this process uses the
                other one.
        """
        if name not in _FX_COMPILERS:
            raise ValueError(
                f"looking for an FX compiler of torch_npu: found {name!r}, expected one of "
                f"{', '.join(_FX_COMPILERS)}"
            )
        try:
            with _signal_handlers_kept():
                # Under these names torch_npu puts them into sys.modules.
                module = importlib.import_module(name)
                config = module.CompilerConfig()
                _FX_COMPILERS[name](config)
                compiler: FxCompiler = module.get_npu_backend(compiler_config=config)
        except Exception as error:
            raise FeatureNotSupportedError(
                f"looking for the FX compiler {name!r}: torch_npu {self._torch_npu.__version__} on "
                f"{self.name} has none that can be imported ({type(error).__name__}: {error}), "
                "expected one as in the wheels of 2.10 to 2.14; install one of these, and use one "
                f"of {', '.join(_FX_COMPILERS)} in a process"
            ) from error
        return compiler

    def create_graph(self) -> DeviceGraph:
        """Return an empty ``torch.npu.NPUGraph``."""
        graph: DeviceGraph = self._npu.NPUGraph()
        return graph

    def empty_cache(self) -> None:
        """Return the unused memory of the caching allocators, for device and host.

        Each memory pool of captures has a pool of pinned host memory, which torch_npu keeps,
        unused, until
        its host cache is emptied: tens of KiB per pool, allocated or not.
        """
        super().empty_cache()
        self._npu.host_empty_cache()

    def memory_snapshot(self) -> Mapping[str, Any]:
        """Return the segments of the allocator with their blocks, for pytorch.org/memory_viz.

        Includes stacks and history if ``torch_npu.npu.memory._record_memory_history`` was called.
        """
        # torch_npu 2.10 to 2.14; its own _dump_snapshot starts a profiler besides.
        snapshot: Mapping[str, Any] = self._npu.memory._snapshot()  # noqa: SLF001
        segments = [each for each in snapshot["segments"] if each["device"] == self.index]
        return {**snapshot, "segments": segments}

    def begin_history(self) -> MemoryHistory | None:
        """Start recording the caching allocator's actions; ``None`` if somebody already does."""
        record = getattr(self._npu.memory, "_record_memory_history", None)
        if record is None:
            return None
        return MemoryHistory.begin(self.memory_snapshot, record, self.index)

    def free_streams(self) -> int | None:
        """Return the number of streams the device can still provide, or ``None`` if unknown.

        Uses ``aclrtGetStreamAvailableNum`` of CANN, which torch_npu does not expose: the submission
        queues that the driver has left for all processes together.
        """
        query = getattr(ctypes.CDLL("libascendcl.so"), "aclrtGetStreamAvailableNum", None)
        count = ctypes.c_uint32()
        # It asks for the device that is current on the thread.
        self.bind_thread()
        return count.value if query is not None and query(ctypes.byref(count)) == 0 else None

    def _end_allocation(self, native_pool: object) -> None:
        # torch_npu 2.10 has it. 2.13 has not: there `capture_end` does it, refused or not.
        end = getattr(self._torch_npu._C, "_npu_endAllocateCurrentStreamToPool", None)  # noqa: SLF001
        if end is not None:
            with contextlib.suppress(RuntimeError):
                end(self.index, native_pool)
        # torch_npu 2.10 to 2.14: a graph gives its share of the pool up only if its capture ended
        # well, and what no graph gave up is never freed.
        self._torch_npu._C._npu_releasePool(self.index, native_pool)  # noqa: SLF001


def _npugraph_ex_captures_nothing(config: Any) -> None:
    config.force_eager = True


def _torchair_captures_nothing(config: Any) -> None:
    config.mode = "reduce-overhead"
    config.debug.run_eagerly = True


_FX_COMPILERS = MappingProxyType(
    {"npugraph_ex": _npugraph_ex_captures_nothing, "torchair": _torchair_captures_nothing}
)


@contextlib.contextmanager
def _signal_handlers_kept() -> Iterator[None]:
    """Restore the handlers of SIGINT and SIGTERM from before the block.

    Both compilers set handlers when they are imported, after which Ctrl-C has no effect: they reset
    Dynamo and then ignore the signal (torch_npu 2.10 to 2.14).
    """
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    signals = (signal.SIGINT, signal.SIGTERM)
    before = [signal.getsignal(each) for each in signals]
    try:
        yield
    finally:
        for each, handler in zip(signals, before, strict=True):
            # None stands for a handler that is not Python's; it cannot be set again from here.
            if handler is not None:
                signal.signal(each, handler)


def _import_torch_npu(name: str) -> Any:
    try:
        import torch_npu  # noqa: PLC0415 - the package works without it
    except ImportError as error:
        raise DeviceUnavailableError(
            f"opening device {name}: torch_npu cannot be imported ({error}); install "
            "npu-graph-runtime[npu] and the CANN toolkit, or run under cann-sim"
        ) from error
    return torch_npu


class _UsedStream:
    """Makes a stream of the thread's current device the current one for a block."""

    def __init__(self, device: NpuDevice, stream: Stream) -> None:
        self._device = device
        self._stream = stream
        self._former: Stream | None = None

    def __enter__(self) -> None:
        self._former = self._device.current_stream()
        self._device._npu.set_stream(self._stream)  # noqa: SLF001 - of this file

    def __exit__(self, *_: object) -> None:
        self._device._npu.set_stream(self._former)  # noqa: SLF001 - of this file
