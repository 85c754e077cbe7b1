"""Nodes that launch nothing on a device: allocations and arithmetic on sizes."""

from __future__ import annotations

import math
import operator
from typing import TYPE_CHECKING

import torch

from piecewise_split.operator_names import packet_name
from piecewise_split.planning.size_reads import node_value
from piecewise_split.torch_internals import OpOverload, OpOverloadPacket

if TYPE_CHECKING:
    from piecewise_split.planning.analysed_graph import AnalysedGraph

_ALLOCATING = frozenset({"empty", "empty_like", "empty_strided", "new_empty", "new_empty_strided"})
_SIZE_READING = frozenset({"aten::sym_size", "aten::sym_numel", "aten::sym_stride"})


def is_allocation(node: torch.fx.Node) -> bool:
    """Return whether a node only allocates memory and does not write it.

    Covers ``torch.empty``, ``empty_like``, ``empty_strided``, ``new_empty`` and
    ``new_empty_strided`` as functions, methods, operator packets and operator overloads.
    """
    target = node.target
    if node.op == "call_method":
        return target in _ALLOCATING
    if node.op != "call_function":
        return False
    if isinstance(target, (OpOverload, OpOverloadPacket)):
        namespace, _, name = packet_name(target).partition("::")
        return namespace == "aten" and name in _ALLOCATING
    return target in {torch.empty, torch.empty_like, torch.empty_strided}


def is_host_only(node: torch.fx.Node, analysed: AnalysedGraph) -> bool:
    """Return whether a node only computes sizes and other scalars on the host.

    False for a read of a scalar from a tensor's memory (``item``), which waits for the device.
    """
    if node in analysed.sizes.reads:
        return True
    if node.op == "call_method":
        return node.target in {"size", "stride", "dim", "numel", "ndimension"}
    if node.op != "call_function":
        return False
    target = node.target
    if isinstance(target, (OpOverload, OpOverloadPacket)):
        return packet_name(target) in _SIZE_READING
    module = getattr(target, "__module__", None)
    if module not in {operator.add.__module__, math.__name__} and target not in {
        torch.sym_int,
        torch.sym_max,
        torch.sym_min,
        torch.sym_float,
        torch.sym_not,
    }:
        return False
    return isinstance(node_value(node), (int, float, torch.SymInt, torch.SymFloat, torch.SymBool))
