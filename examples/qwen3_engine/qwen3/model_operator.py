"""A torch operator that belongs to one model, under a name of its own."""

from __future__ import annotations

from itertools import count
from typing import TYPE_CHECKING

import torch

if TYPE_CHECKING:
    from collections.abc import Callable


class ModelOperator:
    """An operator that writes into its arguments and returns nothing.

    A compiler does not look inside, and a graph can be split at it. Each object registers an
    operator with its own name, so two models in a process share nothing.

    Args:
        namespace: of the operator.
        stem: of its name, which a number follows.
        schema: the arguments, ``(Tensor query, Tensor(a!) out) -> ()``.
        function: runs on the NPU.

    Attributes:
        name: the qualified name, ``namespace::stem_<n>``, at which a splitter cuts.
        operator: the operator, for calls inside the model.
    """

    def __init__(
        self, namespace: str, stem: str, schema: str, function: Callable[..., None]
    ) -> None:
        library = torch.library.Library(namespace, "FRAGMENT")  # type: ignore[no-untyped-call]
        self._library: torch.library.Library | None = library
        taken = getattr(torch.ops, namespace)
        names = (f"{stem}_{number}" for number in count())
        short_name = next(name for name in names if not hasattr(taken, name))
        library.define(short_name + schema)  # type: ignore[no-untyped-call]
        # PrivateUse1 is the dispatch key of out-of-tree devices, which torch_npu renames to "npu".
        library.impl(short_name, function, "PrivateUse1")  # type: ignore[no-untyped-call]
        self.name = f"{namespace}::{short_name}"
        torch.library.register_fake(self.name, _do_nothing, lib=library)
        self.operator: torch._ops.OpOverload = getattr(taken, short_name).default

    def close(self) -> None:
        """Remove the operator from torch; the model cannot run afterwards.

        The library object removes its registrations when nothing refers to it any more.
        """
        self._library = None


def _do_nothing(*arguments: object) -> None:
    """Run the operator on fake tensors: it only writes into its arguments."""
