"""A compiled model: a callable that runs, captures or replays as its context requests."""

from __future__ import annotations

import functools
from contextlib import contextmanager, nullcontext
from typing import TYPE_CHECKING, Any

import torch

from npu_compile.caching.cache_folder import CacheFolder
from npu_compile.caching.cache_key import key_of_software
from npu_compile.caching.cached_call import CachedCall
from npu_compile.compilation.dynamo_call import (
    behind_dynamo,
    mark_dynamic_dims,
    name_of,
    signature_with,
)
from npu_compile.compilation.graph_compiler import GraphCompiler
from npu_compile.compilation.inner_compiler import inner_compiler_of
from npu_compile.configuration.config import CompileConfig, CompileMode
from npu_compile.errors import ConfigError
from npu_compile.torch_internals import BackendCompilerFailed, Unsupported
from npu_graph_runtime import (
    CaptureSession,
    GraphContext,
    GraphedCallable,
    NpuDevice,
    RunMode,
    runs_captured,
    runs_eagerly,
    weights_of,
)
from piecewise_split import run_uncompiled

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Mapping
    from contextlib import AbstractContextManager

    from fx_passes import Pipeline
    from npu_compile.compilation.graph_compiler import CompilationReport
    from npu_graph_runtime import GraphDevice, GraphKey
    from npu_graph_runtime.observer import RuntimeObserver
    from npu_graph_runtime.planning import CapturePlan
    from piecewise_split import Piece


