"""What our worker needs to know about this release: the worker it would choose, and the fusions."""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

from vllm_ascend.ascend_config import init_ascend_config
from vllm_ascend.utils import is_310p

if TYPE_CHECKING:
    from collections.abc import Mapping

    from vllm_npu_graph.v0_23.fusions import FusionPass

OWN_WORKER = "vllm_ascend.worker.worker.NPUWorker"


def resolve_as_auto(vllm_config: Any) -> str:
    """Set what the engine leaves out if a worker is named; return the worker it would choose.

    The same as in `NPUPlatform.check_and_update_config` of vllm-ascend 0.23.0, which
    has no function for it. The worker is the first to read these values.
    """
    if not vllm_config.compilation_config.pass_config.enable_sp:
        # Else vLLM divides the tokens of experts between the ranks of a layer.
        vllm_config.parallel_config.all2all_backend = "flashinfer_all2allv"
    if is_310p():
        return "vllm_ascend._310p.worker_310p.NPUWorker310"
    if init_ascend_config(vllm_config).xlite_graph_config.enabled:
        return "vllm_ascend.xlite.xlite_worker.XliteWorker"
    return OWN_WORKER


def add_fusions(vllm_config: Any, settings: Mapping[str, object]) -> FusionPass | None:
    """Add the fusion pass to the configuration; see `vllm_npu_graph.v0_23.fusions.add_fusions`."""
    made: FusionPass = import_module(f"{__package__}.fusions").add_fusions(vllm_config, settings)
    return made


def add_sizes(_worker: Any) -> None:
    """Leave the capture sizes as they are: others were not tested with this release."""


def find_unplanned(_worker: Any) -> str | None:
    """Return why the graph memory of a worker is not planned."""
    return "it was not tested with this release"
