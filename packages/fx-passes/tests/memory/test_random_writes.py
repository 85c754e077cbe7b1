"""Random programs of writes and views, rewritten at three levels: values and memory stay right."""

from __future__ import annotations

from collections import Counter
from random import Random
from typing import TYPE_CHECKING, Literal

import pytest
import torch
import torch.nn.functional as F  # noqa: N812 - its usual name
from torch import Tensor
from torch.fx import Node
from torch.fx.experimental.proxy_tensor import make_fx

import fx_passes
from fx_passes.functional import FunctionalBackend
from fx_passes.generic_passes import ForwardCopiesPass

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

VIEWS = (
    "{v}.T",
    "{v}.mT",
    "{v}.H",
    "{v}.t()",
    "{v}.real",
    "{v}.data",
    "{v}.detach()",
    "{v}[:]",
    "{v}[..., :]",
    "{v}.view(4, 4)",
    "{v}.view_as({w})",
    "{v}.reshape(16).reshape(4, 4)",
    "{v}.flatten().view(4, 4)",
    "{v}.transpose(0, 1)",
    "{v}.permute(1, 0)",
    "{v}.unsqueeze(0).squeeze(0)",
    "{v}.expand(4, 4)",
    "{v}.float()",
    "{v}.to(torch.float32)",
    "{v}.type_as({w})",
    "{v}.contiguous()",
    "torch.atleast_2d({v})",
    "torch.einsum('ij->ji', {v})",
    "torch.broadcast_tensors({v}, {w})[0]",
    "F.dropout({v}, 0.5, False)",
    "torch.stack(torch.unbind({v}))",
    "{v}.as_strided((4, 4), (1, 4))",
    "+{v}",
)
WRITES = (
    "F.relu6({v}, True)",
    "F.leaky_relu({v}, 0.5, True)",
    "F.elu({v}, 1.0, True)",
    "F.celu({v}, 1.0, True)",
    "F.selu({v}, True)",
    "F.silu({v}, inplace=True)",
    "F.mish({v}, True)",
    "F.hardtanh({v}, -0.5, 0.5, True)",
    "F.hardswish({v}, True)",
    "F.hardsigmoid({v}, True)",
    "F.threshold({v}, 0.1, 0.7, True)",
    "F.dropout({v}, 1.0, True, True)",
    "F.batch_norm({w}.clone(), {v}[0], {v}[1], training=True)",
    "{v}.mul_(1.5)",
    "{v}.add_(0.25)",
    "{v}.copy_({w}.clone())",
    "{v}.copy_({w} * 2)",
    "{v}.copy_({w})",
    "{v}[1:3].copy_({w}[:2])",
    "{v}.zero_()",
    "{v}.masked_fill_({v} > 0, 0.1)",
    "{v}.select(0, 1).fill_(0.3)",
    "{v}.unbind(1)[2].neg_()",
    "torch.chunk({v}, 2)[0].mul_(0.5)",
    "torch.sigmoid_({v})",
    "torch.mul({v}, {v}, out={v})",
    "torch._foreach_add_([{v}], 0.5)",
    "torch._foreach_mul_([{v}, {w}], 0.5)",
    "torch.ops.aten.mul_({v}, 0.5)",
    "torch.ops.aten.add_.Tensor({v}, {w}.clone())",
    "{v}[1] = 0.5",
    "{v}[:, 0] += 1",
    "{v} += 0.25",
    "{v} %= 0.75",
    "{v}.data.mul_(0.5)",
    "{v}.T.mul_(0.5)",
    "{v}.real.mul_(0.5)",
    "{v}.view(16)[3:7].mul_(0.5)",
)
VALUES = (
    "torch.sin({v})",
    "torch.exp({v})",
    "torch.exp(torch.sin({v}))",
    "{v} + {w}",
    "torch.relu({v} + {w})",
    "{v}.clone()",
    "torch.empty_like({v}).copy_({w})",
    "torch.zeros_like({v}).copy_({w} * 2)",
    "{v} * 1",
    "torch.cat([{v}])",
    "{v}.double().float()",
    "{v}.t().contiguous()",
    "{v}.t().reshape(16).reshape(4, 4)",
    "torch.exp({v}).reciprocal()",
    "{w} * torch.exp({v}).reciprocal()",
    "1 / (1 / torch.exp({v}))",
    "{v}.reshape(2, 8).reshape(4, 4)",
)
# Of the engine: they write or return their arguments and do not declare it.
HIDDEN = (
    "torch.ops.vllm.all_reduce({v}, 'two:0')",
    "torch.ops.vllm.all_reduce(torch.sin({v}), 'two:0')",
    "torch.ops.vllm.all_reduce({v} + {w}, 'one:0')",
    "torch.ops.vllm.maybe_all_reduce_tensor_model_parallel({v})",
    "torch.ops.vllm.maybe_pad_and_reduce({v})",
    "torch.ops.vllm.maybe_all_gather_and_maybe_unpad({v}, True)",
    "torch.ops.vllm.maybe_chunk_residual({v}, {w})",
    "torch.ops.vllm.npu_rotary_embedding(torch.arange(4), {v}, {w}, torch.ones(4, 4), 4, 4)[0]",
    "torch.ops.vllm.npu_rotary_embedding(torch.arange(4), {v}, {w}.sin(), {v}.sin(), 4, 4)[1]",
)


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