class CompiledModel:
    """A model compiled with Dynamo, fusions and, depending on the mode, splitting and capture.

    Dynamo compiles at the first call. Outside a capture session a call runs eagerly, unless
    :attr:`context` names a run mode and a captured graph key. A replay enters neither Dynamo nor
    the model, because the key selects the graph. If nothing is fused and nothing is split, the
    model runs unchanged, without a compiler. It runs without autograd.

    Use it from one host thread at a time. Compiled models share nothing: you can compile several in
    one process, also from one class with different configurations.

    Args:
        model: the model to compile; kept alive. Weights of a captured module are watched: you may
            write to them, and replaced weights are detected, see :meth:`check_weights`.
        config: the configuration.
        device: the device that captures and replays.
        dynamic_arg_dims: maps tensor arguments to the dimensions whose size changes between calls,
            such as the number of tokens. All others are fixed by the first call.
        context: run mode and graph key of the next call; by default a new one. Pass yours if you
            mark the model's functions with ``runs_eagerly(context)`` before you compile it.
        observer: receives captures and replays, and measured and chosen run modes.
        pipeline: rewrites the graph, instead of the pipeline named by ``config.fusions``.

    Attributes:
        config: as given.
        device: as given.
        observer: as given.
        context: as given or created; set by runners.

    Raises:
        ConfigError: ``dynamic_arg_dims`` names an argument that the model does not have, the
            configuration names an unknown fusion, or mode ``torchair`` does not support the device.
        FeatureNotSupportedError: torch_npu lacks the compiler that mode ``torchair`` uses.
    """

    def __init__(
        self,
        model: Callable[..., Any],
        config: CompileConfig,
        *,
        device: GraphDevice,
        dynamic_arg_dims: Mapping[str, tuple[int, ...]] | None = None,
        context: GraphContext | None = None,
        observer: RuntimeObserver | None = None,
        pipeline: Pipeline | None = None,
    ) -> None:
        self.config = config
        self.device = device
        self.observer = observer
        self.context = GraphContext() if context is None else context
        self._model = model
        self._name = name_of(model)
        self._dynamic_dims = dict(dynamic_arg_dims or {})
        self._signature = signature_with(model, self._dynamic_dims)
        inner = inner_compiler_of(config, device)
        whole = GraphCompiler(config, inner=inner, pipeline=pipeline)
        self._compilers = [whole]
        self._software = (
            "" if config.cache_folder is None else key_of_software(config, whole.pipeline_hash)
        )
        self._run_eagerly = self._run_capturable = self._behind_dynamo(whole)
        if config.splits:
            # Apart from each other: a graph that Dynamo compiles for an eager call may fit the
            # inputs of a captured one as well, and would be run in its place, with nothing split.
            splitting = GraphCompiler(config, self._prepare_piece, pipeline=pipeline)
            self._compilers = [splitting, whole]
            self._run_capturable = self._behind_dynamo(splitting, self._prepare_function)
        elif not config.fuse and inner is None:
            self._run_eagerly = self._run_capturable = model
        self._graphed: list[GraphedCallable] = []
        self._capture_plans: tuple[CapturePlan, ...] = ()
        self._inside_captures: Callable[[], AbstractContextManager[None]] | None = None
        modes = (*config.prefill_run_modes, *config.decode_run_modes)
        self._call = self._capturing(self._run, modes, self._name)

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        """Run, capture or replay the model, with its own arguments and outputs.

        Outputs of a replay are in the graph's memory; the next replay overwrites them.

        Raises:
            ConfigError: In mode ``breakable`` with fusions, Dynamo does not trace the model as one
                graph.
            GraphNotCapturedError: The context names a graph key that was never captured.
            InputAddressError: An input is at another address than at capture; nothing was launched.
            ReplacedWeightError: A weight is at another address than at capture; nothing was
                launched.
            EagerSegmentError: A function that runs eagerly returned something else than at capture.
            SplittingOpError: A splitting op of the configuration is not in the model.
        """
        self._refresh_prepared()
        return self._call(*args, **kwargs)

    def run_inside(self, *args: Any, **kwargs: Any) -> Any:
        """Run the model as a part of what calls it: nothing is captured or replayed for itself.

        Inside a function of :meth:`capture_around` the model is captured with that function.
        """
        return self._run(*args, **kwargs)

    def capture_around(self, function: Callable[..., Any], *, name: str) -> Callable[..., Any]:
        """Return a function that is captured as decode steps of the model are, and released too.

        Args:
            function: calls :meth:`run_inside`, any number of times.
            name: of the function, for messages.
        """
        captured = self._capturing(function, self.config.decode_run_modes, name)

        def call(*args: Any, **kwargs: Any) -> Any:
            self._refresh_prepared()
            return captured(*args, **kwargs)

        return call

    @contextmanager
    def inside_captures(self, enter: Callable[[], AbstractContextManager[None]]) -> Iterator[None]:
        """In the block, enter a context inside each capture of the whole model, around its work.

        Called by runners. Warm-up runs do not enter it.

        Args:
            enter: returns the context.
        """
        before, self._inside_captures = self._inside_captures, enter
        try:
            yield
        finally:
            self._inside_captures = before

    def unwrap(self) -> Callable[..., Any]:
        """Return the original model, to access its attributes."""
        return self._model

    @property
    def reports(self) -> tuple[CompilationReport, ...]:
        """One report per graph that Dynamo produced; graphs that were not split come last."""
        return tuple(report for compiler in self._compilers for report in compiler.reports)

    @property
    def num_captured_graphs(self) -> int:
        """Current number of device graphs, over all keys and segments."""
        return sum(graphed.num_graphs for graphed in self._graphed)

    @property
    def captured_keys(self) -> frozenset[GraphKey]:
        """Keys of the captured graphs."""
        return frozenset(key for graphed in self._graphed for key in graphed.captured_keys)

    @property
    def graphed_callables(self) -> tuple[GraphedCallable, ...]:
        """The wrappers that capture and replay, one per run mode, for `find_first_difference`."""
        return tuple(self._graphed)

    @property
    def capture_plans(self) -> tuple[CapturePlan, ...]:
        """Measurements and decisions of runners with a ``capture_budget``, one plan per runner."""
        return self._capture_plans

    def note_plan(self, plan: CapturePlan | None, *, before: CapturePlan | None) -> None:
        """Replace a runner's plan by a new one; called by runners.

        Args:
            plan: the new plan, or ``None`` if the runner has released its graphs.
            before: the earlier plan, which is dropped.
        """
        others = tuple(other for other in self._capture_plans if other is not before)
        self._capture_plans = others if plan is None else (*others, plan)

    @property
    def argument_names(self) -> tuple[str, ...]:
        """The names of the model's arguments."""
        return tuple(self._signature.parameters)

    def require_arguments(self, names: Iterable[str], *, doing: str) -> None:
        """Check that the model accepts exactly these arguments; called by runners.

        Raises:
            ConfigError: It does not.
        """
        try:
            self._signature.bind(**dict.fromkeys(names))
        except TypeError as error:
            raise ConfigError(
                f"{doing}: {self._name} takes {', '.join(self._signature.parameters)}, the inputs "
                f"that are declared are {', '.join(names) or 'none'}: {error}; declare "
                "each argument by its name"
            ) from error

    def check_weights(self) -> None:
        """Compare the model's weights with those of the captures, for example after a reload.

        Without this call, a replaced weight is detected at the next replay after its old memory is
        freed.
        Values that were computed from weights once for all steps, such as reciprocals of scales,
        are computed again. Each call notices weights written by an operator. Weights written
        through ``weight.data`` are only noticed here.

        Raises:
            ReplacedWeightError: A weight is at another address, has another layout, or is gone.
        """
        for graphed in self._graphed:
            graphed.check_weights()
        self._refresh_prepared(compare=True)

    def capture_session(self, pool: object = None) -> CaptureSession:
        """Return a session in which calls of this model capture.

        Args:
            pool: the memory pool of an earlier session, to share its memory.
        """
        return CaptureSession(self.device, self.context, pool)

    def release(self, keys: Iterable[GraphKey] | None = None) -> None:
        """Wait for the device and release captured graphs; the model still runs eagerly.

        Args:
            keys: keys of the graphs; by default all. Keys that are not captured are ignored.
        """
        for graphed in self._graphed:
            for key in graphed.captured_keys if keys is None else keys:
                if graphed.is_captured(key):
                    graphed.release(key)

    def _refresh_prepared(self, *, compare: bool = False) -> None:
        # A replay enters no graph, which would see by itself that a weight has changed.
        for compiler in self._compilers:
            for prepared in compiler.prepared:
                prepared.refresh(compare=compare)

    def _capturing(
        self, function: Callable[..., Any], modes: Iterable[RunMode], name: str
    ) -> Callable[..., Any]:
        """Return a function that is captured and replayed in each of these run modes."""
        for mode in dict.fromkeys(modes):
            if mode is not RunMode.EAGER:
                function = GraphedCallable(
                    function,
                    device=self.device,
                    context=self.context,
                    run_mode=mode,
                    name=name,
                    address_check=self.config.address_check,
                    weights=weights_of(self._model),
                    warmup_runs=self.config.warmup_runs,
                    guard=self.config.capture_guard,
                    observer=self.observer,
                )
                self._graphed.append(function)
        return function

    def _behind_dynamo(
        self,
        compiler: GraphCompiler,
        prepare: Callable[[Callable[..., Any], str, bool], Callable[..., Any]] | None = None,
    ) -> Callable[..., Any]:
        """Return the model compiled by Dynamo, with the cache if there is one."""
        if self.config.cache_folder is None:
            return behind_dynamo(self._model, compiler)
        return CachedCall(
            self._model,
            compiler,
            folder=CacheFolder(self.config.cache_folder),
            prepare=prepare,
            signature=self._signature,
            dynamic_dims=self._dynamic_dims,
            software=self._software,
        )

    def _prepare_piece(self, piece: Piece) -> Callable[..., Any]:
        return self._prepare_function(run_uncompiled(piece), piece.label, piece.is_splitting)

    def _prepare_function(
        self, forward: Callable[..., Any], label: str, is_splitting: bool
    ) -> Callable[..., Any]:
        if not is_splitting:
            return runs_captured(self.context, label)(forward)
        named = functools.partial(forward)
        named.__name__ = label  # type: ignore[attr-defined]
        return runs_eagerly(self.context)(named)

    def _run(self, *args: Any, **kwargs: Any) -> Any:
        if self._dynamic_dims:
            arguments = self._signature.bind(*args, **kwargs).arguments
            mark_dynamic_dims(arguments, self._dynamic_dims)
        is_eager = self.context.mode is RunMode.EAGER
        compiled = self._run_eagerly if is_eager else self._run_capturable
        enter = self._inside_captures
        is_inside = enter is not None and self.device.is_capturing()
        with torch.no_grad(), enter() if enter is not None and is_inside else nullcontext():
            try:
                return compiled(*args, **kwargs)
            except BackendCompilerFailed as error:
                # Dynamo wraps what the backend raises; the caller wants the error that says why.
                raise error.inner_exception from error
            except Unsupported as error:
                if CompileMode.BREAKABLE not in self.config.modes:
                    raise
                raise ConfigError(
                    f"compiling {self._name} in mode 'breakable' with fusions: it is not one graph "
                    f"for Dynamo ({str(error).splitlines()[0]}); put what runs eagerly behind an "
                    "opaque operator (torch.library), or set fuse=False, which needs no compiler"
                ) from error


