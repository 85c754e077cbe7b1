"""Dependencies of a capture besides its arguments are rejected, watched or reported.

Runs on the real torch_npu, because graphs of the fake device keep the memory they use alive.
"""

from __future__ import annotations

import functools
import gc
import threading
import weakref
from argparse import Namespace
from collections import OrderedDict, UserDict, UserList, deque
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any

import pytest
import torch
from torch import Tensor, nn

from npu_graph_runtime import (
    AddressCheck,
    CaptureSession,
    FakeDevice,
    GraphContext,
    GraphDevice,
    GraphedCallable,
    GraphKey,
    KeptMemory,
    NpuDevice,
    RunMode,
    runs_eagerly,
)
from npu_graph_runtime.capturing.watching.capture_watch import BakedMemory
from npu_graph_runtime.errors import FrozenStateWarning, KeptMemoryError, ReplacedWeightError

if TYPE_CHECKING:
    from collections.abc import Callable

KEY = GraphKey(num_tokens=4)
MODES = [RunMode.FULL, RunMode.PIECEWISE, RunMode.BREAKABLE]


class Captured:
    """A function captured once, with its input."""

    def __init__(
        self,
        function: Callable[..., Any],
        device: GraphDevice,
        context: GraphContext,
        mode: RunMode = RunMode.FULL,
        **options: Any,
    ) -> None:
        self.device, self.context, self.mode = device, context, mode
        self.function = function
        self.x = torch.ones(4, 4, device=device.torch_device)
        self.graphed = GraphedCallable(
            function, device=device, context=context, run_mode=mode, name="step", **options
        )
        with CaptureSession(device, context), context.run(mode, KEY):
            self.graphed(self.x)

    def replay(self) -> Tensor:
        with self.context.run(self.mode, KEY):
            output: Tensor = self.graphed(self.x)
        self.device.synchronize()
        return output.clone()


# Memory that is first made inside a capture and kept outside.


class Holder:
    workspace: Tensor | None = None


def cached_in_attribute(device: torch.device) -> Callable[[], Tensor]:
    holder = Holder()

    def workspace() -> Tensor:
        if holder.workspace is None:
            holder.workspace = torch.zeros(4, 4, device=device)
        return holder.workspace

    return workspace


def cached_in_dict(device: torch.device) -> Callable[[], Tensor]:
    cache: dict[str, Tensor] = {}

    def workspace() -> Tensor:
        if "workspace" not in cache:
            cache["workspace"] = torch.zeros(4, 4, device=device)
        return cache["workspace"]

    return workspace


def cached_by_functools(device: torch.device) -> Callable[[], Tensor]:
    return functools.lru_cache(lambda: torch.zeros(4, 4, device=device))


CACHES = [cached_in_attribute, cached_in_dict, cached_by_functools]


@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize("cached", CACHES)
@pytest.mark.parametrize("device_name", ["npu", "fake"])
def test_memory_kept_outside_is_refused_with_the_line_that_made_it(
    request: pytest.FixtureRequest,
    context: GraphContext,
    mode: RunMode,
    cached: Callable[[torch.device], Callable[[], Tensor]],
    device_name: str,
) -> None:
    device: GraphDevice = request.getfixturevalue(device_name)
    workspace = cached(device.torch_device)

    with pytest.raises(
        KeptMemoryError,
        match=r"1 tensor made .* aten\.zeros\.default at .*test_capture_watch\.py:\d+",
    ):
        Captured(lambda x: x * 2 + workspace(), device, context, mode, warmup_runs=0)


@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize("cached", CACHES)
def test_memory_of_a_warm_up_run_belongs_to_no_graph(
    npu: NpuDevice,
    context: GraphContext,
    mode: RunMode,
    cached: Callable[[torch.device], Callable[[], Tensor]],
) -> None:
    workspace = cached(npu.torch_device)
    captured = Captured(lambda x: x * 2 + workspace(), npu, context, mode)

    captured.replay()
    workspace().fill_(7.0)

    assert captured.replay().tolist() == [[9.0] * 4] * 4
    assert workspace().tolist() == [[7.0] * 4] * 4


def test_kept_memory_only_warns_if_requested(npu: NpuDevice, context: GraphContext) -> None:
    workspace = cached_in_attribute(npu.torch_device)

    with pytest.warns(RuntimeWarning, match="kept as workspace.holder.workspace"):
        captured = Captured(
            lambda x: x * 2 + workspace(),
            npu,
            context,
            warmup_runs=0,
            kept_memory=KeptMemory.WARN,
        )

    assert captured.replay().tolist() == [[2.0] * 4] * 4


