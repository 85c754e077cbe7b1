from __future__ import annotations

import copy
import dataclasses
import enum
import functools
import math
import random
import re
import weakref
from decimal import Decimal
from pathlib import PurePath
from typing import TYPE_CHECKING, Any, TypeAlias

import numpy as np
import pytest
import torch

from npu_graph_runtime.capturing.input_layout import InputLayout
from npu_graph_runtime.capturing.native.native_comparison import find_native_comparison
from npu_graph_runtime.errors import InputAddressError

if TYPE_CHECKING:
    from collections.abc import Callable

LayoutOf: TypeAlias = "Callable[..., InputLayout]"

X, Y = torch.zeros(4, 2), torch.zeros(4)


class Kind(enum.Enum):
    DENSE = 1
    SPARSE = 2


@dataclasses.dataclass
class Metadata:
    lengths: torch.Tensor
    kind: Kind


@pytest.fixture(params=["Python", "C"])
def layout_of(request: pytest.FixtureRequest) -> LayoutOf:
    native = find_native_comparison() if request.param == "C" else None
    assert (native is not None) == (request.param == "C"), "these tests need a C compiler"
    return functools.partial(InputLayout, native=native)


def _fresh(tensor: torch.Tensor) -> torch.Tensor:
    return tensor.clone()


@pytest.mark.parametrize(
    ("args", "kwargs", "other_args", "other_kwargs", "path"),
    [
        ((X, 3, Y), {}, (X, 3, _fresh(Y)), {}, "args[2]"),
        ((X,), {"mask": Y}, (X,), {"mask": _fresh(Y)}, "mask"),
        (([X, Y],), {}, ([X, _fresh(Y)],), {}, "args[0][1]"),
        ((), {"meta": {"k": (X, Y)}}, (), {"meta": {"k": (_fresh(X), Y)}}, "meta['k'][0]"),
    ],
)
def test_input_layout_moved_tensor_is_named(
    layout_of: LayoutOf,
    args: tuple[Any, ...],
    kwargs: dict[str, Any],
    other_args: tuple[Any, ...],
    other_kwargs: dict[str, Any],
    path: str,
) -> None:
    layout = layout_of(args, kwargs, "'decode'")
    layout.check(args, kwargs)
    with pytest.raises(InputAddressError, match=f"replaying 'decode': 1 of .*{re.escape(path)}"):
        layout.check(other_args, other_kwargs)


def test_input_layout_missing_and_additional_inputs_are_named(layout_of: LayoutOf) -> None:
    layout = layout_of((X, Y), {"mask": Y}, "'decode'")
    missing = r"args\[1\] is nothing to compare now"
    with pytest.raises(InputAddressError, match=r"args\[1\] is None \(NoneType\)"):
        layout.check((X, None), {"mask": Y})
    with pytest.raises(InputAddressError, match=missing):
        layout.check((X,), {"mask": Y})
    with pytest.raises(InputAddressError, match=missing):
        layout.check((X, object()), {"mask": Y})
    with pytest.raises(InputAddressError, match="mask is nothing to compare now"):
        layout.check((X, Y), {})
    for more in ({"mask": Y, "bias": Y}, {"bias": Y, "mask": Y}):
        with pytest.raises(InputAddressError, match=r"bias is a tensor .* expected nothing there"):
            layout.check((X, Y), more)
    with pytest.raises(InputAddressError, match=r"args\[2\] is a tensor"):
        layout.check((X, Y, X), {"mask": Y})


def test_input_layout_keyword_arguments_may_come_in_any_order(layout_of: LayoutOf) -> None:
    layout = layout_of((), {"a": X, "b": 3}, "'decode'")
    layout.check((), {"b": 3, "a": X})


@pytest.mark.parametrize(
    ("other", "message"),
    [
        (X.view(2, 4), r"shape \(2, 4\)"),
        (X.view(torch.int32), "torch.int32"),
        (torch.as_strided(X, (4, 2), (1, 4)), r"stride \(1, 4\)"),
    ],
)
def test_input_layout_other_layout_at_same_address_is_named(
    layout_of: LayoutOf, other: torch.Tensor, message: str
) -> None:
    for args in ((X,), ([X],)):
        layout = layout_of(args, {}, "'decode'")
        layout.check(args, {})
        with pytest.raises(InputAddressError, match=message):
            layout.check((other,) if args == (X,) else ([other],), {})


