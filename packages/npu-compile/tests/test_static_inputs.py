from __future__ import annotations

import gc
from typing import TYPE_CHECKING, Any

import pytest
import torch

from npu_compile import ConfigError, InputError, InputPlace, InputSpec, StaticInputs, StepSize
from npu_compile.errors import RunnerStateError
from npu_compile.inputs.static_inputs import RING_DEPTH
from npu_graph_runtime.errors import DeadlockError

if TYPE_CHECKING:
    from npu_graph_runtime import FakeDevice

SPECS = {
    "ids": InputSpec(dtype=torch.int64),
    "table": InputSpec(dtype=torch.int32, trailing_shape=(3,), pad_value=7),
}


def _size(rows: int) -> StepSize:
    return StepSize(tokens=rows, sequences=rows)


def _values(rows: int, fill: int, *, width: int = 3) -> dict[str, torch.Tensor]:
    return {
        "ids": torch.full((rows,), fill),
        "table": torch.full((rows, width), fill, dtype=torch.int32),
    }


def test_inputs_load_pads_rows_and_columns(device: FakeDevice) -> None:
    inputs = StaticInputs(SPECS, largest=_size(4), device=device)

    inputs.load(_values(2, 5, width=2), size=_size(4))
    device.synchronize()

    assert inputs.views(_size(4))["ids"].tolist() == [5, 5, 0, 0]
    assert inputs.views(_size(4))["table"].tolist() == [[5, 5, 7], [5, 5, 7], [7, 7, 7], [7, 7, 7]]


def test_inputs_load_resets_the_tail_of_a_larger_step_before(device: FakeDevice) -> None:
    inputs = StaticInputs(SPECS, largest=_size(4), device=device)

    for turn in range(2 * RING_DEPTH):
        inputs.load(_values(4, turn + 1), size=_size(4))
        inputs.load(_values(1, 9), size=_size(4))
        device.synchronize()
        assert inputs.views(_size(4))["ids"].tolist() == [9, 0, 0, 0]


def test_inputs_views_keep_their_addresses(device: FakeDevice) -> None:
    inputs = StaticInputs(SPECS, largest=_size(4), device=device)
    before = {size: inputs.views(_size(size))["table"].data_ptr() for size in (1, 2, 4)}

    inputs.load(_values(1, 1), size=_size(2))

    assert len(set(before.values())) == 1
    assert all(inputs.views(_size(size))["table"].data_ptr() == before[size] for size in before)
    assert inputs.views(_size(2)) is inputs.views(_size(2))


def test_inputs_load_in_flight_is_not_overwritten_by_later_steps(device: FakeDevice) -> None:
    inputs = StaticInputs(SPECS, largest=_size(1), device=device)
    gate = device.create_external_event()
    seen = [torch.zeros(1, dtype=torch.int64) for _ in range(RING_DEPTH)]
    gate.wait(device.current_stream())

    for turn, target in enumerate(seen):
        inputs.load(_values(1, turn + 1), size=_size(1))
        target.copy_(inputs.views(_size(1))["ids"])
    gate.record(device.create_stream())
    device.synchronize()

    assert [int(value) for value in seen] == [1, 2, 3, 4]


MIXED = {
    "ids": InputSpec(dtype=torch.int64),
    "lengths": InputSpec(dtype=torch.int32, pad_value=1, per_sequence=True),
    "table": InputSpec(dtype=torch.int32, trailing_shape=(3,), pad_value=7, per_sequence=True),
}


def _num_tensors() -> int:
    gc.collect()
    return sum(issubclass(type(each), torch.Tensor) for each in gc.get_objects())


def test_inputs_keep_nothing_of_batches_with_rare_sizes(device: FakeDevice) -> None:
    """A server meets any number of sizes in prefill, and would hold rows of each of them."""
    largest = StepSize(tokens=64, sequences=8)
    inputs = StaticInputs(MIXED, largest=largest, device=device)
    sizes = [
        StepSize(tokens=tokens, sequences=sequences)
        for tokens in range(1, 65)
        for sequences in range(1, 9)
        if tokens != 8 * sequences
    ]
    for own in sizes[: RING_DEPTH + 1]:
        inputs.staging(own, size=largest)
        inputs.commit()
    before = _num_tensors()
    for own in sizes:
        inputs.staging(own, size=largest)
        inputs.commit()

    assert _num_tensors() == before


