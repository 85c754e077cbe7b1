"""The captured graphs of one runner: when they are captured, called, missed and released."""

from __future__ import annotations

import warnings
from typing import TYPE_CHECKING, Any

from npu_compile.errors import RunnerStateError
from npu_compile.own_rows import own_rows
from npu_graph_runtime import CaptureSizes, RunMode, largest_first

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from torch import Tensor

    from npu_compile.compiled_model import CompiledModel
    from npu_graph_runtime import GraphKey


class CapturedSteps:
    """Graphs of one model by their size in tokens.

    Args:
        compiled: the model.
        run_mode: how they are captured and replayed.
        keys: the graph key of each size.
        what: the steps, for messages, such as ``decode``.

    Attributes:
        compiled: as given.
        run_mode: as given.
        keys: as given.
    """

    def __init__(
        self, compiled: CompiledModel, run_mode: RunMode, keys: Mapping[int, GraphKey], what: str
    ) -> None:
        self.compiled = compiled
        self.run_mode = run_mode
        self.keys = dict(keys)
        self._what = what
        self._sizes = CaptureSizes(tuple(self.keys)) if self.keys else None
        self._captured: set[GraphKey] = set()
        self._pool: object = None
        self._is_captured = False
        self._has_warned = False

    def padded_size(self, num_rows: int) -> int:
        """Return the bucket of a step; ``num_rows`` where no capture size is large enough."""
        bucket = self._sizes.bucket_for(num_rows) if self._sizes else None
        return num_rows if bucket is None else bucket

    def capture(
        self,
        prepare: Callable[[int], None],
        capture_one: Callable[[GraphKey], None],
        on_captured: Callable[[int, int, int], None] | None,
    ) -> None:
        """Capture every size, the largest first; after :meth:`require_capturable`.

        Args:
            prepare: called with each size before it is captured.
            capture_one: runs the model under a key.
            on_captured: called after each size with (size, sizes done, sizes in all).
        """
        self._is_captured = True
        with self.compiled.capture_session(self._pool) as session:
            self._pool = session.pool
            for done, key in enumerate(largest_first(self.keys.values()), start=1):
                prepare(key.num_tokens)
                self._captured.add(key)
                capture_one(key)
                if on_captured is not None:
                    on_captured(key.num_tokens, done, len(self.keys))

    def call(self, key: GraphKey, views: Mapping[str, Tensor]) -> Any:
        """Capture or replay one graph; return what the model returns for the padded rows."""
        with self.compiled.context.run(self.run_mode, key):
            return self.compiled(**views)

    def call_checked(self, key: GraphKey, views: Mapping[str, Tensor]) -> None:
        """Capture one graph.

        Raises:
            OutputError: an output does not have one row for each padded row.
        """
        size = key.num_tokens
        own_rows(self.call(key, views), num_rows=size, padded_size=size)

    def call_eagerly(self, inputs: Mapping[str, Tensor], num_rows: int) -> Any:
        """Run a step that no size fits, as it is; warn once, where there are sizes."""
        if self.keys and not self._has_warned:
            self._has_warned = True
            warnings.warn(
                f"running a {self._what} batch of {num_rows} rows: it is larger than every capture "
                f"size (largest: {max(self.keys)}), so it runs eagerly; add a capture size if such "
                "batches are common (said once)",
                RuntimeWarning,
                stacklevel=4,
            )
        device = self.compiled.device.torch_device
        placed = {name: value.to(device) for name, value in inputs.items()}
        with self.compiled.context.run(RunMode.EAGER):
            return self.compiled(**placed)

    def require_capturable(self) -> None:
        """See that a capture may begin; nothing is changed.

        Raises:
            RunnerStateError: captured already, by this runner or by another of the model.
        """
        if self._is_captured:
            raise RunnerStateError(
                f"capturing the {self._what} graphs: they are captured already; release them first"
            )
        taken = self.compiled.captured_keys.intersection(self.keys.values())
        if taken:
            raise RunnerStateError(
                f"capturing the {self._what} graphs: another runner has captured the same model "
                f"under {', '.join(map(str, taken))}, with inputs of its own; release it first, "
                "or compile the model once for each runner"
            )

    def require_captured(self) -> None:
        """See that replays may begin.

        Raises:
            RunnerStateError: nothing is captured.
        """
        if not self._is_captured:
            raise RunnerStateError(
                f"running a {self._what} step: the {self._what} graphs are not captured; call "
                "capture() first"
            )

    def release(self) -> None:
        """Wait for the device and tear these graphs down; others of the model stay."""
        self.compiled.release(self._captured)
        self._captured.clear()
        self._is_captured = False