@pytest.mark.parametrize(
    ("value", "other"),
    [
        (3, 4),
        (1, True),
        (1, 1.0),
        (0.5, 0.25),
        ("silu", "gelu"),
        (None, 0),
        (Kind.DENSE, Kind.SPARSE),
        (torch.float16, torch.bfloat16),
        (torch.device("cpu"), torch.device("meta")),
        (np.int64(2), np.int64(5)),
        (np.int32(2), np.int64(2)),
        (np.float32(2), np.float32(5)),
        (np.float32(0.0), np.float32(-0.0)),
        (np.float64(2), np.float64(5)),
        (np.bool_(True), np.bool_(False)),
        (np.datetime64("2026-01-01"), np.datetime64("2026-01-02")),
        (np.array(2), np.array(5)),
        (np.array([2, 2]), np.array([2, 5])),
        (np.array([2, 2]), np.array([[2, 2]])),
        (np.array(["a"], dtype=object), np.array(["b"], dtype=object)),
        (range(2), range(5)),
        (slice(0, 2), slice(0, 5)),
        (frozenset([2]), frozenset([5])),
        ({2}, {5}),
        (bytearray(b"a"), bytearray(b"b")),
        (0.0, -0.0),
        (0j, complex(-0.0, 0)),
        (1 + 2j, 1 - 2j),
        (Decimal(1), Decimal(2)),
        (PurePath("a"), PurePath("b")),
        (torch.strided, torch.sparse_coo),
        ("a".upper, "b".upper),
    ],
)
def test_input_layout_other_plain_value_is_named(
    layout_of: LayoutOf, value: object, other: object
) -> None:
    for args, others in (((X, value), (X, other)), (([X, value],), ([X, other],))):
        layout = layout_of(args, {}, "'decode'")
        layout.check(args, {})
        with pytest.raises(InputAddressError, match=r"args\S* is .*, expected"):
            layout.check(others, {})
    layout = layout_of((), {"n": value}, "'decode'")
    with pytest.raises(InputAddressError, match=re.escape(f"expected {value!r}")):
        layout.check((), {"n": other})


@pytest.mark.parametrize(
    "value",
    [
        *(math.nan, 0.0, np.int64(2), np.float32(math.nan), np.array([1.0, math.nan]), {1}, 1j),
        *(range(2), slice(0, 2), np.array(["a"], dtype=object), PurePath("a")),
    ],
)
def test_input_layout_equal_values_are_the_same(layout_of: LayoutOf, value: object) -> None:
    layout = layout_of((X, value), {"v": value}, "'decode'")
    for other in (value, copy.deepcopy(value)):
        for _ in range(2):
            layout.check((X, other), {"v": other})


def test_input_layout_integers_of_numpy_are_compared_in_one_call(layout_of: LayoutOf) -> None:
    layout = layout_of((X, np.int64(2), 0.0), {}, "'decode'")
    assert layout.holds((X, np.int64(2), 0.0))
    assert not layout.holds((X, np.int64(3), 0.0))


@pytest.mark.parametrize(
    ("value", "change"),
    [
        (np.array([1, 2]), lambda value: value.__setitem__(0, 5)),
        ({1}, lambda value: value.add(2)),
        (bytearray(b"a"), lambda value: value.append(1)),
    ],
)
def test_input_layout_value_changed_in_place_is_named(
    layout_of: LayoutOf, value: Any, change: Callable[[Any], None]
) -> None:
    value = copy.copy(value)
    layout = layout_of((X, value), {}, "'decode'")
    layout.check((X, value), {})

    change(value)

    with pytest.raises(InputAddressError, match=r"args\[1\] is"):
        layout.check((X, value), {})


def test_input_layout_conjugated_tensor_is_named(layout_of: LayoutOf) -> None:
    x = torch.zeros(4, dtype=torch.complex64)
    for args, others in (((x,), (x.conj(),)), ((x.conj(),), (x,)), (([x],), ([x.conj()],))):
        layout = layout_of(args, {}, "'decode'")
        for _ in range(5):
            layout.check(args, {})
            with pytest.raises(InputAddressError, match="conjugated tensor"):
                layout.check(others, {})


def test_input_layout_negated_tensor_is_named_where_it_is_compared_closely(
    layout_of: LayoutOf,
) -> None:
    x = torch.zeros(4, dtype=torch.complex64)
    layout = layout_of((x.imag,), {}, "'decode'")
    layout.compare((x.imag,), {})
    with pytest.raises(InputAddressError, match="negated tensor"):
        layout.compare((x.conj().imag,), {})


def test_input_layout_objects_of_other_types_are_not_looked_at(layout_of: LayoutOf) -> None:
    class Anything:
        def __eq__(self, other: object) -> bool:
            raise AssertionError

        __hash__ = None  # type: ignore[assignment]

    layout = layout_of((X, Anything()), {}, "'decode'")
    layout.check((X, Anything()), {})
    layout.check((X, object()), {})
    for _ in range(2):
        with pytest.raises(InputAddressError, match="expected nothing there"):
            layout.check((X, Y), {})


def test_input_layout_fields_of_dataclasses_are_compared(layout_of: LayoutOf) -> None:
    layout = layout_of((Metadata(Y, Kind.DENSE),), {}, "'decode'")
    layout.check((Metadata(Y, Kind.DENSE),), {})
    with pytest.raises(InputAddressError, match=r"args\[0\].kind"):
        layout.check((Metadata(Y, Kind.SPARSE),), {})