def compile_model(
    model: Callable[..., Any],
    config: CompileConfig | Mapping[str, Any] | None = None,
    *,
    device: GraphDevice | None = None,
    dynamic_arg_dims: Mapping[str, tuple[int, ...]] | None = None,
    context: GraphContext | None = None,
    observer: RuntimeObserver | None = None,
    pipeline: Pipeline | None = None,
) -> CompiledModel:
    """Compile a model for NPU graph execution.

    Nothing runs yet. Dynamo compiles at the first call, and graphs are captured inside a capture
    session, which a :class:`~npu_compile.DecodeRunner` opens.

    Args:
        model: a module or function on tensors that Dynamo traces as one graph. Wrap code that
            Dynamo must not trace (attention with host arguments) in a custom operator.
        config: the configuration. A mapping is read by :meth:`CompileConfig.from_mapping`; ``None``
            fuses and runs eagerly.
        device: the device; by default the current NPU.
        dynamic_arg_dims: maps tensor arguments to the dimensions whose size changes between calls.
        context: provides run mode and graph key for each call; by default a new one. In mode
            ``breakable``, pass the context with which you marked functions by ``runs_eagerly``.
        observer: receives captures and replays.
        pipeline: rewrites the graph, instead of the pipeline named by ``config.fusions``. Use it
            for rules of your own, rules for collectives of ``fx_passes.fusions.parallel``, or
            passes with other arguments, such as ``ForwardCopiesPass(private=...)``.

    Raises:
        ConfigError: The configuration is invalid.
        SiblingVersionError: The version of a package that npu-compile uses is outside its range.
        DeviceUnavailableError: No device was given and there is no NPU.
    """
    config = CompileConfig.of(config)
    return CompiledModel(
        model,
        config,
        device=NpuDevice() if device is None else device,
        dynamic_arg_dims=dynamic_arg_dims,
        context=context,
        observer=observer,
        pipeline=pipeline,
    )