def _product(x: Tensor, inverse: Tensor) -> dict[str, Tensor]:
    return {"y": x * inverse}


def _inverts(match: fx_passes.Match) -> fx_passes.NoMatch | None:
    inverse = match.bound["inverse"]
    inverts = isinstance(inverse, Node) and inverse.target is torch.ops.aten.reciprocal.default
    return None if inverts else fx_passes.NoMatch("no reciprocal")


def _build_quotient(match: fx_passes.Match, build: fx_passes.GraphBuilder) -> dict[str, Node]:
    """Divide by the argument of the reciprocal, if it still has the same value."""
    x, inverse, value = match.bound["x"], match.bound["inverse"], match.value("y")
    assert isinstance(inverse, Node)
    source = inverse.args[0]
    assert isinstance(source, Node)
    if build.unchanged(source, inverse) and build.unchanged(inverse, inverse):
        return {"y": build.call("aten::div.Tensor", x, source, val=value)}
    negated = build.call("aten::neg", build.call("aten::neg", x, val=value), val=value)
    return {"y": build.call("aten::mul.Tensor", negated, inverse, val=value)}


def _reduced(x: Tensor, group: str) -> dict[str, Tensor]:
    return {"y": torch.ops.vllm.all_reduce(x, group)}


def _sin_reduced(x: Tensor, group: str) -> dict[str, Tensor]:
    return {"y": torch.ops.vllm.all_reduce(torch.sin(x), group)}


def _build_reduced(match: fx_passes.Match, build: fx_passes.GraphBuilder) -> dict[str, Node]:
    """Compute out of place what the engine's operator computes in place."""
    value = match.value("y")
    x = build.call("aten::sin", match.bound["x"], val=value) if len(match.nodes) > 1 else None
    factor = 2 if match.bound["group"] == "two:0" else 1
    given = match.bound["x"] if x is None else x
    return {"y": build.call("aten::mul.Tensor", given, factor, val=value)}


RULES = (
    fx_passes.Rule(name="sin_exp", patterns=(_sin_exp,), rewrite=_build_sin_exp),
    fx_passes.Rule(name="add_relu", patterns=(_add_relu,), rewrite=_build_add_relu),
    fx_passes.Rule(name="quotient", patterns=(_product,), check=_inverts, rewrite=_build_quotient),
    fx_passes.Rule(
        name="reduced", patterns=(_sin_reduced, _reduced), rewrite=_build_reduced, accepts_cost=True
    ),
)
PIPELINE = fx_passes.Pipeline(
    passes=(
        fx_passes.NormalizePass(),
        fx_passes.RulePass(name="rules", rules=RULES, repeats=False),
        *fx_passes.default_npu_pipeline().passes[1:],
    )
)


def random_source(random: Random) -> str:
    """Return a function `program(a, b, c)` of float tensors [4, 4], as text."""
    names = ["a", "b", "c"]
    lines: list[str] = []

    def new(expression: str) -> str:
        name = f"t{len(lines)}"
        lines.append(f"{name} = {expression}")
        names.append(name)
        return name

    def pick() -> str:
        return random.choice(names[-3:] if random.random() < 0.6 else names)

    def write() -> None:
        target = pick()
        if random.random() < 0.5:
            target = new(random.choice(VIEWS).format(v=target, w=pick()))
        lines.append(random.choice(WRITES).format(v=target, w=pick()))

    for _ in range(random.randint(2, 5)):
        kind = random.random()
        if kind < 0.45:
            # A chain that a rule knows, written between its parts or not.
            value = pick()
            first = new(f"torch.sin({value})")
            if random.random() < 0.6:
                lines.append(
                    random.choice(WRITES).format(v=random.choice((value, first)), w=pick())
                )
            new(f"torch.exp({first})")
        elif kind < 0.82:
            spellings = VALUES if kind < 0.6 else HIDDEN if kind < 0.68 else VIEWS
            new(random.choice(spellings).format(v=pick(), w=pick()))
        else:
            write()
    results = ", ".join(random.sample(names, k=min(len(names), random.randint(1, 3))))
    body = "\n    ".join(lines)
    return f"def program(a, b, c):\n    {body}\n    return ({results},)\n"


