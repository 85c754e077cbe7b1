"""Operators that look like no-ops, but have an effect beyond the elements, stay."""

from __future__ import annotations

import contextlib
import itertools
from typing import TYPE_CHECKING, Any

import pytest
import torch
from torch import Tensor
from torch.fx.experimental.proxy_tensor import make_fx
from torch.testing._internal.common_methods_invocations import op_db
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves, tree_map

import fx_passes
from fx_passes.testing import assert_same_values, capture_graph

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

PIPELINE = fx_passes.default_npu_pipeline()


def rewritten(function: Callable[..., object], *inputs: Tensor) -> tuple[object, dict[str, int]]:
    """Return the result of a rewritten program, and the rules that matched."""
    module = make_fx(function, pre_dispatch=True, tracing_mode="fake")(*inputs)
    counts = PIPELINE.run(module).report.match_counts()
    return module(*inputs), {name: count for name, count in counts.items() if count}


@pytest.mark.parametrize(
    ("function", "x"),
    [
        (lambda x: x.float().long() + 1, torch.tensor([2**24 + 1])),
        (lambda x: x.double().long() + 1, torch.tensor([2**53 + 1])),
        (lambda x: x.bfloat16().int() + 1, torch.tensor([257], dtype=torch.int32)),
        (lambda x: x.half().int() + 1, torch.tensor([2049], dtype=torch.int32)),
        (lambda x: x.bfloat16().short() + 1, torch.tensor([257], dtype=torch.int16)),
        (lambda x: x.half().bfloat16() * 2, torch.tensor([1e30], dtype=torch.bfloat16)),
        (lambda x: x.to(torch.float8_e5m2).half() * 2, torch.tensor([1.1], dtype=torch.half)),
    ],
)
@pytest.mark.parametrize("exact", [False, True])
def test_cast_that_loses_values_stays(
    function: Callable[[Tensor], Tensor], x: Tensor, exact: bool
) -> None:
    module = capture_graph(function, [x])
    pipeline = PIPELINE.exact() if exact else PIPELINE

    pipeline.run(module)

    assert_same_values(module(x)[0], function(x))


def test_casts_from_float8_are_judged_without_an_error() -> None:
    x = torch.randn(2, 4).to(torch.float8_e4m3fn)

    cases: list[tuple[Callable[[Tensor], Tensor], dict[str, int]]] = [
        (lambda x: x.float().to(torch.bfloat16) * 2, {}),
        (lambda x: x.float().to(x.dtype).to(torch.bfloat16) * 2, {"remove_double_cast": 1}),
    ]
    for function, expected in cases:
        found, counts = rewritten(function, x)
        assert_same_values(found, function(x))
        assert counts == expected


def test_product_of_a_complex_infinity_with_one_stays() -> None:
    x = torch.tensor([complex(float("inf"), 1.0)])

    found, counts = rewritten(lambda x: (x * 1) + 0.5, x)

    assert isinstance(found, Tensor)
    assert found.imag.isnan().all()
    assert counts == {}


COPIES: list[Callable[[Tensor], Tensor]] = [
    lambda x: x[1:].clone(),
    lambda x: x[1:].to(torch.float32, copy=True),
    lambda x: x[1:] * 1,
    lambda x: torch.cat([x[1:]]),
    lambda x: x[1:].double().float(),
    lambda x: x[1:].clone(memory_format=torch.contiguous_format).reshape(2, 4),
    lambda x: x[1:].clone().view(1, -1).view(-1),
    lambda x: x.view(3, 3)[1].clone(),
    lambda x: x.split(3)[1].clone(),  # type: ignore[no-untyped-call]
    lambda x: torch.empty_like(x[1:]).copy_(x[1:]),
    lambda x: (x * 2)[1:].clone(),
    lambda x: torch.stack([x[1:]])[0],
    lambda x: 1 / (1 / x[1:]),
    lambda x: x.clone(),
]


