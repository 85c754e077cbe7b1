"""Faults of the device that npu-graph-runtime's seam is made of."""

from __future__ import annotations

import contextlib
import dataclasses
import itertools
import time
from typing import TYPE_CHECKING, Any

from check_teeth.fault import Fault

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping, Sequence

    import torch

    from npu_graph_runtime import NpuDevice


def other(
    name: str, what: str, change: Callable[[Callable[..., Any]], Callable[..., Any]]
) -> Fault:
    """Return the fault of a method of `NpuDevice` that does something else."""

    def apply() -> None:
        from npu_graph_runtime import NpuDevice

        setattr(NpuDevice, name, change(getattr(NpuDevice, name)))

    return Fault(what=f"`NpuDevice.{name}` {what}", apply=apply)


def returns(name: str, value: object) -> Fault:
    """Return the fault of a method that does nothing and returns a value."""
    return other(name, f"returns {value}", lambda _: lambda *_, **__: value)


def _same_stream(_: Callable[..., Any]) -> Callable[..., Any]:
    return lambda *_, **__: contextlib.nullcontext()


def _runs(_: Callable[..., Any]) -> Callable[..., Any]:
    def capture(self: NpuDevice, graph: Any, *, pool: object, stream: Any = None) -> Any:
        del graph, pool
        return self.use_stream(stream or self.create_stream())

    return capture


def _stays(before: Callable[..., Any]) -> Callable[..., Any]:
    @contextlib.contextmanager
    def use_stream(self: NpuDevice, stream: Any) -> Iterator[None]:
        before(self, stream).__enter__()
        yield

    return use_stream


def _swallows(before: Callable[..., Any]) -> Callable[..., Any]:
    @contextlib.contextmanager
    def capture(self: NpuDevice, graph: Any, **given: Any) -> Iterator[None]:
        with contextlib.suppress(KeyError, RuntimeError), before(self, graph, **given):
            yield

    return capture


def _once_a_pool(before: Callable[..., Any]) -> Callable[..., Any]:
    used: list[object] = []

    def capture(self: NpuDevice, graph: Any, *, pool: object, stream: Any = None) -> Any:
        if pool in used:
            raise RuntimeError("the pool is gone")
        used.append(pool)
        return before(self, graph, pool=pool, stream=stream)

    return capture


def _no_stream_waits() -> None:
    import torch

    from npu_graph_runtime import NpuDevice

    NpuDevice()  # loads torch_npu, which brings torch.npu
    npu: Any = vars(torch)["npu"]
    npu.Stream.wait_stream = lambda *_: None
    record = npu.ExternalEvent.record

    def late(self: Any, stream: Any) -> None:
        # The stream that should wait has the time to run ahead, under any load.
        time.sleep(0.3)
        record(self, stream)

    npu.ExternalEvent.record = late


def _on_the_first_graph(before: Callable[..., Any]) -> Callable[..., Any]:
    made: list[Any] = []

    def create_graph(self: NpuDevice) -> Any:
        made.append(before(self))
        return made[0]

    return create_graph


class _Nothing:
    """Stands for an event, a graph or a stream; does nothing."""

    def __repr__(self) -> str:
        return "an object that does nothing"

    def __getattr__(self, name: str) -> Callable[..., None]:
        return lambda *_, **__: None


class _NeverReached(_Nothing):
    def query(self) -> bool:
        return False


def _copies(_: Callable[..., Any]) -> Callable[..., Any]:
    def weak_reference(self: NpuDevice, tensor: torch.Tensor) -> torch.Tensor:
        del self
        return tensor.clone()

    return weak_reference


def _keeps(_: Callable[..., Any]) -> Callable[..., Any]:
    def weak_reference(self: NpuDevice, tensor: torch.Tensor) -> torch.Tensor:
        del self
        return tensor

    return weak_reference


def _counts_down(_: Callable[..., Any]) -> Callable[..., Any]:
    counts = itertools.count(100, -1)
    return lambda _: next(counts)


