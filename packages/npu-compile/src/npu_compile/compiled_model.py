"""A compiled model: one callable that runs, captures or replays as its context says."""

from __future__ import annotations

import dataclasses
import inspect
import types
from typing import TYPE_CHECKING, Any

import torch

from npu_compile.backend import Backend
from npu_compile.config import CompileMode
from npu_compile.errors import ConfigError
from npu_compile.torch_internals import BackendCompilerFailed, mark_dynamic
from npu_graph_runtime import CaptureSession, GraphContext, GraphedCallable, RunMode

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from npu_compile.compilation_report import CompilationReport
    from npu_compile.config import CompileConfig
    from npu_graph_runtime import GraphDevice, RuntimeObserver


class CompiledModel:
    """A model behind Dynamo, the fusion passes and, by mode, the splitter and graph capture.

    Dynamo compiles at the first call; outside a capture session a call runs eagerly unless
    :attr:`context` names a run mode and a captured graph key. Runs without autograd.

    Belongs to one host thread at a time. Models do not share anything: two may be compiled in one
    process, from one class, with other configurations.

    Args:
        model: what to compile; kept alive. Its parameters must stay where they are.
        config: how.
        device: the device seam that captures and replays.
        dynamic_arg_dims: for each tensor argument the dimensions whose size changes between calls,
            such as the number of tokens; all others are fixed by the first call.
        observer: told of captures and replays.

    Attributes:
        config: as given.
        device: as given.
        context: run mode and graph key of the next call; set by runners.

    Raises:
        ConfigError: ``dynamic_arg_dims`` names an argument that the model does not take, or the
            configuration names an unknown fusion.
    """

    def __init__(
        self,
        model: Callable[..., Any],
        config: CompileConfig,
        *,
        device: GraphDevice,
        dynamic_arg_dims: Mapping[str, tuple[int, ...]] | None = None,
        observer: RuntimeObserver | None = None,
    ) -> None:
        self.config = config
        self.device = device
        self.context = GraphContext()
        self._signature = inspect.signature(getattr(model, "forward", model))
        self._dynamic_dims = dict(dynamic_arg_dims or {})
        for name in self._dynamic_dims:
            if name not in self._signature.parameters:
                raise ConfigError(
                    f"compiling {type(model).__name__}: dynamic_arg_dims names {name!r}, the model "
                    f"takes {', '.join(self._signature.parameters)}"
                )
        eager_config = dataclasses.replace(config, mode=CompileMode.EAGER)
        self._eager_backend = Backend(eager_config)
        self._backend = Backend(config, device=device, context=self.context, observer=observer)
        # Apart from each other: a graph that Dynamo compiles for an eager call may fit the inputs
        # of a captured one as well, and would be run in its place, with no piece captured.
        self._run_eagerly = _compile(model, self._eager_backend)
        self._run_capturable = _compile(model, self._backend)
        self._call: Callable[..., Any] = self._run
        self._whole: GraphedCallable | None = None
        if config.mode is CompileMode.FULL:
            self._whole = GraphedCallable(
                self._run,
                device=device,
                context=self.context,
                run_mode=RunMode.FULL,
                name=type(model).__name__,
                address_check=config.address_check,
                warmup_runs=config.warmup_runs,
                observer=observer,
            )
            self._call = self._whole

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        """Run, capture or replay the model; arguments and outputs are the model's own.

        Outputs of a replay lie in the graph's memory: the next replay overwrites them.

        Raises:
            GraphNotCapturedError: the context names a graph key that was never captured.
            InputAddressError: an input lies elsewhere than at capture; nothing was launched.
        SplittingOpAbsentError: a splitting op of the configuration is not in the model.
        """
        return self._call(*args, **kwargs)

    @property
    def reports(self) -> tuple[CompilationReport, ...]:
        """One report for each graph that Dynamo has handed over so far; eager calls' come last."""
        return (*self._backend.reports, *self._eager_backend.reports)

    @property
    def run_mode(self) -> RunMode:
        """The run mode in which this model captures; ``EAGER`` if it never does."""
        return {
            CompileMode.EAGER: RunMode.EAGER,
            CompileMode.FULL: RunMode.FULL,
            CompileMode.PIECEWISE: RunMode.PIECEWISE,
        }[self.config.mode]

    @property
    def graphed_callables(self) -> tuple[GraphedCallable, ...]:
        """What is captured: the whole model, or the pieces compiled so far."""
        return (self._whole,) if self._whole else tuple(self._backend.captured_pieces)

    @property
    def num_captured_graphs(self) -> int:
        """Graphs held now, over all keys and pieces."""
        return sum(len(graphed.captured_keys) for graphed in self.graphed_callables)

    def capture_session(self, pool: object = None) -> CaptureSession:
        """Return a session inside which calls of this model capture.

        Args:
            pool: the memory pool of an earlier session, to share its memory.
        """
        return CaptureSession(self.device, self.context, pool)

    def release(self) -> None:
        """Wait for the device and tear all captured graphs down; the model still runs eagerly."""
        for graphed in self.graphed_callables:
            graphed.release_all()

    def _run(self, *args: Any, **kwargs: Any) -> Any:
        if self._dynamic_dims:
            self._mark_dynamic(self._signature.bind(*args, **kwargs).arguments)
        is_eager = self.context.mode is RunMode.EAGER
        compiled = self._run_eagerly if is_eager else self._run_capturable
        with torch.no_grad():
            try:
                return compiled(*args, **kwargs)
            except BackendCompilerFailed as error:
                # Dynamo wraps what the backend raises; the caller wants the error that says why.
                raise error.inner_exception from error

    def _mark_dynamic(self, arguments: Mapping[str, Any]) -> None:
        for name, dims in self._dynamic_dims.items():
            tensor = arguments.get(name)
            if isinstance(tensor, torch.Tensor):
                for dim in dims:
                    # Dynamo fixes sizes 0 and 1 and refuses them where a dynamic size is demanded;
                    # such a call gets a graph of its own.
                    if tensor.shape[dim] > 1:
                        mark_dynamic(tensor, dim)


def _compile(model: Callable[..., Any], backend: Backend) -> Callable[..., Any]:
    """Return the model behind Dynamo, with compilations of its own.

    Dynamo keeps compiled graphs, and counts them against a limit, by code object: what is compiled
    through one function would share both, so each gets a copy.
    """

    def forward(*args: Any, **kwargs: Any) -> Any:
        return model(*args, **kwargs)

    own = types.FunctionType(
        forward.__code__.replace(),
        forward.__globals__,
        forward.__name__,
        forward.__defaults__,
        forward.__closure__,
    )
    return torch.compile(own, backend=backend, fullgraph=True, dynamic=False)
