"""A tiny Qwen3 for ``npu-compile explain``: what is fused, where it is split, what is captured.

``npu-compile explain qwen3_engine.demonstration.explained_model:tiny_qwen3 --html page.html`` on an
NPU, and with ``cann-sim run --`` in front on any machine.
"""

from __future__ import annotations

import tempfile

import torch

from npu_compile import CompileConfig, CompileMode
from qwen3_engine.qwen3.kv_cache import num_blocks_for
from qwen3_engine.qwen3.model_loader import load_model
from qwen3_engine.tiny_checkpoint import TinyShape, write_tiny_checkpoint

_ROWS = 8
_MAX_LENGTH = 512


def tiny_qwen3() -> dict[str, object]:
    """Return the arguments of `npu_compile.explain` for a model of two layers.

    A function as an engine would write it for its own model: the model, example inputs of a decode
    step, and the configuration that the engine compiles it with.
    """
    with tempfile.TemporaryDirectory() as folder:
        model = load_model(
            write_tiny_checkpoint(folder, shape=TinyShape(num_layers=2)),
            device="npu",
            num_blocks=_ROWS + 1,
            max_length=_MAX_LENGTH,
        )
    rows = {name: torch.zeros(_ROWS, dtype=torch.int32) for name in ("input_ids", "slot_mapping")}
    inputs = {
        **rows,
        "positions": torch.zeros(_ROWS, dtype=torch.int64),
        "block_table": torch.zeros(_ROWS, num_blocks_for(_MAX_LENGTH), dtype=torch.int32),
    }
    return {
        "model": model,
        "inputs": {name: value.to("npu") for name, value in inputs.items()},
        "config": CompileConfig(
            mode=CompileMode.FULL_DECODE_AND_PIECEWISE,
            splitting_ops=(model.attention.name,),
            capture_sizes=(1, 2, 4, 8),
            prefill_capture_sizes=(64, 128),
        ),
        "dynamic_arg_dims": dict.fromkeys(inputs, (0,)),
    }
