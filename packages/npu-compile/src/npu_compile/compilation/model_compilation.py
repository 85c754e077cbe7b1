"""The front door: ``compile_model(model, config)``."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from npu_compile.compilation.compiled_model import CompiledModel
from npu_compile.configuration.config import CompileConfig
from npu_graph_runtime import NpuDevice

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from fx_passes import Pipeline
    from npu_graph_runtime import GraphContext, GraphDevice
    from npu_graph_runtime.observer import RuntimeObserver


def compile_model(
    model: Callable[..., Any],
    config: CompileConfig | Mapping[str, Any] | None = None,
    *,
    device: GraphDevice | None = None,
    dynamic_arg_dims: Mapping[str, tuple[int, ...]] | None = None,
    context: GraphContext | None = None,
    observer: RuntimeObserver | None = None,
    pipeline: Pipeline | None = None,
) -> CompiledModel:
    """Compile a model for NPU graph execution.

    Nothing runs yet: Dynamo compiles at the first call, graphs are captured inside a capture
    session, which a :class:`~npu_compile.DecodeRunner` opens.

    Args:
        model: a module or function on tensors that Dynamo traces as one graph. What Dynamo must
            not look into (attention with host arguments) is an opaque custom operator.
        config: how to run it; a mapping is read by :meth:`CompileConfig.from_mapping`, ``None``
            fuses and runs eagerly.
        device: the device seam; by default the current NPU.
        dynamic_arg_dims: for each tensor argument the dimensions whose size changes between calls.
        context: says at each call of the model what its run mode and graph key are; by default the
            compiled model makes one. In mode ``breakable`` the model's functions are marked by
            ``runs_eagerly`` of the same one.
        observer: told of captures and replays.
        pipeline: rewrites the graph, in place of the pipeline that ``config.fusions`` names: rules
            of your own, those for collectives of ``fx_passes.fusions.parallel``, or passes with
            other arguments, such as ``ForwardCopiesPass(private=...)``.

    Raises:
        ConfigError: the configuration cannot be used.
        SiblingVersionError: a package that this one joins is outside of the stated range.
        DeviceUnavailableError: no device was given and there is no NPU.
    """
    config = CompileConfig.of(config)
    return CompiledModel(
        model,
        config,
        device=NpuDevice() if device is None else device,
        dynamic_arg_dims=dynamic_arg_dims,
        context=context,
        observer=observer,
        pipeline=pipeline,
    )
