"""Tiny Qwen3 models for the command ``npu-compile``: explained, planned, timed and traced.

``npu-compile explain qwen3_engine.demonstration.explained_model:tiny_qwen3 --html page.html`` on an
NPU, and with ``cann-sim run --`` in front on any machine.
"""

from __future__ import annotations

import tempfile
from typing import TYPE_CHECKING, Any

import torch

from attn_update import ParameterGroup, Recorder
from npu_compile import CompileConfig, CompileMode, InputSpec
from npu_graph_runtime import GraphContext, NpuDevice, runs_eagerly
from qwen3_engine.qwen3.kv_cache import BLOCK_SIZE, num_blocks_for
from qwen3_engine.qwen3.model_loader import load_model
from qwen3_engine.tiny_checkpoint import TinyShape, write_tiny_checkpoint

if TYPE_CHECKING:
    from collections.abc import Mapping

_ROWS = 8
_MAX_LENGTH = 512
_STEP_ARGUMENTS = ("actual_seq_lengths", "actual_seq_lengths_kv")


def tiny_qwen3() -> dict[str, object]:
    """Return the description of a model with two layers for `npu-compile`.

    Write such a function for your own model. It returns the model, example inputs of a decode
    step, the configuration that the engine compiles it with, and, for the commands that run steps,
    the recorder of its attention and the lengths of each step.
    """
    return qwen3_of(num_layers=2)


def one_layer() -> dict[str, object]:
    """Return the description of a model with one layer, which makes a readable picture."""
    return qwen3_of(num_layers=1)


def four_layers() -> dict[str, object]:
    """Return the description of a model with four layers, decoded in whole graphs."""
    return qwen3_of(num_layers=4, mode=CompileMode.FULL, capture_sizes=(_ROWS,))


def qwen3_of(
    num_layers: int,
    *,
    mode: CompileMode = CompileMode.FULL_DECODE_AND_PIECEWISE,
    capture_sizes: tuple[int, ...] = (1, 2, 4, _ROWS),
) -> dict[str, object]:
    """Return the description of a model for `npu-compile`.

    Args:
        num_layers: number of layers.
        mode: mode of its configuration.
        capture_sizes: decode capture sizes.
    """
    device, context = NpuDevice(), GraphContext()
    recorder = Recorder(device)

    def attend(layer_name: str, arguments: Mapping[str, object], /) -> object:
        return recorder.attention(layer_name, "fused_infer_attention_v1", arguments)

    with tempfile.TemporaryDirectory() as folder:
        model = load_model(
            write_tiny_checkpoint(folder, shape=TinyShape(num_layers=num_layers)),
            device=device.torch_device,
            num_blocks=_ROWS + 1,
            max_length=_MAX_LENGTH,
            attend=attend,
            mark=runs_eagerly(context),
        )
    state = model.attention.step_state

    def set_lengths(lengths: Mapping[str, Mapping[str, Any]]) -> None:
        state.load_sums(*(lengths["default"][name] for name in _STEP_ARGUMENTS))

    def set_prefill_lengths(lengths: Mapping[str, Mapping[str, Any]]) -> None:
        sums = (lengths["default"][name] for name in _STEP_ARGUMENTS)
        state.load_sums(*sums, is_padded=True)

    # Each row has a block of its own, and writes into the first slot of it.
    rows = torch.arange(_ROWS, dtype=torch.int32)
    inputs = {
        "input_ids": rows,
        "positions": rows.to(torch.int64),
        "slot_mapping": BLOCK_SIZE + rows * BLOCK_SIZE,
        "block_table": (1 + rows)[:, None].repeat(1, num_blocks_for(_MAX_LENGTH)),
    }
    return {
        "model": model,
        "inputs": {name: value.to(device.torch_device) for name, value in inputs.items()},
        "config": CompileConfig(
            mode=mode,
            splitting_ops=(model.attention.name,),
            capture_sizes=capture_sizes,
            prefill_capture_sizes=(64, 128),
        ),
        "dynamic_arg_dims": dict.fromkeys(inputs, (0,)),
        "device": device,
        "context": context,
        "decode": {
            "recorder": recorder,
            "groups": {"default": ParameterGroup(arguments=frozenset(_STEP_ARGUMENTS))},
            "set_lengths": set_lengths,
            "lengths": lambda rows, step: _lengths(range(1, rows + 1), [1 + step % 64] * rows),
        },
        "prefill": {
            "inputs": _prefill_specs(inputs),
            "max_sequences": _ROWS,
            "set_lengths": set_prefill_lengths,
            "lengths": lambda rows, sequences: _lengths([rows] * sequences, [0] * sequences),
        },
    }


def _lengths(query_sums: Any, kv_lengths: Any) -> dict[str, dict[str, list[int]]]:
    return {
        "default": dict(zip(_STEP_ARGUMENTS, (list(query_sums), list(kv_lengths)), strict=True))
    }


def _prefill_specs(inputs: Mapping[str, torch.Tensor]) -> dict[str, InputSpec]:
    """Return one row a token for each input but the table, which has one a sequence."""
    return {
        name: InputSpec(
            dtype=value.dtype,
            trailing_shape=tuple(value.shape[1:]),
            per_sequence=name == "block_table",
        )
        for name, value in inputs.items()
    }