def _outcome(run: Callable[..., Sequence[Tensor]], *, scale: float = 1.0) -> list[Tensor]:
    """Return results and inputs after a run, and again after a caller wrote all results."""
    generator = torch.Generator().manual_seed(7)
    inputs = [torch.randn(4, 4, generator=generator) * scale for _ in range(3)]
    results = run(*inputs)
    seen = [each.clone() for each in (*results, *inputs)]
    for number, each in enumerate(results):
        each.add_(number + 1)
    return [*seen, *[each.clone() for each in (*results, *inputs)]]


def _rewritten(
    level: str,
    program: Callable[..., Sequence[Tensor]],
    *,
    dynamic: bool,
    pipeline: fx_passes.Pipeline = PIPELINE,
) -> tuple[list[Tensor], int]:
    """Rewrite a program at one level; return its outcome and how many matches there were."""
    matches: Counter[str] = Counter()
    if level == "aten":
        module = _traced(program, dynamic=dynamic)
        matches.update(pipeline.run(module).report.match_counts())
        return _outcome(module), matches.total()
    functional = FunctionalBackend(pipeline)

    def backend(module: torch.fx.GraphModule, inputs: Sequence[object]) -> Callable[..., object]:
        if level == "functional":
            return functional(module, inputs)
        matches.update(pipeline.run(module).report.match_counts())
        return module.forward

    torch._dynamo.reset()
    compiled = torch.compile(program, backend=backend, fullgraph=True, dynamic=dynamic)
    outcome = _outcome(compiled)
    for result in functional.results:
        matches.update(result.report.match_counts())
    return outcome, matches.total()


def _traced(program: Callable[..., object], *, dynamic: bool) -> torch.fx.GraphModule:
    inputs = [torch.ones(4, 4) for _ in range(3)]
    mode: Literal["symbolic", "fake"] = "symbolic" if dynamic else "fake"
    module: torch.fx.GraphModule = make_fx(program, tracing_mode=mode)(*inputs)
    return module


def _is_traceable(level: str, program: Callable[..., object]) -> bool:
    """Return whether torch itself compiles a program; if Dynamo cannot trace it, it is no graph.

    Writes that torch rejects have no functional form either.
    """
    plain = "aot_eager" if level == "functional" else "eager"
    torch._dynamo.reset()
    try:
        if level != "aten":
            torch.compile(program, backend=plain, fullgraph=True)(
                *[torch.ones(4, 4) for _ in range(3)]
            )
    except Exception:  # noqa: BLE001 - whatever it says
        return False
    return True


def _equal(left: Sequence[Tensor], right: Sequence[Tensor]) -> bool:
    return len(left) == len(right) and all(
        mine.shape == theirs.shape
        and torch.allclose(mine, theirs, rtol=1e-4, atol=1e-5, equal_nan=True)
        for mine, theirs in zip(left, right, strict=True)
    )


def _differ_as_by_rounding(
    program: Callable[..., Sequence[Tensor]],
    found: Sequence[Tensor],
    expected: Sequence[Tensor],
) -> bool:
    """Return whether the last bit of an input changes a program's results about as much.

    As with the sine of a large number, where a rule that may round elsewhere shows.
    """
    moved = _outcome(program, scale=1 + 2**-22)
    return len(found) == len(expected) and all(
        mine.shape == theirs.shape
        and bool((mine - theirs).abs().max() <= 10 * (other - theirs).abs().max() + 1e-5)
        for mine, theirs, other in zip(found, expected, moved, strict=True)
    )


