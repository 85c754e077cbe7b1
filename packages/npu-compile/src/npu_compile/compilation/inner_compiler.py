"""The compiler of torch_npu's that mode ``torchair`` runs behind the fusions."""

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
    """The optional part of a device: compilers of FX graphs that its vendor brings."""

    def fx_compiler(self, name: str) -> FxCompiler:
        """Return the compiler of a name; what it returns launches operators and captures nothing.

        The graph is one of Dynamo's, with fake values; inputs and weights are its arguments.
        """


def inner_compiler_of(config: CompileConfig, device: GraphDevice) -> FxCompiler | None:
    """Return what compiles whole graphs behind the fusions; ``None`` but in mode ``torchair``.

    Raises:
        ConfigError: the device brings no compilers.
        FeatureNotSupportedError: it lacks this one, as some builds of torch_npu may.
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
