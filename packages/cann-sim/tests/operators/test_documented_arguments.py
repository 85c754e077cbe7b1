"""Arguments outside an operator's document are rejected, and the error names the argument."""

from __future__ import annotations

import re

import pytest

from cann_sim.inventory.simulated_operators import simulated_arguments, simulated_operators
from operators.c_arguments import FORMAT_ND, FORMAT_NZ, Description
from operators.described_call import TENSOR_LISTS, TENSORS, Answer, Interface
from operators.documented_table import (
    DATA_TYPES,
    Row,
    documented_operators,
    exempt_operators,
)

ROWS = documented_operators()
INVALID_ARGUMENT = 161002
MOST_DIMENSIONS = 8
Arguments = tuple[tuple[str, str], ...]


@pytest.fixture(scope="session")
def interface(recorded_calls: Interface) -> Interface:
    return recorded_calls


@pytest.fixture(scope="session")
def arguments(interface: Interface) -> dict[str, Arguments]:
    return simulated_arguments(interface.operator_libraries)


def tensor_places(arguments: Arguments) -> list[int]:
    """Return the places of the tensors among the arguments."""
    kinds = TENSORS | TENSOR_LISTS
    return [place for place, (kind, _) in enumerate(arguments) if kind in kinds]


def alone(
    interface: Interface, operator: str, arguments: Arguments, place: int, tensor: Description
) -> Answer:
    """Call the operator with one tensor and null pointers."""
    value = [tensor] if arguments[place][0] in TENSOR_LISTS else tensor
    values = [value if index == place else None for index in range(len(arguments))]
    return interface.prepare(operator, arguments, values)


def accepted_tensor(row: Row) -> Description:
    """Return a tensor that the row accepts."""
    rank = min(row.ranks)
    return Description(
        type=DATA_TYPES[min(row.data_types)],
        sizes=(2,) * rank,
        format=FORMAT_ND if "kPlain" in row.layouts else FORMAT_NZ,
    )


def strided(rank: int) -> tuple[int, ...]:
    """Return the strides of every other element of a contiguous tensor of sizes 2."""
    return tuple(2 ** (rank - dim) for dim in range(rank))


def test_every_operator_has_rows_or_an_exemption(interface: Interface) -> None:
    operators = set(simulated_operators(interface.operator_libraries))
    exempt = exempt_operators()
    missing = operators - ROWS.keys() - exempt.keys()
    assert not missing, "no rows in native/operators/documented/documented_*.h: see CONTRIBUTING.md"
    assert not ROWS.keys() & exempt.keys()
    assert ROWS.keys() | exempt.keys() == operators


def test_rows_are_those_of_the_operators_arguments(arguments: dict[str, Arguments]) -> None:
    for operator, rows in ROWS.items():
        places = tensor_places(arguments[operator])
        assert [row.name for row in rows] == [arguments[operator][place][1] for place in places]
        assert all(row.data_types <= DATA_TYPES.keys() and row.ranks for row in rows)


@pytest.mark.parametrize("operator", ROWS)
def test_undocumented_dtype_is_refused_by_name(
    interface: Interface, arguments: dict[str, Arguments], operator: str
) -> None:
    for row, place in zip(ROWS[operator], tensor_places(arguments[operator]), strict=True):
        for name, number in DATA_TYPES.items():
            tensor = accepted_tensor(row) if row.data_types else Description(type=0)
            answer = alone(interface, operator, arguments[operator], place, tensor.of_type(number))
            refused = rf"^{operator}: argument '{row.name}': expected (one of the dtypes|none)"
            if name in row.data_types:
                assert not re.match(refused, answer.message), (row.name, name)
            else:
                assert answer.status == INVALID_ARGUMENT
                assert re.match(refused, answer.message), (row.name, name, answer.message)


def refused_layouts(row: Row) -> list[tuple[Description, str]]:
    """Return tensors in layouts that the row leaves out, and how the refusal begins."""
    number = DATA_TYPES[min(row.data_types)]
    matrix = Description(type=number, sizes=(16, 16), format=FORMAT_NZ, storage=(1, 1, 16, 16))
    refused = []
    if "kNz" not in row.layouts:
        refused.append((matrix, r"a plain \(ND\) format, found FRACTAL_NZ"))
    if "kPlain" not in row.layouts:
        return [*refused, (Description(type=number), "the format FRACTAL_NZ")]
    for rank in range(MOST_DIMENSIONS + 1):
        sizes = (2,) * rank
        if rank not in row.ranks:
            refused.append((Description(type=number, sizes=sizes), r"[\w, ]+ dimensions, found"))
        elif rank and "kStrided" not in row.layouts:
            view = Description(type=number, sizes=sizes, strides=strided(rank))
            refused.append((view, "a contiguous tensor"))
    return refused


@pytest.mark.parametrize("operator", ROWS)
def test_undocumented_layout_is_refused_by_name(
    interface: Interface, arguments: dict[str, Arguments], operator: str
) -> None:
    for row, place in zip(ROWS[operator], tensor_places(arguments[operator]), strict=True):
        for tensor, refused in refused_layouts(row) if row.data_types else []:
            answer = alone(interface, operator, arguments[operator], place, tensor)
            assert answer.status == INVALID_ARGUMENT
            expected = rf"^{operator}: argument '{row.name}': expected {refused}"
            assert re.match(expected, answer.message), (tensor, answer.message)