def test_outputs_in_an_object_of_any_class_are_no_kept_memory(
    npu: NpuDevice, context: GraphContext
) -> None:
    def step(x: Tensor) -> Holder:
        holder = Holder()
        holder.workspace = x * 2
        return holder

    captured = Captured(step, npu, context)

    with context.run(RunMode.FULL, KEY):
        found = captured.graphed(captured.x).workspace
    npu.synchronize()
    assert found.tolist() == [[2.0] * 4] * 4


def test_memory_for_backward_is_not_kept_memory(npu: NpuDevice, context: GraphContext) -> None:
    model = nn.Sequential(nn.Linear(4, 4), nn.ReLU(), nn.Linear(4, 4)).to("npu")

    captured = Captured(model, npu, context)

    torch.testing.assert_close(captured.replay(), model(captured.x))


def test_constant_that_the_function_makes_is_memory_of_the_capture(
    fake: FakeDevice, context: GraphContext
) -> None:
    cache: list[Tensor] = []
    captured = Captured(lambda x: x * torch.tensor([2.0, 3.0, 4.0, 5.0]), fake, context)
    gc.collect()
    assert captured.replay().tolist() == [[2.0, 3.0, 4.0, 5.0]] * 4

    def step(x: Tensor) -> Tensor:
        if not cache:
            cache.append(torch.tensor([2.0, 3.0, 4.0, 5.0]))
        return x * cache[0]

    captured.graphed.release_all()
    with pytest.raises(KeptMemoryError, match=r"test_capture_watch\.py:\d+, kept as cache\[0\]"):
        Captured(step, fake, context, warmup_runs=0)


def test_values_in_a_cycle_of_python_are_no_kept_memory(
    npu: NpuDevice, context: GraphContext
) -> None:
    def step(x: Tensor) -> Tensor:
        cycle: list[object] = [x * 3]
        cycle.append(cycle)
        return x * 2

    assert Captured(step, npu, context).replay().tolist() == [[2.0] * 4] * 4


# Attributes and buffers that the captured function rebinds.


class Counting(nn.Module):
    load: Tensor

    def __init__(self, how: str, device: torch.device) -> None:
        super().__init__()
        self.how = how
        if how == "buffer":
            self.register_buffer("load", torch.zeros(4, 4, device=device))
        else:
            self.load = torch.zeros(4, 4, device=device)

    def forward(self, x: Tensor) -> Tensor:
        if self.how == "written":
            self.load += x
        else:
            self.load = self.load + x
        return x * 1


class Alternating(nn.Module):
    """Reads one of two buffers and rebinds the name to the other, which both stay."""

    load: Tensor

    def __init__(self, device: torch.device) -> None:
        super().__init__()
        self.both = [torch.ones(4, 4, device=device), torch.zeros(4, 4, device=device)]
        self.register_buffer("load", self.both[0])

    def forward(self, x: Tensor) -> Tensor:
        found = x + self.load
        self.load = self.both[0] if self.load is self.both[1] else self.both[1]
        return found


@pytest.mark.parametrize("device_name", ["npu", "fake"])
def test_buffer_that_is_rebound_to_memory_that_stays_is_refused_at_the_capture(
    request: pytest.FixtureRequest, context: GraphContext, device_name: str
) -> None:
    device: GraphDevice = request.getfixturevalue(device_name)

    with pytest.raises(ReplacedWeightError, match=r"capturing 'step' .*1 of 1 weights .* load is"):
        Captured(Alternating(device.torch_device), device, context)


@pytest.mark.parametrize("is_old_kept", [False, True])
@pytest.mark.parametrize("warmup_runs", [0, 1])
@pytest.mark.parametrize("how", ["attribute", "buffer"])
@pytest.mark.parametrize("device_name", ["npu", "fake"])
def test_rebound_tensor_is_refused_at_the_capture(
    request: pytest.FixtureRequest,
    context: GraphContext,
    how: str,
    warmup_runs: int,
    is_old_kept: bool,
    device_name: str,
) -> None:
    device: GraphDevice = request.getfixturevalue(device_name)
    model = Counting(how, device.torch_device)
    kept = [model.load] if is_old_kept else []

    with pytest.raises(
        (ReplacedWeightError, KeptMemoryError), match=r"capturing 'step' .*(load|py:\d+)"
    ):
        Captured(model, device, context, warmup_runs=warmup_runs)
    del kept


