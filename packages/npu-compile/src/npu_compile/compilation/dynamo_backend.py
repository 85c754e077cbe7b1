"""The entry point for ``torch.compile(model, backend="npu_compile")``."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from npu_compile.compilation.backend import Backend
from npu_compile.configuration.config import CompileConfig
from npu_compile.errors import ConfigError
from npu_graph_runtime import GraphContext

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    import torch


def compile_graph(
    graph_module: torch.fx.GraphModule,
    example_inputs: Sequence[Any],
    *,
    options: Mapping[str, Any] | None = None,
) -> Callable[..., Any]:
    """Compile one Dynamo graph.

    Args:
        graph_module: the graph.
        example_inputs: example inputs from Dynamo.
        options: the keys of :class:`CompileConfig`, and ``pipeline``, an ``fx_passes.Pipeline``
            that replaces the one named by ``fusions``. Mode ``piecewise`` also needs ``device`` (a
            ``GraphDevice``) and ``context`` (a ``GraphContext``), because the caller decides when
            to capture. The other capturing modes capture around the compiled model, so a backend
            does not support them.

    Raises:
        ConfigError: An option is unknown or contradicts another one.
    """
    values = dict(options or {})
    device = values.pop("device", None)
    context = values.pop("context", None)
    pipeline = values.pop("pipeline", None)
    config = CompileConfig.from_mapping(values)
    if device is not None and not hasattr(device, "create_graph"):
        raise ConfigError(
            f"torch.compile(backend='npu_compile'): the option `device` is {device!r}, expected a "
            "GraphDevice such as npu_graph_runtime.NpuDevice()"
        )
    if context is not None and not isinstance(context, GraphContext):
        raise ConfigError(
            f"torch.compile(backend='npu_compile'): the option `context` is {context!r}, expected "
            "an npu_graph_runtime.GraphContext"
        )
    backend = Backend(config, device=device, context=context, pipeline=pipeline)
    return backend(graph_module, example_inputs)
