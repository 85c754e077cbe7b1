"""Captures before, between and after steps of serving: they only write where padding goes."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest
import torch
from torch import nn

import npu_compile
from npu_compile import CompileConfig, ConfigError, DecodeRunner, InputSpec, PrefillRunner
from npu_compile.errors import OutputError, RunnerStateError
from npu_graph_runtime import FakeDevice
from npu_graph_runtime.errors import DeviceError

if TYPE_CHECKING:
    from collections.abc import Callable

    from npu_graph_runtime.device import DeviceGraph

PADDING_SLOT = 7
SPECS = {
    "slots": InputSpec(dtype=torch.int64, pad_value=PADDING_SLOT),
    "values": InputSpec(dtype=torch.float32),
}


class CachedModel(nn.Module):
    """Writes a value for each row into a cache, as attention does, and returns cached values."""

    def __init__(self) -> None:
        super().__init__()
        self.cache = torch.zeros(8)

    def forward(self, slots: torch.Tensor, values: torch.Tensor) -> torch.Tensor:
        self.cache.index_copy_(0, slots, values + 1)
        return self.cache.index_select(0, slots) * 2


class RefusingDevice(FakeDevice):
    """Has no memory for graphs while `is_full` is set."""

    is_full = False

    def create_graph(self) -> DeviceGraph:
        if self.is_full:
            raise RuntimeError("making a graph: NPU function error, error code is 207001")
        return super().create_graph()


def _decode(compiled: npu_compile.CompiledModel) -> DecodeRunner:
    return DecodeRunner(compiled, inputs=SPECS)


def _prefill(compiled: npu_compile.CompiledModel) -> PrefillRunner:
    return PrefillRunner(compiled, inputs=SPECS, max_sequences=2, set_lengths=lambda _: None)


@pytest.fixture
def model() -> CachedModel:
    return CachedModel()


@pytest.fixture
def device() -> RefusingDevice:
    return RefusingDevice()


@pytest.fixture(params=[_decode, _prefill], ids=["decode", "prefill"])
def make(
    request: pytest.FixtureRequest, model: CachedModel, device: RefusingDevice
) -> Callable[..., DecodeRunner | PrefillRunner]:
    """Return a factory of a runner with further configuration keys."""

    def make(**options: Any) -> DecodeRunner | PrefillRunner:
        sizes = (1, 2, 4)
        options = {"mode": "breakable", "fuse": False, **options}
        config = {**options, "capture_sizes": sizes, "prefill_capture_sizes": sizes}
        compiled = npu_compile.compile_model(
            model,
            CompileConfig.from_mapping(config),
            device=device,
            dynamic_arg_dims=dict.fromkeys(SPECS, (0,)),
        )
        runner: DecodeRunner | PrefillRunner = request.param(compiled)
        return runner

    return make


@pytest.fixture
def runner(
    make: Callable[..., DecodeRunner | PrefillRunner],
) -> DecodeRunner | PrefillRunner:
    return make()


def _run(runner: DecodeRunner | PrefillRunner, slots: list[int]) -> torch.Tensor:
    inputs = {"slots": torch.tensor(slots), "values": torch.tensor(slots, dtype=torch.float32)}
    found: torch.Tensor = runner.run(inputs, {}).clone()
    runner.compiled.device.synchronize()
    return found


def _kept(model: CachedModel) -> list[float]:
    return model.cache[:PADDING_SLOT].tolist()


def test_first_capture_writes_to_the_slot_of_padding_only(
    runner: DecodeRunner | PrefillRunner, model: CachedModel
) -> None:
    model.cache.fill_(-3)

    runner.capture(lambda _: None)

    assert _kept(model) == [-3] * PADDING_SLOT


def test_capture_after_served_steps_keeps_what_their_rows_wrote(
    runner: DecodeRunner | PrefillRunner, model: CachedModel
) -> None:
    """The last batch may be over, and its slots those of other sequences."""
    runner.capture(lambda _: None)
    _run(runner, [3, 4, 5])
    runner.release()
    model.cache.fill_(-3)

    runner.capture(lambda _: None)

    assert _kept(model) == [-3] * PADDING_SLOT
    assert _run(runner, [1, 2]).tolist() == [4.0, 6.0]


def test_sizes_captured_between_steps_serve_at_once_and_change_no_value(
    runner: DecodeRunner | PrefillRunner, model: CachedModel
) -> None:
    padded, found = [], []
    while (size := runner.capture_next(lambda _: None)) is not None:
        model.cache.fill_(-3)
        padded.append((size, runner.pending_sizes, [runner.padded_size(n) for n in (1, 2, 3, 4)]))
        found.append([_run(runner, slots).tolist() for slots in ([1], [2, 3], [1, 4, 5])])
        # Nothing but these slots was written since, by a capture neither.
        assert model.cache.tolist()[:PADDING_SLOT] == [-3, 2, 3, 4, 5, 6, -3]

    assert padded == [(4, (2, 1), [4, 4, 4, 4]), (2, (1,), [2, 2, 4, 4]), (1, (), [1, 2, 4, 4])]
    assert found == [[[4.0], [6.0, 8.0], [4.0, 10.0, 12.0]]] * 3
    assert runner.capture_next(lambda _: None) is None
    assert runner.compiled.num_captured_graphs == 3


def test_capture_takes_the_rest_of_what_was_captured_between_steps(
    runner: DecodeRunner | PrefillRunner,
) -> None:
    seen: list[tuple[int, int, int]] = []
    runner.capture_next(lambda _: None)

    runner.capture(lambda _: None, on_captured=lambda *numbers: seen.append(numbers))

    assert seen == [(2, 1, 2), (1, 2, 2)]
    assert runner.pending_sizes == ()
    with pytest.raises(RunnerStateError, match="captured already"):
        runner.capture(lambda _: None)


def test_size_refused_between_steps_stays_pending_and_serving_continues(
    runner: DecodeRunner | PrefillRunner, device: RefusingDevice
) -> None:
    runner.capture_next(lambda _: None)
    device.is_full = True

    with pytest.raises(DeviceError, match="207001"):
        runner.capture_next(lambda _: None)

    assert runner.pending_sizes == (2, 1)
    assert _run(runner, [2, 3]).tolist() == [6.0, 8.0]
    device.is_full = False
    assert runner.capture_next(lambda _: None) == 2
    assert _run(runner, [2, 3]).tolist() == [6.0, 8.0]


def test_sizes_that_may_be_skipped_are_so_between_steps(
    make: Callable[..., DecodeRunner | PrefillRunner], device: RefusingDevice
) -> None:
    runner = make(capture_failure="skip_size")
    runner.capture_next(lambda _: None)
    device.is_full = True

    with pytest.warns(RuntimeWarning, match="the size is left out") as warned:
        found = runner.capture_next(lambda _: None)

    assert found is None
    assert len(warned) == 2
    assert list(runner.skipped_sizes) == [2, 1]
    assert _run(runner, [2]).tolist() == [6.0]


def test_nothing_is_captured_between_steps_without_captures_or_with_a_budget(
    make: Callable[..., DecodeRunner | PrefillRunner],
) -> None:
    assert make(mode="eager").capture_next(lambda _: None) is None
    with pytest.raises(ConfigError, match="capture_budget"):
        make(capture_budget={}).capture_next(lambda _: None)


def test_output_that_is_refused_between_steps_leaves_the_size_pending(
    runner: DecodeRunner | PrefillRunner, model: CachedModel, monkeypatch: pytest.MonkeyPatch
) -> None:
    runner.capture_next(lambda _: None)
    forward = model.forward
    monkeypatch.setattr(model, "forward", lambda **inputs: forward(**inputs)[:1])

    with pytest.raises(OutputError):
        runner.capture_next(lambda _: None)

    assert runner.pending_sizes == (2, 1)
    assert runner.compiled.num_captured_graphs == 1
    monkeypatch.undo()
    assert runner.capture_next(lambda _: None) == 2
