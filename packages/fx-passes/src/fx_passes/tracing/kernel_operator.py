"""A function that launches a kernel beside torch's dispatcher: an operator while it is traced."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import torch
from torch.fx.experimental.proxy_tensor import get_proxy_mode

if TYPE_CHECKING:
    from collections.abc import Callable


class KernelOperator:
    """Called in place of such a function, with the function before its arguments.

    The operator is defined when this is made, and is there as long as this is.

    Args:
        namespace: Of the operator.
        name: Of the operator; no other in the namespace has it.
        schema: Its arguments and results, as torch spells them. One that returns nothing writes its
            second argument, which the function returns.
    """

    def __init__(self, namespace: str, name: str, schema: str) -> None:
        self.__qualname__ = name
        # Torch has no types for it.
        library: Any = torch.library.Library(namespace, "FRAGMENT")  # type: ignore[no-untyped-call]
        library.define(f"{name}{schema}")
        library.impl(name, self._run, "CompositeExplicitAutograd")
        self._library = library
        self._operator = getattr(getattr(torch.ops, namespace), name)
        self._writes_second = schema.endswith("-> ()")
        self._launch: Callable[..., Any] | None = None

    def __call__(self, launch: Callable[..., Any], *args: Any, **kwargs: Any) -> Any:
        """Launch, and leave an operator in the graph that is being traced, if there is one.

        Args:
            launch: The function; the same in each call.
            args: Of the function.
            kwargs: Of the function.
        """
        if get_proxy_mode() is None:
            return launch(*args, **kwargs)
        self._launch = launch
        result = self._operator(*args, **kwargs)
        # The function returns what it writes, and an operator must not.
        return args[1] if self._writes_second else result

    def _run(self, *args: Any, **kwargs: Any) -> Any:
        if self._launch is None:
            raise RuntimeError(f"running {self._operator}: it is in no graph that was traced")
        result = self._launch(*args, **kwargs)
        return None if self._writes_second else result