def _larger(before: Callable[..., Any]) -> Callable[..., Any]:
    def memory_figures(self: NpuDevice) -> Any:
        figures = before(self)
        return dataclasses.replace(figures, allocated=figures.total + 1)

    return memory_figures


class _Stream(_Nothing):
    def record_event(self) -> _NeverReached:
        return _NeverReached()


RUNS = other("capture", "runs what it should capture", _runs)
SWALLOWS = other("capture", "drops the errors of its block", _swallows)
NOT_SWITCHED = other("use_stream", "leaves the stream as it is", _same_stream)
NOT_LEFT = other("use_stream", "does not restore the stream", _stays)
ONCE_A_POOL = other("capture", "takes each memory pool once", _once_a_pool)
NO_EVENTS = returns("create_event", _Nothing())
NO_EXTERNAL = returns("create_external_event", _Nothing())
NO_UPDATE = returns("begin_task_update", None)
NOT_CAPTURING = returns("is_capturing", False)
NO_SYNCHRONISATION = returns("synchronize", None)
ONE_GRAPH = other("create_graph", "returns the first graph again", _on_the_first_graph)

_FAULTS: Mapping[str, Sequence[Fault]] = {
    "use_stream_body_runs_on_that_stream_in_order": [NOT_SWITCHED],
    "use_stream_left_by_exception_restores_stream": [NOT_LEFT],
    "event_waited_for_on_other_stream_orders_work": [NO_EVENTS],
    "wait_stream_orders_work": [
        Fault(what="`torch.npu.Stream.wait_stream` does nothing", apply=_no_stream_waits)
    ],
    "event_recorded_and_reached_reports_so": [returns("create_stream", _Stream())],
    "capture_runs_nothing": [RUNS],
    "replay_reads_new_inputs_at_same_addresses": [RUNS],
    "replays_of_one_stream_run_in_order": [ONE_GRAPH],
    "capture_with_forked_stream_replays_both_branches": [RUNS],
    "graphs_sharing_a_pool_hand_on_tensors": [ONE_GRAPH],
    "weak_reference_shares_memory_and_layout": [other("weak_reference", "copies", _copies)],
    "weak_reference_alone_does_not_keep_memory": [other("weak_reference", "keeps", _keeps)],
    "external_event_recorded_after_replay_releases_graph": [NO_EXTERNAL],
    "task_update_changes_later_replays_only": [NO_UPDATE],
    "replay_first_update_after_uses_new_arguments": [NO_UPDATE],
    "is_capturing_inside_capture_only": [NOT_CAPTURING],
    "capture_without_stream_takes_one_of_its_own": [RUNS],
    "capture_left_by_exception_propagates_it_and_restores": [SWALLOWS],
    "pool_whose_last_graph_was_reset_is_captured_into_again": [ONCE_A_POOL],
    "pool_whose_first_capture_failed_is_captured_into_again": [ONCE_A_POOL],
    "capture_inside_capture_refused": [RUNS],
    "synchronize_while_capturing_refused": [NO_SYNCHRONISATION],
    "stream_synchronize_while_capturing_refused": [RUNS],
    "host_read_while_capturing_refused": [RUNS],
    "capture_of_default_stream_refused": [RUNS],
    "second_capture_into_graph_refused": [RUNS],
    "replay_of_empty_or_reset_graph_refused": [returns("create_graph", _Nothing())],
    "task_group_outside_capture_refused": [returns("begin_task_group", None)],
    "end_of_task_update_without_begin_refused": [returns("end_task_update", None)],
    "memory_figures_are_consistent": [other("memory_figures", "tells too much", _larger)],
    "captured_graph_takes_streams_until_it_is_reset": [
        other("free_streams", "tells fewer each time", _counts_down)
    ],
}

CONTRACT: Mapping[str, Sequence[Fault]] = {
    f"contract.{name.replace('_', '-')}": faults for name, faults in _FAULTS.items()
}
