"""One object for a function: each kind of argument and result is right, or runs eagerly by name."""

from __future__ import annotations

import copy
import dataclasses
import functools
import importlib
import pickle
import threading
import warnings
from collections import OrderedDict
from typing import TYPE_CHECKING, Any, NamedTuple

import pytest
import torch
from torch import Tensor, nn

from npu_graph_runtime import (
    EagerReason,
    FakeDevice,
    GraphContext,
    GraphDevice,
    Graphed,
    graphed,
    runs_eagerly,
)
from npu_graph_runtime.errors import KeptMemoryError, UnsupportedInputError

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator


@pytest.fixture(params=["fake", "npu"])
def device(request: pytest.FixtureRequest) -> GraphDevice:
    found: GraphDevice = request.getfixturevalue(request.param)
    return found


@pytest.fixture(autouse=True)
def _no_gradients() -> Iterator[None]:
    with torch.no_grad(), warnings.catch_warnings():
        warnings.simplefilter("error", RuntimeWarning)
        yield


class Pair(NamedTuple):
    left: Tensor
    right: Any


@dataclasses.dataclass
class Batch:
    tokens: Tensor
    lengths: list[int]


def numbers(device: GraphDevice, *shape: int, seed: int = 0) -> Tensor:
    generator = torch.Generator().manual_seed(seed)
    return torch.randn(shape, generator=generator).to(device.torch_device)


def bits(value: Any) -> Any:
    """Return nested values with the bits, shape and strides of each tensor."""
    if isinstance(value, Tensor):
        flat = value.detach().cpu().contiguous().reshape(-1).view(torch.uint8)
        return tuple(value.shape), value.stride(), value.dtype, flat.tolist()
    if dataclasses.is_dataclass(value) and not isinstance(value, type):
        return type(value), bits(vars(value))
    if isinstance(value, dict):
        return type(value), [(key, bits(item)) for key, item in value.items()]
    if isinstance(value, (list, tuple)):
        return type(value), [bits(item) for item in value]
    return type(value), repr(value)


def check(
    device: GraphDevice,
    function: Callable[..., Any],
    make: Callable[[int], tuple[Any, ...]],
    **options: Any,
) -> Graphed:
    """Compare three calls with eager ones: results, and changes of the arguments."""
    step: Graphed = graphed(function, device=device, **options)
    kept = []
    for seed in range(3):
        ours, theirs = make(seed), make(seed)
        found, expected = step(*ours), function(*theirs)
        assert bits(found) == bits(expected), f"result of call {seed}"
        assert bits(ours) == bits(theirs), f"arguments of call {seed}"
        kept.append((found, bits(expected)))
    for found, expected in kept:
        assert bits(found) == expected, "a result changed later"
    return step


def assert_captured(step: Graphed, replayed: int = 2) -> None:
    assert (step.counters.captured, step.counters.replayed) == (1, replayed), step.counters


ARGUMENTS: dict[str, tuple[Callable[..., Any], Callable[[GraphDevice, int], tuple[Any, ...]]]] = {
    "one tensor": (lambda x: x * 2, lambda d, s: (numbers(d, 3, 4, seed=s),)),
    "no tensor": (
        lambda n, place: torch.ones(n, device=place),
        lambda d, s: (3, d.torch_device),
    ),
    "a tensor of no dimension": (lambda x: x * 2, lambda d, s: (numbers(d, seed=s),)),
    "an empty tensor": (lambda x: x.sum(0) + 1, lambda d, s: (numbers(d, 0, 4, seed=s),)),
    "only empty": (lambda x: x * 2, lambda d, s: (numbers(d, 0, seed=s),)),
    "strides": (lambda x: x + 1, lambda d, s: (numbers(d, 3, 4, seed=s).t(),)),
    "an offset": (lambda x: x.relu(), lambda d, s: (numbers(d, 9, 4, seed=s)[1:5, 1:],)),
    "an expanded tensor": (
        lambda x, y: x * y,
        lambda d, s: (numbers(d, 1, 4, seed=s).expand(3, 4), numbers(d, seed=s).expand(3, 4)),
    ),
    "integers": (lambda x: x + x.max(), lambda d, s: (torch.arange(s, s + 4).to(d.torch_device),)),
    "booleans": (lambda x: ~x, lambda d, s: (numbers(d, 4, seed=s) > 0,)),
    "plain values": (
        lambda x, a, b, c, d: x * a + len(b) + (c or 0) + (1 if d else 2),
        lambda d, s: (numbers(d, 4, seed=s), -0.5, "name", None, True),
    ),
    "nested": (
        lambda p, q: p.left * q["a"][0] + p.right[1]["z"],
        lambda d, s: (
            Pair(numbers(d, 4, seed=s), (1, {"z": numbers(d, 4, seed=s + 5)})),
            OrderedDict(a=[numbers(d, 4, seed=s + 9), "text"]),
        ),
    ),
    "a dataclass": (
        lambda b: Batch(b.tokens * 2, [len(b.lengths)]),
        lambda d, s: (Batch(numbers(d, 4, seed=s), [1, 2]),),
    ),
    "a view of a view": (
        lambda x: x.view(-1)[1:] * 3,
        lambda d, s: (numbers(d, 4, 4, seed=s)[1:3],),
    ),
}


