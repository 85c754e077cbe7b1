"""The graph that Dynamo really hands to a backend."""

from __future__ import annotations

from typing import TYPE_CHECKING

import torch

from piecewise_split.torch_internals import mark_dynamic

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence


def dynamo_graph(
    function: Callable[..., object], *arguments: object, dynamic_dim: int | None = None
) -> tuple[torch.fx.GraphModule, tuple[object, ...]]:
    """Trace a function or module with Dynamo and return its one graph.

    Args:
        function: What ``torch.compile`` would be given. It is run once, eagerly.
        *arguments: Its positional arguments; tensors on any device.
        dynamic_dim: Dimension of every tensor argument to mark dynamic; it must be 2 or more.

    Returns:
        The Dynamo-level graph, with ``example_value`` metadata, and the flat arguments it takes
        for these arguments: parameters, symbols, tensors, in the order of its placeholders.

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
        msg = f"Tracing {function!r}: expected one graph, Dynamo made {len(graphs)}."
        raise RuntimeError(msg)
    return graphs[0], inputs[0]