def test_tensor_that_is_written_counts_at_each_replay(
    npu: NpuDevice, context: GraphContext
) -> None:
    model = Counting("written", npu.torch_device)
    captured = Captured(model, npu, context)
    model.load.zero_()

    for _ in range(3):
        captured.replay()

    assert model.load.tolist() == [[3.0] * 4] * 4


# Arguments of functions that run eagerly.


class Engine:
    def __init__(self, device: torch.device) -> None:
        self.cache = torch.ones(64, 4, device=device)


def attend(x: Tensor, cache: Tensor, out: Tensor) -> None:
    out.copy_(x + cache[:4])


@pytest.mark.parametrize("check", [AddressCheck.ALWAYS, AddressCheck.FIRST_REPLAY])
def test_replaced_argument_of_an_eager_function_is_named(
    npu: NpuDevice, context: GraphContext, check: AddressCheck
) -> None:
    engine, attention = Engine(npu.torch_device), runs_eagerly(context)(attend)

    def step(x: Tensor) -> Tensor:
        out = torch.empty_like(x)
        attention(x * 2, engine.cache, out)
        return out + 1

    captured = Captured(step, npu, context, RunMode.BREAKABLE, address_check=check)
    assert captured.replay().tolist() == [[4.0] * 4] * 4

    engine.cache = torch.full((64, 4), 5.0, device=npu.torch_device)

    with pytest.raises(
        ReplacedWeightError, match=r"engine\.cache, .* used by the call of attend, is freed"
    ):
        captured.replay()


def test_arguments_of_eager_functions_that_are_written_stay(
    npu: NpuDevice, context: GraphContext
) -> None:
    engine, attention = Engine(npu.torch_device), runs_eagerly(context)(attend)

    def step(x: Tensor) -> Tensor:
        out = torch.empty_like(x)
        attention(x * 2, engine.cache, out)
        return out + 1

    captured = Captured(step, npu, context, RunMode.BREAKABLE)

    engine.cache.fill_(5.0)

    assert captured.replay().tolist() == [[8.0] * 4] * 4
    captured.graphed.check_weights()


# Weights of callables that are no module, and memory that moved under its storage.


class Draft(nn.Module):
    index: Tensor

    def __init__(self) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.ones(4, 4), requires_grad=False)
        self.register_buffer("index", torch.arange(4))
        self.plain = torch.arange(4).to("npu")
        self.listed = [torch.ones(4).to("npu")]

    def forward(self, x: Tensor) -> Tensor:
        x = torch.relu(x @ self.weight).index_select(1, self.index)
        return x.index_select(1, self.plain) * self.listed[0]


def as_method(model: Draft) -> Callable[..., Any]:
    return model.forward


def as_lambda(model: Draft) -> Callable[..., Any]:
    return lambda x: model(x) * 1


def as_partial(model: Draft) -> Callable[..., Any]:
    return functools.partial(model)


def as_item(model: Draft) -> Callable[..., Any]:
    models = {"draft": [model]}
    return lambda x: models["draft"][0](x) * 1


WRAPPED = [as_method, as_lambda, as_partial, as_item]


def replace_weight(model: Draft) -> Tensor:
    old = model.weight
    model.weight = nn.Parameter(torch.full((4, 4), 2.0).to("npu"), requires_grad=False)
    return old


def replace_plain(model: Draft) -> Tensor:
    old, model.plain = model.plain, torch.arange(4).flip(0).to("npu")
    return old


def replace_listed(model: Draft) -> Tensor:
    old, model.listed[0] = model.listed[0], torch.full((4,), 2.0).to("npu")
    return old


REPLACEMENTS = [
    (replace_weight, r"weight"),
    (replace_plain, r"plain"),
    (replace_listed, r"listed\[0\]"),
]


@pytest.mark.parametrize("wrap", WRAPPED)
@pytest.mark.parametrize(("replace", "named"), REPLACEMENTS)
def test_freed_memory_of_any_callable_is_named_at_the_next_replay(
    npu: NpuDevice,
    context: GraphContext,
    wrap: Callable[[Draft], Callable[..., Any]],
    replace: Callable[[Draft], Tensor],
    named: str,
) -> None:
    model = Draft().to("npu")
    captured = Captured(wrap(model), npu, context)
    captured.replay()

    replace(model)

    with pytest.raises(ReplacedWeightError, match=named):
        captured.replay()