@pytest.mark.parametrize("name", ARGUMENTS)
def test_arguments_of_any_kind_are_right(device: GraphDevice, name: str) -> None:
    function, make = ARGUMENTS[name]
    step = check(device, function, functools.partial(make, device))
    assert_captured(step)


def test_same_tensor_twice_is_the_same_object_in_the_function(device: GraphDevice) -> None:
    def function(x: Tensor, y: Tensor) -> Tensor:
        return x * 2 if x is y else x + y

    step: Graphed = graphed(function, device=device)
    for seed in range(3):
        x, y = numbers(device, 4, seed=seed), numbers(device, 4, seed=seed + 10)
        assert torch.equal(step(x, x), x * 2)
        assert torch.equal(step(x, y), x + y)
    assert step.num_graphs == 2


@pytest.mark.parametrize("is_parameter", [False, True])
def test_parameters_and_their_gradients_are_what_the_function_sees(
    device: GraphDevice, *, is_parameter: bool
) -> None:
    def function(x: Tensor) -> Tensor:
        return x * (2 if isinstance(x, nn.Parameter) else 3) + (5 if x.requires_grad else 7)

    step: Graphed = graphed(function, device=device)
    for seed in range(3):
        x = numbers(device, 4, seed=seed)
        for y in (x, nn.Parameter(x, requires_grad=is_parameter), x.clone().requires_grad_()):
            assert torch.equal(step(y), function(y))
    assert (step.counters.captured, step.counters.replayed) == (3, 6)


class Row(list[Tensor]):
    scale = 1.0


@pytest.mark.parametrize("make", [lambda x: x, lambda x: Row([x]), lambda x: Batch(x, [])])
def test_arguments_with_attributes_of_their_own_run_eagerly(
    device: GraphDevice, make: Callable[[Tensor], Any]
) -> None:
    def function(value: Any) -> Tensor:
        x = value.tokens if isinstance(value, Batch) else value
        x = value[0] if isinstance(value, Row) else x
        return x * getattr(value, "scale", 1.0)

    step: Graphed = graphed(function, device=device)
    plain, scaled = make(numbers(device, 4)), make(numbers(device, 4))
    for _ in range(2):
        assert torch.equal(step(plain), function(plain))
    scaled.scale = 2.0
    with pytest.warns(RuntimeWarning, match=r"args\[0\].*an attribute of its own \(scale\)"):
        assert torch.equal(step(scaled), function(scaled))
    scaled.scale = 3.0
    assert torch.equal(step(scaled), function(scaled))
    assert torch.equal(step(plain), function(plain))
    assert (step.counters.captured, step.counters.replayed) == (1, 2)


def test_cached_properties_and_marks_of_dynamo_are_no_attributes(device: GraphDevice) -> None:
    dynamo = importlib.import_module("torch._dynamo")

    @dataclasses.dataclass
    class Lengths:
        values: Tensor

        @functools.cached_property
        def number(self) -> int:
            return len(self.values)

    step: Graphed = graphed(lambda lengths: lengths.values * lengths.number, device=device)
    for seed in range(3):
        lengths = Lengths(numbers(device, 4, seed=seed))
        dynamo.mark_dynamic(lengths.values, 0)
        assert torch.equal(step(lengths), lengths.values * 4)
        assert torch.equal(step(lengths), lengths.values * 4)
    assert step.counters.replayed == 5


