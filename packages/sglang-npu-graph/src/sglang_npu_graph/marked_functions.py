"""Functions that the engine marks to run eagerly between the captured segments of a step.

Nothing of the engine is imported here.
"""

from __future__ import annotations

import functools
from typing import TYPE_CHECKING, Any

from npu_graph_runtime import runs_eagerly

if TYPE_CHECKING:
    from collections.abc import Callable

    from npu_graph_runtime import CallContext


def run_marked(context: CallContext) -> Callable[..., Any]:
    """Return a wrapper for the call of each function that the engine marks to run eagerly.

    Args:
        context: Context of the backends in this process. While one of them captures, the function
            ends a segment; otherwise the engine's own code runs.
    """

    def call(original: Callable[..., Any], marked: Any, *args: Any, **kwargs: Any) -> Any:
        if context.capture_session is None:
            return original(marked, *args, **kwargs)
        return runs_eagerly(context)(_named(marked))(*args, **kwargs)

    return call


def _named(marked: Any) -> Callable[..., Any]:
    """Return the body of a marked function, with the name that messages call it by."""
    run: Any = functools.partial(marked.run_eager)
    # The engine says nowhere else what it is and whose.
    body: Any = marked._eager_call  # noqa: SLF001
    owner = None
    if isinstance(body, functools.partial):
        body, (owner, *_) = body.func, body.args
    layer = getattr(owner, "layer_id", None)
    run.__name__ = body.__name__ if layer is None else f"{body.__name__} of layer {layer}"
    named: Callable[..., Any] = run
    return named