@pytest.mark.parametrize("wrap", WRAPPED)
@pytest.mark.parametrize(("replace", "named"), REPLACEMENTS)
def test_replaced_tensor_whose_old_memory_is_kept_is_found_by_a_check(
    npu: NpuDevice,
    context: GraphContext,
    wrap: Callable[[Draft], Callable[..., Any]],
    replace: Callable[[Draft], Tensor],
    named: str,
) -> None:
    model = Draft().to("npu")
    captured = Captured(wrap(model), npu, context)
    captured.replay()
    captured.graphed.check_weights()

    old = replace(model)

    with pytest.raises(ReplacedWeightError, match=named):
        captured.graphed.check_weights()
    del old


def in_local(table: Tensor) -> threading.local:
    holder = threading.local()
    holder.table = table
    return holder


HOLDERS: list[tuple[Callable[[Tensor], Any], Callable[[Any], Tensor], Callable[..., None]]] = [
    (lambda t: SimpleNamespace(table=t), lambda h: h.table, lambda h, t: setattr(h, "table", t)),
    (lambda t: Namespace(table=t), lambda h: h.table, lambda h, t: setattr(h, "table", t)),
    (in_local, lambda h: h.table, lambda h, t: setattr(h, "table", t)),
    (lambda t: deque([t]), lambda h: h[0], lambda h, t: h.__setitem__(0, t)),
    (lambda t: UserList([t]), lambda h: h[0], lambda h, t: h.__setitem__(0, t)),
    (lambda t: UserDict(table=t), lambda h: h["table"], lambda h, t: h.update(table=t)),
    (lambda t: OrderedDict(table=t), lambda h: h["table"], lambda h, t: h.update(table=t)),
]


@pytest.mark.parametrize(("make", "get", "put"), HOLDERS)
def test_tensor_in_an_object_of_pythons_library_is_found_by_a_check(
    npu: NpuDevice,
    context: GraphContext,
    make: Callable[[Tensor], Any],
    get: Callable[[Any], Tensor],
    put: Callable[..., None],
) -> None:
    holder = make(torch.ones(4).to("npu"))
    captured = Captured(lambda x: x * get(holder), npu, context)
    captured.replay()
    captured.graphed.check_weights()

    old = get(holder)
    put(holder, torch.full((4,), 2.0).to("npu"))

    with pytest.raises(ReplacedWeightError):
        captured.graphed.check_weights()
    del old


def resize_away(weight: Tensor) -> int:
    num_bytes = weight.untyped_storage().nbytes()
    weight.untyped_storage().resize_(0)
    return num_bytes


@pytest.mark.parametrize("check", [AddressCheck.ALWAYS, AddressCheck.FIRST_REPLAY])
@pytest.mark.parametrize("has_compiler", [True, False])
@pytest.mark.parametrize("is_nested", [True, False])
def test_memory_that_moved_under_its_storage_is_named_at_a_replay(
    npu: NpuDevice,
    context: GraphContext,
    monkeypatch: pytest.MonkeyPatch,
    check: AddressCheck,
    has_compiler: bool,
    is_nested: bool,
) -> None:
    if not has_compiler:
        monkeypatch.setattr(CaptureSession, "native_comparison", None)
    model = Draft().to("npu")
    tensors = [model.weight, model.index, model.plain, model.listed[0]]

    def step(x: Any) -> Tensor:
        output: Tensor = model(x[0] if is_nested else x)
        return output

    x = torch.ones(4, 4, device="npu")
    graphed = GraphedCallable(
        step,
        device=npu,
        context=context,
        run_mode=RunMode.FULL,
        name="step",
        address_check=check,
    )
    given = [x] if is_nested else x
    with CaptureSession(npu, context), context.run(RunMode.FULL, KEY):
        graphed(given)
    with context.run(RunMode.FULL, KEY):
        for _ in range(3):
            graphed(given)
    npu.synchronize()

    sizes = [resize_away(tensor) for tensor in tensors]

    with context.run(RunMode.FULL, KEY), pytest.raises(ReplacedWeightError, match="no memory now"):
        graphed(given)

    blocker = [torch.empty(512, dtype=torch.uint8, device="npu") for _ in range(8)]
    for tensor, size in zip(tensors, sizes, strict=True):
        tensor.untyped_storage().resize_(size)
    with context.run(RunMode.FULL, KEY), pytest.raises(ReplacedWeightError, match="has its memory"):
        graphed(given)
    with pytest.raises(ReplacedWeightError, match="has its memory"):
        graphed.check_weights()
    del blocker