def test_calls_of_several_signatures_in_any_order(device: GraphDevice) -> None:
    def function(*values: Any, scale: Any = 1) -> Tensor:
        found: Tensor = sum(value.sum() for value in values) * (2 if scale is True else scale)
        return found + torch.is_inference_mode_enabled()

    step: Graphed = graphed(function, device=device)
    calls: list[tuple[tuple[Tensor, ...], Any, bool]] = [
        (tuple(numbers(device, rows, seed=i) for i in range(count)), scale, is_inference)
        for count, rows, scale in [(1, 4, 1), (2, 4, 1), (2, 5, 1), (3, 4, True), (3, 4, 1.0)]
        for is_inference in (False, True)
    ]
    order = calls + calls[::-1] + calls[::2] + calls[1::2]
    for values, scale, is_inference in order:
        with torch.inference_mode(mode=is_inference):
            assert torch.equal(step(*values, scale=scale), function(*values, scale=scale))
    assert step.counters.captured == len(calls)
    assert step.counters.replayed == len(order) - len(calls)


class TestResults:
    def test_fresh_tensors_may_be_kept(self, device: GraphDevice) -> None:
        assert_captured(check(device, lambda x: (x + 1, [x * 2]), lambda s: (numbers(device, 4),)))

    def test_argument_that_is_returned_is_the_callers(self, device: GraphDevice) -> None:
        step: Graphed = graphed(lambda x: {"x": x, "y": x[1:]}, device=device)
        for seed in range(3):
            x = numbers(device, 4, seed=seed)
            result = step(x)
            assert result["x"] is x
            result["y"].zero_()
            assert x.tolist()[1:] == [0, 0, 0]
        assert_captured(step)

    def test_results_on_one_memory_share_it(self, device: GraphDevice) -> None:
        def function(x: Tensor) -> tuple[Tensor, ...]:
            whole = x + 1
            left, right = whole.chunk(2, dim=1)
            return right, whole, left, whole

        step = check(device, function, lambda s: (numbers(device, 2, 6, seed=s),))
        right, whole, left, again = step(numbers(device, 2, 6))
        assert whole is again
        whole.fill_(7)
        assert left.tolist() == right.tolist() == [[7] * 3] * 2
        assert_captured(step, replayed=3)

    def test_strides_are_those_of_eager_results(self, device: GraphDevice) -> None:
        def function(x: Tensor) -> tuple[Tensor, ...]:
            return (x + 1).t(), (x + 2)[:, 1:], (x[0] + 3).expand(5, 4), (x + 4)[:, 0]

        assert_captured(check(device, function, lambda s: (numbers(device, 3, 4, seed=s),)))

    def test_tensor_that_the_function_holds_is_returned_itself(self, device: GraphDevice) -> None:
        state = numbers(device, 4)
        before = state.clone()

        def function(x: Tensor) -> tuple[Tensor, Tensor]:
            state.add_(x)
            return state, state[1:]

        step: Graphed = graphed(function, device=device)
        for seed in range(4):
            x = numbers(device, 4, seed=seed)
            before += x
            whole, part = step(x)
            assert whole is state
            assert torch.equal(state, before)
            assert part.untyped_storage().data_ptr() == state.untyped_storage().data_ptr()
            assert torch.equal(part, before[1:])
        assert_captured(step, replayed=3)

    def test_plain_results_and_containers_are_new_each_time(self, device: GraphDevice) -> None:
        step: Graphed = graphed(lambda x: [x + 1, [1, 2], "text"], device=device)
        for _ in range(3):
            result = step(numbers(device, 4))
            assert result[1:] == [[1, 2], "text"]
            result[1].append(3)
        assert_captured(step)

    def test_weak_results_are_in_the_memory_of_the_graph(self, device: GraphDevice) -> None:
        step: Graphed = graphed(lambda x: (x + 1, x), device=device, copy_outputs=False)
        step(numbers(device, 4))
        places = set()
        for seed in range(3):
            x = numbers(device, 4, seed=seed)
            result, given = step(x)
            assert torch.equal(result, x + 1)
            assert given is x
            places.add(result.data_ptr())
        assert len(places) == 1


