"""One step of many also runs eagerly: differences are named, and the step has its usual effect."""

from __future__ import annotations

import contextlib
import random
from typing import TYPE_CHECKING, Any

import pytest
import torch
from torch import Tensor, nn

from npu_graph_runtime import (
    CaptureSession,
    FakeDevice,
    GraphContext,
    GraphDevice,
    GraphedCallable,
    GraphKey,
    RunMode,
    runs_captured,
    runs_eagerly,
)
from npu_graph_runtime.diagnosis import (
    DifferenceKind,
    FirstDifference,
    ShadowValidation,
    find_first_difference,
)
from npu_graph_runtime.errors import GraphNotCapturedError, ShadowDifferenceError
from npu_graph_runtime.failures.preserved_memory import PreservedMemory

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

KEY = GraphKey(num_tokens=4)
MODES = [RunMode.FULL, RunMode.PIECEWISE, RunMode.BREAKABLE]


@pytest.fixture(params=["fake", "npu"])
def device(request: pytest.FixtureRequest) -> GraphDevice:
    chosen: GraphDevice = request.getfixturevalue(request.param)
    return chosen


class Decoder(nn.Module):
    """A step with a cache, a counter, a running sum, and a state that is shifted."""

    cache: Tensor
    count: Tensor
    total: Tensor
    window: Tensor
    scratch: Tensor

    def __init__(self, context: GraphContext) -> None:
        super().__init__()
        self.scale = 2.0
        self.linear = nn.Linear(8, 8)
        self.register_buffer("cache", torch.zeros(16, 8))
        self.register_buffer("count", torch.zeros(1))
        self.register_buffer("total", torch.zeros(8))
        self.register_buffer("window", torch.zeros(4, 8))
        self.register_buffer("scratch", torch.zeros(4, 8))
        self._attention = runs_eagerly(context)(self._attend)
        self._mlp = runs_captured(context, "layers.0.mlp")(self._project)

    def _project(self, x: Tensor) -> Tensor:
        projected: Tensor = self.linear(x) * self.scale
        return projected

    def _attend(self, x: Tensor, slots: Tensor, out: Tensor) -> None:
        self.cache.index_copy_(0, slots, x)
        out.copy_(self.cache.mean(0, keepdim=True) + x)

    def forward(self, x: Tensor, slots: Tensor) -> Tensor:
        self.count.add_(1)
        out = torch.empty_like(x)
        self._attention(x, slots, out)
        self.scratch.copy_(out)
        self.scratch.mul_(2)
        self.window.copy_(torch.cat([self.window[1:], self.scratch[:1]]))
        self.total += self.window.sum(0)
        return self._mlp(self.scratch + self.total) + self.count


class Steps:
    """A captured decoder, and one step after another."""

    def __init__(
        self, device: GraphDevice, context: GraphContext, mode: RunMode, seed: int = 0
    ) -> None:
        torch.manual_seed(seed)
        where = device.torch_device
        self.model = Decoder(context).to(where)
        self.x = torch.zeros(4, 8, device=where)
        self.slots = torch.arange(4, device=where)
        self.graphed = GraphedCallable(
            self.model, device=device, context=context, run_mode=mode, name="decode"
        )
        self._context, self._mode, self._device = context, mode, device
        self.hosts = torch.Generator().manual_seed(seed)
        with torch.no_grad(), CaptureSession(device, context):
            self.call()
        for buffer in self.model.buffers():
            buffer.zero_()

    def fill(self) -> None:
        self.x.copy_(torch.rand(4, 8, generator=self.hosts))
        self.slots.copy_(torch.randperm(16, generator=self.hosts)[:4])

    def call(self) -> Tensor:
        with self._context.run(self._mode, KEY):
            result: Tensor = self.graphed(self.x, self.slots)
            return result

    def state(self) -> list[Tensor]:
        self._device.synchronize()
        return [buffer.cpu().clone() for buffer in self.model.buffers()]


@pytest.mark.parametrize("mode", MODES)
def test_200_steps_give_and_change_what_they_would_without_it(
    device: GraphDevice, context: GraphContext, mode: RunMode
) -> None:
    steps, plain = (Steps(device, each, mode) for each in (context, GraphContext()))
    validation = ShadowValidation([steps.graphed], every=3)
    with torch.no_grad():
        for _ in range(200):
            for each in (steps, plain):
                each.fill()
            result, expected = validation.run(steps.call), plain.call()
            device.synchronize()
            assert torch.equal(result, expected)
            for ours, theirs in zip(steps.state(), plain.state(), strict=True):
                assert torch.equal(ours, theirs)

    assert (validation.num_steps, validation.num_compared) == (200, 66)
    assert validation.num_different == 0
    assert steps.graphed.counters.replayed == 200


