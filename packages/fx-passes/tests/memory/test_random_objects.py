"""Random programs in six pipelines: everything a caller or an operator sees of a tensor stays.

Compared with the eager run are values, dtypes, shapes, strides and storage offsets of results,
which of them are one object or share memory with each other or with inputs, the tensors that
custom operators see, and all of that again after the caller wrote and transposed the results.
"""

from __future__ import annotations

from collections import Counter
from functools import cache
from random import Random
from typing import TYPE_CHECKING, Any, NamedTuple

import pytest
import torch
import torch.nn.functional as F  # noqa: N812 - its usual name
from torch import Tensor
from torch.fx.experimental.proxy_tensor import make_fx

import fx_passes
from fx_passes.dialects import vllm_ascend_dialect
from fx_passes.functional import FunctionalBackend
from fx_passes.raising import raising_pipeline

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

    from torch.fx import GraphModule, Node

NAMES = "abcihqk"
# Views and casts that change nothing, or give a view of the same shape.
VIEWS = (
    "{v}.view(4, 4)",
    "{v}.reshape(4, 4)",
    "{v}.expand(4, 4)",
    "{v}[:]",
    "{v}[:, 0:]",
    "{v}.unsqueeze(1).squeeze(1)",
    "{v}.transpose(0, 1).transpose(0, 1)",
    "{v}.to({v}.dtype)",
    "{v}.contiguous()",
    "{v}.reshape(16).reshape(4, 4)",
    "{v}.reshape(2, 8).view(4, 4)",
    "{v}.t()",
    "{v}.t().reshape(16).reshape(4, 4)",
)
# What has memory of its own and may look like its argument.
COPIES = (
    "{v}.clone()",
    "{v}.clone().view(4, 4)",
    "{v}.clone(memory_format=torch.contiguous_format).reshape(4, 4)",
    "{v}.to({v}.dtype, copy=True)",
    "{v} * 1",
    "torch.cat([{v}])",
    "torch.empty_like({v}).copy_({v})",
    "torch.zeros_like({v}).copy_({v})",
    "{v}.t().contiguous()",
    "{v}.contiguous().view(16).view(4, 4)",
    "torch.stack([{v}])[0]",
    "{v}.to(torch.{d}).to({v}.dtype)",
    "{v}.to(torch.{d}).to({v}.dtype)",
    "{v}.to(torch.{d}, copy=True).to({v}.dtype, copy=True)",
    "{v}.to(torch.{d}).to(torch.float32)",
)
# Parts, of which each begins elsewhere in its memory.
PARTS = (
    "{v}[1:3]",
    "{v}[1:3].clone()",
    "{v}[1:3].contiguous()",
    "{v}[1:3] * 1",
    "{v}.split(2)[1].clone()",
    "{v}[:, 1:3].clone(memory_format=torch.contiguous_format).view(2, 4)",
    "{v}[2:].reshape(8).reshape(2, 4)",
    "{v}.view(16)[5:13].clone().view(2, 4)",
    "{v}.unbind(0)[2].clone()",
    "{v}.as_strided((2, 2), (1, 4))",
    "{v}.clone().as_strided((2, 2), (1, 4), 1)",
    "{v}[1:2, 1:].clone()",
)
DTYPES = (
    "float64",
    "float32",
    "float16",
    "bfloat16",
    "float8_e4m3fn",
    "float8_e5m2",
    "int64",
    "int32",
    "int16",
    "int8",
    "uint8",
    "bool",
)
# For floats of 32 bits, which rules and engines know.
FLOATS = (
    "torch.exp(torch.sin({v}))",
    "torch.relu({v} + {w})",
    "1 / (1 / (torch.exp({v}) + 1))",
    "torch.ops.npu.npu_rms_norm({v} + {w}, {w}[0], 1e-6)[0]",
    "torch.ops.npu.npu_rms_norm({v}, {w}[0], 1e-6)[0]",
    "({v} * torch.rsqrt({v}.pow(2).mean(-1, keepdim=True) + 1e-6)) * {w}[0]",
    "{w}[0] * ({v}.float() * torch.rsqrt({v}.float().pow(2).mean(-1, True) + 1e-6)).to({v}.dtype)",
    "torch.ops._C_ascend.npu_add_rms_norm_bias({v}, {w}, {w}[0], None, 1e-6)[0]",
    "torch.ops.vllm.maybe_chunk_residual({v}, {w}.contiguous())",
    "torch.ops.vllm.all_gather({v}, 0, 2, 'tp:0')[:4]",
    "torch.ops.vllm.sequence_parallel_chunk_impl(torch.ops.vllm.all_gather({v}, 0, 2, 'tp:0'))",
    "torch.ops.vllm.unquantized_gemm({v}, {w}, None)",
    "F.silu({v}) * {w}",
    "F.silu(torch.cat([{v}, {w}], -1).chunk(2, -1)[0]) * torch.cat([{v}, {w}], -1).chunk(2, -1)[1]",
    "{v} * 2 + {w}",
)
WRITES = (
    "{v}.mul_(2)",
    "{v}.copy_({v}.t().clone())",
    "{v}[1].zero_()",
    "{v}.view(4, 4).neg_()",
    "{v}.t_()",
    "{v}.transpose_(0, 1)",
    "{v}.unsqueeze_(0).squeeze_(0)",
)


