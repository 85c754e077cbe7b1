"""Records attention that a model calls through operators, without changing the model.

A dispatch mode sees every operator that is called inside it. Operators with a known kind go through
the recorder as if the model had called `Recorder.attention`; all others run unchanged.
"""

from __future__ import annotations

from types import MappingProxyType
from typing import TYPE_CHECKING, Any

from attn_update.errors import RecordingError
from attn_update.operator_lookup import bind_arguments
from attn_update.recording.operator_watch import OperatorWatch
from attn_update.torch_internals import schema_of

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from torch import Tensor

    from attn_update.kinds.kind import Kind
    from attn_update.recording.recorder import Recorder

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


def number_layers(operator: str, position: int) -> str:
    """Return a layer name from the position of the launch in its capture."""
    return f"{operator.partition('.')[0].rpartition('::')[2]}.{position}"


class AutomaticRecording(OperatorWatch):  # type: ignore[no-untyped-call]
    """Routes known attention operators through a recorder while it is active.

    Wrap it around warm-up and capture, inside `Recorder.recording`. Outside a recording it leaves
    every operator alone, so it may stay active. Attention that calls the recorder itself is not
    recorded twice. Attention inside a custom operator is also recorded, in whatever language the
    operator is written and at any depth.

    Args:
        recorder: The recorder, which you own.
        operators: Maps operators to kinds, or to names of kinds in the recorder's table. By default
            FIA v1 and v2 and paged attention, with the captured block table.
        layer_name: Names a launch by its operator and its position in the capture. A layer must get
            the same name in every capture; by default `number_layers`.
        group: Returns the parameter group of a layer name; by default that of `Recorder.attention`.
        launch: Returns the name of a launch by the arguments of its call, for layers that launch
            attention several times; `layer_name` gives these launches the name of their layer.

    Raises:
        UnknownNameError: The recorder has no such kind.
        RecordingError: A kind is updated through another operator than the one it is declared for,
            so the meaning of a call is unclear.
    """

    def __init__(
        self,
        recorder: Recorder,
        *,
        operators: Mapping[str, str | Kind] = DEFAULT_OPERATORS,
        layer_name: Callable[[str, int], str] = number_layers,
        group: Callable[[str], str] | None = None,
        launch: Callable[[Mapping[str, object]], str | None] | None = None,
    ) -> None:
        super().__init__(recorder, operators)
        for operator, kind in operators.items():
            what = f"recording {operator} automatically"
            found = recorder.kind(kind, what=what)
            if operator.partition(".")[0] != found.operator.partition(".")[0]:
                raise RecordingError(
                    f"{what}: kind {kind!r} is for {found.operator}; give the operator the kind "
                    f"that is updated through an overload of it",
                )
        self._operators = dict(operators)
        self._layer_name = layer_name
        self._group = group
        self._launch = launch

    def takes(self, operator: str) -> bool:
        """Return whether the operator, with its overload, is recorded."""
        return operator in self._operators

    def call(self, func: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        """Call an operator through the recorder."""
        if "workspace" in kwargs and not self._recorder.device.is_capturing():
            return func(*args, **kwargs)
        arguments = bind_arguments(func, args, kwargs)
        # The model's own workspace is not needed: the recorder has one that is never too small.
        arguments.pop("workspace", None)
        outputs = self.attention(func.name(), self._operators[func.name()], arguments)
        returned = outputs[: len(schema_of(func).returns)]
        if not returned:  # it writes into an argument
            return None
        return returned[0] if len(returned) == 1 else returned

    def attention(
        self, operator: str, kind: str | Kind, arguments: dict[str, Any]
    ) -> tuple[Tensor, ...]:
        """Record a call of a known operator; return its outputs.

        Args:
            operator: The operator that was called.
            kind: Kind of the attention.
            arguments: Arguments by name, without a workspace.
        """
        layer_name = self._layer_name(operator, self._recorder.position or 0)
        group = None if self._group is None else self._group(layer_name)
        launch = None if self._launch is None else self._launch(arguments)
        return self._recorder.attention(layer_name, kind, arguments, group=group, launch=launch)
