"""The door: SGLang's entry point ``sglang.srt.plugins``, called once in each of its processes."""

from __future__ import annotations

import os
from pkgutil import resolve_name

from sglang_npu_graph.errors import HookError
from sglang_npu_graph.options import VARIABLE, Options

TARGET = "sglang.srt.hardware_backend.npu.graph_runner.npu_cudagraph_backend.NPUCudaGraphBackend"
"""The engine's class of captured decode graphs, which is replaced."""


def load() -> None:
    """Replace the engine's decode graphs, if the environment variable says so.

    Raises:
        OptionsError: The variable has another value.
        EngineVersionError: The engine is of another version.
        HookError: The engine's class is still its own, or another plugin's.
    """
    options = Options.read(os.environ)
    if options is None:
        return
    options.check_engine()
    # Behind the check: what it builds upon may be missing in another version.
    from sglang.srt.plugins.hook_registry import HookRegistry, HookType  # noqa: PLC0415

    from sglang_npu_graph.decode_backend import Lanes, UpdatedDecodeBackend  # noqa: PLC0415

    # The lanes belong to this call, and every backend of the engine in this process shares them.
    lanes = {"lanes": Lanes(options.updater)}
    backend = type(UpdatedDecodeBackend.__name__, (UpdatedDecodeBackend,), lanes)
    HookRegistry.register(TARGET, backend, HookType.REPLACE)
    # The engine does this behind the last plugin, and only logs what fails.
    HookRegistry.apply_hooks()
    found = resolve_name(TARGET)
    if found is not backend:
        raise HookError(
            f"loading sglang-npu-graph: expected {TARGET} to be replaced by "
            f"{UpdatedDecodeBackend.__name__}, found {found.__module__}.{found.__qualname__}; see "
            f"the engine's log for the reason, or set {VARIABLE}=0 to do without"
        )