def _place(x: Tensor) -> Tensor:
    """Return the properties of a tensor, other than its elements, that an operator sees."""
    aligned = [x.data_ptr() % size == 0 for size in (4, 16, 32)]
    return torch.tensor([x.storage_offset(), *aligned, *x.stride(), *x.shape])


def _norm(x: Tensor, weight: Tensor, epsilon: float = 1e-6) -> tuple[Tensor, Tensor]:
    # As kernels of torch_npu do, these give contiguous results whatever strides they are given.
    scale = torch.rsqrt(x.float().pow(2).mean(-1, keepdim=True) + epsilon).contiguous()
    return ((x.float() * scale).to(x.dtype) * weight).contiguous(), scale


def _sum_norm(
    x: Tensor, y: Tensor, weight: Tensor, epsilon: float = 1e-6
) -> tuple[Tensor, Tensor, Tensor]:
    return (*_norm(x + y, weight, epsilon), (x + y).contiguous())


def _swiglu(x: Tensor, dim: int = -1) -> Tensor:
    gate, up = x.chunk(2, dim)
    return (F.silu(gate) * up).contiguous()


@pytest.fixture(name="operators", scope="module")
def _operators() -> Iterator[None]:
    """An operator that shows its inputs, and kernels of npu:: for CPU tensors.

    Graphs are traced for an NPU, so that all rules match. They run on the CPU, with torch's own
    element types and views.
    """
    seen = torch.library.Library("fx_seen", "FRAGMENT")  # type: ignore[no-untyped-call]
    name = seen.define("place(Tensor x) -> Tensor")  # type: ignore[no-untyped-call]
    seen.impl(name, _place, "CompositeExplicitAutograd")  # type: ignore[no-untyped-call]
    torch.library.register_fake(
        "fx_seen::place",
        lambda x: torch.empty(4 + 2 * x.dim(), dtype=torch.int64),
        lib=seen,
    )
    npu = torch.library.Library("npu", "IMPL")  # type: ignore[no-untyped-call]
    for kernel, function in (
        ("npu_rms_norm", _norm),
        ("npu_add_rms_norm", _sum_norm),
        ("npu_swiglu", _swiglu),
    ):
        npu.impl(kernel, function, "CPU")  # type: ignore[no-untyped-call]
    yield
    for library in (seen, npu):
        library._destroy()  # type: ignore[no-untyped-call]


def _sin_exp(x: Tensor) -> dict[str, Tensor]:
    return {"y": torch.exp(torch.sin(x))}


def _build_sin_exp(match: fx_passes.Match, build: fx_passes.GraphBuilder) -> dict[str, Node]:
    value = match.value("y")
    sine = build.call("aten::sin", match.bound["x"], val=value)
    return {"y": build.call("aten::exp", sine, val=value)}


def _add_relu(x: Tensor, y: Tensor) -> dict[str, Tensor]:
    total = x + y
    return {"total": total, "out": torch.relu(total)}


def _build_add_relu(match: fx_passes.Match, build: fx_passes.GraphBuilder) -> dict[str, Node]:
    total = build.call("aten::add.Tensor", match.bound["x"], match.bound["y"])
    made = {"total": total, "out": build.call("aten::relu", total)}
    return {name: made[name] for name in match.needed}


def _copied(x: Tensor) -> dict[str, Tensor]:
    return {"y": torch.ops.aten.clone(x)}


def _viewed(x: Tensor, shape: Sequence[int]) -> dict[str, Tensor]:
    return {"y": torch.ops.aten.view(x, shape)}


