"""The patterns that vllm-ascend rewrites, and the result of fx-passes on the same graphs.

Run as ``cann-sim run -- python -m engines.pages.vllm_patterns``. Every pattern class of the
installed vllm-ascend is created as its own passes create it, its pattern is traced, and the graph
is passed to fx-passes: to the default pipeline, to the one with the engine's forms, and to the one
with the rules for tensor parallelism of two ranks. Then the same is done with the operators that
the engine's layers emit. The table is compared with docs/vllm-ascend-patterns.md; ``--write``
writes it there.
"""

from __future__ import annotations

import argparse
import dataclasses
import difflib
import importlib
import os
import socket
import sys
import tempfile
from pathlib import Path
from typing import TYPE_CHECKING, Any
from unittest import mock

from engines.vllm.without_device import stand_ins

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from fx_passes import Pipeline

DOCUMENT = Path(__file__).parents[2] / "docs" / "vllm-ascend-patterns.md"
RANKS = 2
PASSES = "vllm_ascend.compilation.passes"
DEVICE = "Ascend950"
# Examples of a last dimension that the kernels do not take, and rows that two ranks do not share.
WIDER = {4: 64, 5: 4}
# Rules that bring a graph into another form; the fusion is another's.
PREPARING = (
    "vllm_ascend_norm",
    "vllm_ascend_quantize",
    "vllm_ascend_all_reduce",
    "vllm_ascend_gemm_all_reduce",
    "vllm_ascend_all_gather",
    "vllm_ascend_chunk_residual",
)
OPERATORS = {
    # Compiled for an NPU: by vllm-ascend's build, and by Triton-Ascend.
    "_C_ascend": (
        (
            "npu_add_rms_norm_bias(Tensor x1, Tensor x2, Tensor gamma, Tensor? beta=None, "
            "float epsilon=1e-6) -> (Tensor y, Tensor rstd, Tensor x)"
        ),
    ),
    "vllm": tuple(
        f"{name}(Tensor input, Tensor cos_sin_cache, Tensor positions, Tensor q_weight, "
        "Tensor k_weight, SymInt q_hidden_size, SymInt kv_hidden_size, SymInt head_dim, float eps, "
        "Tensor? q_bias=None, Tensor? k_bias=None) -> (Tensor, Tensor, Tensor)"
        for name in ("qkv_rmsnorm_rope", "qkv_rmsnorm_rope_simt")
    ),
}


@dataclasses.dataclass(frozen=True, kw_only=True)
class Row:
    """A graph to rewrite.

    Attributes:
        file: Of the engine's pass, or of its layer.
        name: Of the pattern.
        function: Traced.
        inputs: Its tensors.
        scalars: Its numbers, by name.
        remark: What no near miss can say.
    """

    file: str
    name: str
    function: Callable[..., object]
    inputs: list[Any]
    scalars: dict[str, int] = dataclasses.field(default_factory=dict)
    remark: str = ""

    def traced(self, *tensors: Any) -> object:
        """Return the result of the function, or its placeholder in a graph that continues."""
        if self.file == "sequence_parallelism":
            # The engine reduces in place, which is nobody's affair where it has just computed that.
            tensors = (tensors[0].relu(), *tensors[1:])
        result = self.function(*tensors, **self.scalars)
        # What a graph returns has memory of its own, so a pattern that shares memory needs a user.
        return result.relu() if self.name == "AllGatherChunkNoOpPattern" else result


def declare_operators() -> list[object]:
    """Declare operators that only a build for an NPU registers; keep the result alive."""
    import torch

    kept: list[object] = []
    for namespace, schemas in OPERATORS.items():
        library = torch.library.Library(namespace, "FRAGMENT")
        for schema in schemas:
            # The simulator's plugin may have been first.
            if not hasattr(getattr(torch.ops, namespace), schema.partition("(")[0]):
                library.define(schema)
        kept.append(library)

    @torch.library.register_fake("_C_ascend::npu_add_rms_norm_bias")
    def _(x1: Any, x2: Any, gamma: Any, beta: Any = None, epsilon: float = 1e-6) -> Any:
        del x2, gamma, beta, epsilon
        rstd = x1.new_empty((*x1.shape[:-1], 1), dtype=torch.float32)
        return torch.empty_like(x1), rstd, torch.empty_like(x1)

    return kept