def test_eager_function_inside_another_is_a_part_of_it(
    device: GraphDevice, context: GraphContext
) -> None:
    @runs_eagerly(context)
    def inner(x: Tensor, out: Tensor) -> None:
        out.copy_(x + 1)

    @runs_eagerly(context)
    def outer(x: Tensor, out: Tensor) -> None:
        inner(x, out)

    def step(x: Tensor) -> Tensor:
        out = torch.empty_like(x)
        outer(x * 2, out)
        outer(out * 3, out)
        return out + 1

    graphed, call = captured(step, device, context, run_mode=RunMode.BREAKABLE)

    assert ShadowValidation([graphed], every=1).run(call).tolist() == [11.0] * 4
    assert find_first_difference(call, [graphed]) is None


@pytest.mark.parametrize("mode", MODES)
def test_value_fixed_at_capture_is_named(
    device: GraphDevice, context: GraphContext, mode: RunMode
) -> None:
    steps = Steps(device, context, mode)
    steps.fill()
    validation = ShadowValidation([steps.graphed], every=2)
    steps.model.scale = 3.0
    with torch.no_grad():
        validation.run(steps.call)
        with pytest.raises(ShadowDifferenceError, match=r"comparing step 2 .*'decode'") as refused:
            validation.run(steps.call)

    found = refused.value.difference
    assert found.kind is DifferenceKind.DIFFERED
    value = "layers.0.mlp: result" if mode is RunMode.BREAKABLE else "result"
    assert found.value == value
    assert validation.num_different == 1


@pytest.mark.parametrize("mode", MODES)
def test_step_continues_with_its_graphs_if_a_function_handles_the_difference(
    device: GraphDevice, context: GraphContext, mode: RunMode
) -> None:
    steps, plain = (Steps(device, each, mode) for each in (context, GraphContext()))
    told: list[FirstDifference] = []
    validation = ShadowValidation([steps.graphed], every=1, on_difference=told.append)
    steps.model.scale = plain.model.scale = 3.0
    with torch.no_grad():
        for _ in range(5):
            for each in (steps, plain):
                each.fill()
            result, expected = validation.run(steps.call), plain.call()
            device.synchronize()
            assert torch.equal(result, expected)
            for ours, theirs in zip(steps.state(), plain.state(), strict=True):
                assert torch.equal(ours, theirs)

    assert len(told) == validation.num_different == 5


def test_fixed_value_in_state_is_named_with_the_line_that_writes_it(
    device: GraphDevice, context: GraphContext
) -> None:
    total = torch.zeros(4, device=device.torch_device)
    scales = [1.0]

    def step(x: Tensor) -> Tensor:
        total.add_(x, alpha=scales[0])
        return x + 1

    graphed, call = captured(step, device, context)
    scales[0] = 2.0
    validation = ShadowValidation([graphed], every=1)

    with pytest.raises(ShadowDifferenceError, match=r"aten\.add_\.Tensor at .*test_shadow.*:\d+"):
        validation.run(call)


def captured(
    function: Callable[..., Any], device: GraphDevice, context: GraphContext, **options: Any
) -> tuple[GraphedCallable, Callable[[], Any]]:
    x = torch.ones(4, device=device.torch_device)
    run_mode = options.setdefault("run_mode", RunMode.FULL)
    graphed = GraphedCallable(function, device=device, context=context, name="step", **options)

    def call() -> Any:
        with context.run(run_mode, KEY):
            return graphed(x)

    with CaptureSession(device, context):
        call()
    return graphed, call


def _put(state: Tensor, x: Tensor) -> Tensor:
    return state.index_copy_(0, torch.arange(2, device=x.device), x[:2])