def _as_it_was(match: fx_passes.Match) -> fx_passes.NoMatch | None:
    x, y = match.value("x"), match.value("y")
    assert isinstance(x, Tensor)
    assert isinstance(y, Tensor)
    same = (x.shape, x.stride(), x.dtype) == (y.shape, y.stride(), y.dtype)
    return None if same else fx_passes.NoMatch("laid out otherwise")


def _its_input(match: fx_passes.Match, build: fx_passes.GraphBuilder) -> dict[str, Node]:
    del build
    return {"y": match.bound["x"]}  # type: ignore[dict-item]


# Of users, who ask only for equal elements: who else can tell is what the rewriter has to ask.
RULES = (
    fx_passes.Rule(name="sin_exp", patterns=(_sin_exp,), rewrite=_build_sin_exp),
    fx_passes.Rule(name="add_relu", patterns=(_add_relu,), rewrite=_build_add_relu),
    fx_passes.Rule(
        name="own_copy",
        patterns=(_copied,),
        rewrite=_its_input,
        check=_as_it_was,
        shares_memory=True,
    ),
    fx_passes.Rule(
        name="own_view",
        patterns=(_viewed,),
        rewrite=_its_input,
        check=_as_it_was,
        shares_memory=True,
    ),
)
EMPTY = fx_passes.Pipeline(passes=(fx_passes.NormalizePass(),))
PIPELINES = ("default", "exact", "functional", "raising", "forms", "user")


@cache
def _pipeline(kind: str) -> fx_passes.Pipeline:
    default = fx_passes.default_npu_pipeline()
    first, *others = default.passes
    if kind == "exact":
        return default.exact()
    if kind == "raising":
        return raising_pipeline()
    rules = vllm_ascend_dialect(whole_residuals=True) if kind == "forms" else RULES
    if kind in {"forms", "user"}:
        rewriting = fx_passes.RulePass(name="rules", rules=rules, repeats=False)
        return fx_passes.Pipeline(passes=(first, rewriting, *others))
    return default


def _inputs(random: Random, device: str = "cpu") -> list[Tensor]:
    """Return whole tensors and parts of larger ones, of several dtypes, some at odd addresses."""
    generator = torch.Generator().manual_seed(random.randrange(2**31))
    whole = torch.randn(4, 4, generator=generator)
    odd = torch.randn(17, generator=generator)[1:].view(4, 4)
    wide = torch.randn(4, 9, generator=generator)[:, 3:7]
    integer = random.choice((torch.int64, torch.int32, torch.int16, torch.uint8, torch.bool))
    numbers = torch.randint(0, 2**15, (5, 4), generator=generator).to(integer)[1:]
    half = torch.randn(4, 4, generator=generator).to(random.choice((torch.bfloat16, torch.float16)))
    eighth = torch.randn(20, generator=generator).to(torch.float8_e4m3fn)[3:19].view(4, 4)
    turned = torch.randn(4, 4, generator=generator).t()
    made = [whole, odd, wide, numbers, half, eighth, turned]
    if device == "cpu":
        return made
    return [
        torch.empty(40, dtype=x.dtype, device=device).as_strided(
            x.shape, x.stride(), x.storage_offset()
        )
        for x in made
    ]


def random_source(random: Random) -> str:
    """Return a function of the inputs, as text; every line is of [4, 4] tensors or parts."""
    names = list(NAMES)
    parts: list[str] = []
    lines: list[str] = []

    def new(expression: str, into: list[str]) -> None:
        name = f"t{len(lines)}"
        lines.append(f"{name} = {expression}")
        into.append(name)

    def pick() -> str:
        return random.choice(names[-3:] if random.random() < 0.6 else names)

    def floating() -> str:
        # Kernels take one dtype, and fused ones give contiguous results whatever they are given.
        name = random.choice([name for name in names if name not in "ihq"])
        turned = any(line.startswith((f"{name}.t_", f"{name}.transpose_")) for line in lines)
        laid_out = name != "k" and name[0] != "t" and not turned
        return name if laid_out else f"{name}.float().contiguous()"

    for _ in range(random.randint(2, 6)):
        kind = random.random()
        value = pick()
        if kind < 0.35:
            new(random.choice(VIEWS).format(v=value), names)
        elif kind < 0.6:
            new(random.choice(COPIES).format(v=value, d=random.choice(DTYPES)), names)
        elif kind < 0.72:
            new(random.choice(PARTS).format(v=value), parts)
        elif kind < 0.84:
            new(random.choice(FLOATS).format(v=floating(), w=floating()), names)
        elif kind < 0.9:
            lines.append(random.choice(WRITES).format(v=value))
        else:
            place = random.choice([*names[-3:], *parts])
            new(f"torch.ops.fx_seen.place({place})", parts)
    everything = [*names, *parts]
    # Mostly what was made last, so that it matters.
    recent = everything[len(NAMES) :] or everything
    seen = [f"torch.ops.fx_seen.place({random.choice(recent)})"] if random.random() < 0.5 else []
    kept = [random.choice(recent if random.random() < 0.8 else everything) for _ in range(3)]
    body = "\n    ".join(lines)
    results = ", ".join([*kept[: random.randint(1, 3)], *seen])
    return f"def program({', '.join(NAMES)}):\n    {body}\n    return ({results},)\n"


