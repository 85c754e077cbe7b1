"""The graph of one call that runs on real tensors, for engines whose models Dynamo cannot read."""

from __future__ import annotations

import operator
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, cast

import torch
from torch.fx.experimental.proxy_tensor import make_fx
from torch.fx.node import map_arg
from torch.overrides import TorchFunctionMode

from fx_passes.errors import TraceError
from fx_passes.graph_argument import nodes_in, value_of
from fx_passes.memory.effect import EffectTable
from fx_passes.memory.undeclared import EMPTY_MEMORY
from fx_passes.memory.view_users import views_of
from fx_passes.rewriting.recorded_values import fake_result
from fx_passes.torch_internals import (
    SET_GRAD_ENABLED,
    FakeTensor,
    FakeTensorMode,
    OpOverload,
    schema_of,
    tree_leaves,
    tree_map,
    without_class,
)
from fx_passes.tracing.triton_launches import note_triton_launches

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Sequence

    from torch import Tensor
    from torch.fx import Graph, GraphModule, Node


@dataclass(frozen=True, kw_only=True)
class TracedCall:
    """A call as a graph, with the tensors that it read.

    Attributes:
        graph_module: One input for each tensor that the call found: weights, static buffers, a
            cache. It has no other state, so no pass takes one of them for a constant.
        inputs: Those tensors, in the order of the inputs; kept alive as long as this.
        outputs: What the call returned when it was traced.
    """

    graph_module: GraphModule
    inputs: tuple[Tensor, ...]
    outputs: tuple[Tensor, ...]

    def run(self) -> tuple[Tensor, ...]:
        """Run the graph on what its inputs hold now; returns new outputs."""
        return tuple(self.graph_module(*self.inputs))


def trace_call(function: Callable[[], Sequence[Tensor]], *, name: str = "the call") -> TracedCall:
    """Run a function once, on real tensors, and return the graph of what it called.

    Composite operators stay whole. Numbers, sizes and lists that the function computed in Python
    are what they were in this call, so the graph stands for calls with the same ones: those that a
    captured graph repeats.

    Only what goes through torch's dispatcher is seen. A kernel that is launched beside it has to be
    made an operator (`fx_passes.KernelOperator`). One of Triton that is not is an error, which
    names it; another one where it shows in the graph, by memory that is read and was never written.

    Args:
        function: Takes nothing and returns tensors. It must not need gradients.
        name: What messages call it.

    Raises:
        TraceError: The function failed, read numbers back from the device, returned something
            else than tensors, launched a Triton kernel that is no operator, or reads or returns
            memory that no operator wrote.
    """
    outputs: list[Tensor] = []
    launched: list[str] = []

    def traced() -> tuple[Tensor, ...]:
        with _PlainTensors():
            found = tuple(function())
        outputs.extend(found)
        return found

    try:
        with torch.no_grad(), note_triton_launches(launched):
            module = make_fx(traced, pre_dispatch=True)()
    except Exception as error:
        raise TraceError(
            f"tracing {name}: {type(error).__name__}: {error}; run it without a graph of operators"
        ) from error
    if launched:
        raise _unseen(name, f"the graph lacks {', '.join(launched)}")
    graph, mode = module.graph, FakeTensorMode(allow_non_fake_inputs=True)
    given, effects = _lift(module, mode), EffectTable()
    for node in list(graph.nodes):
        if node.target is SET_GRAD_ENABLED:
            # Nothing needs gradients, and rewrites would not move anything across it.
            graph.erase_node(node)
        elif node.op == "call_function":
            node.meta["val"] = _fake_value(node, mode, effects)
    _refuse_unseen_writes(graph, name, effects)
    module.recompile()
    return TracedCall(graph_module=module, inputs=tuple(given), outputs=tuple(outputs))


class _PlainTensors(TorchFunctionMode):
    """Lets operators see plain tensors where an engine's weights are of a class of its own.

    Such classes say how weights are loaded; the tracer takes tensors whose class it does not know
    for such that do otherwise what they are asked for.
    """

    def __init__(self) -> None:
        super().__init__()
        # The values keep the tensors alive, whose numbers are the keys.
        self._plain: dict[int, tuple[Tensor, Tensor]] = {}

    def __torch_function__(
        self,
        func: Callable[..., object],
        _types: Iterable[type],
        args: tuple[object, ...] = (),
        kwargs: dict[str, object] | None = None,
    ) -> object:
        args, kwargs = tree_map(self._shown, (args, kwargs or {}))
        return func(*args, **kwargs)

    def _shown(self, value: object) -> object:
        known = type(value) in {torch.Tensor, torch.nn.Parameter}
        if known or not isinstance(value, torch.Tensor):
            return value
        if type(value).__torch_dispatch__ is not torch.Tensor.__torch_dispatch__:
            return value
        if id(value) not in self._plain:
            self._plain[id(value)] = value, without_class(value)
        return self._plain[id(value)][1]