@pytest.mark.parametrize(
    "change",
    [
        lambda state, x: state.add_(x),
        lambda state, x: state.mul_(0.5).add_(x),
        lambda state, x: state.copy_(state.roll(1) + x),
        lambda state, x: state.index_put_((torch.arange(2, device=x.device),), x[:2], True),
        lambda state, x: state[1:].copy_(state[:-1].clone() + x[1:]),
        lambda state, x: torch.add(state, x, out=state),
        lambda state, x: state.lerp_(x * 3, 0.5),
        lambda state, x: (state[:2].copy_(x[:2]), state.add_(1)),
        lambda state, x: (state.fill_(1.0), state.add_(x)),
        lambda state, x: (state.add_(x), state[1:3].mul_(2), state.add_(1)),
        lambda state, x: (state[:2].mul_(2), state.add_(1), state[1:].copy_(state[:-1].clone())),
        lambda state, x: (_put(state, x), state * 2),
        lambda state, x: (state[:2].copy_(x[:2]), state.copy_(state.roll(1) + x)),
        lambda state, x: (state[0:3:2].copy_(x[:2]), state[1:4:2].copy_(state.sum().expand(2))),
        lambda state, x: (state[0:3:2].mul_(2), state[1:4:2].add_(1), state.copy_(state.roll(1))),
        lambda state, x: (_put(state, x), state.copy_(state.roll(1) + x)),
        lambda state, x: (_put(state, x), state[3:].copy_(state.sum(0, True))),
        lambda state, x: (state[::2].fill_(0), state[:3].copy_(state[:3].flip(0) + 1)),
        lambda state, x: torch.where(x > 0, state + 1, x, out=state),
        lambda state, x: torch._foreach_add_([state[:2], state[2:]], 1),
        lambda state, x: (state[0:3:2].mul_(2), state[1:2].add_(1), state.add_(1)),
    ],
)
def test_state_is_changed_once(
    device: GraphDevice, context: GraphContext, change: Callable[[Tensor, Tensor], Any]
) -> None:
    state = torch.arange(4.0, device=device.torch_device)

    def step(x: Tensor) -> Tensor:
        change(state, x)
        return state + x

    graphed, call = captured(step, device, context)
    state.copy_(torch.arange(4.0))
    call()
    device.synchronize()
    expected = state.cpu().clone()
    state.copy_(torch.arange(4.0))

    ShadowValidation([graphed], every=1).run(call)

    device.synchronize()
    assert torch.equal(state.cpu(), expected)