@pytest.mark.parametrize("has_compiler", [True, False])
def test_one_moved_tensor_is_found_within_one_replay_per_tensor(
    npu: NpuDevice, context: GraphContext, monkeypatch: pytest.MonkeyPatch, has_compiler: bool
) -> None:
    if not has_compiler:
        monkeypatch.setattr(CaptureSession, "native_comparison", None)
    model = Draft().to("npu")
    captured = Captured(as_lambda(model), npu, context)
    captured.replay()

    resize_away(model.listed[0])

    def replay_as_often_as_there_are() -> None:
        for _ in range(4):
            captured.replay()

    for _ in range(2):
        with pytest.raises(ReplacedWeightError, match=r"listed\[0\]"):
            replay_as_often_as_there_are()


def test_never_compares_nothing(npu: NpuDevice, context: GraphContext) -> None:
    model = Draft().to("npu")
    captured = Captured(model.forward, npu, context, address_check=AddressCheck.NEVER)

    replace_listed(model)

    captured.replay()
    captured.graphed.check_weights()


def test_memory_made_in_another_capture_of_the_session_is_the_pools(
    npu: NpuDevice, context: GraphContext
) -> None:
    x = torch.ones(4, 4, device="npu")
    first, second = (
        GraphedCallable(
            function, device=npu, context=context, run_mode=RunMode.PIECEWISE, name=name
        )
        for name, function in (("first", lambda x: {"a": x * 2}), ("second", lambda x: x["a"] + 1))
    )
    with CaptureSession(npu, context), context.run(RunMode.PIECEWISE, KEY):
        second(first(x))

    for _ in range(2):
        with context.run(RunMode.PIECEWISE, KEY):
            found = second(first(x))
        npu.synchronize()
        assert found.tolist() == [[3.0] * 4] * 4


def test_unused_graphs_are_freed_with_their_callable(npu: NpuDevice, context: GraphContext) -> None:
    model = Draft().to("npu")
    captured = Captured(model, npu, context)
    graph = weakref.ref(captured.graphed.graph_of(KEY))

    del captured

    assert graph() is None


# Python state.


class Cache(nn.Module):
    num_seen = 0

    def __init__(self) -> None:
        super().__init__()
        self.length = 0
        self.history: list[int] = []

    def forward(self, x: Tensor) -> Tensor:
        self.length += 1
        self.history.append(self.length)
        type(self).num_seen += 1
        return x * 2


def test_python_state_that_the_captured_function_changes_is_warned_of(
    fake: FakeDevice, context: GraphContext
) -> None:
    with pytest.warns(FrozenStateWarning) as warned:
        Captured(Cache(), fake, context)

    (message,) = [str(each.message) for each in warned]
    assert "3 values of Python" in message
    assert "length was 1, is 2" in message
    assert "history was a list of 1, is a list of 2" in message
    assert "Cache.num_seen was" in message


def test_python_state_of_an_argument_is_warned_of(fake: FakeDevice, context: GraphContext) -> None:
    cache = Cache()
    graphed = GraphedCallable(
        lambda x, *, cache: cache(x),
        device=fake,
        context=context,
        run_mode=RunMode.FULL,
        name="step",
    )

    with (
        CaptureSession(fake, context),
        context.run(RunMode.FULL, KEY),
        pytest.warns(FrozenStateWarning, match=r"cache\.length was 1, is 2"),
    ):
        graphed(torch.ones(4), cache=cache)


@pytest.mark.filterwarnings("error::npu_graph_runtime.errors.FrozenStateWarning")
def test_state_that_warm_up_runs_and_eager_functions_change_is_not(
    fake: FakeDevice, context: GraphContext
) -> None:
    counts = {"first": 0, "eager": 0}

    @runs_eagerly(context)
    def eager(x: Tensor) -> Tensor:
        counts["eager"] += 1
        return x + 1

    def step(x: Tensor) -> Tensor:
        if not counts["first"]:
            counts["first"] = 1
        return eager(x * 2) * 2

    captured = Captured(step, fake, context, RunMode.BREAKABLE)

    captured.replay()
    assert counts == {"first": 1, "eager": 3}


# Lazy bits.