def join_ranks(rank: int, port: int) -> str:
    """Make the engine's groups of two ranks, by HCCL on the simulator; return the communicator."""
    import torch
    from vllm.config import VllmConfig, set_current_vllm_config
    from vllm.distributed import parallel_state

    torch.npu.set_device(rank)
    with set_current_vllm_config(VllmConfig()):
        parallel_state.init_distributed_environment(
            world_size=RANKS,
            rank=rank,
            distributed_init_method=f"tcp://127.0.0.1:{port}",
            local_rank=rank,
            backend="hccl",
        )
        parallel_state.initialize_model_parallel(RANKS)
    backend = parallel_state.get_tp_group().device_group._get_backend(torch.device("npu"))
    # HCCL makes the communicator when the first rank requests it, and waits for the others.
    return str(backend.get_hccl_comm_name(rank))


def make_config(folder: Path) -> Any:
    """Return the engine's configuration of a tiny Qwen3."""
    import torch
    from engines.models.tiny_qwen3 import write_checkpoint
    from vllm.config import ModelConfig, VllmConfig

    write_checkpoint(folder, num_layers=1, dtype=torch.bfloat16)
    model = ModelConfig(model=str(folder), skip_tokenizer_init=True, dtype="bfloat16")
    return VllmConfig(model_config=model)


def pattern_rows(config: Any) -> Iterator[Row]:
    """Yield a row for every pattern class of the engine."""
    heads = {"head_dim": 128, "num_heads": 4, "num_kv_heads": 2}
    files = (
        "norm_quant_fusion_pass",
        "qknorm_rope_fusion_pass",
        "muls_add_pass",
        "allreduce_rmsnorm_fusion_pass",
        "sequence_parallelism",
        "sequence_parallelism_moe",
    )
    for file in files:
        module = importlib.import_module(f"{PASSES}.{file}")
        for name, found in vars(module).items():
            if getattr(found, "__module__", "") != module.__name__ or not name.endswith(
                ("Pattern", "PatternWithBias")
            ):
                continue
            options = heads if file.startswith("qknorm") else {}
            made = found(config, **options)
            scalars = made.get_scalar_inputs() if hasattr(made, "get_scalar_inputs") else {}
            if hasattr(made, "get_pattern"):
                yield Row(
                    file=file, name=name, function=made.get_pattern(), inputs=made.get_inputs()
                )
                continue
            with mock.patch("torch._inductor.pattern_matcher.register_replacement") as register:
                made.register(None)
            pattern, _, inputs, *_ = register.call_args.args
            yield Row(file=file, name=name, function=pattern, inputs=inputs, scalars=scalars)


