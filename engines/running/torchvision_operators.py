"""Operators that importing the index's torchvision needs, for both engines' stand-ins."""

from __future__ import annotations

import torch


def declare() -> torch.library.Library:
    """Declare two operators if they are missing; keep the result alive.

    torchvision on the index is built for CUDA; with a torch without CUDA its import fails, because
    these operators of its library are unknown. No text model calls them.
    """
    library = torch.library.Library("torchvision", "FRAGMENT")
    if torch.version.cuda is None:
        library.define("nms(Tensor dets, Tensor scores, float iou_threshold) -> Tensor")
        library.define("qnms(Tensor dets, Tensor scores, float iou_threshold) -> Tensor")
    return library
