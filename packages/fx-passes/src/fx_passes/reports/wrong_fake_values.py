"""Fake implementations that say otherwise than the kernel, by the release of torch they are of."""

from __future__ import annotations

import torch

# torch_npu 2.10.0.post4, seen against its own kernels over simulated CANN; mended in 2.11. The
# rotary kernel gives a contiguous result whatever its input is; the scales of the masked half of
# the other are empty.
_TORCH_2_10 = frozenset({("npu::npu_rotary_mul", 0), ("npu::npu_add_rms_norm_dynamic_quant", 4)})


def says_otherwise(operator: str, result: int) -> bool:
    """Return whether the fake implementation of an operator is wrong about one of its results.

    Args:
        operator: Its name, ``namespace::name``.
        result: Which of its results, from 0.
    """
    major, minor, *_ = torch.__version__.split(".")
    return (int(major), int(minor)) < (2, 11) and (operator, result) in _TORCH_2_10