class TestWrites:
    def test_caller_sees_what_is_written_into_arguments(self, device: GraphDevice) -> None:
        def function(x: Tensor, y: Tensor, z: Tensor) -> Tensor:
            x[1:].mul_(2)
            torch.add(x, z, out=y)
            return y.sum()

        def make(seed: int) -> tuple[Tensor, ...]:
            return tuple(numbers(device, 9, 4, seed=seed + 10 * i)[1:5] for i in range(3))

        assert_captured(check(device, function, make))

    def test_argument_that_shares_memory_with_another_runs_eagerly(
        self, device: GraphDevice
    ) -> None:
        def function(x: Tensor, y: Tensor) -> Tensor:
            x.add_(1)
            return y * 2

        def make(seed: int) -> tuple[Tensor, Tensor]:
            memory = numbers(device, 6, seed=seed)
            return memory[:4], memory[2:]

        step = check(device, function, make)
        assert step.counters.eager == {EagerReason.FIRST_CALL: 1, EagerReason.SHARED_MEMORY: 2}
        rows = check(device, function, lambda s: tuple(numbers(device, 2, 4, seed=s)))
        assert rows.counters.eager == {EagerReason.FIRST_CALL: 1}
        apart = numbers(device, 4), numbers(device, 4, seed=1)
        assert torch.equal(step(*apart), apart[1] * 2)
        assert step.counters.replayed == 1

    def test_argument_on_memory_that_the_graph_writes_runs_eagerly(
        self, device: GraphDevice
    ) -> None:
        cache = numbers(device, 4, 4)
        expected = cache.clone()

        def function(row: Tensor, held: Tensor) -> Tensor:
            held[1].add_(row)
            return row * 2

        step: Graphed = graphed(lambda row: function(row, cache), device=device)
        for seed in range(6):
            row = cache[1] if seed % 2 else numbers(device, 4, seed=seed)
            other = expected[1] if seed % 2 else row.clone()
            assert torch.equal(step(row), function(other, expected)), seed
            assert torch.equal(cache, expected), seed
        assert step.counters.eager[EagerReason.SHARED_MEMORY] == 3

    def test_reading_views_of_one_tensor_needs_no_eager_call(self, device: GraphDevice) -> None:
        step = check(device, lambda x, y: x + y, lambda s: tuple(numbers(device, 2, 4, seed=s)))
        assert_captured(step)

    def test_uncopied_argument_is_used_where_it_is(self, device: GraphDevice) -> None:
        def function(x: Tensor, *, cache: Tensor) -> Tensor:
            cache[0].add_(x)
            return cache.sum(0)

        step: Graphed = graphed(function, device=device, uncopied=("cache",))
        caches = [numbers(device, 3, 4, seed=9) for _ in range(2)]
        expected = caches[0].clone()
        for seed in range(4):
            x = numbers(device, 4, seed=seed)
            eager = function(x, cache=expected)
            for cache in caches:
                assert torch.equal(step(x, cache=cache), eager)
                assert torch.equal(cache, expected)
        assert step.num_graphs == 2
        assert step.counters.replayed == 6

    def test_state_is_written_once_a_call(self, device: GraphDevice) -> None:
        state = torch.zeros(4, device=device.torch_device)

        def function(x: Tensor) -> Tensor:
            state.add_(x)
            return state * 2

        step: Graphed = graphed(function, device=device)
        one = torch.ones(4, device=device.torch_device)
        assert [step(one)[0].item() for _ in range(4)] == [2, 4, 6, 8]
        assert_captured(step, replayed=3)


@pytest.mark.parametrize("make", [copy.copy, copy.deepcopy, pickle.dumps])
def test_copies_are_refused_by_name(fake: FakeDevice, make: Callable[[object], object]) -> None:
    step: Graphed = graphed(torch.relu, device=fake, name="relu")
    x = numbers(fake, 4)
    for _ in range(2):
        step(x)
    with pytest.raises(TypeError, match=r"graphed function 'relu'.*call graphed\(\) on"):
        make(step)
    assert torch.equal(step(x), x.relu())


def refused(step: Graphed, *args: Any, **kwargs: Any) -> Any:
    with pytest.warns(RuntimeWarning, match="runs eagerly for some calls"):
        return step(*args, **kwargs)


class Foreign:
    def __init__(self, factor: float) -> None:
        self.factor = factor


