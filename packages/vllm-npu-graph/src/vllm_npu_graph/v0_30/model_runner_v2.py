"""vllm-ascend 0.30's model runner v2, unchanged."""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING, Any

from vllm_ascend.worker.v2.model_runner import NPUModelRunner

if TYPE_CHECKING:
    import torch

    from vllm_npu_graph.options import Options

_LOGGER = logging.getLogger("vllm.npu_graph")


class NpuGraphModelRunner(NPUModelRunner):  # type: ignore[misc]
    """The engine's runner: its replays do not wait, and ours were not tested with it."""

    attention_update = None

    def __init__(self, vllm_config: Any, device: torch.device, _options: Options) -> None:
        super().__init__(vllm_config, device)
        _LOGGER.warning("vllm-npu-graph leaves model runner v2 of this release to the engine")
