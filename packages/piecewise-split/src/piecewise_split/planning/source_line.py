"""Which line of the model nodes came from."""

from __future__ import annotations

import re
from pathlib import PurePath
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Sequence

    import torch

_FRAME = re.compile(r'File "([^"]+)", line (\d+)')


def source_line(nodes: Sequence[torch.fx.Node]) -> str | None:
    """Return the innermost line of the first node that has a stack trace, or None.

    File and folder alone, so that plans of one model are equal wherever it is installed.
    """
    for node in nodes:
        frames = _FRAME.findall(node.stack_trace or "")
        if frames:
            path, line = frames[-1]
            return f"{PurePath(*PurePath(path).parts[-2:])}:{line}"
    return None
