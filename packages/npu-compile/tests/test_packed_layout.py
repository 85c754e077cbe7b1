from __future__ import annotations

import dataclasses

import pytest
import torch

from npu_compile import InputError, InputPlace, InputSpec
from npu_compile.inputs.input_spec import StepSize
from npu_compile.inputs.packed_layout import ALIGNMENT_BYTES, PackedLayout

SPECS = {
    "input_ids": InputSpec(dtype=torch.int64),
    "slots": InputSpec(dtype=torch.int32, pad_value=-1),
    "table": InputSpec(dtype=torch.int32, trailing_shape=(5,)),
}


def _size(rows: int) -> StepSize:
    return StepSize(tokens=rows, sequences=rows)


def _layout(rows: int) -> PackedLayout:
    return PackedLayout(SPECS, largest=_size(rows), device=torch.device("xpu:0"))


def _values(rows: int) -> dict[str, torch.Tensor]:
    return {
        "input_ids": torch.arange(rows),
        "slots": torch.arange(rows, dtype=torch.int32),
        "table": torch.ones(rows, 5, dtype=torch.int32),
    }


def test_layout_views_are_aligned_disjoint_and_typed() -> None:
    layout = _layout(3)
    packed = torch.zeros(layout.num_bytes, dtype=torch.uint8)

    views = layout.views(layout.parts(packed))
    for fill, view in enumerate(views.values(), start=1):
        view.fill_(fill)

    assert layout.num_bytes % ALIGNMENT_BYTES == 0
    for fill, (name, view) in enumerate(views.items(), start=1):
        assert view.dtype == SPECS[name].dtype
        assert view.shape == (3, *SPECS[name].trailing_shape)
        assert (view.data_ptr() - packed.data_ptr()) % ALIGNMENT_BYTES == 0
        assert bool((view == fill).all())


def test_layout_inputs_of_a_device_are_adjacent() -> None:
    of_host = dataclasses.replace(SPECS["slots"], place=InputPlace.CPU)
    layout = PackedLayout(
        {**SPECS, "slots": of_host}, largest=_size(16), device=torch.device("xpu:0")
    )
    packed = torch.zeros(layout.num_bytes, dtype=torch.uint8)

    layout.views(layout.parts(packed))["slots"].fill_(-1)

    assert layout.part_bytes == {
        InputPlace.DEVICE: 16 * 8 + 16 * 5 * 4,
        InputPlace.PINNED: 0,
        InputPlace.CPU: 16 * 4,
    }
    assert packed.nonzero().flatten().tolist() == list(range(16 * 8 + 16 * 5 * 4, len(packed)))


def test_layout_check_returns_the_size_of_a_batch() -> None:
    layout = _layout(4)

    assert layout.check(_values(3), most=_size(4)) == StepSize(tokens=3, sequences=4)


def test_layout_check_counts_sequences_apart_from_tokens() -> None:
    specs = {**SPECS, "table": dataclasses.replace(SPECS["table"], per_sequence=True)}
    layout = PackedLayout(
        specs, largest=StepSize(tokens=8, sequences=3), device=torch.device("xpu")
    )
    views = layout.views(layout.parts(torch.zeros(layout.num_bytes, dtype=torch.uint8)))
    values = {**_values(7), "table": torch.ones(2, 5, dtype=torch.int32)}

    size = layout.check(values, most=layout.largest)

    assert size == StepSize(tokens=7, sequences=2)
    assert views["table"].shape == (3, 5)
    with pytest.raises(InputError, match="found 4 rows of sequences, expected 1 to 3"):
        layout.check({**values, "table": torch.ones(4, 5, dtype=torch.int32)}, most=layout.largest)


def test_layout_check_accepts_a_narrower_table() -> None:
    values = {**_values(2), "table": torch.ones(2, 3, dtype=torch.int32)}

    assert _layout(4).check(values, most=_size(4)).tokens == 2


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"slots": torch.zeros(3, dtype=torch.int64)}, r"`slots` has dtype torch.int64"),
        ({"slots": torch.zeros(2, dtype=torch.int32)}, "`slots` has 2 rows"),
        ({"table": torch.zeros(3, 6, dtype=torch.int32)}, r"`table` has shape \(3, 6\)"),
        ({"table": torch.zeros(3, dtype=torch.int32)}, r"`table` has shape \(3,\)"),
        ({"slots": torch.tensor(1, dtype=torch.int32)}, r"`slots` has shape \(\)"),
        (
            {"slots": torch.zeros(3, dtype=torch.int32, device="meta")},
            "`slots` is on meta, expected the CPU or xpu:0",
        ),
        ({"extra": torch.zeros(3)}, r"unknown \['extra'\]"),
    ],
)
def test_layout_check_refuses_what_was_not_declared(
    changes: dict[str, torch.Tensor], message: str
) -> None:
    with pytest.raises(InputError, match=message):
        _layout(4).check({**_values(3), **changes}, most=_size(4))


def test_layout_check_names_missing_inputs() -> None:
    with pytest.raises(InputError, match=r"missing \['slots', 'table'\]"):
        _layout(4).check({"input_ids": torch.arange(2)}, most=_size(4))


@pytest.mark.parametrize("rows", [0, 5])
def test_layout_check_refuses_rows_out_of_range(rows: int) -> None:
    with pytest.raises(InputError, match=f"found {rows} rows, expected 1 to 4"):
        _layout(8).check(_values(rows), most=_size(4))