class RandomStep:
    """A step that reads and writes two states, and a view of one, in a random order."""

    def __init__(self, seed: int, device: torch.device) -> None:
        self.rng = random.Random(seed)
        base = torch.arange(1.0, 17.0, device=device)
        self.states = [base[:8].view(2, 4), base[4:12], torch.ones(2, 4, device=device)]
        self.base = base
        self.work = [self._draw() for _ in range(self.rng.randint(2, 7))]

    def reset(self) -> None:
        self.base.copy_(torch.arange(1.0, 17.0))
        self.states[2].fill_(1)

    def values(self) -> list[float]:
        return [*self.base.tolist(), *self.states[2].flatten().tolist()]

    def __call__(self, x: Tensor) -> Tensor:
        result = x.repeat(2)
        for work in self.work:
            result = work(result) % 97
        return result

    def _part(self) -> Tensor:
        """Draw a view: rows, every other element, a transposition, or all of a state."""
        flat = self.rng.choice(self.states).reshape(-1)
        begin, step = self.rng.randint(0, 5), self.rng.choice((1, 1, 2))
        return self.rng.choice((flat, flat[begin::step], flat[: begin + 1], flat.view(2, 4).t()))

    def _draw(self) -> Callable[[Tensor], Tensor]:
        part, other, number = self._part(), self._part(), self.rng.randint(1, 5)
        size = part.numel()
        indices = torch.tensor(self.rng.sample(range(size), (size + 1) // 2), device=part.device)

        def fitting(x: Tensor) -> Tensor:
            return x.flatten().repeat(8)[:size].view(part.shape)

        def index(x: Tensor, accumulate: bool) -> Tensor:
            if part.dim() == 1:
                part.index_put_((indices,), fitting(x)[indices], accumulate)
            return x

        writes: list[Callable[[Tensor], Any]] = [
            lambda x: part.add_(number),
            lambda x: part.mul_(number).remainder_(31),
            lambda x: part.copy_(fitting(x)),
            lambda x: part.copy_(fitting(other.clone() + 1)),
            lambda x: part.fill_(number),
            lambda x: part.lerp_(fitting(x), 0.5),
            lambda x: torch.add(fitting(x), number, out=part) if part.is_contiguous() else x,
            lambda x: index(x, accumulate=False),
            lambda x: index(x, accumulate=True),
            lambda x: part.masked_fill_(fitting(x) > 20, number),
            lambda x: torch._foreach_add_([part, other], number),
        ]
        write = self.rng.choice([*writes, None, None])
        if write is None:
            return lambda x: x + other.sum() + part.sum()
        return lambda x: (write(x), x + 1)[1]


def test_states_of_random_steps_are_changed_once(fake: FakeDevice) -> None:
    for seed in (203, *range(40)):
        step = RandomStep(seed, fake.torch_device)
        graphed, call = captured(step, fake, GraphContext())
        step.reset()
        expected = [call().tolist() + step.values() for _ in range(2)]
        step.reset()
        validation = ShadowValidation([graphed], every=1)

        found = [validation.run(call).tolist() + step.values() for _ in range(2)]

        assert found == expected, seed


@pytest.mark.parametrize(
    "fill",
    [
        lambda cache, x: cache.index_copy_(0, torch.arange(4, device=x.device), x),
        lambda cache, x: cache.index_put_((torch.arange(4, device=x.device),), x),
        lambda cache, x: cache[2:6].copy_(x),
        lambda cache, x: cache.view(2, 8)[0, :4].copy_(x),
        lambda cache, x: cache.scatter_(0, torch.arange(4, device=x.device), x),
    ],
)
def test_caches_are_written_twice_and_not_copied(
    device: GraphDevice,
    context: GraphContext,
    fill: Callable[[Tensor, Tensor], Any],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    cache = torch.zeros(16, device=device.torch_device)
    brought: list[str] = []

    def step(x: Tensor) -> Tensor:
        fill(cache, x * 2)
        return cache.sum() + x

    graphed, call = captured(step, device, context)
    bring_back = PreservedMemory.bring_back

    def seen(memory: PreservedMemory) -> Any:
        found = bring_back(memory)
        brought.extend(found)
        return found

    monkeypatch.setattr(PreservedMemory, "bring_back", seen)
    ShadowValidation([graphed], every=1).run(call)

    assert brought == []


def test_state_in_inference_mode_is_changed_once(
    device: GraphDevice, context: GraphContext
) -> None:
    with torch.inference_mode():
        state = torch.zeros(4, device=device.torch_device)
    graphed, call = captured(
        lambda x: torch.inference_mode()(lambda: state.add_(x).clone())(), device, context
    )
    before = state.cpu().clone()

    ShadowValidation([graphed], every=1).run(call)

    device.synchronize()
    assert torch.equal(state.cpu(), before + 1)


def test_key_that_is_not_captured_is_what_it_was(
    device: GraphDevice, context: GraphContext
) -> None:
    def open_session() -> CaptureSession:
        return CaptureSession(device, context)

    graphed, _ = captured(lambda x: x + 1, device, context, lazy_session=open_session)
    x = torch.ones(8, device=device.torch_device)

    def other() -> Any:
        with context.run(RunMode.FULL, GraphKey(num_tokens=8)):
            return graphed(x)

    validation = ShadowValidation([graphed], every=1)
    assert validation.run(other).tolist() == [2.0] * 8

    strict, _ = captured(lambda x: x + 1, device, context)

    def missing() -> Any:
        with context.run(RunMode.FULL, GraphKey(num_tokens=8)):
            return strict(x)

    with pytest.raises(GraphNotCapturedError):
        ShadowValidation([strict], every=1).run(missing)


def test_steps_that_run_eagerly_or_capture_are_left_alone(
    device: GraphDevice, context: GraphContext
) -> None:
    graphed, call = captured(lambda x: x + 1, device, context)
    validation = ShadowValidation([graphed], every=1)

    assert validation.run(lambda: "eager") == "eager"
    graphed.release_all()
    with CaptureSession(device, context):
        validation.run(call)
    assert graphed.is_captured(KEY)
    assert validation.num_compared == 1


def test_hook_around_replays_is_entered(device: GraphDevice, context: GraphContext) -> None:
    told: list[str] = []

    @contextlib.contextmanager
    def around(key: GraphKey) -> Iterator[None]:
        told.append(f"in {key.num_tokens}")
        yield
        told.append("out")

    graphed, call = captured(lambda x: x + 1, device, context, around_replay=around)
    ShadowValidation([graphed], every=1).run(call)

    assert told == ["in 4", "out"]


@pytest.mark.parametrize(("every", "number"), [(0, 1), (1, 0)])
def test_arguments_that_make_no_sense_are_refused(
    device: GraphDevice, context: GraphContext, every: int, number: int
) -> None:
    graphed, _ = captured(lambda x: x + 1, device, context)
    with pytest.raises(ValueError, match="expected at least 1 of both"):
        ShadowValidation([graphed] * number, every=every)
