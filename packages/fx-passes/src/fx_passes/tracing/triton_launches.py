"""The Triton kernels that a traced call launches beside torch's dispatcher."""

from __future__ import annotations

import functools
import importlib
import importlib.util
from contextlib import ExitStack, contextmanager
from typing import TYPE_CHECKING, Any

from torch.fx.experimental.proxy_tensor import disable_proxy_modes_tracing, get_proxy_mode

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

_LAUNCHING = (
    ("triton.runtime.jit", "JITFunction", "run"),
    # Of a kernel that was compiled before.
    ("triton.compiler.compiler", "CompiledKernel", "__getitem__"),
    ("triton.runtime.interpreter", "GridExecutor", "__call__"),
)
"""What each launch goes through, in Triton 3.2 to 3.9: modules, classes and methods.

Triton for Ascend, 3.2.0, has them too.
"""


@contextmanager
def note_triton_launches(noted: list[str]) -> Iterator[None]:
    """Watch Triton, if it is installed, for kernels that launch while a graph is traced.

    The name of each is noted once. A kernel that an operator launches is not among them: the
    operator is in the graph.
    """
    with ExitStack() as undo:
        # The call itself may be the first to import it.
        if importlib.util.find_spec("triton") is not None:
            for module, name, method in _LAUNCHING:
                owner = getattr(importlib.import_module(module), name)
                own = getattr(owner, method)
                undo.callback(setattr, owner, method, own)
                setattr(owner, method, _noting(own, noted))
        yield


def _noting(launch: Callable[..., Any], noted: list[str]) -> Callable[..., Any]:
    @functools.wraps(launch)
    def note(kernel: Any, *args: Any, **kwargs: Any) -> Any:
        if get_proxy_mode() is None or kwargs.get("warmup"):
            return launch(kernel, *args, **kwargs)
        function = getattr(kernel, "fn", None)
        name = f"{function.__module__}.{function.__qualname__}" if function else kernel.name
        if name not in noted:
            noted.append(name)
        # Triton's interpreter computes with tensors, which the graph is not to repeat.
        with disable_proxy_modes_tracing():
            return launch(kernel, *args, **kwargs)

    return note