class Outcome(NamedTuple):
    """The visible outcome of one call."""

    values: list[Tensor]
    facts: list[object]


def _facts(results: Sequence[Tensor], inputs: Sequence[Tensor]) -> list[object]:
    everything = [*results, *inputs]
    facts: list[object] = [
        (each.dtype, tuple(each.shape), each.stride(), each.storage_offset()) for each in everything
    ]
    for position, each in enumerate(everything):
        for other, earlier in enumerate(everything[:position]):
            memory = each.untyped_storage().data_ptr() == earlier.untyped_storage().data_ptr()
            if memory and each.numel():
                facts.append((other, position, each is earlier))
    return facts


def _outcome(run: Callable[..., Sequence[Tensor]], seed: int) -> Outcome:
    inputs = _inputs(Random(seed))
    results = list(run(*inputs))
    values = [each.clone() for each in (*results, *inputs)]
    facts = _facts(results, inputs)
    for each in results:
        each.t_() if each.dim() == 2 else None
    for number, each in enumerate(results):
        each.fill_((number + 1) % 2 if each.dtype is torch.bool else number + 1)
    values += [each.clone() for each in (*results, *inputs)]
    return Outcome(values, [*facts, *_facts(results, inputs)])


def _rewritten(
    kind: str,
    program: Callable[..., Sequence[Tensor]],
    seed: int,
    pipeline: fx_passes.Pipeline,
    *,
    level: str,
) -> tuple[Outcome, int]:
    """Rewrite a program by a pipeline; return its outcome and how many matches there were."""
    if level == "dynamo":
        counts: list[int] = []

        def backend(module: GraphModule, inputs: object) -> Callable[..., object]:
            del inputs
            counts.append(sum(pipeline.run(module).report.match_counts().values()))
            return module.forward

        torch._dynamo.reset()
        compiled = torch.compile(program, backend=backend, fullgraph=True, dynamic=False)
        return _outcome(compiled, seed), sum(counts)
    device = "cpu" if kind == "functional" else "npu"
    module = make_fx(program, tracing_mode="fake", pre_dispatch=level == "torch")(
        *_inputs(Random(seed), device)
    )
    if kind == "functional":
        functional = FunctionalBackend(pipeline)
        functionalized: Any = functional(module, _inputs(Random(seed)))
        found = _outcome(functionalized, seed)
        return found, sum(sum(r.report.match_counts().values()) for r in functional.results)
    counts_of = pipeline.run(module).report.match_counts()
    for node in module.graph.nodes:
        if node.kwargs.get("device") is not None:  # what a rewrite allocates
            node.update_kwarg("device", torch.device("cpu"))
    module.recompile()
    return _outcome(module, seed), sum(counts_of.values())


def _bits(value: Tensor) -> Tensor:
    flat = value.detach().contiguous().clone()
    if flat.dtype is torch.float8_e4m3fn or flat.dtype is torch.float8_e5m2:
        flat = flat.float()
    return flat


def _difference(found: Outcome, expected: Outcome, *, exact: bool) -> str | None:
    if found.facts != expected.facts:
        pairs = zip(found.facts, expected.facts, strict=False)
        differ = [pair for pair in pairs if pair[0] != pair[1]]
        return f"facts: found and expected {differ or (found.facts, expected.facts)}"
    for position, (mine, theirs) in enumerate(zip(found.values, expected.values, strict=True)):
        left, right = _bits(mine), _bits(theirs)
        if left.is_floating_point() and not exact:
            wide = left.dtype in {torch.float32, torch.float64}
            near = 1e-4 if wide else 0.25 if theirs.dtype.itemsize == 1 else 3e-2
            same = torch.allclose(left.float(), right.float(), near, near, equal_nan=True)
        else:
            same = torch.equal(left.nan_to_num(3.5), right.nan_to_num(3.5))
        if not same:
            return f"value {position}: found {mine.tolist()}, expected {theirs.tolist()}"
    return None


