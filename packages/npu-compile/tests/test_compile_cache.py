"""The compile cache: which compilations are reused, and which must not be."""

from __future__ import annotations

import contextlib
import functools
import importlib
import os
import re
import subprocess
import sys
import types
from typing import TYPE_CHECKING, Any, ClassVar, cast

import pytest
import torch

import npu_compile
from npu_compile import CompileConfig, ConfigError
from npu_compile.caching import cache_key
from npu_compile.caching.code_reader import CodeReader
from npu_compile.caching.uncacheable import UncacheableError
from npu_graph_runtime import FakeDevice, GraphKey, RunMode

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

    from conftest import AttentionOperator, Decoder

# One model that reads its constants in as many ways as models do.
BASE = """
import dataclasses
import enum
import functools
import os

import torch
from torch import nn

import cached_numbers

GLOBAL = 3.0
TABLE = {"scale": 2.0, "other": 7}


class Kind(enum.Enum):
    ADD = 1
    SUB = 2


@dataclasses.dataclass(frozen=True)
class Options:
    eps: float = 0.5
    sizes: tuple = (2, 6)
    kind: Kind = Kind.ADD
    name: str = "tanh"

    @property
    def width(self):
        return sum(self.sizes)


def helper(x, factor=2.0):
    return x * factor


def decorated(function):
    @functools.wraps(function)
    def wrapper(*args):
        return function(*args) + 1.0
    return wrapper


@decorated
def other(x):
    return x - 0.25


def make_adder(amount):
    def add(x):
        return x + amount
    return add


class Mixin:
    shift = 1.0

    def moved(self, x):
        return x + self.shift


class Inner(nn.Module):
    def __init__(self):
        super().__init__()
        self.linear = nn.Linear(8, 8, bias=True)
        self.norm = nn.LayerNorm(8, eps=1e-3)
        self.drop = nn.Dropout(0.5)

    def forward(self, x, *, power=2):
        return self.norm(self.linear(self.drop(x))) ** power


class Model(Mixin, nn.Module):
    constant = 5

    def __init__(self):
        super().__init__()
        torch.manual_seed(0)
        self.options = Options()
        self.inner = nn.ModuleList([Inner(), Inner()])
        self.weight = nn.Parameter(torch.randn(8, 8), requires_grad=False)
        self.tied = nn.Parameter(torch.randn(8, 8), requires_grad=False)
        self.flag = True
        self.zero = 0.0
        self.extra = [1.0, 2.0]
        self.add = make_adder(0.125)
        self.requires_grad_(False)
        self.eval()

    def forward(self, x):
        x = helper(x) + other(x) + GLOBAL + cached_numbers.NUMBER + cached_numbers.number(x)
        x = self.moved(x) * TABLE["scale"] + self.constant
        x = self.add(x) + self.options.eps
        for inner in self.inner:
            x = inner(x)
        if self.flag:
            x = x @ self.weight + x @ self.tied
        left, right = x.split(self.options.sizes, -1)
        x = torch.cat([right, left], -1) / self.options.width
        if self.options.kind is Kind.ADD:
            x = x + 1
        x = getattr(torch, self.options.name)(x)
        return x * sum(self.extra) + torch.full((8,), self.zero).reciprocal().clamp(-2, 2)


def make():
    return Model()
"""
NUMBERS = """
NUMBER = 11.0


def number(x):
    return x.sum() * 0 + 13.0
"""


def _load(text: str, numbers: str = NUMBERS) -> Any:
    """Return a new model of a module of this text, as another process would have it."""
    for name, source in (("cached_numbers", numbers), ("cached_model", text)):
        # One module for all texts: Dynamo keeps the one that it first found under a name.
        module = sys.modules.setdefault(name, types.ModuleType(name))
        vars(module).clear()
        vars(module).update(__name__=name, __file__=f"/nowhere/{name}.py")
        exec(compile(source, f"/nowhere/{name}.py", "exec"), vars(module))
    return sys.modules["cached_model"].make()


