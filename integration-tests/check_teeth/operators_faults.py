"""Faults of operators: each computes as another library might."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from check_teeth.fault import Fault

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    import torch


def computes(
    names: str, what: str, change: Callable[[torch.Tensor, Mapping[str, Any]], torch.Tensor]
) -> Fault:
    """Return a fault that changes the results of operators.

    Args:
        names: names of the operators without namespace and overload, separated by spaces.
        what: how they compute, for the table.
        change: returns the changed result, given the simulator's result and the keyword arguments.
    """

    def apply() -> None:
        from torch.utils._python_dispatch import TorchDispatchMode
        from torch.utils._pytree import tree_map_only

        class Changing(TorchDispatchMode):  # type: ignore[no-untyped-call]
            def __torch_dispatch__(
                self, func: Any, types: Any, args: Any = (), kwargs: Any = None
            ) -> Any:
                del types
                given = kwargs or {}
                result = func(*args, **given)
                if func.overloadpacket.__name__ not in names.split():
                    return result
                return tree_map_only(_tensor(), lambda value: change(value, given), result)

        Changing().__enter__()  # type: ignore[no-untyped-call]

    return Fault(what=f"`{names}` {what}", apply=apply)


def _tensor() -> type:
    import torch

    return torch.Tensor


def _counts_in_its_dtype(value: torch.Tensor, _: Mapping[str, Any]) -> torch.Tensor:
    return value.clamp(max=256 if "bfloat16" in str(value.dtype) else 2048)


def _away_from_zero(value: torch.Tensor, _: Mapping[str, Any]) -> torch.Tensor:
    return value + 2 * value.sign() if value.is_floating_point() else value


def _next(value: torch.Tensor, _: Mapping[str, Any]) -> torch.Tensor:
    return value if value.is_floating_point() else (value + 1) % 5


def _no_zeros(value: torch.Tensor, _: Mapping[str, Any]) -> torch.Tensor:
    return value.masked_fill(value == 0, 1)


def _reads_its_mode(value: torch.Tensor, given: Mapping[str, Any]) -> torch.Tensor:
    return value + 1 if given.get("sparse_mode") else value


_FIA = "npu_fused_infer_attention_score"

OPERATORS: Mapping[str, Sequence[Fault]] = {
    "operators.rounding": [computes("add sub", "round away from zero", _away_from_zero)],
    "operators.products": [
        computes("mm bmm linear addmm matmul", "count in the dtype of x", _counts_in_its_dtype)
    ],
    "operators.scaled-products": [
        computes("addmm baddbmm", "count in the dtype of x", _counts_in_its_dtype)
    ],
    "operators.sums": [computes("sum mean", "count in the dtype of x", _counts_in_its_dtype)],
    "operators.ties": [computes("argmax argmin max", "take a later place", _next)],
    "operators.halves": [computes("npu_quantize", "has no zeros", _no_zeros)],
    "operators.not-a-number": [computes("npu_quantize", "has no zeros", _no_zeros)],
    "operators.dynamic": [computes("npu_dynamic_quant", "has no zeros", _no_zeros)],
    "operators.no-keys": [computes(_FIA, "gives 1 without keys", _no_zeros)],
    "operators.causal-with-one-query": [
        computes(_FIA, "counts the sparse mode of one query", _reads_its_mode)
    ],
}
"""Faults, by probe."""