@pytest.mark.filterwarnings("ignore:.*output of this custom operator:UserWarning")
@pytest.mark.usefixtures("engine_operators", "rotary_embedding")
def test_random_programs_of_writes_and_views_keep_their_meaning(
    pytestconfig: pytest.Config, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level("CRITICAL")  # Dynamo logs each trace.
    wanted = pytestconfig.getoption("programs")
    counts: Counter[str] = Counter()
    seed = pytestconfig.getoption("first_program")
    while counts["ran"] < wanted:
        random = Random(seed)
        source = random_source(random)
        dynamic, level = random.random() < 0.3, ("dynamo", "aten", "functional")[seed % 3]
        seed += 1
        names: dict[str, object] = {"torch": torch, "F": F}
        exec(source, names)
        program = names["program"]
        assert callable(program)
        with torch.no_grad():
            try:
                expected = _outcome(program)
            except (RuntimeError, IndexError):
                continue  # Not a program: torch refuses to write memory that overlaps.
            told = f"seed {seed - 1}, {level}, dynamic {dynamic}:\n{source}"
            try:
                found, matches = _rewritten(level, program, dynamic=dynamic)
            except Exception as error:
                if _is_traceable(level, program):
                    raise AssertionError(told) from error
                counts["untraceable"] += 1
                continue
            if level != "dynamo" and not _equal(found, expected):
                # In torch's own functional form `data` hides that two tensors share memory, and in
                # its trace a dropout that does nothing returns a copy.
                torch._dynamo.reset()
                expected = _outcome(
                    _traced(program, dynamic=dynamic)
                    if level == "aten"
                    else torch.compile(program, backend="aot_eager", dynamic=dynamic)
                )
                counts["changed by torch"] += 1
            if not _equal(found, expected):
                assert _differ_as_by_rounding(program, found, expected), told
                counts["rounded elsewhere"] += 1
        counts["ran"] += 1
        counts["matched"] += matches > 0
    print(dict(counts))  # noqa: T201 - the figures of a long run
    assert counts["matched"] > wanted // 10


_PARTS = ("", "[:]", "[:2]", "[2:]", "[1:3]", ".t()", ".view(16)", "[:, 1]")
_USES = ("torch.exp({v})", "{v} * 2", "{v}.view(-1)", "{v}.clone()", "{v}[0]", "{v}.reshape(-1)")


def random_copies(random: Random) -> str:
    """Return a function `program(a, b, c)` that copies into `c` and its own `d`, and reads both."""
    lines = ["d = torch.empty_like(a)", "d.copy_(b)"]
    names = ["a", "b"]

    def new(expression: str) -> None:
        names.append(f"t{len(lines)}")
        lines.append(f"{names[-1]} = {expression}")

    for _ in range(random.randint(3, 7)):
        buffer, part, kind = random.choice("ccd"), random.choice(_PARTS), random.random()
        whole = [name for name in names if name in "ab" or random.random() < 0.5]
        value = random.choice(whole) + random.choice((part, f"{part} * 2", f"{part}.sin()"))
        if kind < 0.4:
            lines.append(f"{buffer}{part}.copy_({value})")
        elif kind < 0.85:
            new(random.choice(_USES).format(v=buffer + random.choice((part, ""))))
        else:
            lines.append(f"{random.choice((*names, buffer))}{part}.mul_(0.5)")
    kept = random.sample(names, k=min(len(names), 3))
    kept += ["d"] if random.random() < 0.1 else []
    body = "\n    ".join(lines)
    return f"def program(a, b, c):\n    {body}\n    return ({', '.join(kept)},)\n"


def test_random_copies_into_a_private_input_and_own_memory_keep_all_else(
    pytestconfig: pytest.Config, caplog: pytest.LogCaptureFixture
) -> None:
    """Only the final content of the private input may change."""
    caplog.set_level("CRITICAL")
    private = ForwardCopiesPass(private=("L_c_", "c_1"))
    pipeline = fx_passes.Pipeline(
        passes=(fx_passes.NormalizePass(), private, *fx_passes.default_npu_pipeline().passes[2:])
    )
    wanted = 2 * pytestconfig.getoption("programs")
    seed, ran, matched = pytestconfig.getoption("first_program"), 0, 0
    while ran < wanted:
        random = Random(seed)
        source = random_copies(random)
        level = ("dynamo", "aten")[seed % 4 == 0]
        seed += 1
        names: dict[str, object] = {"torch": torch}
        exec(source, names)
        program = names["program"]
        assert callable(program)
        with torch.no_grad():
            try:
                expected = _outcome(program)
            except (RuntimeError, IndexError):
                continue
            found, matches = _rewritten(level, program, dynamic=False, pipeline=pipeline)
        ran += 1
        matched += matches > 0
        # Results, a, b and c, once as they are and once after the results were written.
        unknown = {len(expected) // 2 - 1, len(expected) - 1}
        known = [position for position in range(len(expected)) if position not in unknown]
        assert _equal([found[n] for n in known], [expected[n] for n in known]), (
            f"seed {seed - 1}, {level}:\n{source}"
        )
    assert matched > wanted // 4
