"""Real `npu::` operators in every test, on simulated CANN."""

from __future__ import annotations

import cann_sim

# Plugins and test modules import torch, and torch_npu only loads after this.
cann_sim.activate()

import torch_npu  # noqa: E402, F401
