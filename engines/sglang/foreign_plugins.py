"""Plugins of SGLang that are not this repository's, which hook the same functions as others do."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from pathlib import Path

CALLED = "sglang.srt.utils.common.is_npu"
"""A function that each of them hooks, and no plugin of ours."""
SHARED = "sglang.srt.model_executor.runner_backend.utils.resolve_prefill_backend"
"""A function that ours hooks too."""
METHOD = (
    "sglang.srt.hardware_backend.npu.graph_runner.npu_cudagraph_backend"
    ".NPUCudaGraphBackend.capture_one"
)
"""A method of a class that ours replaces."""
CALLS: list[str] = []
"""Names of those whose hook was called."""


def first() -> None:
    """Hook functions; the engine loads this before ours."""
    _hook("first")


def last() -> None:
    """Hook the same functions; the engine loads this after ours."""
    _hook("last")


def replace() -> None:
    """Replace the class that ours replaces; the engine loads this after ours."""
    from sglang.srt.hardware_backend.npu.graph_runner import npu_cudagraph_backend as module
    from sglang.srt.plugins.hook_registry import HookRegistry, HookType

    own = module.NPUCudaGraphBackend
    made = type("ForeignBackend", (own,), {})
    HookRegistry.register(f"{own.__module__}.{own.__name__}", made, HookType.REPLACE)


def _hook(name: str) -> None:
    from sglang.srt.plugins.hook_registry import HookRegistry, HookType

    def around(original: Any, *args: Any, **kwargs: Any) -> Any:
        CALLS.append(name)
        return original(*args, **kwargs)

    around.__qualname__ = name
    for target in (CALLED, SHARED, METHOD):
        HookRegistry.register(target, around, HookType.AROUND)


def install(folder: Path, name: str) -> str:
    """Write the metadata of a plugin of this module, and return the folder to find it in.

    Args:
        folder: Of the metadata.
        name: Of the function here.
    """
    found_in = folder / name
    metadata = found_in / f"foreign_{name}-1.0.dist-info"
    metadata.mkdir(parents=True)
    about = f"Metadata-Version: 2.1\nName: foreign-{name}\nVersion: 1.0\n"
    (metadata / "METADATA").write_text(about)
    point = f"[sglang.srt.plugins]\nforeign_{name} = {__name__}:{name}\n"
    (metadata / "entry_points.txt").write_text(point)
    return str(found_in)