class TestRefusals:
    """Calls that cannot be captured run eagerly, are counted, and raise if requested."""

    def test_object_of_an_unknown_class(self, device: GraphDevice) -> None:
        step: Graphed = graphed(lambda x, f: x * f.factor, device=device)
        x = numbers(device, 4)
        refused(step, x, Foreign(2.0))
        for factor in (2.0, 3.0):
            assert torch.equal(step(x, Foreign(factor)), x * factor)
        assert step.counters.eager == {EagerReason.UNSUPPORTED_INPUT: 3}
        raising: Graphed = graphed(lambda x, f: x * f.factor, device=device, strict=True)
        with pytest.raises(UnsupportedInputError, match=r"f is of type Foreign.*bind the object"):
            raising(x, f=Foreign(1.0))

    @pytest.mark.parametrize(
        ("make", "message"),
        [
            (lambda x: (x.view(-1).unfold(0, 4, 2),), "elements that share memory"),
            (lambda x: (x.to_sparse(),), "sparse"),
            (lambda x: (torch.complex(x, x).conj(),), "conjugated"),
            (lambda x: (torch.nn.Parameter(x),), "requires grad"),
        ],
    )
    def test_tensor_that_cannot_be_copied(
        self, fake: FakeDevice, make: Callable[[Tensor], tuple[Tensor]], message: str
    ) -> None:
        step: Graphed = graphed(lambda x: x * 2, device=fake)
        with torch.enable_grad():
            (x,) = make(numbers(fake, 4, 4))
            with pytest.warns(RuntimeWarning, match=message):
                step(x)
            for _ in range(2):
                found, expected = step(x), x * 2
                assert found.requires_grad == expected.requires_grad
                assert torch.equal(found.to_dense(), expected.to_dense())
        assert step.counters.eager == {EagerReason.CAPTURE_FAILED: 3}

    def test_host_tensor_together_with_a_device(self, npu: Any) -> None:
        step: Graphed = graphed(lambda x, y: x * y.sum().item(), device=npu)
        x = numbers(npu, 4)
        refused(step, x, torch.ones(2))
        assert torch.equal(step(x, torch.full((2,), 2.0)), x * 4)
        assert "lies on cpu, expected npu:0" in step.counters.failures[0]

    def test_weights_that_want_gradients(self, device: GraphDevice) -> None:
        layer = torch.nn.Linear(4, 4).to(device.torch_device)
        step: Graphed = graphed(layer, device=device)
        x = numbers(device, 2, 4)
        with torch.enable_grad():
            refused(step, x)
            step(x).sum().backward()
            assert layer.weight.grad is not None
        assert torch.equal(step(x), layer(x))
        assert torch.equal(step(x), layer(x))
        assert step.counters.replayed == 1

    def test_host_read(self, device: GraphDevice) -> None:
        step: Graphed = graphed(lambda x: x * x.sum().item(), device=device)
        x = numbers(device, 4)
        assert torch.equal(refused(step, x), x * x.sum().item())
        assert torch.equal(step(x + 1), (x + 1) * (x + 1).sum().item())
        assert step.counters.eager == {EagerReason.FIRST_CALL: 1, EagerReason.CAPTURE_FAILED: 1}

    def test_plain_result_that_changes(self, device: GraphDevice) -> None:
        calls = iter(range(100))
        step: Graphed = graphed(lambda x: (x + 1, next(calls)), device=device)
        x = numbers(device, 4)
        assert refused(step, x)[1] == 0
        assert [step(x)[1] for _ in range(2)] == [2, 3]  # the capture has called it too
        assert "other Python values" in step.counters.failures[0]

    def test_result_of_an_unknown_class(self, device: GraphDevice) -> None:
        step: Graphed = graphed(Foreign, device=device)
        assert refused(step, numbers(device, 4)).factor.shape == (4,)
        assert step.num_graphs == 0

    def test_argument_list_that_the_function_changes(self, device: GraphDevice) -> None:
        def function(x: Tensor, found: list[Tensor]) -> Tensor:
            found.append(x * 2)
            return x + 1

        step: Graphed = graphed(function, device=device)
        x, found = numbers(device, 4), [numbers(device, 4)]
        refused(step, x, found)
        assert len(found) == 2
        step(x, found)
        assert len(found) == 3

    def test_argument_whose_shape_the_function_changes(self, device: GraphDevice) -> None:
        step: Graphed = graphed(lambda x: x.unsqueeze_(0) + 1, device=device)
        x = numbers(device, 4)
        refused(step, x)
        assert x.shape == (1, 4)
        assert step.num_graphs == 0

    def test_workspace_made_in_the_capture(self, device: GraphDevice) -> None:
        made: list[Tensor] = []

        def function(x: Tensor) -> Tensor:
            made.append(x * 2)
            return made[-1] + 1

        step: Graphed = graphed(function, device=device)
        x = numbers(device, 4)
        refused(step, x)
        assert torch.equal(step(x), x * 2 + 1)
        assert KeptMemoryError.__name__ in step.counters.failures[0]

    def test_memory_of_the_host_that_the_function_counts_in(self, npu: Any) -> None:
        count = torch.zeros(())
        step: Graphed = graphed(lambda x: (count.add_(1), x * 2)[1], device=npu)
        x = numbers(npu, 4)
        refused(step, x)
        before = count.item()
        step(x)
        assert count.item() == before + 1
        assert "test_graphed.py" in step.counters.failures[0]

    def test_memory_of_the_host_that_the_function_makes_is_its_own(self, npu: Any) -> None:
        def function(x: Tensor) -> Tensor:
            factor = torch.zeros(3)
            factor[1:].fill_(2)
            return x * 2 + len(factor)

        step: Graphed = graphed(function, device=npu)
        for seed in range(3):
            x = numbers(npu, 4, seed=seed)
            assert torch.equal(step(x), function(x))
        assert_captured(step)

    def test_uncopied_that_is_a_text(self, device: GraphDevice) -> None:
        with pytest.raises(TypeError, match=r"uncopied is 'cache', expected a list.*\['cache'\]"):
            graphed(torch.neg, device=device, uncopied="cache")

    def test_no_graphs_at_all(self, device: GraphDevice) -> None:
        with pytest.raises(ValueError, match="most is 0, expected 1 or more"):
            graphed(torch.relu, device=device, most=0)


