"""The origin of nodes in the model: a line of source, and modules."""

from __future__ import annotations

import re
from pathlib import PurePath
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Sequence

    import torch

_FRAME = re.compile(r'File "([^"]+)", line (\d+)')

# How Dynamo says where a traced function found the model: L['self'], G['model'] and the like.
_ROOT = re.compile(r"^\w+\['[^']*'\](?:\.__closure__\[\d+\]\.cell_contents)?\.?")


def source_line(nodes: Sequence[torch.fx.Node]) -> str | None:
    """Return the innermost line of the first node that has a stack trace, or None.

    Includes only file and folder, so that plans of one model are equal wherever it is installed.
    """
    for node in nodes:
        frames = _FRAME.findall(node.stack_trace or "")
        if frames:
            path, line = frames[-1]
            return f"{PurePath(*PurePath(path).parts[-2:])}:{line}"
    return None


def module_range(nodes: Sequence[torch.fx.Node]) -> str | None:
    """Return the path of the module that nodes came from, or of the first and the last one.

    Uses the ``nn_module_stack`` that Dynamo keeps with nodes. Paths are those of
    ``nn.Module.named_modules``; nodes outside modules, or of the model itself, are ignored.
    """
    paths = [path for node in nodes if (path := _module_path(node))]
    if not paths:
        return None
    return paths[0] if paths[0] == paths[-1] else f"{paths[0]} to {paths[-1]}"


def _module_path(node: torch.fx.Node) -> str:
    stack = node.meta.get("nn_module_stack")
    if not isinstance(stack, dict) or not stack:
        return ""
    entry = next(reversed(stack.values()))
    return _ROOT.sub("", str(entry[0])) if isinstance(entry, tuple) else ""