def _compiled(model: Callable[..., Any], folder: Path, **options: Any) -> npu_compile.CompiledModel:
    return npu_compile.compile_model(
        model,
        # A pipeline's hash takes longer than all else of these tests; a whole graph without one is
        # what mode `piecewise` has for eager calls.
        {
            "cache_folder": folder,
            "fuse": False,
            "mode": "piecewise",
            "splitting_ops": ["a::b"],
            **options,
        },
        device=FakeDevice(),
        dynamic_arg_dims={"x": (0,)} if isinstance(model, torch.nn.Module) else None,
    )


def _cache_lines(compiled: npu_compile.CompiledModel) -> list[str]:
    return [str(report.cache) for report in compiled.reports]


def _is_hit(compiled: npu_compile.CompiledModel) -> bool:
    (line,) = _cache_lines(compiled)
    return line.startswith("from the compile cache")


X = torch.linspace(-1, 1, 32).reshape(4, 8)


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return a cache that has the base model."""
    folder = tmp_path_factory.mktemp("cache")
    for fuse in (False, True):
        compiled = _compiled(_load(BASE), folder, fuse=fuse)
        compiled(X)
        assert "put into the compile cache" in _cache_lines(compiled)[0]
    return folder


def test_equal_model_is_found_without_dynamo(
    folder: Path,
) -> None:
    model = _load(BASE)
    compiled = _compiled(model, folder, fuse=True)
    torch._dynamo.utils.counters.clear()

    for rows in (4, 7, 4, 2):
        x = torch.randn(rows, 8)
        torch.testing.assert_close(compiled(x), model(x), rtol=0, atol=0)

    assert _is_hit(compiled)
    assert compiled.reports[0].fusions is not None
    assert not torch._dynamo.utils.counters["stats"]


def test_comment_and_place_of_the_code_do_not_matter(
    folder: Path,
) -> None:
    model = _load(BASE.replace("def helper", "\n\n# a comment\ndef helper"))
    compiled = _compiled(model, folder)

    torch.testing.assert_close(compiled(X), model(X), rtol=0, atol=0)

    assert _is_hit(compiled)


CHANGES = {
    "helper's code": ("return x * factor", "return x + factor"),
    "helper's default": ("factor=2.0", "factor=2.5"),
    "keyword default": ("power=2", "power=3"),
    "decorated function": ("return x - 0.25", "return x - 0.75"),
    "decorator": ("function(*args) + 1.0", "function(*args) + 1.5"),
    "closure": ("make_adder(0.125)", "make_adder(0.25)"),
    "closure's code": ("return x + amount", "return x - amount"),
    "global constant": ("GLOBAL = 3.0", "GLOBAL = 4.0"),
    "type of a global": ("GLOBAL = 3.0", "GLOBAL = 3"),
    "value in a global dict": ('"scale": 2.0', '"scale": 3.0'),
    "field of a dataclass": ("eps: float = 0.5", "eps: float = 0.75"),
    "tuple of sizes": ("sizes: tuple = (2, 6)", "sizes: tuple = (3, 5)"),
    "property": ("return sum(self.sizes)", "return len(self.sizes)"),
    "enum member": ("kind: Kind = Kind.ADD", "kind: Kind = Kind.SUB"),
    "string": ('name: str = "tanh"', 'name: str = "sigmoid"'),
    "attribute of a base class": ("shift = 1.0", "shift = 2.0"),
    "method of a base class": ("return x + self.shift", "return x - self.shift"),
    "class attribute": ("constant = 5", "constant = 6"),
    "boolean attribute": ("self.flag = True", "self.flag = False"),
    "sign of zero": ("self.zero = 0.0", "self.zero = -0.0"),
    "element of a list": ("self.extra = [1.0, 2.0]", "self.extra = [1.0, 4.0]"),
    "length of a list": ("self.extra = [1.0, 2.0]", "self.extra = [1.0, 2.0, 3.0]"),
    "number of layers": ("[Inner(), Inner()]", "[Inner()]"),
    "eps of torch's norm": ("eps=1e-3", "eps=0.5"),
    "no bias": ("bias=True", "bias=False"),
    "order of layers": ("self.norm(self.linear(", "self.linear(self.norm("),
    "training": (
        "self.eval()",
        "self.train()\n        for inner in self.inner: inner.drop.p = 0.0",
    ),
    "requires_grad": ("self.requires_grad_(False)", "self.weight.requires_grad_(True)"),
    "tied weights": ("self.flag = True", "self.flag = True; self.tied = self.weight"),
    "strides of a weight": (
        "self.flag = True",
        "self.flag = True; self.weight.data = self.weight.data.t().contiguous().t()",
    ),
    "dtype of a weight": (
        "self.flag = True",
        "self.flag = False; self.weight.data = self.weight.data.double()",
    ),
    "instance's own forward": (
        "self.flag = True",
        "self.flag = True; self.inner[0].forward = lambda x: x * 2",
    ),
    "hook": (
        "self.flag = True",
        "self.flag = True; self.inner[0].register_forward_hook(lambda m, a, out: out + 1)",
    ),
    "other class of a layer": (
        "self.flag = True",
        "self.flag = True; self.inner[0].norm = nn.RMSNorm(8, eps=1e-3)",
    ),
}


@pytest.fixture
def without_dynamo() -> Iterator[None]:
    """Make Dynamo run functions eagerly, so that compilations missing from the cache are fast."""
    with torch.compiler.set_stance("force_eager"):
        yield


@pytest.mark.usefixtures("without_dynamo")
def test_base_model_is_found_where_dynamo_does_nothing(
    folder: Path,
) -> None:
    compiled = _compiled(_load(BASE), folder)

    compiled(X)

    assert _is_hit(compiled)


@pytest.mark.usefixtures("without_dynamo")
@pytest.mark.parametrize("change", CHANGES)
def test_changed_model_is_not_found_and_is_right(folder: Path, change: str) -> None:
    old, new = CHANGES[change]
    assert old in BASE
    model = _load(BASE.replace(old, new))
    compiled = _compiled(model, folder)

    torch.testing.assert_close(compiled(X), model(X), rtol=0, atol=0)

    assert compiled.reports == ()


@pytest.mark.usefixtures("without_dynamo")
@pytest.mark.parametrize(("old", "new"), [("NUMBER = 11.0", "NUMBER = 12.0"), ("+ 13.0", "+ 14.0")])
def test_changed_module_that_the_model_reads_is_not_found(folder: Path, old: str, new: str) -> None:
    model = _load(BASE, NUMBERS.replace(old, new))
    compiled = _compiled(model, folder)

    torch.testing.assert_close(compiled(X), model(X), rtol=0, atol=0)

    assert compiled.reports == ()


CALLS: dict[str, Callable[[], tuple[tuple[Any, ...], dict[str, Any]]]] = {
    "one row": lambda: ((X[:1],), {}),
    "no row": lambda: ((X[:0],), {}),
    "by keyword": lambda: ((), {"x": X}),
    "strides": lambda: ((X.t().contiguous().t(),), {}),
    "view of a larger one": lambda: ((torch.cat([X, X], -1)[:, :8],), {}),
    "gradient": lambda: ((X.clone().requires_grad_(),), {}),
    "subclass": lambda: ((X.clone().as_subclass(type("Sub", (torch.Tensor,), {})),), {}),
    "parameter": lambda: ((torch.nn.Parameter(X, requires_grad=False),), {}),
}


@pytest.mark.usefixtures("without_dynamo")
@pytest.mark.parametrize("call", CALLS)
def test_other_call_is_not_found(folder: Path, call: str) -> None:
    model = _load(BASE)
    compiled = _compiled(model, folder)
    args, kwargs = CALLS[call]()

    with torch.no_grad():
        torch.testing.assert_close(compiled(*args, **kwargs), model(*args, **kwargs))

    assert compiled.reports == ()


def _doubled(function: Callable[..., torch.Tensor]) -> Callable[..., torch.Tensor]:
    @functools.wraps(function)
    def wrapper(*args: Any) -> torch.Tensor:
        return function(*args) * 2

    return wrapper


STATES: dict[str, Callable[[pytest.MonkeyPatch], Any]] = {
    "autocast": lambda _: torch.autocast("cpu", torch.bfloat16),
    "default device": lambda _: torch.device("cpu"),
    "inference": lambda _: torch.inference_mode(),
    "setting of Dynamo": lambda _: torch._dynamo.config.patch(specialize_float=True),
    "version of torch": lambda patch: patch.setattr(torch, "__version__", "2.99"),
    "version of Python": lambda patch: patch.setattr(sys, "version", "3.99"),
    "patched layer of torch": lambda patch: patch.setattr(
        torch.nn.Linear, "forward", lambda self, x: x @ self.weight
    ),
    "wrapped layer of torch": lambda patch: patch.setattr(
        torch.nn.Linear, "forward", _doubled(torch.nn.Linear.forward)
    ),
    "patched function of torch": lambda patch: patch.setattr(
        torch, "cat", lambda x, _: x[0][..., :1]
    ),
    "patched function of the model": lambda patch: patch.setattr(
        sys.modules["cached_model"], "helper", lambda x: x - 1
    ),
    "patched method of the model": lambda patch: patch.setattr(
        sys.modules["cached_model"].Model, "moved", lambda _, x: x - 1
    ),
}


@contextlib.contextmanager
def _global_hook() -> Iterator[None]:
    handle = torch.nn.modules.module.register_module_forward_hook(lambda m, a, out: out * 2)
    yield
    handle.remove()


@contextlib.contextmanager
def _default_dtype(dtype: torch.dtype) -> Iterator[None]:
    torch.set_default_dtype(dtype)
    yield
    torch.set_default_dtype(torch.float32)


@contextlib.contextmanager
def _deterministic() -> Iterator[None]:
    torch.use_deterministic_algorithms(True)
    yield
    torch.use_deterministic_algorithms(False)


@contextlib.contextmanager
def _no_torch_function() -> Iterator[None]:
    with torch._C.DisableTorchFunctionSubclass():
        yield


STATES["no torch function"] = lambda _: _no_torch_function()
STATES["global hook"] = lambda _: _global_hook()
STATES["default dtype"] = lambda _: _default_dtype(torch.float64)
STATES["deterministic"] = lambda _: _deterministic()


@pytest.mark.usefixtures("without_dynamo")
@pytest.mark.parametrize("state", STATES)
def test_other_state_is_not_found(
    folder: Path, monkeypatch: pytest.MonkeyPatch, state: str
) -> None:
    model = _load(BASE)
    with STATES[state](monkeypatch) or contextlib.nullcontext():
        compiled = _compiled(model, folder)
        found = compiled(X)
        with torch.no_grad():
            torch.testing.assert_close(found, model(X), rtol=0, atol=0)

    assert compiled.reports == ()


@pytest.mark.usefixtures("without_dynamo")
@pytest.mark.parametrize(
    "options",
    [
        {"fuse": True, "warmup_runs": 2},
        {"fuse": True, "disabled_fusions": ["fuse_swiglu"]},
        {"splitting_ops": ["a::c"]},
        {"mode": "eager", "fuse": True},
    ],
    ids=str,
)
def test_other_configuration_is_not_found(folder: Path, options: dict[str, Any]) -> None:
    compiled = _compiled(_load(BASE), folder, **options)

    compiled(X)

    assert compiled.reports == ()


@pytest.mark.usefixtures("without_dynamo")
def test_other_dynamic_sizes_are_not_found(
    folder: Path,
) -> None:
    model = _load(BASE)
    compiled = npu_compile.compile_model(
        model, {"cache_folder": folder, "mode": "eager"}, device=FakeDevice()
    )

    compiled(X)

    assert compiled.reports == ()


@pytest.mark.usefixtures("without_dynamo")
def test_other_sources_of_our_packages_are_not_found(
    folder: Path, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    (tmp_path / "a.py").write_text("changed")
    monkeypatch.setattr(cache_key, "own_folders", lambda: (str(tmp_path),))
    compiled = _compiled(_load(BASE), folder)

    compiled(X)

    assert compiled.reports == ()


INSIDE: dict[str, Callable[[Any], object]] = {
    "attribute": lambda model: setattr(model, "zero", 2.0),
    "element of a list": lambda model: model.extra.__setitem__(0, 5.0),
    "list": lambda model: model.extra.append(5.0),
    "weight of another shape": lambda model: setattr(
        model, "weight", torch.nn.Parameter(torch.zeros(8, 8, dtype=torch.float64).float().t())
    ),
    "layer": lambda model: model.inner.append(torch.nn.Tanh()),
    "global": lambda _: setattr(sys.modules["cached_model"], "GLOBAL", 9.0),
    "function": lambda _: setattr(sys.modules["cached_model"], "helper", lambda x: x),
    "code of a function": lambda _: setattr(
        sys.modules["cached_model"].helper, "__code__", (lambda x, factor: x).__code__
    ),
    "default of a function": lambda _: setattr(
        sys.modules["cached_model"].helper, "__defaults__", (9.0,)
    ),
    "method": lambda model: setattr(model, "moved", lambda x: x),
    "method of its class": lambda model: setattr(type(model), "moved", lambda _, x: x),
    "constant of a base class": lambda model: setattr(type(model).__mro__[1], "shift", 9.0),
    "special method": lambda model: setattr(
        type(model.inner[0]), "__call__", lambda _, x: torch.nn.functional.relu(x)
    ),
    "hook": lambda model: model.inner[0].register_forward_hook(lambda m, a, out: out * 2),
    "tied": lambda model: setattr(model, "tied", model.weight),
    "closure": lambda model: setattr(model.add.__closure__[0], "cell_contents", 8.0),
}


@pytest.mark.usefixtures("without_dynamo")
@pytest.mark.parametrize("change", INSIDE)
def test_change_after_the_entry_was_taken_is_seen_at_the_next_call(
    folder: Path, change: str
) -> None:
    model = _load(BASE)
    compiled = _compiled(model, folder)
    before = compiled(X)
    assert _is_hit(compiled)

    INSIDE[change](model)

    with torch.no_grad():
        torch.testing.assert_close(compiled(X), model(X), rtol=0, atol=0)
        assert not torch.equal(before, model(X)) or change == "weight of another shape"


UNKEPT = {
    "whether an input is a view": (
        "x = helper(x) +",
        "x = helper(x) * (1.0 if x._base is None else 2.0) +",
        r"forward \(.*\) reads _base of a tensor, which Dynamo takes for a constant",
    ),
    "assumed constant": (
        "def helper(x, factor=2.0):",
        (
            "@torch.compiler.assume_constant_result\ndef count():\n    return GLOBAL\n\n\n"
            "def helper(x, factor=2.0):\n    factor = factor * count()"
        ),
        r"what count returned is a constant of the graph",
    ),
    "operator without shapes that can be compared": (
        "x = helper(x) +",
        "x = torch.ops.cached_tests.opaque(helper(x)) +",
        r"the shapes of operator cached_tests.opaque.default are not computed by a function",
    ),
    "shapes made by something that cannot be compared": (
        "x = helper(x) +",
        "x = torch.ops.cached_tests.bound(helper(x)) +",
        r"cached_tests.bound.default are computed by .*, and it reads a .*Shapes",
    ),
    "function in the graph": (
        "def helper(x, factor=2.0):",
        (
            "@torch.compiler.allow_in_graph\ndef opaque(x):\n    return x + 1\n\n\n"
            "def helper(x, factor=2.0):\n    x = opaque(x)"
        ),
        r"the graph reads \w*opaque, a builtins.function, which is not found by a name that torch",
    ),
}


class Shapes:
    def like(self, x: torch.Tensor, extra: int) -> torch.Tensor:
        return x.new_empty(x.shape[0] + extra, *x.shape[1:])


@pytest.fixture
def operators() -> Iterator[Any]:
    library: Any = torch.library.Library("cached_tests", "FRAGMENT")  # type: ignore[no-untyped-call]
    for name in ("opaque", "bound", "plain"):
        library.define(f"{name}(Tensor x) -> Tensor")
        library.impl(name, lambda x: x.clone(), "CPU")
    library.impl("opaque", torch.empty_like, "Meta")
    shapes = Shapes()
    torch.library.register_fake("cached_tests::bound", lambda x: shapes.like(x, 0), lib=library)
    yield library
    library._destroy()


@pytest.mark.usefixtures("operators")
@pytest.mark.parametrize("kind", UNKEPT)
def test_incomparable_values_are_not_cached_and_the_report_says_why(
    tmp_path: Path, kind: str
) -> None:
    old, new, reason = UNKEPT[kind]
    model = _load(BASE.replace(old, new))
    compiled = _compiled(model, tmp_path)

    torch.testing.assert_close(compiled(X), model(X), rtol=1e-5, atol=1e-5)

    (line,) = _cache_lines(compiled)
    assert line.startswith("compiled, and not put into the compile cache: ")
    assert re.search(reason, line), line
    assert not list(tmp_path.iterdir())


def test_operator_whose_shapes_change_is_not_found(tmp_path: Path, operators: Any) -> None:
    text = BASE.replace("x = helper(x) +", "x = torch.ops.cached_tests.plain(helper(x)) +")
    torch.library.register_fake("cached_tests::plain", torch.empty_like, lib=operators)
    _compiled(_load(text), tmp_path)(X)
    found = _compiled(_load(text), tmp_path)
    found(X)

    torch.library.register_fake(
        "cached_tests::plain", lambda x: x.new_empty(x.shape), lib=operators, allow_override=True
    )
    compiled = _compiled(_load(text), tmp_path)
    compiled(X)

    assert _is_hit(found)
    assert "operator cached_tests::plain is not what it was" in _cache_lines(compiled)[0]


SHAPES_READ: dict[str, Callable[[], Callable[..., Any]]] = {
    "import": lambda: _function("import cached_numbers\n    return x.new_empty(x.shape)"),
    "environment": lambda: _function("return x.new_empty(x.shape) if os.environ else x"),
    "other operator": lambda: _function("return torch.ops.cached_tests.opaque(x)"),
    "name by a text": lambda: _function("return x.new_empty(getattr(x, 'shape'))"),
    "object of Python's": lambda: _function("return x.new_empty(x.shape) if SPACE else x"),
    "dict of a class": lambda: _function("return x.new_empty(x.shape) if Sizes else x"),
}


def _function(body: str) -> Callable[..., Any]:
    """Return a function of a module that has the globals it reads."""

    class Sizes:
        TABLE: ClassVar[dict[str, int]] = {"rows": 0}

    names: dict[str, Any] = {
        "__name__": "cached_shapes",
        "SPACE": types.SimpleNamespace(rows=0),
        "Sizes": Sizes,
        "os": os,
        "torch": torch,
    }
    exec(f"def shapes(x):\n    {body}\n", names)
    return cast("Callable[..., Any]", names["shapes"])


@pytest.mark.parametrize("read", SHAPES_READ)
def test_shapes_made_from_what_is_not_looked_into_cannot_be_compared(read: str) -> None:
    with pytest.raises(UncacheableError, match=r"reads|imports"):
        CodeReader().function_and_all_it_reads(SHAPES_READ[read]())


def test_plain_function_and_its_closure_are_kept(tmp_path: Path) -> None:
    def make(amount: float) -> Callable[[torch.Tensor], torch.Tensor]:
        def function(x: torch.Tensor) -> torch.Tensor:
            return torch.tanh(x) + amount

        return function

    found = []
    for amount in (1.0, 1.0, 2.0):
        compiled = _compiled(make(amount), tmp_path)
        torch.testing.assert_close(compiled(X), torch.tanh(X) + amount, rtol=0, atol=0)
        found.append(_is_hit(compiled))

    assert found == [False, True, False]


def test_what_a_call_changes_is_not_taken_for_what_it_began_with(tmp_path: Path) -> None:
    text = BASE.replace(
        "x = self.moved(x)", "self.zero = self.zero + 1.0\n        x = self.moved(x)"
    )
    for _ in range(2):
        model = _load(text)
        expected = sys.modules["cached_model"].make()
        compiled = _compiled(model, tmp_path)
        for _ in range(3):
            torch.testing.assert_close(compiled(X), expected(X), rtol=1e-5, atol=1e-5)
            assert model.zero == expected.zero


def _run_captured(compiled: npu_compile.CompiledModel, inputs: dict[str, torch.Tensor]) -> Any:
    key = GraphKey(num_tokens=2)
    with compiled.capture_session(), compiled.context.run(RunMode.BREAKABLE, key):
        compiled(**inputs)
    with compiled.context.run(RunMode.BREAKABLE, key):
        return compiled(**inputs)


def test_split_model_is_found_with_its_pieces_and_its_plan(
    decoder: Decoder, attention: AttentionOperator, tmp_path: Path
) -> None:
    inputs = {"input_ids": torch.tensor([1, 2]), "table": torch.ones(2, 2)}
    config = CompileConfig(
        mode="piecewise",  # type: ignore[arg-type]
        splitting_ops=(attention.name,),
        cache_folder=str(tmp_path),
    )
    attention.lengths = [3, 4]
    outputs, models = [], []
    for _ in range(2):
        compiled = npu_compile.compile_model(
            decoder,
            config,
            device=FakeDevice(),
            dynamic_arg_dims={"input_ids": (0,), "table": (0,)},
        )
        outputs.append(_run_captured(compiled, inputs).clone())
        models.append(compiled)

    cold, found = models
    assert _is_hit(found)
    assert torch.equal(*outputs)
    assert torch.equal(outputs[0], decoder(**inputs))
    assert found.num_captured_graphs == cold.num_captured_graphs == 3
    assert str(found.reports[0].plan) == str(cold.reports[0].plan)
    assert found.reports[0].fusions == cold.reports[0].fusions
    assert found.reports[0].num_captured_pieces == cold.reports[0].num_captured_pieces


def test_backend_of_an_engine_refuses_a_cache_it_cannot_use(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=r"cache_folder.*compile_model"):
        npu_compile.Backend(CompileConfig(cache_folder=str(tmp_path)))


OTHER_PROCESS = """
import sys
import torch
import cached_elsewhere
import npu_compile
from npu_graph_runtime import FakeDevice

