"""Sees the operators that are called in a block, also inside custom operators."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from attn_update.recording.tensor_memory import tensors_in
from attn_update.torch_internals import (
    DispatchKeySet,
    HigherOrderOperator,
    TorchDispatchMode,
    kernel_keys_of,
)

if TYPE_CHECKING:
    from collections.abc import Iterable

    from attn_update.recording.recorder import Recorder

# Operators of torch and of the device; no attention of the table is hidden in them.
_TRANSPARENT_NAMESPACES = frozenset(
    {"aten", "prim", "prims", "quantized", "c10d", "_c10d_functional"}
)


class OperatorWatch(TorchDispatchMode):  # type: ignore[no-untyped-call]
    """Intercepts calls of some operators in a recording; all others run unchanged.

    Engines wrap attention in custom operators, of which a dispatch mode sees only the outermost.
    The kernel of such an operator is therefore run with the mode still active.

    Args:
        recorder: Of the recording; what it launches itself is not intercepted.
        operators: Operators to intercept, as ``namespace::name``, with or without overload.
    """

    # An operator that takes functions runs as it is; without this torch would refuse it.
    supports_higher_order_operators = True

    def __init__(self, recorder: Recorder, operators: Iterable[str]) -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        self._recorder = recorder
        # An operator's own kernels do not call it, and those of its namespace are the device's.
        known = {operator.partition("::")[0] for operator in operators}
        self._transparent = _TRANSPARENT_NAMESPACES | known

    @classmethod
    def is_infra_mode(cls) -> bool:
        """Let torch treat other modes, and compiled code, as it does without this one."""
        return True

    @property
    def is_watching(self) -> bool:
        """Whether a recording is in progress, and the recorder itself is not launching."""
        return self._recorder.position is not None and not self._recorder.is_launching

    def takes(self, operator: str) -> bool:
        """Return whether an operator, ``namespace::name.overload``, is intercepted."""
        raise NotImplementedError

    def call(self, func: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        """Call an intercepted operator, and return its result."""
        raise NotImplementedError

    def __torch_dispatch__(
        self,
        func: Any,
        types: Any,
        args: tuple[Any, ...] = (),
        kwargs: dict[str, Any] | None = None,
    ) -> Any:
        """Run one operator."""
        kwargs = kwargs or {}
        if isinstance(func, HigherOrderOperator) or not self.is_watching:
            return func(*args, **kwargs)
        if self.takes(func.name()):
            return self.call(func, args, kwargs)
        if func.namespace in self._transparent:
            return func(*args, **kwargs)
        keys = _kernel_keys((args, kwargs))
        if keys is None:
            return func(*args, **kwargs)
        with self:
            # Its kernel at once: through the dispatcher this mode would be asked about it again.
            return func.redispatch(keys, *args, **kwargs)


def _kernel_keys(arguments: object) -> DispatchKeySet | None:
    """Return the key of the kernel that these arguments select; None without a tensor."""
    types = {tensor.device.type for tensor in tensors_in(arguments)}
    if not types:
        return None
    # As torch does, scalars and lengths of the host follow the device.
    (device_type, *others) = sorted(types, key=lambda each: each == "cpu")
    if others not in ([], ["cpu"]):
        return None
    return kernel_keys_of(device_type)
