"""Returns the graph that Dynamo passes to a backend."""

from __future__ import annotations

from typing import TYPE_CHECKING

import torch

from piecewise_split.torch_internals import mark_dynamic

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence


def dynamo_graph(
    function: Callable[..., object], *arguments: object, dynamic_dim: int | None = None
) -> tuple[torch.fx.GraphModule, tuple[object, ...]]:
    """Trace a function or module with Dynamo and return its single graph.

    Args:
        function: Argument of ``torch.compile``. It is run once, eagerly.
        *arguments: Its positional arguments; tensors on any device.
        dynamic_dim: Dimension of every tensor argument to mark dynamic; its size must be 2 or more.

    Returns:
        The Dynamo graph, with ``example_value`` metadata, and its flat arguments for this call:
        parameters, symbols, tensors, in the order of its placeholders.

    Raises:
        RuntimeError: Dynamo made no graph, or several.
    """
    for argument in arguments:
        if dynamic_dim is not None and isinstance(argument, torch.Tensor):
            mark_dynamic(argument, dynamic_dim)
    graphs: list[torch.fx.GraphModule] = []
    inputs: list[tuple[object, ...]] = []

    def keep(
        graph_module: torch.fx.GraphModule, _examples: Sequence[object]
    ) -> Callable[..., object]:
        graphs.append(graph_module)

        def run(*flat: object) -> object:
            inputs.append(flat)
            return graph_module.forward(*flat)

        return run

    torch.compile(function, backend=keep, fullgraph=True, dynamic=False)(*arguments)
    if len(graphs) != 1 or len(inputs) != 1:
        raise RuntimeError(f"Tracing {function!r}: expected one graph, Dynamo made {len(graphs)}.")
    return graphs[0], inputs[0]
