"""Each dtype that an operator's document lists is taken, in a call that the conformance tests made.

Runs after all other tests of the folder (see conftest.py), on the calls that these made through
torch_npu: one tensor's dtype is replaced, or that of all tensors of the same dtype, which many
operators want equal.
"""

from __future__ import annotations

import json
from typing import Any

import pytest

from cann_sim.simulated_operators import simulated_arguments
from operators.combined_dtypes import COMBINED
from operators.described_call import TENSOR_LISTS, TENSORS, Description, Interface
from operators.documented_table import DATA_TYPES, Row, documented_operators

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


def test_documented_dtypes_are_taken_in_calls_of_the_conformance_tests(
    request: pytest.FixtureRequest, recorded_calls: Interface
) -> None:
    folder = request.path.parent
    collected = {item.path for item in request.session.items if item.path.parent == folder}
    if collected != set(folder.glob("test_*.py")) or request.config.option.keyword:
        pytest.skip("only a run of the whole folder makes all calls")
    arguments = simulated_arguments(recorded_calls.library_path)
    recorded_calls.record_calls(on=False)
    recorded = json.loads(recorded_calls.recorded_calls())
    refused = {}
    for operator, rows in documented_operators().items():
        calls = [
            [
                described(kind, value)
                for (kind, _), value in zip(arguments[operator], call, strict=True)
            ]
            for call in recorded.get(operator, [])
        ]
        names = [name for _, name in arguments[operator]]
        for row in rows:
            for name in sorted(row.data_types):
                message = is_taken(
                    recorded_calls,
                    operator,
                    arguments[operator],
                    calls,
                    names.index(row.name),
                    name,
                )
                if message:
                    refused[f"{operator} {row.name} {name}"] = message
    unexplained = {key: text for key, text in refused.items() if key not in COMBINED}
    assert not unexplained
    assert COMBINED.keys() <= refused.keys(), "of these some are taken now: take them away"