def _drawn(draw: random.Random, depth: int = 2) -> Any:
    if depth and draw.random() < 0.3:
        items = [_drawn(draw, depth - 1) for _ in range(draw.randint(0, 3))]
        return draw.choice([tuple(items), list(items), dict(zip("abc", items, strict=False))])
    return draw.choice([X, Y, X[1:], X.t(), 0, 1, True, False, 1.0, "a", None, Kind.DENSE])


def _same(first: Any, second: Any) -> bool:
    """Return, by a simple walk, whether no fixed input of a graph differs."""
    if isinstance(first, torch.Tensor) and isinstance(second, torch.Tensor):
        return (first.data_ptr(), first.shape, first.stride()) == (
            second.data_ptr(),
            second.shape,
            second.stride(),
        )
    if isinstance(first, dict) and isinstance(second, dict):
        return first.keys() == second.keys() and all(_same(first[k], second[k]) for k in first)
    if isinstance(first, (list, tuple)) and isinstance(second, (list, tuple)):
        return len(first) == len(second) and all(map(_same, first, second))
    return type(first) is type(second) and bool(first == second)


def test_input_layout_refuses_just_what_differs_in_drawn_arguments(layout_of: LayoutOf) -> None:
    draw = random.Random(7)
    refused = 0
    for _ in range(3000):
        args = tuple(_drawn(draw) for _ in range(draw.randint(0, 4)))
        others = list(args)
        for index in range(len(others)):
            if draw.random() < 0.2:
                others[index] = _drawn(draw)
        layout = layout_of(args, {}, "'decode'")
        layout.check(args, {})
        if _same(args, tuple(others)):
            layout.check(tuple(others), {})
        elif _leaves(args) != _leaves(tuple(others)):
            refused += 1
            with pytest.raises(InputAddressError):
                layout.check(tuple(others), {})
    assert refused > 500


def _leaves(value: Any, path: str = "") -> dict[str, str]:
    """Return the compared values by path; empty containers have none."""
    if isinstance(value, (list, tuple)):
        items = [(f"{path}[{index}]", item) for index, item in enumerate(value)]
    elif isinstance(value, dict):
        items = [(f"{path}[{key}]", item) for key, item in value.items()]
    elif isinstance(value, torch.Tensor):
        return {path: f"{value.data_ptr()} {value.shape} {value.stride()}"}
    else:
        return {path: f"{type(value)} {value!r}"}
    return {key: text for path, item in items for key, text in _leaves(item, path).items()}


@pytest.mark.parametrize(
    "other",
    [
        lambda x, y: (x.t(), y),
        lambda x, y: (x.view(2, 4), y),
        lambda x, y: (x.view(torch.int32), y),
        lambda x, y: (x[:2], y),
        lambda x, y: (y, x),
        lambda x, _: (x, x),
        lambda x, y: (x, y.clone()),
        lambda x, _: (x, None),
        lambda x, _: (x,),
        lambda x, y: (x, y, y),
    ],
)
def test_input_layout_compared_often_refuses_what_it_did_at_first(
    layout_of: LayoutOf, other: Any
) -> None:
    x, y = torch.zeros(4, 2), torch.zeros(4)
    layout = layout_of((x, y), {}, "'decode'")
    for _ in range(3):
        layout.check((x, y), {})
        layout.check((x.view(4, 2), y[:]), {})  # other objects on the same memory
        with torch.inference_mode():
            layout.check((x, y), {})
        with pytest.raises(InputAddressError):
            layout.check(other(x, y), {})
        with pytest.raises(InputAddressError):
            layout.check((x,), {"y": y})


def test_input_layout_of_a_tensor_that_was_changed_in_place_is_refused(layout_of: LayoutOf) -> None:
    changes: list[Any] = [
        lambda x: x.t_(),
        lambda x: x.resize_(2, 2),
        lambda x: x.unsqueeze_(0),
        lambda x: setattr(x, "data", torch.zeros(4, 2)),
        lambda x: x.set_(torch.zeros(4, 2)),
        lambda x: x.untyped_storage().resize_(0),
    ]
    for change in changes:
        x = torch.zeros(4, 2)
        layout = layout_of((x,), {}, "'decode'")
        for _ in range(3):
            layout.check((x,), {})
        change(x)
        with pytest.raises(InputAddressError):
            layout.check((x,), {})


def test_input_layout_keeps_no_tensor_alive(layout_of: LayoutOf) -> None:
    x = torch.zeros(4, 2)
    layout = layout_of((x,), {}, "'decode'")
    for _ in range(3):
        layout.check((x,), {})
    reference = weakref.ref(x)
    del x
    assert reference() is None
