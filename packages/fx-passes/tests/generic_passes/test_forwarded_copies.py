"""Reads of a buffer are redirected to the source of its copy, if the values are the same."""

from __future__ import annotations

import inspect
from typing import TYPE_CHECKING

import pytest
import torch
from torch import Tensor
from torch.fx.experimental.proxy_tensor import make_fx

import fx_passes
from fx_passes.generic_passes import ForwardCopiesPass
from fx_passes.testing import assert_rewritten, assert_same_values, capture_graph, random_tensors

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from torch.fx import GraphModule

COPY = torch.ops.aten.copy_.default
npu = torch.ops.npu


def pipeline(*private: str) -> fx_passes.Pipeline:
    passes = (fx_passes.NormalizePass(), ForwardCopiesPass(private=private))
    return fx_passes.Pipeline(passes=passes, observers=(fx_passes.VerifyObserver(execute=True),))


def copies(module: GraphModule) -> int:
    return len(module.graph.find_nodes(op="call_function", target=COPY))


def inputs() -> list[Tensor]:
    x, buffer = random_tensors((4, 4), (4, 4), dtype=torch.float32, device="cpu")
    return [x, buffer]


def rewritten(
    function: Callable[..., object], given: Sequence[Tensor], *private: str
) -> tuple[fx_passes.Report, GraphModule]:
    """Rewrite the graph of Dynamo, and compare results and inputs with those of the function."""
    module = capture_graph(function, [each.clone() for each in given])
    report = pipeline(*private).run(module).report
    assert not pipeline(*private).run(module).modified
    mine, theirs = ([each.clone() for each in given] for _ in range(2))
    actual = module(*in_order(function, module, mine))
    expected = function(*theirs)
    expected = expected if isinstance(expected, tuple) else (expected,)
    for name, left, right in zip(input_names(function), mine, theirs, strict=False):
        if name not in private:
            assert_same_values(left, right)
    assert_same_values(tuple(actual), expected)
    return report, module


def input_names(function: Callable[..., object]) -> list[str]:
    """Return how Dynamo calls the parameters of a function."""
    return [f"L_{name}_" for name in inspect.signature(function).parameters]


def in_order(
    function: Callable[..., object], module: GraphModule, given: Sequence[Tensor]
) -> list[Tensor]:
    """Return inputs in the order in which Dynamo met them."""
    by_name = dict(zip(input_names(function), given, strict=True))
    return [by_name[str(node.target)] for node in module.graph.find_nodes(op="placeholder")]


def redirected(report: fx_passes.Report) -> int:
    return sum(not match.removed for match in report.matches("forward_copies"))


def reasons(report: fx_passes.Report) -> str:
    return "\n".join(miss.reason for miss in report.near_misses("forward_copies"))


def read_after(x: Tensor, buffer: Tensor) -> Tensor:
    buffer.copy_(x + 1)
    return buffer * 2


def test_reader_of_an_input_reads_the_source_and_the_copy_stays() -> None:
    report, module = rewritten(read_after, inputs())

    assert redirected(report) == 1
    assert copies(module) == 1
    assert "`L_buffer_` is given to the graph and may be read outside of it" in reasons(report)
    (product,) = next(iter(reversed(module.graph.nodes))).all_input_nodes
    assert "add" in product.all_input_nodes[0].name


def test_copy_into_a_private_input_is_removed() -> None:
    report, module = rewritten(read_after, inputs(), "L_buffer_")

    assert redirected(report) == 1
    assert copies(module) == 0
    assert not reasons(report)


def test_copies_into_one_private_buffer_for_each_layer_are_all_removed() -> None:
    def layers(x: Tensor, buffer: Tensor) -> Tensor:
        for _ in range(3):
            buffer.copy_(x.sin())
            x = x + buffer.exp()
        return x

    report, module = rewritten(layers, inputs(), "L_buffer_")

    assert redirected(report) == 3
    assert copies(module) == 0


def test_copy_into_memory_of_the_graph_is_removed_with_it() -> None:
    def function(x: Tensor) -> Tensor:
        buffer = torch.empty_like(x)
        buffer.copy_(x.sin())
        return buffer.exp()

    _, module = rewritten(function, inputs()[:1])

    assert copies(module) == 0
    assert not [node for node in module.graph.nodes if "empty" in str(node.target)]


def test_part_of_a_buffer_that_is_read_by_an_equal_view_is_forwarded() -> None:
    def function(x: Tensor, buffer: Tensor) -> Tensor:
        buffer[:2].copy_(x[2:].exp())
        return buffer[:2] + 1

    report, module = rewritten(function, inputs(), "L_buffer_")

    assert redirected(report) == 1
    assert copies(module) == 0


