"""An engine adopts only npu-compile's static inputs: one copy transfers a whole batch."""

from __future__ import annotations

from typing import TYPE_CHECKING

import torch

from npu_compile import InputSpec, StaticInputs, StepSize
from npu_graph_runtime import FakeDevice

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from npu_graph_runtime import GraphDevice


class StagingEngine:
    """Runs `step`, captured or not, on static tensors `ids` and `slots` of eight rows."""

    def __init__(self, step: Callable[..., torch.Tensor], device: GraphDevice) -> None:
        self._step, self._size = step, StepSize(tokens=8, sequences=8)
        specs = {
            "ids": InputSpec(dtype=torch.int64),
            "slots": InputSpec(dtype=torch.int32, pad_value=-1),
        }
        self._inputs = StaticInputs(specs, largest=self._size, device=device)

    def run(
        self, ids: Sequence[int], slots: Sequence[int], sampled: torch.Tensor | None = None
    ) -> torch.Tensor:
        """Return the output for a batch; `sampled`, on the device, replaces `ids`."""
        own = StepSize(tokens=len(slots), sequences=len(slots))
        staged = self._inputs.staging(own, size=self._size)
        staged["slots"].numpy()[:] = slots
        if sampled is None:
            staged["ids"].numpy()[:] = ids
        self._inputs.commit({} if sampled is None else {"ids": sampled})
        return self._step(**self._inputs.views(self._size))[: len(slots)]


def main() -> None:
    """Run a batch of two rows, then one on tokens that the first returned."""
    engine = StagingEngine(lambda ids, slots: ids * 100 + slots, FakeDevice())
    output = engine.run([4, 5], [1, 2])
    print(output.tolist(), engine.run([], [3, 4], output // 100).tolist())


if __name__ == "__main__":
    main()
