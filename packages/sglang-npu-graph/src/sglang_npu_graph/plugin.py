"""Entry point: SGLang's ``sglang.srt.plugins``, called once in each of its processes."""

from __future__ import annotations

import functools
import os
from pkgutil import resolve_name
from typing import Any

from fx_passes import KernelOperator
from npu_graph_runtime import GraphContext
from sglang_npu_graph.errors import HookError
from sglang_npu_graph.marked_functions import run_marked
from sglang_npu_graph.options import VARIABLE, Options

DECODE = "sglang.srt.hardware_backend.npu.graph_runner.npu_cudagraph_backend.NPUCudaGraphBackend"
"""The engine's class of captured decode graphs, which is replaced."""

PREFILL = "sglang.srt.model_executor.runner_backend.utils.resolve_prefill_backend"
"""The engine's choice of what captures prefill, which has no branch for NPUs."""

FORWARD = "sglang.srt.hardware_backend.npu.graph_runner.npu_graph_runner.patch_model_npu"
"""The engine's choice of the forward that a decode graph is captured of."""

MARKED = (
    "sglang.srt.model_executor.runner_backend_utils.breakable_cuda_graph.breakable_cuda_graph"
    "._EagerOnGraphCallable.__call__"
)
"""The call of each function that the engine marks to run eagerly between captured segments."""

START = "sglang.srt.managers.scheduler.Scheduler.__init__"
"""What first uses those parts, after the engine applied the hooks of all plugins."""


def load() -> None:
    """Hook the engine's parts that the environment variable names, if it is there.

    The engine applies the hooks of all plugins together, after the last plugin: hooks that a plugin
    applies earlier shut out those that another plugin registers later for the same function.

    Raises:
        OptionsError: The variable has another value.
        EngineVersionError: The engine is of another version.
        HookError: A part of the engine is not there.
    """
    options = Options.read(os.environ)
    if options is None:
        return
    options.check_engine()
    # Behind the check: what these build upon may be missing in another version.
    from sglang.srt.plugins.hook_registry import HookRegistry, HookType  # noqa: PLC0415

    from sglang_npu_graph.captured_decode_backend import CapturedDecodeBackend  # noqa: PLC0415
    from sglang_npu_graph.decode_backend import Lanes, UpdatedDecodeBackend  # noqa: PLC0415
    from sglang_npu_graph.fused_forward import Fusions  # noqa: PLC0415
    from sglang_npu_graph.kernel_operators import KERNELS  # noqa: PLC0415
    from sglang_npu_graph.prefill_backend import choose_prefill  # noqa: PLC0415

    hooks: list[tuple[str, Any, HookType]] = []
    # What the hooks are made with belongs to this call; all backends in this process share it.
    context = GraphContext()
    if options.decode != "engine":
        shared = {"lanes": Lanes(options.updater, options.native_folder), "context": context}
        base = CapturedDecodeBackend if options.decode == "capture" else UpdatedDecodeBackend
        hooks.append((DECODE, type(base.__name__, (base,), shared), HookType.REPLACE))
    if options.prefill == "breakable":
        hooks.append((PREFILL, choose_prefill(context), HookType.AROUND))
        hooks.append((MARKED, run_marked(context), HookType.AROUND))
    if options.fusions is not None:
        hooks.append((FORWARD, Fusions(options.fusions), HookType.AROUND))
        for target, schema in KERNELS.items():
            operator = KernelOperator("sglang_npu_graph", target.rpartition(".")[2], schema)
            hooks.append((target, operator, HookType.AROUND))
    parts = [(target, _resolve(target), hook) for target, hook, _ in hooks]
    for target, hook, kind in hooks:
        HookRegistry.register(target, hook, kind)
    if parts:
        # The engine only logs a hook that it cannot apply.
        check = functools.partial(_check_hooks, parts)
        HookRegistry.register(START, check, HookType.BEFORE)


def _resolve(target: str) -> Any:
    """Return a part of the engine."""
    try:
        return resolve_name(target)
    except (AttributeError, ImportError) as error:
        raise HookError(
            f"loading sglang-npu-graph: expected the engine to have {target}, found: {error}; set "
            f"{VARIABLE}=0 to do without"
        ) from error


def _check_hooks(parts: list[tuple[str, Any, Any]], *_args: Any, **_kwargs: Any) -> None:
    """Raise HookError if a part of the engine is not replaced, or is replaced by another plugin.

    Args:
        parts: The path of each part, its original, and our hook.
    """
    for target, own, hook in parts:
        found = resolve_name(target)
        if found is own or (isinstance(hook, type) and found is not hook):
            raise HookError(
                f"starting the scheduler with sglang-npu-graph: expected {target} to be hooked by "
                f"{_name(hook)}, found {found.__module__}.{found.__qualname__}; see the engine's "
                f"log for the reason, or set {VARIABLE}=0 to do without"
            )


def _name(hook: Any) -> str:
    return getattr(hook, "__qualname__", type(hook).__qualname__)