@pytest.fixture(name="places", scope="module")
def _places() -> Iterator[None]:
    """Operators that show where in its memory a tensor begins, tagged as libraries tag them."""
    library = torch.library.Library("fx_places", "DEF")  # type: ignore[no-untyped-call]
    for name, tags in {
        "plain": (),
        "fixed": (torch.Tag.needs_fixed_stride_order,),
        "exact": (torch.Tag.needs_exact_strides,),
        "flexible": (torch.Tag.flexible_layout,),
    }.items():
        library.define(f"{name}(Tensor x) -> Tensor", tags=tags)  # type: ignore[no-untyped-call]
        library.impl(  # type: ignore[no-untyped-call]
            name,
            lambda x: torch.tensor([x.storage_offset(), x.data_ptr() % 16]),
            "CompositeExplicitAutograd",
        )
        torch.library.register_fake(
            f"fx_places::{name}", lambda x: x.new_empty(2, dtype=torch.int64), lib=library
        )
    yield
    library._destroy()  # type: ignore[no-untyped-call]


@pytest.mark.usefixtures("places")
@pytest.mark.parametrize("operator", ["plain", "fixed", "exact", "flexible"])
@pytest.mark.parametrize("copy", COPIES)
def test_unknown_operator_gets_a_tensor_at_the_offset_of_the_copy(
    copy: Callable[[Tensor], Tensor], operator: str
) -> None:
    place = getattr(torch.ops.fx_places, operator).default
    x = torch.arange(10.0)[1:]

    for given in (torch.arange(9.0), x):
        found, _ = rewritten(lambda x: place(copy(x)), given)
        assert_same_values(found, place(copy(given)))


@pytest.mark.parametrize(
    ("function", "kept"),
    [
        (lambda x: x[1:].clone().as_strided((2, 2), (1, 1), 0) * 2, "clone"),
        (lambda x: torch.view_as_complex(x[1:5].clone().view(2, 2)) * 2, "clone"),
        (lambda x: x.byte()[1:5].clone().view(torch.int16) * 2, "clone"),
    ],
)
def test_copy_stays_where_an_operator_of_torch_reads_the_offset(
    function: Callable[[Tensor], Tensor], kept: str
) -> None:
    x = torch.arange(9.0)
    module = make_fx(function, pre_dispatch=True, tracing_mode="fake")(x)
    PIPELINE.run(module)

    assert_same_values(module(x), function(x))
    assert any(kept in str(node.target) for node in module.graph.nodes)


RESULTS_AT_THE_PLACE: list[Callable[[Tensor, Tensor], Tensor]] = [
    lambda x, y: torch.ops.aten.copy(x[1:].clone(), y[:-1]),
    lambda x, y: torch.slice_scatter(x[1:].clone(), y[:1], 0, 0, 1),
    lambda x, y: torch.select_scatter(x[1:].clone(), y[0], 0, 0),
    lambda x, y: torch.diagonal_scatter(x[1:].clone().view(2, 4), y[:2]),
    lambda x, y: torch.slice_scatter(torch.ops.aten.copy(x[1:].clone(), y[:-1]), y[:1], 0, 0, 1)[
        1:
    ],
]


@pytest.mark.parametrize("function", RESULTS_AT_THE_PLACE)
def test_copy_stays_where_a_result_that_leaves_begins_where_it_does(
    function: Callable[[Tensor, Tensor], Tensor],
) -> None:
    x, y = torch.arange(9.0), torch.arange(9.0) * 10

    found, counts = rewritten(function, x, y)

    assert isinstance(found, Tensor)
    assert_same_values(found, function(x, y))
    assert found.storage_offset() == function(x, y).storage_offset()
    assert counts == {}


@pytest.mark.parametrize(
    "function",
    [
        lambda x, y: torch.slice_scatter(x[1:].clone(), y[:1], 0, 0, 1) * 2,
        lambda x, y: torch.slice_scatter(y * 2, x[1:].clone(), 0, 0, 8),
    ],
)
def test_copy_is_removed_if_no_result_begins_at_its_address(
    function: Callable[[Tensor, Tensor], Tensor],
) -> None:
    x, y = torch.arange(9.0), torch.arange(9.0) * 10

    found, counts = rewritten(function, x, y)

    assert isinstance(found, Tensor)
    assert_same_values(found, function(x, y))
    assert counts == {"remove_copy": 1}


class _Placed(TorchDispatchMode):  # type: ignore[no-untyped-call]
    """Records operators whose result has its own memory and a nonzero storage offset."""

    def __init__(self) -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        self.seen: set[str] = set()
        self.found: set[str] = set()

    def __torch_dispatch__(
        self, func: Any, types: Any, args: Any = (), kwargs: Any = None
    ) -> object:
        del types
        given = {x.untyped_storage()._cdata for x in _strided((args, kwargs))}
        result = func(*args, **(kwargs or {}))
        name = func.overloadpacket.__name__
        self.seen.add(name)
        for each in _strided(result):
            if each.storage_offset() and each.untyped_storage()._cdata not in given:
                self.found.add(name)
        return result