def test_inputs_commit_copies_what_was_written_and_padding(device: FakeDevice) -> None:
    inputs = StaticInputs(MIXED, largest=StepSize(tokens=6, sequences=3), device=device)
    full = StepSize(tokens=6, sequences=3)

    for turn in range(2 * RING_DEPTH):
        # A full step before, so that what is not written would be seen to be stale.
        for view in inputs.staging(full, size=full).values():
            view.fill_(99)
        inputs.commit()
        staged = inputs.staging(StepSize(tokens=4, sequences=2), size=full)
        assert {name: tuple(view.shape) for name, view in staged.items()} == {
            "ids": (4,),
            "lengths": (2,),
            "table": (2, 3),
        }
        staged["ids"].numpy()[:] = [turn, 2, 3, 4]
        staged["table"][0, :2] = 5
        inputs.commit()
        device.synchronize()

        views = inputs.views(full)
        assert views["ids"].tolist() == [turn, 2, 3, 4, 0, 0]
        assert views["lengths"].tolist() == [1, 1, 1]
        assert views["table"].tolist() == [[5, 5, 7], [7, 7, 7], [7, 7, 7]]


def test_inputs_commit_takes_values_that_are_on_the_device(device: FakeDevice) -> None:
    inputs = StaticInputs(SPECS, largest=_size(4), device=device)
    inputs.staging(_size(2), size=_size(4))["table"].fill_(5)

    on_device = {
        "ids": torch.tensor([8, 9], device=device.torch_device),
        "table": torch.full((2, 1), 6, dtype=torch.int32, device=device.torch_device),
    }
    inputs.commit(on_device)
    device.synchronize()

    assert inputs.views(_size(4))["ids"].tolist() == [8, 9, 0, 0]
    assert inputs.views(_size(4))["table"].tolist() == [[6, 5, 5], [6, 5, 5], [7, 7, 7], [7, 7, 7]]


def test_inputs_staging_waits_for_the_copy_that_reads_the_same_memory(device: FakeDevice) -> None:
    inputs = StaticInputs(SPECS, largest=_size(1), device=device)
    gate = device.create_external_event()
    seen = [torch.zeros(1, dtype=torch.int64) for _ in range(RING_DEPTH)]
    gate.wait(device.current_stream())

    for turn, target in enumerate(seen):
        inputs.staging(_size(1), size=_size(1))["ids"].fill_(turn + 1)
        inputs.commit()
        target.copy_(inputs.views(_size(1))["ids"])
    gate.record(device.create_stream())
    inputs.staging(_size(1), size=_size(1))["ids"].fill_(9)

    assert [int(value) for value in seen] == [1, 2, 3, 4]


def test_inputs_staging_starts_over_in_the_same_memory(device: FakeDevice) -> None:
    inputs = StaticInputs(SPECS, largest=_size(4), device=device)

    given_up = inputs.staging(_size(4), size=_size(4))["ids"].fill_(3)
    staged = inputs.staging(_size(1), size=_size(4))["ids"]
    assert staged.data_ptr() == given_up.data_ptr()
    inputs.commit()
    device.synchronize()

    assert inputs.views(_size(4))["ids"].tolist() == [0, 0, 0, 0]


def test_inputs_commit_refuses_what_is_staged_no_longer(device: FakeDevice) -> None:
    inputs = StaticInputs(SPECS, largest=_size(2), device=device)

    with pytest.raises(RunnerStateError, match=r"nothing is staged; call staging\(\)"):
        inputs.commit()
    inputs.staging(_size(1), size=_size(2))
    for _ in range(RING_DEPTH):
        inputs.load(_values(1, 1), size=_size(2))
        with pytest.raises(RunnerStateError, match="another batch was loaded since"):
            inputs.commit()
    inputs.staging(_size(1), size=_size(2))
    inputs.commit()
    with pytest.raises(RunnerStateError, match="nothing is staged"):
        inputs.commit()


