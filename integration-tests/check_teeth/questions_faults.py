"""Faults of open questions, which change the answer."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, Any

from check_teeth.fault import Fault, change_calls, nothing_done, setting
from check_teeth.operators_faults import computes

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    import torch


def _blocks() -> None:
    count, held = [0], [False]

    def answered(status: int, _: tuple[Any, ...]) -> int:
        count[0] += 1
        if count[0] > _DEPTH and not held[0]:
            held[0] = True
            time.sleep(_LONGER_THAN_A_LAUNCH)
        return status

    change_calls("aclnnInplaceAdds", answered)


def _reads_its_mask(value: torch.Tensor, given: Mapping[str, Any]) -> torch.Tensor:
    return value + 1 if given.get("sparse_mode") else value


def _executor_runs_once() -> None:
    from npu_graph_check.probes.questions import repeated_executor

    before, launches = repeated_executor._Call.launch, [0]

    def launch(self: Any, stream: Any) -> None:
        launches[0] += 1
        if launches[0] == 1:
            before(self, stream)

    repeated_executor._Call.launch = launch  # type: ignore[method-assign]


_DEPTH, _LONGER_THAN_A_LAUNCH = 1024, 6.0

QUESTIONS: Mapping[str, Sequence[Fault]] = {
    "questions.queue-depth": [
        Fault(what="`aclnnInplaceAdds` waits behind 1,024 kernels", apply=_blocks)
    ],
    "questions.graph-costs": [nothing_done("aclrtGetStreamAvailableNum")],
    "questions.kernels-by-length": [setting("CANN_SIM_FAULTS", "task_update:3")],
    "questions.unmasked-decode": [
        computes("npu_fused_infer_attention_score", "adds 1 behind a mask", _reads_its_mask)
    ],
    "questions.repeated-executor": [
        Fault(what="an executor of attention runs once", apply=_executor_runs_once)
    ],
}