def _strided(values: object) -> list[Tensor]:
    leaves = (each for each in tree_leaves(values) if isinstance(each, Tensor))
    return [each for each in leaves if each.layout is torch.strided]


def _behind(value: object) -> object:
    """Return a tensor in memory that begins before it; anything else as it is."""
    if not isinstance(value, Tensor) or not _strided(value) or not value.is_contiguous():
        return value
    return value.new_empty(value.numel() + 4)[4:].view(value.shape).copy_(value)


@pytest.mark.filterwarnings("ignore")
def test_results_of_torch_begin_where_memory_does_but_for_those_that_are_known() -> None:
    """Tests every operator of which torch has a sample, with arguments at a storage offset."""
    placed = _Placed()
    for info in op_db:
        dtypes: set[torch.dtype] = info.supported_dtypes("cpu")  # type: ignore[no-untyped-call]
        dtype = min(dtypes, key=lambda each: (each is not torch.float32, str(each)), default=None)
        # Some samples ask for a GPU, and some operators refuse a view of other memory.
        with contextlib.suppress(Exception), torch.no_grad():
            for sample in itertools.islice(info.sample_inputs_func(info, "cpu", dtype, False), 2):
                given = tree_map(_behind, (sample.input, *sample.args))
                named = tree_map(_behind, sample.kwargs)
                with placed:
                    info.op(*given, **named)
    base = _behind(torch.arange(16.0).view(4, 4))
    with placed:
        torch.ops.aten.copy(base, base)

    known = {"as_strided_scatter", "copy", "diagonal_scatter", "select_scatter", "slice_scatter"}
    assert placed.found == known
    assert len(placed.seen) > 400


def test_copy_is_removed_if_nothing_can_observe_it() -> None:
    """A custom operator and a copy of a computed value: both have storage offset 0."""
    found, counts = rewritten(lambda x: (x[1:].clone() * 2).sum(), torch.arange(9.0))

    assert counts == {"remove_copy": 1}
    assert_same_values(found, torch.tensor(72.0))


@pytest.mark.usefixtures("places")
def test_copy_at_the_start_of_memory_is_removed_before_an_unknown_operator() -> None:
    place = torch.ops.fx_places.plain.default

    _, counts = rewritten(lambda x: place((x * 2).clone()), torch.arange(9.0))

    assert counts == {"remove_copy": 1}


def _two_results(x: Tensor) -> tuple[Tensor, Tensor]:
    y = x * 2
    return y, y.view(2, 4)


def _turned(x: Tensor) -> tuple[Tensor, Tensor]:
    y = x * 2
    z = y.view(2, 4)
    z.unsqueeze_(0)
    return y + 1, z


@pytest.mark.parametrize(
    "function",
    [
        lambda x: x.view(2, 4),
        lambda x: x.reshape(2, 4),
        lambda x: (x.expand(2, 4), x[:, 0:], x[:]),
        lambda x: x.unsqueeze(0).squeeze(0),
        lambda x: x.transpose(0, 1).transpose(0, 1),
        lambda x: x.add_(1).view(2, 4),
        lambda x: (x.view(2, 4), x.view(2, 4)),
        lambda x: x.contiguous(),
        lambda x: x.to(torch.float32),
        lambda x: x.view(2, 4).to(torch.float32).contiguous(),
        _two_results,
        _turned,
    ],
)
def test_results_are_the_objects_that_they_were(function: Callable[[Tensor], object]) -> None:
    """So that a caller who resizes or transposes one result changes no input and no other."""

    def identities(run: Callable[[Tensor], object]) -> list[tuple[bool, ...]]:
        x = torch.arange(8.0).view(2, 4)
        results = run(x)
        everything = [x, *(results if isinstance(results, tuple) else (results,))]
        everything[-1].unsqueeze_(0)
        return [(a is b, a.shape == b.shape) for a in everything for b in everything]

    module = make_fx(function, pre_dispatch=True)(torch.arange(8.0).view(2, 4))
    PIPELINE.run(module)

    assert identities(module) == identities(function)


def test_view_of_an_inner_value_is_removed_before_an_output() -> None:
    _, counts = rewritten(lambda x: (x * 2).view(2, 4), torch.arange(8.0).view(2, 4))

    assert counts == {"remove_reshape": 1}