def test_another_part_of_the_buffer_is_read_there() -> None:
    def function(x: Tensor, buffer: Tensor) -> tuple[Tensor, Tensor]:
        buffer[:2].copy_(x[2:].exp())
        return buffer[1:3] + 1, buffer + 1

    report, module = rewritten(function, inputs(), "L_buffer_")

    assert redirected(report) == 0
    assert copies(module) == 1


def test_view_of_the_buffer_is_taken_of_the_source() -> None:
    def function(x: Tensor, buffer: Tensor) -> Tensor:
        buffer.copy_(x.sin())
        return buffer.view(2, 8).t() * 2

    report, module = rewritten(function, inputs(), "L_buffer_")

    assert redirected(report) == 1
    assert copies(module) == 0


def source_written(x: Tensor, buffer: Tensor) -> Tensor:
    value = x.sin()
    buffer.copy_(value)
    value.add_(1)
    return buffer * 2


def source_input_written_through_a_view(x: Tensor, buffer: Tensor) -> Tensor:
    buffer.copy_(x)
    x.t()[0].zero_()
    return buffer * 2


def buffer_written(x: Tensor, buffer: Tensor) -> Tensor:
    buffer.copy_(x)
    buffer[1].zero_()
    return buffer * 2


def view_and_later_write(x: Tensor, buffer: Tensor) -> Tensor:
    buffer.copy_(x)
    view = buffer.view(16)
    buffer.add_(1)
    return view * 2


def view_and_later_write_of_the_source(x: Tensor, buffer: Tensor) -> Tensor:
    value = x.sin()
    buffer.copy_(value)
    view = buffer.view(16)
    value.add_(1)
    return view * 2


def view_returned(x: Tensor, buffer: Tensor) -> tuple[Tensor, Tensor]:
    buffer.copy_(x)
    return buffer.view(16), x + 1


def buffer_returned(x: Tensor, buffer: Tensor) -> tuple[Tensor, Tensor]:
    buffer.copy_(x.sin())
    return buffer, x + 1


def test_buffer_that_is_returned_is_not_the_source() -> None:
    module = make_fx(buffer_returned, tracing_mode="fake")(*inputs())

    report = pipeline("buffer_1").run(module).report

    assert redirected(report) == 0
    assert copies(module) == 1
    x, buffer = inputs()
    returned, _ = module(x, buffer)
    assert returned.data_ptr() == buffer.data_ptr()
    assert torch.equal(buffer, x.sin())


def cast(x: Tensor, buffer: Tensor) -> Tensor:
    buffer.copy_(x.double() / 3)
    return buffer * 2


def broadcast(x: Tensor, buffer: Tensor) -> Tensor:
    buffer.copy_(x[0])
    return buffer.sum(0)


def other_layout(x: Tensor, buffer: Tensor) -> Tensor:
    buffer.copy_(x.t())
    return buffer.view(16) * 2


def of_itself(x: Tensor, buffer: Tensor) -> Tensor:
    buffer[:2].copy_(buffer[2:])
    return buffer[:2] + x[:2]


def reader_writes_the_source(x: Tensor, buffer: Tensor) -> Tensor:
    value = x.sin()
    buffer.copy_(value)
    value.addmm_(buffer, x)
    return value


def reader_before(x: Tensor, buffer: Tensor) -> Tensor:
    old = buffer * 2
    buffer.copy_(x)
    return old


@pytest.mark.parametrize(
    ("function", "reason"),
    [
        (source_written, "writes what `copy_` copied, or what it copied it into, before"),
        (source_input_written_through_a_view, "before it is read"),
        (buffer_written, "before it is read"),
        (view_and_later_write, "later, and the reader is a view"),
        (view_and_later_write_of_the_source, "later, and the reader is a view"),
        (view_returned, "is a view of the buffer that leaves the graph"),
        (cast, "turns torch.float64 on cpu into torch.float32"),
        (broadcast, "spreads [4] over [4, 4]"),
        (other_layout, "turns the strides [1, 4] into [4, 1]"),
        (of_itself, "may share memory"),
        (reader_writes_the_source, "before it is read"),
        (reader_before, ""),
    ],
)
@pytest.mark.parametrize("private", [(), ("L_buffer_",)])
def test_what_differs_is_read_in_the_buffer(
    function: Callable[..., object], reason: str, private: tuple[str, ...]
) -> None:
    report, module = rewritten(function, inputs(), *private)

    assert redirected(report) == 0
    assert reason in reasons(report)
    assert copies(module) == 1 - (bool(private) and function is reader_before)