@pytest.mark.parametrize(
    ("name", "value", "message"),
    [
        ("idz", torch.zeros(2, dtype=torch.int64), r"`idz` is unknown, expected one of \['ids'"),
        ("ids", torch.zeros(2, dtype=torch.int32), "dtype torch.int32, expected torch.int64"),
        ("ids", torch.zeros(1, dtype=torch.int64), "has 1 rows, expected 2"),
        ("ids", torch.zeros(2, dtype=torch.int64, device="meta"), "is on meta, expected cpu"),
        ("table", torch.zeros(2, 4, dtype=torch.int32), r"shape \(2, 4\), expected \(rows, 3\)"),
    ],
)
def test_inputs_commit_refuses_what_does_not_fit_and_copies_nothing(
    name: str, value: torch.Tensor, message: str, device: FakeDevice
) -> None:
    inputs = StaticInputs(SPECS, largest=_size(2), device=device)
    inputs.staging(_size(2), size=_size(2))["ids"].fill_(4)

    with pytest.raises(InputError, match=message):
        inputs.commit({name: value})
    device.synchronize()
    assert inputs.views(_size(2))["ids"].tolist() == [0, 0]

    inputs.commit()
    device.synchronize()
    assert inputs.views(_size(2))["ids"].tolist() == [4, 4]


def test_inputs_commit_refuses_a_value_that_the_packed_copy_overwrites(device: FakeDevice) -> None:
    inputs = StaticInputs(SPECS, largest=_size(2), device=device)
    inputs.staging(_size(2), size=_size(2))

    with pytest.raises(InputError, match="`ids` lies in the static inputs themselves"):
        inputs.commit({"ids": inputs.views(_size(2))["ids"]})


def test_inputs_refuse_sizes_that_they_do_not_hold(device: FakeDevice) -> None:
    inputs = StaticInputs(SPECS, largest=_size(2), device=device)
    larger = StepSize(tokens=2, sequences=3)

    for call in (
        lambda: inputs.views(larger),
        lambda: inputs.load(_values(1, 1), size=larger),
        lambda: inputs.staging(_size(1), size=larger),
    ):
        with pytest.raises(InputError, match=r"sequences=3\), expected at most StepSize\(tokens=2"):
            call()
    with pytest.raises(InputError, match=r"tokens=2, .* is to be padded to StepSize\(tokens=1"):
        inputs.staging(_size(2), size=_size(1))
    with pytest.raises(InputError, match="found 2 rows, expected 1 to 1"):
        inputs.load(_values(2, 1), size=_size(1))
    with pytest.raises(InputError, match=r"dtype torch\.int32, expected torch\.int64"):
        inputs.load({**_values(1, 1), "ids": torch.ones(1, dtype=torch.int32)}, size=_size(1))
    with pytest.raises(ConfigError, match=r"the size is 2, expected StepSize\(tokens="):
        inputs.views(2)  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("changed", "message"),
    [
        ({"specs": [torch.int32]}, "inputs is a list, expected a mapping"),
        ({"specs": {"ids": torch.int32}}, "'ids' is declared as torch.int32, expected an InputSp"),
        ({"largest": 4}, "the size is 4, expected StepSize"),
        ({"largest": StepSize(tokens=-1, sequences=1)}, "expected StepSize"),
        ({"device": torch.device("cpu")}, "device is device.*expected a GraphDevice"),
    ],
)
def test_inputs_refuse_invalid_arguments(
    changed: dict[str, Any], message: str, device: FakeDevice
) -> None:
    arguments: dict[str, Any] = {"specs": SPECS, "largest": _size(1), "device": device}

    with pytest.raises(ConfigError, match=message):
        StaticInputs(**(arguments | changed))


PLACED = {
    "ids": InputSpec(dtype=torch.int64),
    "lengths": InputSpec(dtype=torch.int32, pad_value=1, place=InputPlace.CPU),
    "table": InputSpec(
        dtype=torch.int32, trailing_shape=(3,), pad_value=7, place=InputPlace.PINNED
    ),
}