options = {"mode": "piecewise", "splitting_ops": ["a::b"], "fuse": False}
model = cached_elsewhere.make()
compiled = npu_compile.compile_model(
    model,
    {**options, "cache_folder": sys.argv[1]},
    device=FakeDevice(),
    dynamic_arg_dims={"x": (0,)},
)
x = torch.linspace(-1, 1, 40).reshape(5, 8)
assert torch.equal(compiled(x), model(x))
print(compiled.reports[0].cache, "Dynamo was used:", bool(torch._dynamo.utils.counters["stats"]))
"""


def test_other_process_finds_it_without_dynamo(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    text = BASE.replace(
        "import cached_numbers", "import cached_elsewhere_numbers as cached_numbers"
    )
    (tmp_path / "cached_elsewhere.py").write_text(text)
    (tmp_path / "cached_elsewhere_numbers.py").write_text(NUMBERS)
    monkeypatch.syspath_prepend(tmp_path)
    compiled = _compiled(importlib.import_module("cached_elsewhere").make(), tmp_path / "cache")
    compiled(X)
    assert "put into the compile cache" in _cache_lines(compiled)[0]

    told = subprocess.run(
        [sys.executable, "-c", OTHER_PROCESS, str(tmp_path / "cache")],
        check=True,
        capture_output=True,
        text=True,
        env={**os.environ, "PYTHONPATH": os.pathsep.join(map(str, sys.path))},
    ).stdout

    assert told.startswith("from the compile cache: ")
    assert told.endswith("Dynamo was used: False\n")