@pytest.mark.parametrize("device_name", ["fake", "npu"])
@pytest.mark.parametrize("mode", [RunMode.FULL, RunMode.BREAKABLE])
def test_weak_outputs_that_are_lazy_views_keep_their_values(
    request: pytest.FixtureRequest, context: GraphContext, device_name: str, mode: RunMode
) -> None:
    device: GraphDevice = request.getfixturevalue(device_name)
    x = torch.view_as_complex(torch.ones(4, 2)).to(device.torch_device)

    def step(x: Tensor) -> tuple[Tensor, Tensor]:
        doubled = torch.view_as_complex(torch.view_as_real(x) * 2)
        return doubled.conj(), doubled.conj().imag

    graphed = GraphedCallable(step, device=device, context=context, run_mode=mode, name="step")
    with CaptureSession(device, context), context.run(mode, KEY):
        graphed(x)
    with context.run(mode, KEY):
        conjugate, negated = graphed(x)
    device.synchronize()

    assert (conjugate.is_conj(), negated.is_neg()) == (True, True)
    assert conjugate.cpu().resolve_conj().tolist() == [2 - 2j] * 4
    assert negated.cpu().resolve_neg().tolist() == [-2.0] * 4


@pytest.mark.parametrize("has_compiler", [True, False])
@pytest.mark.parametrize("is_nested", [True, False])
def test_tensor_that_is_on_other_memory_takes_no_time_at_each_replay(
    npu: NpuDevice,
    context: GraphContext,
    monkeypatch: pytest.MonkeyPatch,
    has_compiler: bool,
    is_nested: bool,
) -> None:
    if not has_compiler:
        monkeypatch.setattr(CaptureSession, "native_comparison", None)
    engine = Engine(npu.torch_device)
    others = [torch.ones(4, 4, device="npu") for _ in range(3)]

    def step(x: Any) -> Tensor:
        value: Tensor = x[0] if is_nested else x
        return value + engine.cache[:4] + others[0] + others[1] + others[2]

    graphed = GraphedCallable(step, device=npu, context=context, run_mode=RunMode.FULL, name="step")
    checks: list[bool] = []
    check = BakedMemory.check

    def counted(memory: BakedMemory, **options: Any) -> None:
        checks.append(True)
        check(memory, **options)

    monkeypatch.setattr(BakedMemory, "check", counted)
    x = torch.ones(4, 4, device="npu")
    given = [x] if is_nested else x
    with CaptureSession(npu, context), context.run(RunMode.FULL, KEY):
        graphed(given)
    with context.run(RunMode.FULL, KEY):
        graphed(given)
        checks.clear()
        kept = engine.cache.detach()
        engine.cache.data = torch.zeros(64, 4, device="npu")
        outputs = [graphed(given) for _ in range(12)]
    npu.synchronize()

    # The graph still uses the memory of the capture, which is there.
    assert outputs[-1].tolist() == [[5.0] * 4] * 4
    assert kept[0, 0] == 1
    assert len(checks) == 3


@pytest.mark.parametrize("device_name", ["fake", "npu"])
def test_break_that_fails_inside_an_operator_of_python_leaves_no_mode_behind(
    request: pytest.FixtureRequest, context: GraphContext, device_name: str
) -> None:
    device: GraphDevice = request.getfixturevalue(device_name)
    fails = [True]

    @runs_eagerly(context)
    def eager(x: Tensor) -> Tensor:
        if fails[0]:
            raise ValueError("not yet")
        return x + 1

    @torch.library.custom_op(f"capture_watch::breaks_{device_name}", mutates_args=())
    def breaks(x: Tensor) -> Tensor:
        found: Tensor = eager(x * 2)
        return found * 3

    step = GraphedCallable(
        lambda x: breaks(x + 1) + 1,
        device=device,
        context=context,
        run_mode=RunMode.BREAKABLE,
        name="step",
        warmup_runs=0,
    )
    x = torch.ones(4, device=device.torch_device)

    with CaptureSession(device, context), context.run(RunMode.BREAKABLE, KEY):
        with pytest.raises(ValueError, match="not yet"):
            step(x)
        assert torch.ones(2).tolist() == [1.0, 1.0]
        fails[0] = False
        step(x)

    with context.run(RunMode.BREAKABLE, KEY):
        found = step(x)
    device.synchronize()
    assert found.tolist() == [16.0] * 4
    assert torch.ones(2).tolist() == [1.0, 1.0]
