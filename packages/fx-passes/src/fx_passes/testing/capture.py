"""Graphs captured by the real torch.compile, at the level of Dynamo or of ATen."""

from __future__ import annotations

from typing import TYPE_CHECKING, Literal

import torch

from fx_passes.torch_internals import aot_autograd, mark_dynamic

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from torch.fx import GraphModule


GraphLevel = Literal["dynamo", "aten"]


def capture_graph(
    function: Callable[..., object],
    inputs: Sequence[object],
    *,
    level: GraphLevel = "dynamo",
    dynamic: Mapping[int, int] | None = None,
) -> GraphModule:
    """Capture a function with torch.compile and return the graph a backend gets.

    Forgets everything that torch.compile has compiled in this process, so that the function is
    traced even if it was before.

    Args:
        function: What to capture; must give one graph.
        inputs: Its inputs; meta tensors do, nothing is run on them.
        level: `dynamo` for what Dynamo records (packets, methods, builtins), `aten` for what
            AOTAutograd makes of it without decompositions (overloads, functional).
        dynamic: Which dimension of which input, by position, is symbolic.

    Returns:
        The module. Its placeholders are in the order in which Dynamo found the inputs.

    Raises:
        RuntimeError: torch.compile did not hand over a graph.
    """
    captured: list[GraphModule] = []

    def keep(graph_module: GraphModule, example_inputs: Sequence[object]) -> object:
        del example_inputs
        captured.append(graph_module)
        return graph_module.forward

    backend = keep if level == "dynamo" else aot_autograd(fw_compiler=keep)
    torch.compiler.reset()
    for position, dimension in (dynamic or {}).items():
        value = inputs[position]
        if isinstance(value, torch.Tensor):
            mark_dynamic(value, dimension)
    compiled = torch.compile(function, backend=backend, fullgraph=True, dynamic=None)
    with torch.no_grad():
        compiled(*inputs)
    if not captured:
        raise RuntimeError(
            f"capturing {function}: torch.compile called no backend; a function without operators "
            "on tensors has no graph"
        )
    return captured[0]
