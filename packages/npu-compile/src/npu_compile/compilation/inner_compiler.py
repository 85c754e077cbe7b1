"""The torch_npu compiler that mode ``torchair`` runs after the fusions."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Protocol, runtime_checkable

from npu_compile.configuration.config import CompileMode
from npu_compile.errors import ConfigError

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    import torch

    from npu_compile.configuration.config import CompileConfig
    from npu_graph_runtime import GraphDevice

    FxCompiler = Callable[[torch.fx.GraphModule, Sequence[Any]], Callable[..., Any]]


@runtime_checkable
class CompilingDevice(Protocol):
    """The optional part of a device that provides FX compilers of its vendor."""

    def fx_compiler(self, name: str) -> FxCompiler:
        """Return the named compiler; its result launches operators and captures nothing.

        It compiles Dynamo graphs with fake values, whose inputs and weights are arguments.
        """


def inner_compiler_of(config: CompileConfig, device: GraphDevice) -> FxCompiler | None:
    """Return the compiler for whole graphs after fusion; ``None`` except in mode ``torchair``.

    Raises:
        ConfigError: The device provides no compilers.
        FeatureNotSupportedError: It lacks this compiler, as some builds of torch_npu do.
    """
    if config.mode is not CompileMode.TORCHAIR:
        return None
    if not isinstance(device, CompilingDevice):
        raise ConfigError(
            f"compiling in mode 'torchair' on {device.name}: the device brings no compilers of FX "
            "graphs, expected one with fx_compiler(), such as npu_graph_runtime.NpuDevice; use "
            "mode 'full' instead, which is the same without them"
        )
    return device.fx_compiler(config.inner_compiler.value)
