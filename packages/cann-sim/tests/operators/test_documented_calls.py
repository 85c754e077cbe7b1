"""Each dtype that an operator's document lists is accepted, in a call that torch_npu made.

The test replaces the dtype of one tensor of that call, or of all tensors of the same dtype, because
many operators need equal dtypes.
"""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

import pytest
import torch
import torch_npu

from cann_sim.inventory.simulated_operators import simulated_arguments
from operators.c_arguments import Description
from operators.described_call import TENSOR_LISTS, TENSORS, Interface
from operators.documented_table import DATA_TYPES, Row, documented_operators

if TYPE_CHECKING:
    from collections.abc import Callable

Arguments = tuple[tuple[str, str], ...]
NAMES = {number: name for name, number in DATA_TYPES.items()}


def described(kind: str, value: Any) -> Any:
    """Return an argument as `Interface` takes it."""
    if value is None:
        return None
    if kind in TENSOR_LISTS:
        return [None if item is None else described("Tensor", item) for item in value]
    if kind in TENSORS:
        return Description(
            type=value["type"],
            sizes=tuple(value["sizes"]),
            strides=tuple(value["strides"]),
            format=value["format"],
            storage=tuple(value["storage"]),
            offset=value["offset"],
        )
    return value


def data_type(value: Any) -> str | None:
    """Return the dtype of a tensor or of the first of a list."""
    first = next((item for item in value if item), None) if isinstance(value, list) else value
    return NAMES[first.type] if first else None


def of_type(value: Any, name: str) -> Any:
    """Return the tensors in another dtype."""
    if isinstance(value, list):
        return [item and item.of_type(DATA_TYPES[name]) for item in value]
    return value.of_type(DATA_TYPES[name])


def variants(values: list[Any], rows: dict[int, Row], place: int, name: str) -> list[list[Any]]:
    """Return the call with the tensor at `place` in the dtype, alone and with others."""
    given = {index: data_type(values[index]) for index in rows}
    taking = [index for index in rows if given[index] and name in rows[index].data_types]
    floats = {"FLOAT", "FLOAT16", "BF16", "DOUBLE"}
    groups = (
        [place],
        [index for index in taking if given[index] == given[place]],
        [index for index in taking if given[index] in floats],
        taking,
    )
    changed = []
    for group in groups:
        call = list(values)
        for index in {place, *group}:
            call[index] = of_type(values[index], name)
        changed.append(call)
    return changed


def is_taken(
    interface: Interface,
    operator: str,
    arguments: Arguments,
    calls: list[list[Any]],
    place: int,
    name: str,
) -> str:
    """Return an empty text where a call with the dtype is accepted, else the last answer."""
    rows = dict(
        zip(
            [n for n, (kind, _) in enumerate(arguments) if kind in TENSORS | TENSOR_LISTS],
            documented_operators()[operator],
            strict=True,
        )
    )
    message = "no test gives the argument"
    for values in calls:
        if data_type(values[place]) == name:
            return ""
        if data_type(values[place]) is None:
            continue
        for call in variants(values, rows, place, name):
            answer = interface.prepare(operator, arguments, call)
            if answer.status == 0 or "is not simulated" in answer.message:
                return ""
            message = answer.message
    return message


VALUES = torch.rand(2, 4)
CALLS: dict[str, Callable[[torch.Tensor], object]] = {
    "aclnnAdd": lambda x: x + x,
    "aclnnMul": lambda x: x * x,
    "aclnnExp": torch.exp,
    "aclnnSoftmax": lambda x: torch.softmax(x, -1),
    "aclnnMm": lambda x: torch.mm(x, x.t()),
    "aclnnTopk": lambda x: torch.topk(x, 2),
    "aclnnRmsNorm": lambda x: torch_npu.npu_rms_norm(x, x[0]),
    "aclnnSilu": torch.nn.functional.silu,
    "aclnnEqTensor": lambda x: x == x.flip(0),
    "aclnnIndexSelect": lambda x: x.index_select(0, torch.tensor([1], device="npu")),
}


@pytest.mark.parametrize("operator", CALLS)
def test_documented_dtypes_are_taken(operator: str, recorded_calls: Interface) -> None:
    CALLS[operator](VALUES.to("npu"))
    torch_npu.npu.synchronize()
    arguments = simulated_arguments(recorded_calls.operator_libraries)[operator]
    recorded = json.loads(recorded_calls.recorded_calls())[operator]
    calls = [
        [described(kind, value) for (kind, _), value in zip(arguments, call, strict=True)]
        for call in recorded
    ]
    names = [name for _, name in arguments]
    refused = {}
    for row in documented_operators()[operator]:
        for name in sorted(row.data_types):
            place = names.index(row.name)
            message = is_taken(recorded_calls, operator, arguments, calls, place, name)
            if message:
                refused[row.name, name] = message
    assert not refused