# `b` begins at an odd address, and a copy of it does not.
@pytest.mark.parametrize("read", ["b.clone()", "b.view(16).view(4, 4).clone()", "(b[1:] * 1)", "b"])
@pytest.mark.parametrize(
    "write",
    [
        "b.copy_(b.t().clone())",
        "b.mul_(2)",
        "b.mul_(2).add_(c)",
        "b.fill_(3)",
        "b.view(4, 4).neg_()",
        "b.view(4, 4).view(4, 4).neg_()",
        "b.view(2, 8).view(16).neg_()",
        "b.t().view(4, 4).view(4, 4).neg_()",
        "b[1].zero_()",
        "b[1:3].add_(1)",
        "b.index_put_((torch.tensor([1]),), a[0])",
        "b.index_add_(0, torch.tensor([1]), a[:1])",
        "b.index_copy_(0, torch.tensor([1]), a[:1])",
        "b.scatter_(0, torch.tensor([[0]]), 1.0)",
        "b.masked_fill_(b > 0, 1.0)",
        "b = torch.zeros(17)[1:].view(4, 4); b[1] = a[1]",
    ],
)
@pytest.mark.usefixtures("operators", "engine_operators", "rotary_embedding")
def test_written_values_and_their_copies_begin_where_they_did(write: str, read: str) -> None:
    names: dict[str, object] = {"torch": torch}
    show = f"torch.ops.fx_seen.place({read})"
    exec(f"def program(a, b, c, i, h, q, k):\n {write}\n return ({show},)\n", names)
    program: Any = names["program"]
    with torch.no_grad():
        expected = _outcome(program, 1)
        kind = "functional"
        found, _ = _rewritten(kind, program, 1, _pipeline(kind), level="aten")
    assert _difference(found, expected, exact=False) is None


@pytest.mark.filterwarnings("ignore")
@pytest.mark.usefixtures("operators", "engine_operators", "rotary_embedding")
def test_random_programs_keep_all_that_can_be_seen(
    pytestconfig: pytest.Config, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level("CRITICAL")  # Dynamo logs each trace.
    wanted = pytestconfig.getoption("programs")
    counts: Counter[str] = Counter()
    seed = pytestconfig.getoption("first_program")
    while counts["ran"] < wanted:
        random = Random(seed)
        source = random_source(random)
        kind = PIPELINES[seed % len(PIPELINES)]
        level = random.choices(("aten", "torch", "dynamo"), (5, 4, 1))[0]
        if kind == "functional":
            level = "aten"
        seed += 1
        names: dict[str, object] = {"torch": torch, "F": F}
        exec(source, names)
        program = names["program"]
        assert callable(program)
        with torch.no_grad():
            try:
                expected = _outcome(program, seed)
            except (RuntimeError, IndexError, NotImplementedError):
                continue  # Not a program: torch has no such kernel, or refuses to write.
            told = f"seed {seed - 1}, {kind}, {level}:\n{source}"
            exact, found, matches = kind == "exact", None, 0
            failure: Exception | None = None
            try:
                found, matches = _rewritten(kind, program, seed, _pipeline(kind), level=level)
            except Exception as error:  # noqa: BLE001 - torch's own failures are handled below
                failure = error
            if found is None or _difference(found, expected, exact=exact) is not None:
                # Torch cannot trace everything, and its traces and functional forms keep less than
                # an eager run does.
                try:
                    plain, _ = _rewritten(kind, program, seed, EMPTY, level=level)
                except Exception:  # noqa: BLE001 - whatever it says
                    counts["untraceable"] += 1
                    continue
                if found is None:
                    raise AssertionError(told) from failure
                difference = _difference(found, plain, exact=exact)
                assert difference is None, f"{told}{difference}"
                counts["changed by torch"] += 1
        counts["ran"] += 1
        counts[kind] += 1
        counts["matched"] += matches > 0
    print(dict(counts))  # noqa: T201 - the figures of a long run
    assert counts["matched"] > wanted // 10