def test_operator_that_may_keep_the_memory_keeps_the_copy() -> None:
    library = torch.library.Library("fx_passes_test", "FRAGMENT")  # type: ignore[no-untyped-call]
    library.define("keep(Tensor x) -> ()")  # type: ignore[no-untyped-call]
    library.impl("keep", lambda x: None, "CompositeExplicitAutograd")  # type: ignore[no-untyped-call]
    try:

        def function(x: Tensor) -> Tensor:
            buffer = torch.empty_like(x)
            torch.ops.fx_passes_test.keep(buffer)
            buffer.copy_(x.sin())
            return buffer.exp()

        module = make_fx(function, tracing_mode="fake")(inputs()[0])
        report = pipeline().run(module).report
    finally:
        library._destroy()  # type: ignore[no-untyped-call]

    assert redirected(report) == 1
    assert copies(module) == 1
    assert "may keep the memory" in reasons(report)


@pytest.mark.parametrize("key", ["stream_label", "core_limit_scope"])
def test_reader_under_another_label_reads_the_buffer(key: str) -> None:
    module = capture_graph(read_after, inputs())
    module.graph.find_nodes(op="call_method", target="copy_")[0].meta[key] = "other"

    assert redirected(pipeline().run(module).report) == 0


def test_symbolic_sizes_are_equal_where_they_are_one_expression() -> None:
    def function(x: Tensor) -> Tensor:
        buffer = torch.empty_like(x)
        buffer.copy_(x.sin())
        return buffer.exp()

    module = capture_graph(function, inputs()[:1], dynamic={0: 0})
    pipeline().run(module)

    assert copies(module) == 0
    placeholders = module.graph.find_nodes(op="placeholder")
    x = torch.linspace(-1, 1, 28).reshape(7, 4)
    (actual,) = module(*([7, x] if len(placeholders) == 2 else [x]))
    assert_same_values(actual, function(x))


def residual_in_a_static_buffer(
    x: Tensor, residual: Tensor, weight: Tensor, static: Tensor
) -> tuple[Tensor, Tensor, Tensor]:
    """Add into a buffer that is kept from step to step, then norm and quantise."""
    static.copy_(x + residual)
    normed = npu.npu_rms_norm(static, weight, 1e-6)[0]
    return (*npu.npu_dynamic_quant(normed), x + 1)


def test_norm_of_a_static_buffer_is_fused_with_what_was_copied_into_it() -> None:
    shapes = (6, 64), (6, 64), (64,), (6, 64)
    module = capture_graph(residual_in_a_static_buffer, random_tensors(*shapes))

    assert_rewritten(
        fx_passes.default_npu_pipeline(),
        module,
        {"forward_copies": 1, "fuse_add_rms_norm_dynamic_quant": 1},
    )

    mine, theirs = (random_tensors(*shapes, device="npu") for _ in range(2))
    actual = module(*in_order(residual_in_a_static_buffer, module, mine))
    expected = residual_in_a_static_buffer(*theirs)
    assert_same_values(actual, expected, roundings=4, dtype=torch.bfloat16)
    assert_same_values(mine[3], theirs[3], roundings=1)
    assert copies(module) == 1


def normed_static_buffer(
    x: Tensor, residual: Tensor, weight: Tensor, static: Tensor
) -> tuple[Tensor, Tensor]:
    """Copy the input of a norm into a buffer first."""
    static.copy_(x)
    normed, _, total = npu.npu_add_rms_norm(static, residual, weight, 1e-6)
    return normed, total


def test_norm_reads_what_was_copied_for_it() -> None:
    shapes = (6, 64), (6, 64), (64,), (6, 64)
    module = capture_graph(normed_static_buffer, random_tensors(*shapes))

    report = pipeline("L_static_").run(module).report

    assert redirected(report) == 1
    assert copies(module) == 0
    assert [each.no_longer_written for each in report.passes if each.no_longer_written] == [
        ("L_static_",)
    ]


def test_copies_that_nobody_reads_in_the_graph_are_no_near_misses() -> None:
    """As AOTAutograd ends graphs that write their inputs."""

    def function(x: Tensor, buffer: Tensor) -> Tensor:
        buffer.add_(x)
        return x + 1

    module = capture_graph(function, inputs(), level="aten")

    report = pipeline().run(module).report

    assert not report.near_misses("forward_copies")
