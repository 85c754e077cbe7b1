"""Which keys a mask that is added to the scores lets a query see."""

from __future__ import annotations

from typing import TYPE_CHECKING

import torch
from torch.fx import Node

from fx_passes.memory import views_of

if TYPE_CHECKING:
    from fx_passes.memory import EffectTable


# What is this far below the scores has a weight of zero in every dtype of 16 bits.
_FAR_BELOW = -1e4


def seen_keys(mask: Node, effects: EffectTable) -> Node | None:
    """Return the bool mask of an additive mask, True for a key that is attended to, or None.

    Models build such a mask as `where(seen, 0, minimum of the dtype)`.
    """
    aten = torch.ops.aten
    chosen = {aten.where.self, aten.where.ScalarOther, aten.where.ScalarSelf, aten.where.Scalar}
    if mask.target not in chosen:
        return None
    seen, zero, far_below = mask.args
    if not isinstance(seen, Node) or _number(zero) != 0:
        return None
    number = _number(far_below)
    if number is None or not number <= _FAR_BELOW:
        return None
    tensors = [each for each in (mask, seen, zero, far_below) if isinstance(each, Node)]
    return None if any(_is_written(each, effects) for each in tensors) else seen


def _number(item: object) -> float | None:
    """Return the number that all elements of a tensor are, where its factory tells it."""
    if isinstance(item, (int, float)) and not isinstance(item, bool):
        return float(item)
    if not isinstance(item, Node) or item.op != "call_function":
        return None
    name = str(getattr(item.target, "__name__", item.target)).partition(".")[0]
    if name in {"zeros", "new_zeros", "zeros_like"}:
        return 0.0
    value = {"full": item.args[1:2], "scalar_tensor": item.args[:1], "tensor": item.args[:1]}
    return _number(value[name][0]) if value.get(name) else None


def _is_written(node: Node, effects: EffectTable) -> bool:
    family = (node, *views_of(node, effects))
    return any(value in effects.of(user).writes for value in family for user in value.users)
