"""Which inputs of a graph are weights, so that what is computed from them alone costs no launch."""

from __future__ import annotations

from typing import TYPE_CHECKING

import torch

from fx_passes.graph_argument import value_of
from fx_passes.torch_internals import is_static_input

if TYPE_CHECKING:
    from torch.fx import Node


def is_prepared_weight(node: Node) -> bool:
    """Return whether `FoldConstantsPass` prepares what is computed from an input of a graph.

    So it is for vectors: copies of larger weights would take memory.
    """
    if node.op != "placeholder" or not is_static_input(node):
        return False
    value = value_of(node)
    return isinstance(value, torch.Tensor) and value.dim() <= 1