def layer_rows() -> Iterator[Row]:  # noqa: C901 - a function for each layer
    """Yield the operators that the engine's layers emit, in the same spelling."""
    import torch
    import torch_npu

    def tensors(*shapes: tuple[int, ...], dtype: torch.dtype = torch.bfloat16) -> list[Any]:
        return [torch.ones(shape, dtype=dtype, device="npu") for shape in shapes]

    ascend, vllm = torch.ops._C_ascend, torch.ops.vllm
    rows, row = (8, 64), (64,)

    def normed(x: Any, residual: Any, weight: Any, bias: Any = None) -> tuple[Any, Any]:
        residual = vllm.maybe_chunk_residual(x, residual)
        y, _, total = ascend.npu_add_rms_norm_bias(x, residual, weight, bias, 1e-6)
        return y, total

    def dynamic(x: Any, residual: Any, weight: Any) -> object:
        y, total = normed(x, residual, weight)
        return (*torch_npu.npu_dynamic_quant(y, dst_type=torch.int8), total)

    def gemma(x: Any, residual: Any, weight: Any) -> object:
        y, total = normed(x, residual, 1.0 + weight)
        return (*torch_npu.npu_dynamic_quant(y, dst_type=torch.int8), total)

    def first(x: Any, weight: Any) -> object:
        y, _ = torch_npu.npu_rms_norm(x, weight, 1e-6)
        return torch_npu.npu_dynamic_quant(y, dst_type=torch.int8)

    def static(x: Any, residual: Any, weight: Any, *scale: Any) -> object:
        y, total = normed(x, residual, weight)
        return vllm.quantize(y, *scale), total

    def twice(x: Any, residual: Any, weight: Any, *scales: Any) -> object:
        y, total = normed(x, residual, weight)
        return vllm.quantize(y, *scales[:3]), vllm.quantize(y, *scales[3:]), total

    def only_norm(x: Any, residual: Any, weight: Any, bias: Any) -> object:
        return normed(x, residual, weight, bias)

    def swiglu_dynamic(x: Any) -> object:
        return torch_npu.npu_dynamic_quant(torch_npu.npu_swiglu(x), dst_type=torch.int8)

    def swiglu_static(x: Any, *scale: Any) -> object:
        return vllm.quantize(torch_npu.npu_swiglu(x), *scale)

    norm = tensors(rows, rows, row)
    scale = tensors(row, row, row)
    half = tensors(rows, rows, row, row, row, row, dtype=torch.float16)
    cases: tuple[tuple[str, str, Callable[..., object], list[Any]], ...] = (
        ("AscendRMSNorm, AscendW8A8DynamicLinearMethod", "layernorm", dynamic, norm),
        ("AscendGemmaRMSNorm, AscendW8A8DynamicLinearMethod", "layernorm", gemma, norm),
        ("AscendRMSNorm of the first layer, the same", "layernorm", first, [norm[0], norm[2]]),
        ("AscendRMSNorm, AscendW8A8LinearMethod", "layernorm", static, [*norm, *scale]),
        ("the same in float16", "layernorm", static, half),
        (
            "AscendRMSNorm, two of AscendW8A8LinearMethod",
            "layernorm",
            twice,
            [*norm, *scale, *tensors(row, row, row)],
        ),
        ("AscendRMSNorm with a bias", "layernorm", only_norm, [*norm, scale[0]]),
        ("AscendSiluAndMul, AscendW8A8DynamicLinearMethod", "activation", swiglu_dynamic, norm[:1]),
        (
            "AscendSiluAndMul, AscendW8A8LinearMethod",
            "activation",
            swiglu_static,
            [norm[0], *tensors((32,), (32,), (32,))],
        ),
    )
    for name, file, function, inputs in cases:
        # Clones, so that no two inputs are one tensor.
        given = [each.clone() for each in inputs]
        remark = "torch_npu has no kernel for it" if function is first else ""
        yield Row(file=file, name=name, function=function, inputs=given, remark=remark)


def noop_row() -> Row:
    """Return the row of the engine's pass for no-ops, which has no pattern class."""
    import torch

    x = torch.ones((8, 64), device="npu")
    return Row(
        file="noop_elimination",
        name="NoOpEliminationPass (a function)",
        function=lambda x: x.view(8, 64).relu(),
        inputs=[x],
    )


def pipelines(communicator: str) -> dict[str, Pipeline]:
    """Return the pipelines of the table, by their columns."""
    from vllm.distributed import get_tp_group

    import fx_passes
    from fx_passes.dialects import vllm_ascend_dialect
    from fx_passes.fusions import (
        ParallelGroup,
        fuse_matmul_all_reduce,
        remove_gather_of_own_shard,
        shard_all_reduce_norm,
    )

    tensor_parallel = get_tp_group()
    name = tensor_parallel.device_group.group_name
    group = ParallelGroup(name=name, rank=0, size=RANKS, communicator=communicator)
    default = fx_passes.default_npu_pipeline(soc=DEVICE)
    normalize, *fusions = default.passes
    parallel = fx_passes.RulePass(
        name="parallel",
        rules=(
            fuse_matmul_all_reduce((group,)),
            shard_all_reduce_norm((group,)),
            *remove_gather_of_own_shard((group,)),
        ),
    )

    def with_forms(*passes: Any, **options: Any) -> Pipeline:
        forms = fx_passes.RulePass(name="forms", rules=vllm_ascend_dialect(**options))
        return fx_passes.Pipeline(passes=(normalize, forms, *passes, *fusions))

    names = {tensor_parallel.unique_name: name}
    return {
        "default": default,
        "forms": with_forms(),
        "parallel": with_forms(parallel, process_groups=names, whole_residuals=True),
    }


