"""An engine adopts only piecewise-split, to run attention itself and compile the rest."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import torch

from piecewise_split import plan_split, run_uncompiled, split, stitch

if TYPE_CHECKING:
    from collections.abc import Callable

    from piecewise_split import Piece


class SplittingEngine:
    """Runs a model piece by piece; `compiled` counts the pieces that went through `prepare`."""

    def __init__(self, model: Callable[..., torch.Tensor], attention: str) -> None:
        self.compiled = 0
        self._attention = attention
        self.step: Callable[..., Any] = torch.compile(model, backend=self._compile)

    def _compile(self, graph_module: torch.fx.GraphModule, _inputs: object) -> Callable[..., Any]:
        plan = plan_split(graph_module, [self._attention])
        return stitch(split(plan), self._prepare)

    def _prepare(self, piece: Piece) -> Callable[..., Any]:
        """Return the callable that runs in place of a piece; put your compiler or capture here."""
        if not piece.is_splitting:
            self.compiled += 1
        return run_uncompiled(piece)


def main() -> None:
    """Split a model of three layers at its attention."""

    @torch.library.custom_op("one_package::attention", mutates_args=())
    def attention(x: torch.Tensor) -> torch.Tensor:
        return x.cos()

    attention.register_fake(torch.empty_like)

    def model(x: torch.Tensor) -> torch.Tensor:
        for _ in range(3):
            x = attention(x + 1) * 2
        return x

    engine = SplittingEngine(model, "one_package::attention")
    print(torch.equal(engine.step(torch.ones(3)), model(torch.ones(3))), engine.compiled)


if __name__ == "__main__":
    main()
