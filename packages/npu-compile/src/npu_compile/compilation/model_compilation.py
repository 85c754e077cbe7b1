"""Defines ``compile_model(model, config)``."""

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

    Nothing runs yet. Dynamo compiles at the first call, and graphs are captured inside a capture
    session, which a :class:`~npu_compile.DecodeRunner` opens.

    Args:
        model: a module or function on tensors that Dynamo traces as one graph. Wrap code that
            Dynamo must not trace (attention with host arguments) in a custom operator.
        config: the configuration. A mapping is read by :meth:`CompileConfig.from_mapping`; ``None``
            fuses and runs eagerly.
        device: the device; by default the current NPU.
        dynamic_arg_dims: maps tensor arguments to the dimensions whose size changes between calls.
        context: provides run mode and graph key for each call; by default a new one. In mode
            ``breakable``, pass the context with which you marked functions by ``runs_eagerly``.
        observer: receives captures and replays.
        pipeline: rewrites the graph, instead of the pipeline named by ``config.fusions``. Use it
            for rules of your own, rules for collectives of ``fx_passes.fusions.parallel``, or
            passes with other arguments, such as ``ForwardCopiesPass(private=...)``.

    Raises:
        ConfigError: The configuration is invalid.
        SiblingVersionError: The version of a package that npu-compile uses is outside its range.
        DeviceUnavailableError: No device was given and there is no NPU.
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