def run_row(row: Row, columns: dict[str, Pipeline]) -> list[str]:
    """Return the cells of a row."""
    import torch
    from torch.fx.experimental.proxy_tensor import make_fx

    inputs = []
    for tensor in row.inputs:
        # The engine's fake of its product of matrices knows two dimensions only.
        shape = tensor.flatten(0, -2).shape if tensor.dim() == 3 else tensor.shape
        shape = [WIDER.get(size, size) for size in shape]
        dtype = torch.bfloat16 if tensor.dtype == torch.float32 else tensor.dtype
        inputs.append(tensor.new_ones(shape).to(dtype))
    cells = []
    called, reasons = [""], []
    for pipeline in columns.values():
        module = make_fx(row.traced, tracing_mode="fake")(*inputs)
        report = pipeline.run(module).report
        fused = any(
            rule.matches and rule.rule not in PREPARING
            for each in report.passes
            if each.name != "noops" or row.file == "noop_elimination"
            for rule in each.rules
        )
        cells.append("yes" if fused else "-")
        called = [
            str(node.target).removesuffix(".default")
            for node in module.graph.nodes
            if node.op == "call_function" and "getitem" not in str(node.target)
        ]
        reasons = [] if fused else [miss.reason for miss in report.near_misses()]
    reasons += [row.remark] if row.remark else []
    return [*cells, ", ".join(f"`{name}`" for name in called), "; ".join(dict.fromkeys(reasons))]


def document(config: Any, communicator: str) -> str:
    """Return the page."""
    columns = pipelines(communicator)
    names = ("file", "pattern", *columns, "graph after the last", "near misses, remarks")
    head = f"| {' | '.join(names)} |\n{'|---' * len(names)}|"

    def table(rows: Iterator[Row]) -> tuple[str, list[list[str]]]:
        cells = [[row.file, row.name, *run_row(row, columns)] for row in rows]
        return "\n".join([head, *("| " + " | ".join(each) + " |" for each in cells)]), cells

    patterns, cells = table(iter([*pattern_rows(config), noop_row()]))
    layers, _ = table(layer_rows())
    sums = [sum(each[column] == "yes" for each in cells) for column in (2, 3, 4)]
    return f"""# Patterns of vllm-ascend 0.23.0 that fx-passes fuses

`./nox -s vllm_ascend_patterns -- --write` generates this page from the installed engine; without
`--write` the session fails if this page differs. *default* is
`default_npu_pipeline(soc="{DEVICE}")`; *forms* adds `vllm_ascend_dialect()` before the fusions;
*parallel* also adds `fuse_matmul_all_reduce`, `shard_all_reduce_norm` and
`remove_gather_of_own_shard` for two ranks, and `whole_residuals=True`. The graphs are traced from
the engine's pattern classes on their own example inputs, in bfloat16, with three changes: a width
of 4, which no kernel supports, becomes 64; shards of 5 tokens for 8, of which two are padding,
become 4; three dimensions become two, as in layers. In the patterns of `sequence_parallelism`, the
reduced value is computed in the graph, as in an engine, because it is reduced in place, which would
be visible in a graph input.

## Pattern classes: {sums[0]}, {sums[1]} and {sums[2]} of {len(cells)}

{patterns}

## Operators that layers emit

{layers}
"""


def main() -> int:
    """Write or compare the page; return the exit status."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--write", action="store_true", help="write the page")
    options = parser.parse_args()
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    other = os.fork()
    communicator = join_ranks(0 if other else 1, port)
    if not other:
        os._exit(0)
    os.waitpid(other, 0)
    kept = declare_operators()
    from vllm_ascend.ascend_forward_context import set_ascend_forward_context

    with tempfile.TemporaryDirectory() as folder:
        config = make_config(Path(folder))
        # The engine's operators read its state, also when they are traced.
        with set_ascend_forward_context(None, config, num_tokens=8):
            made = document(config, communicator)
    del kept
    found = DOCUMENT.read_text() if DOCUMENT.exists() else ""
    if options.write:
        DOCUMENT.write_text(made)
    elif made != found:
        lines = difflib.unified_diff(found.splitlines(), made.splitlines(), "committed", "made")
        print("\n".join(lines))
        print(f"{DOCUMENT.name} differs from what the engine gives; write it with `--write`")
        return 1
    print(f"{DOCUMENT.name} is what the engine gives")
    return 0


if __name__ == "__main__":
    stand_ins.set_environment()
    kept = stand_ins.prepare()
    import vllm
    import vllm.model_executor.models.utils  # noqa: F401 - registers operators, as the next do
    import vllm_ascend.ops  # noqa: F401

    stand_ins.inspect_models_here()
    sys.exit(main())