def _lift(module: GraphModule, mode: FakeTensorMode) -> list[Tensor]:
    """Make an input of each tensor that the module holds, and return the tensors."""
    graph = module.graph
    first, held = next(iter(graph.nodes)), list(graph.find_nodes(op="get_attr"))
    lifted: dict[object, Node] = {}
    given: list[Tensor] = []
    for node in held:
        tensor = getattr(module, str(node.target))
        # The same memory is one input, whatever objects showed it. A lazily conjugated or negated
        # view shows other values there.
        layout = (tensor.data_ptr(), tensor.dtype, tensor.shape, tensor.stride(), tensor.device)
        key = (*layout, tensor.is_conj(), tensor.is_neg())
        if key not in lifted:
            with graph.inserting_before(first):
                made = lifted[key] = graph.placeholder(f"memory_{len(given)}")
            # Tensors of one storage have fake values of one storage: the analysis of memory asks.
            made.meta["val"] = mode.from_tensor(tensor)
            given.append(tensor)
        node.replace_all_uses_with(lifted[key])
    for node in held:
        graph.erase_node(node)
    for name in [*dict(module.named_parameters()), *dict(module.named_buffers())]:
        delattr(module, name)
    return given


def _fake_value(node: Node, mode: FakeTensorMode, effects: EffectTable) -> object:
    """Return the fake value of a result, of the mode that the inputs' values are of.

    The tracer records shape, strides, dtype and device. A result that shows the memory of an
    argument begins somewhere in that memory, which rewrites compare: the operator tells where.
    """
    traced = node.meta.get("val")
    shown = _shown_value(node, effects)
    leaves, others = tree_leaves(traced), tree_leaves(shown)
    if len(leaves) == len(others) and all(map(_laid_out_alike, leaves, others)):
        return shown

    def made(each: object) -> object:
        if not isinstance(each, FakeTensor):
            return each
        with mode:
            return torch.empty_strided(
                each.shape, each.stride(), dtype=each.dtype, device=each.device
            )

    return tree_map(made, traced)


def _shown_value(node: Node, effects: EffectTable) -> object:
    """Return the fake value of a node that may show memory of its arguments, else None."""
    effect = effects.of(node)
    if not effect.aliases:
        return None
    # Of values, in the place of nodes.
    known: Any = node.args, node.kwargs
    args, kwargs = cast("Any", map_arg(known, cast("Any", value_of)))
    if node.target is operator.getitem:
        return args[0][args[1]]
    if not isinstance(node.target, OpOverload):
        return None
    if schema_of(node.target).is_mutable:
        # Running it might change the fake value of an argument, as `resize_` does.
        returns_written = len(effect.writes) == 1 and effect.aliases == effect.writes
        return value_of(effect.writes[0]) if returns_written else None
    try:
        return fake_result(node.target, args, kwargs)
    except Exception:  # noqa: BLE001 - an engine's operator may not know fake tensors
        return None


def _laid_out_alike(traced: object, shown: object) -> bool:
    if not (isinstance(traced, FakeTensor) and isinstance(shown, FakeTensor)):
        return traced is shown
    return (traced.shape, traced.stride(), traced.dtype, traced.device) == (
        shown.shape,
        shown.stride(),
        shown.dtype,
        shown.device,
    )


def _refuse_unseen_writes(graph: Graph, name: str, effects: EffectTable) -> None:
    """Refuse memory that is read, or returned, and that no operator of the graph wrote."""
    for node in graph.nodes:
        value = value_of(node)
        if node.target not in EMPTY_MEMORY or (
            isinstance(value, torch.Tensor) and not value.numel()
        ):
            continue
        user = _first_use(node, effects)
        if user is not None and node not in map(effects.owner, effects.of(user).writes):
            raise _unseen(name, f"{node.name} is read by {user.name} and was never written")
    written = {
        effects.owner(each)
        for node in effects.possible_writers(graph)
        for each in effects.of(node).writes
    }
    output = next(iter(reversed(graph.nodes)))
    for node in nodes_in(output.args):
        root = effects.owner(node)
        if root.op == "placeholder" and root not in written:
            raise _unseen(name, f"it returns memory of its input {root.name}, which stays as it is")


def _first_use(node: Node, effects: EffectTable) -> Node | None:
    """Return the first node that reads or writes some memory, and does not just show it."""
    users = [user for each in (node, *views_of(node, effects)) for user in each.users]
    return min((user for user in users if not effects.only_shows(user)), default=None)


def _unseen(name: str, found: str) -> TraceError:
    return TraceError(
        f"tracing {name}: {found}; a kernel is launched beside torch's dispatcher: make it an "
        "operator, or run the call without a graph of operators"
    )
