"""What our worker needs to know about this release: the worker it would choose, and the fusions."""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING, Any

from vllm_ascend.ascend_config import init_ascend_config
from vllm_ascend.device.hardware_profile import (
    HardwareCapability,
    get_current_hardware_profile,
)

if TYPE_CHECKING:
    from collections.abc import Mapping

OWN_WORKER = "vllm_ascend.worker.worker.NPUWorker"

_LOGGER = logging.getLogger("vllm.npu_graph")


def resolve_as_auto(vllm_config: Any) -> str:
    """Return the worker that the engine would choose if none is named.

    The same as in `vllm_ascend.platform._setup_worker_and_scheduler` of 0.30.0rc2, which has no
    function for it. Nothing else in this release depends on whether a worker is named.
    """
    profile = get_current_hardware_profile()
    has_patches = profile.supports(HardwareCapability.STANDARD_WORKER_PATCHES)
    if has_patches and init_ascend_config(vllm_config).xlite_graph_config.enabled:
        return "vllm_ascend.xlite.xlite_worker.XliteWorker"
    return str(profile.default_worker_cls)


def add_fusions(_vllm_config: Any, _settings: Mapping[str, object]) -> None:
    """Log that nothing is fused: our pass was not tested with this release."""
    _LOGGER.warning(
        "vllm-npu-graph fuses nothing: it was not tested with this release of the engine"
    )