def _placed(rows: int, fill: int) -> dict[str, torch.Tensor]:
    lengths = torch.full((rows,), fill, dtype=torch.int32)
    return {**_values(rows, fill, width=2), "lengths": lengths}


def _read(views: dict[str, torch.Tensor]) -> dict[str, list[object]]:
    return {name: view.tolist() for name, view in views.items()}


def test_inputs_of_every_place_are_loaded_and_padded(device: FakeDevice) -> None:
    inputs = StaticInputs(PLACED, largest=_size(4), device=device)
    addresses = [view.data_ptr() for view in inputs.views(_size(3)).values()]

    for turn in range(2 * RING_DEPTH):
        inputs.load(_placed(3, 99), size=_size(3))
        inputs.load(_placed(1, turn), size=_size(3))
        device.synchronize()

        views = inputs.views(_size(3))
        assert [view.data_ptr() for view in views.values()] == addresses
        assert _read(views) == {
            "ids": [turn, 0, 0],
            "lengths": [turn, 1, 1],
            "table": [[turn, turn, 7], [7, 7, 7], [7, 7, 7]],
        }


def test_inputs_of_every_place_are_seen_by_the_model_when_they_are_committed(
    device: FakeDevice,
) -> None:
    inputs = StaticInputs(PLACED, largest=_size(2), device=device)
    inputs.load(_placed(2, 5), size=_size(2))

    staged = inputs.staging(_size(1), size=_size(2))
    for view in staged.values():
        view.fill_(6)

    before = {"ids": [5, 5], "lengths": [5, 5], "table": [[5, 5, 7], [5, 5, 7]]}
    assert _read(inputs.views(_size(2))) == before
    inputs.commit()
    device.synchronize()
    after = {"ids": [6, 0], "lengths": [6, 1], "table": [[6, 6, 6], [7, 7, 7]]}
    assert _read(inputs.views(_size(2))) == after


def test_pinned_inputs_wait_for_the_steps_that_read_them_and_those_of_the_cpu_do_not(
    device: FakeDevice,
) -> None:
    gate = device.create_external_event()
    gate.wait(device.current_stream())
    of_cpu = StaticInputs({"lengths": PLACED["lengths"]}, largest=_size(1), device=device)
    pinned = StaticInputs({"table": PLACED["table"]}, largest=_size(1), device=device)

    of_cpu.load({"lengths": torch.tensor([3], dtype=torch.int32)}, size=_size(1))
    with pytest.raises(DeadlockError):
        pinned.load({"table": torch.full((1, 3), 3, dtype=torch.int32)}, size=_size(1))

    assert of_cpu.views(_size(1))["lengths"].tolist() == [3]
    assert pinned.views(_size(1))["table"].tolist() == [[0, 0, 0]]


def test_inputs_place_copies_what_other_steps_would_overwrite(device: FakeDevice) -> None:
    inputs = StaticInputs(PLACED, largest=_size(1), device=device)
    values = _placed(3, 4)

    placed = inputs.place(values)

    assert _read(placed) == _read(values)
    assert placed["lengths"] is values["lengths"]
    assert placed["table"].data_ptr() != values["table"].data_ptr()


@pytest.mark.parametrize("name", ["lengths", "table"])
def test_inputs_of_the_host_are_not_taken_from_the_device(name: str, device: FakeDevice) -> None:
    inputs = StaticInputs(PLACED, largest=_size(2), device=device)
    before = _read(inputs.views(_size(2)))
    values = _placed(2, 5)
    message = rf"`{name}` is on .*, expected the CPU.*InputPlace\.{PLACED[name].place.name}"

    with pytest.raises(InputError, match=f"{message}; read it back before"):
        inputs.load({**values, name: values[name].to("meta")}, size=_size(2))
    inputs.staging(_size(2), size=_size(2))
    with pytest.raises(InputError, match=f"{message}; write it into the staging view"):
        inputs.commit({name: values[name]})

    assert _read(inputs.views(_size(2))) == before


def test_input_spec_place_of_another_type_is_refused() -> None:
    with pytest.raises(ConfigError, match=r"place is 'cpu', expected InputPlace\.DEVICE or"):
        InputSpec(dtype=torch.int32, place="cpu")  # type: ignore[arg-type]