class Layer(torch.nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.scale = torch.nn.Parameter(torch.ones(4))
        self.dropped = torch.nn.Dropout(0.5)
        self.hidden_size = 4

    def forward(self, x: Tensor) -> Tensor:
        return x * self.scale + (1 if self.training else 2)


class TestWhatIsBakedIn:
    def test_signature_holds_types_signs_and_modes(self, device: GraphDevice) -> None:
        def function(x: Tensor, value: Any) -> Tensor:
            sign = -1.0 if str(value).startswith("-") else 1.0
            kind = {int: 1.0, bool: 2.0, float: 3.0, str: 4.0}[type(value)]
            return x * sign + kind + torch.is_inference_mode_enabled()

        step: Graphed = graphed(function, device=device)
        x = numbers(device, 4)
        for value in (1, True, 1.0, 0.0, -0.0, float("nan"), "1") * 2:
            assert torch.equal(step(x, value), function(x, value)), value
            with torch.inference_mode():
                assert torch.equal(step(x, value), function(x, value)), value
        assert step.num_graphs == 14
        assert step.counters.replayed == 14

    def test_modules_of_a_closure_are_captured_by_their_training_flags(
        self, device: GraphDevice
    ) -> None:
        modules = [Layer().to(device.torch_device) for _ in range(2)]
        step: Graphed = graphed(lambda x: modules[0](modules[1](x)), device=device)
        x = numbers(device, 4)
        for trained in ((), (0,), (1,), (0, 1)):
            for index, module in enumerate(modules):
                module.train(index in trained)
            for _ in range(3):
                assert torch.equal(step(x), modules[0](modules[1](x)))
        assert step.num_graphs == 4

    def test_module_is_captured_by_its_training_flag(self, device: GraphDevice) -> None:
        layer = Layer().to(device.torch_device)
        step: Graphed = graphed(layer, device=device)
        x = numbers(device, 4)
        for _ in range(2):
            layer.train()
            assert torch.equal(step(x), layer(x))
            layer.eval()
            assert torch.equal(step(x), layer(x))
        assert step.num_graphs == 2
        assert step.function is layer

    def test_weight_that_was_replaced_is_captured_again(self, npu: Any) -> None:
        layer = Layer().to(npu.torch_device)
        step: Graphed = graphed(layer, device=npu)
        x = numbers(npu, 4)
        for factor in range(4):
            layer.scale = torch.nn.Parameter(torch.full_like(layer.scale, float(factor)))
            for _ in range(2):
                assert torch.equal(step(x), layer(x))
        assert step.counters.captured == 4
        assert step.counters.replayed == 4

    def test_weight_that_is_replaced_at_each_call_ends_in_eager_calls(self, npu: Any) -> None:
        layer = Layer().to(npu.torch_device)
        step: Graphed = graphed(layer, device=npu)
        x = numbers(npu, 4)

        def call(factor: int) -> None:
            layer.scale = torch.nn.Parameter(torch.full_like(layer.scale, float(factor)))
            assert torch.equal(step(x), layer(x))

        for factor in range(9):
            call(factor)
        with pytest.warns(RuntimeWarning, match="were replaced 8 times"):
            call(9)
        for factor in range(10, 14):
            call(factor)
        assert step.counters.captured == 9
        assert step.counters.eager[EagerReason.CAPTURE_FAILED] == 5

    def test_autocast_is_part_of_the_signature_and_its_cache_is_not_used(self, npu: Any) -> None:
        layer = torch.nn.Linear(4, 4).to(npu.torch_device)
        step: Graphed = graphed(layer, device=npu)
        x = numbers(npu, 2, 4)
        for _ in range(3):
            assert step(x).dtype is torch.float32
            with torch.autocast("npu", dtype=torch.bfloat16):
                assert bits(step(x)) == bits(layer(x))
        assert step.counters.captured == 2
        assert step.counters.replayed == 4


class TestBound:
    def test_graph_that_was_not_used_for_the_longest_time_is_released(
        self, device: GraphDevice
    ) -> None:
        step: Graphed = graphed(lambda x: x + 1, device=device, most=2)
        for rows in (1, 2, 1, 3, 1, 2):
            x = numbers(device, rows)
            assert torch.equal(step(x), x + 1)
        counters = step.counters
        assert (counters.captured, counters.replayed, counters.released) == (4, 2, 2)
        assert step.num_graphs == 2
        step.release_all()
        assert step.num_graphs == 0
        assert torch.equal(step(numbers(device, 1)), numbers(device, 1) + 1)

    def test_call_that_finds_no_memory_releases_the_graph_used_least(self) -> None:
        device = FakeDevice(memory_bytes=1000)
        step: Graphed = graphed(lambda x: (x + 1) * 2, device=device)
        for rows in (50, 60, 50, 61, 50, 60):
            x = numbers(device, rows)
            assert torch.equal(step(x), (x + 1) * 2)
        assert step.counters.captured == 4
        assert step.counters.released == 2
        with pytest.warns(RuntimeWarning, match="OutOfDeviceMemoryError"):
            step(numbers(device, 500))
        assert step.num_graphs == 1
        before = step.counters
        step(numbers(device, 500))
        assert step.counters.released == before.released


class TestBreaks:
    def test_function_that_breaks(self, device: GraphDevice, context: GraphContext) -> None:
        @runs_eagerly(context)
        def attention(hidden: Tensor) -> Tensor:
            return hidden * float(hidden.sum())

        state = torch.zeros(4, device=device.torch_device)

        @graphed(device=device, breaks=context)
        def step(x: Tensor) -> tuple[Tensor, Tensor]:
            x.add_(1)
            state.add_(x)
            return attention(x * 2) + state, x

        expected = torch.zeros(4, device=device.torch_device)
        for seed in range(4):
            x = numbers(device, 4, seed=seed)
            other = x + 1
            expected += other
            result, given = step(x)
            assert given is x
            assert torch.equal(x, other)
            assert torch.equal(result, other * 2 * float((other * 2).sum()) + expected)
        assert step.counters.eager == {EagerReason.FIRST_CALL: 1}
        assert_captured(step)

    def test_buffer_that_an_eager_function_writes(
        self, device: GraphDevice, context: GraphContext
    ) -> None:
        @runs_eagerly(context)
        def fill(out: Tensor, value: Tensor) -> None:
            if float(value.sum()) > 0:
                out.copy_(value)

        def function(out: Tensor, x: Tensor) -> Tensor:
            fill(out[1:], x * 2)
            return out + 1

        def make(seed: int) -> tuple[Tensor, Tensor]:
            return numbers(device, 5, seed=9), numbers(device, 4, seed=seed).abs() * (seed - 1)

        check(device, function, make, breaks=context)

    def test_break_that_was_forgotten_is_raised_where_it_has_run(
        self, device: GraphDevice, context: GraphContext
    ) -> None:
        @runs_eagerly(context)
        def attention(hidden: Tensor) -> Tensor:
            return hidden * float(hidden.sum())

        def function(x: Tensor) -> Tensor:
            hidden = attention(x + 1)
            return hidden * float(hidden.sum())

        step: Graphed = graphed(function, device=device, breaks=context)
        x = numbers(device, 4)
        assert torch.equal(step(x), function(x))
        with pytest.raises(Exception, match="behind attention"):
            step(x)
        assert torch.equal(step(x), function(x))
        assert step.counters.eager[EagerReason.CAPTURE_FAILED] == 1

    def test_break_that_was_forgotten_before_anything_ran(
        self, device: GraphDevice, context: GraphContext
    ) -> None:
        step: Graphed = graphed(lambda x: x * float(x.sum()), device=device, breaks=context)
        x = numbers(device, 4)
        assert torch.equal(step(x), x * float(x.sum()))
        assert torch.equal(refused(step, x), x * float(x.sum()))
        assert torch.equal(step(x), x * float(x.sum()))

    def test_plain_result_that_changes_with_the_step(
        self, device: GraphDevice, context: GraphContext
    ) -> None:
        calls = iter(range(100))
        step: Graphed = graphed(lambda x: (x + 1, next(calls), x), device=device, breaks=context)
        x = numbers(device, 4)
        assert step(x)[1] == 0
        result = refused(step, x)
        assert result[1] == 1
        assert result[2] is x
        assert torch.equal(result[0], x + 1)
        assert step(x)[1] == 2


class TestWhereItIsCalled:
    def test_inside_another_capture_it_is_a_part_of_that(self, device: GraphDevice) -> None:
        inner: Graphed = graphed(lambda x: x + 1, device=device)
        outer: Graphed = graphed(lambda x: inner(x) * 2, device=device)
        for seed in range(3):
            x = numbers(device, 4, seed=seed)
            assert torch.equal(outer(x), (x + 1) * 2)
        assert outer.counters.replayed == 2
        assert inner.counters.eager[EagerReason.INSIDE_CAPTURE] == 1

    def test_function_that_calls_itself(self, device: GraphDevice) -> None:
        def function(x: Tensor, depth: int) -> Tensor:
            return x if depth == 0 else step(x + 1, depth - 1)

        step: Graphed = graphed(function, device=device)
        for seed in range(3):
            x = numbers(device, 4, seed=seed)
            assert torch.equal(step(x, 3), x + 1 + 1 + 1)
        assert step.counters.replayed == 2

    def test_calls_on_several_streams_are_ordered(self) -> None:
        device = FakeDevice(deadlock_timeout=5.0)
        step: Graphed = graphed(lambda x: (x + 1) * 2, device=device)
        blocked, gate = device.create_stream(), device.create_external_event()
        first, second = numbers(device, 4), numbers(device, 4, seed=1)
        step(first)
        with device.use_stream(blocked):
            gate.wait(blocked)
            kept = step(first)
        other = device.create_stream()
        with device.use_stream(other):
            found = step(second)
        gate.record(device.create_stream())
        device.synchronize()
        assert torch.equal(kept, (first + 1) * 2)
        assert torch.equal(found, (second + 1) * 2)

    def test_two_threads_take_turns(self, device: GraphDevice) -> None:
        step: Graphed = graphed(lambda x: (x + 1) * 2, device=device)
        step(numbers(device, 4))
        wrong: list[int] = []

        def run(number: int) -> None:
            with torch.no_grad():
                for seed in range(50):
                    x = numbers(device, 4, seed=100 * number + seed)
                    if not torch.equal(step(x), (x + 1) * 2):
                        wrong.append(seed)

        threads = [threading.Thread(target=run, args=(number,)) for number in range(3)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        assert not wrong
        assert step.counters.replayed + sum(step.counters.eager.values()) == 151
