"""A capture that copies an input of the CPU, run by `test_input_places.py`; prints the error.

It has a process of its own, because torch_npu's task queue does not survive a rejected copy.
"""

from __future__ import annotations

import json
import sys

import cann_sim

cann_sim.activate()

import torch  # noqa: E402

from npu_compile import DecodeRunner, InputPlace, InputSpec, compile_model  # noqa: E402
from npu_graph_runtime import NpuDevice  # noqa: E402
from npu_graph_runtime.errors import DeviceError  # noqa: E402


def step(ids: torch.Tensor, scales: torch.Tensor) -> torch.Tensor:
    return ids + scales.to(ids.device, non_blocking=True)


def main() -> None:
    specs = {
        "ids": InputSpec(dtype=torch.int32),
        "scales": InputSpec(dtype=torch.float32, pad_value=1, place=InputPlace.CPU),
    }
    config = {"mode": "breakable", "fuse": False, "capture_sizes": [1]}
    runner = DecodeRunner(compile_model(step, config, device=NpuDevice()), inputs=specs)
    refusal = ""
    try:
        runner.capture(lambda _: None)
    except DeviceError as error:
        refusal = str(error)
    sys.stdout.write(json.dumps({"refusal": refusal}) + "\n")


if __name__ == "__main__":
    main()
