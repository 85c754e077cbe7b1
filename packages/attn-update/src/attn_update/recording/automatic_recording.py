"""Record attention that a model calls by its operator, without a change to the model.

A dispatch mode sees every operator that is called inside it. Those it has a kind for go through the
recorder as if the model had called `Recorder.attention`; all others run untouched.

Engines hide attention in custom operators of their own, of which a dispatch mode sees no more than
the outermost. So the kernel of such an operator is run with the mode still active.
"""

from __future__ import annotations

from types import MappingProxyType
from typing import TYPE_CHECKING, Any

import torch

from attn_update.errors import RecordingError, UnknownKindError, nearest
from attn_update.torch_internals import (
    DispatchKeySet,
    TorchDispatchMode,
    kernel_keys_of,
    schema_of,
    tree_leaves,
)

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from attn_update.kinds.kind import Kind
    from attn_update.recording.recorder import Recorder
    from attn_update.torch_internals import OpOverload

DEFAULT_OPERATORS: Mapping[str, str] = MappingProxyType(
    {
        "npu::npu_fused_infer_attention_score": "fused_infer_attention_v1",
        "npu::npu_fused_infer_attention_score.out": "fused_infer_attention_v1",
        "npu::npu_fused_infer_attention_score_v2": "fused_infer_attention_v2",
        "npu::npu_fused_infer_attention_score_v2.out": "fused_infer_attention_v2",
        "atb::_npu_paged_attention": "paged_attention",
    }
)
"""From operators, as ``namespace::name`` or ``namespace::name.overload``, to kind names."""

# Operators of torch and of the device; no attention of the table is hidden in them.
_TRANSPARENT_NAMESPACES = frozenset(
    {"aten", "prim", "prims", "quantized", "c10d", "_c10d_functional"}
)


def number_layers(operator: str, position: int) -> str:
    """Return a layer name from the position of the launch in its capture.

    Args:
        operator: The operator as it was called.
        position: How many launches the capture recorded before.
    """
    return f"{operator.partition('.')[0].rpartition('::')[2]}.{position}"


class AutomaticRecording(TorchDispatchMode):  # type: ignore[no-untyped-call]
    """Routes known attention operators through a recorder while it is active.

    Put it around warm-up and capture, inside `Recorder.recording`. Outside a recording it leaves
    every operator alone, so it may stay active. Attention that calls the recorder itself is not
    recorded twice. Attention inside a custom operator is recorded as well, whatever the operator
    is written in, and in whatever depth.

    Args:
        recorder: Records. The caller owns it.
        operators: From operators to kind names of the recorder's table; the default knows FIA v1
            and v2 and paged attention, with the captured block table.
        layer_name: Names a launch by its operator and its position in the capture. Names must be
            the same for the same layer in every capture; default `number_layers`.
        group: Gives the parameter group of a layer name; default ``default`` for all.

    Raises:
        UnknownKindError: The recorder has no such kind.
        RecordingError: A kind is updated through another operator than the one it is given for, so
            it is not clear what a call of it means.
    """

    def __init__(
        self,
        recorder: Recorder,
        *,
        operators: Mapping[str, str] = DEFAULT_OPERATORS,
        layer_name: Callable[[str, int], str] = number_layers,
        group: Callable[[str], str] | None = None,
    ) -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        for operator, kind_name in operators.items():
            _check_kind(operator, kind_name, recorder.kinds)
        self._recorder = recorder
        self._operators = dict(operators)
        self._layer_name = layer_name
        self._group = group
        # An operator's own kernels do not call it, and those of its namespace are the device's.
        known = {operator.partition("::")[0] for operator in operators}
        self._transparent = _TRANSPARENT_NAMESPACES | known

    @classmethod
    def is_infra_mode(cls) -> bool:
        """Let torch keep other modes, and compiled code, as they are without this one."""
        return True

    def __torch_dispatch__(
        self,
        func: Any,
        types: Any,
        args: tuple[Any, ...] = (),
        kwargs: dict[str, Any] | None = None,
    ) -> Any:
        """Run one operator, through the recorder if it is known."""
        kwargs = kwargs or {}
        recorder = self._recorder
        kind_name = self._operators.get(func.name())
        if recorder.position is None or recorder.is_launching:
            return func(*args, **kwargs)
        if kind_name is None:
            if func.namespace in self._transparent:
                return func(*args, **kwargs)
            return self._look_inside(func, args, kwargs)
        if "workspace" in kwargs and not recorder.device.is_capturing():
            return func(*args, **kwargs)
        arguments = _bind(func, args, kwargs)
        # The model's own workspace is not needed: the recorder has one that is never too small.
        arguments.pop("workspace", None)
        outputs = self.attention(func.name(), kind_name, arguments)
        returned = outputs[: len(schema_of(func).returns)]
        if not returned:  # it writes into an argument
            return None
        return returned[0] if len(returned) == 1 else returned

    def attention(
        self, operator: str, kind_name: str, arguments: dict[str, Any]
    ) -> tuple[torch.Tensor, ...]:
        """Record a call of a known operator; return its outputs.

        Args:
            operator: That was called.
            kind_name: What it is.
            arguments: By name, without a workspace.
        """
        layer_name = self._layer_name(operator, self._recorder.position or 0)
        group = "default" if self._group is None else self._group(layer_name)
        return self._recorder.attention(layer_name, kind_name, arguments, group=group)

    def _look_inside(self, func: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        keys = _kernel_keys((args, kwargs))
        if keys is None:
            return func(*args, **kwargs)
        with self:
            # Its kernel at once: through the dispatcher this mode would be asked about it again.
            return func.redispatch(keys, *args, **kwargs)


def _kernel_keys(arguments: object) -> DispatchKeySet | None:
    """Return the key of the kernel that these arguments choose; None without a tensor."""
    types = {leaf.device.type for leaf in tree_leaves(arguments) if isinstance(leaf, torch.Tensor)}
    if not types:
        return None
    # As torch does, scalars and lengths of the host follow the device.
    (device_type, *others) = sorted(types, key=lambda each: each == "cpu")
    if others not in ([], ["cpu"]):
        return None
    return kernel_keys_of(device_type)


def _check_kind(operator: str, kind_name: str, kinds: Mapping[str, Kind]) -> None:
    kind = kinds.get(kind_name)
    what = f"recording {operator} automatically"
    if kind is None:
        raise UnknownKindError(
            f"{what}: there is no kind {kind_name!r} in the recorder's table; "
            f"{nearest(kind_name, kinds)}",
        )
    if operator.partition(".")[0] != kind.operator.partition(".")[0]:
        raise RecordingError(
            f"{what}: kind {kind_name!r} is for {kind.operator}; give the operator the kind that "
            f"is updated through an overload of it",
        )


def _bind(func: OpOverload, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    names = [argument.name for argument in schema_of(func).arguments]
    return {**dict(zip(names, args, strict=False)), **kwargs}
