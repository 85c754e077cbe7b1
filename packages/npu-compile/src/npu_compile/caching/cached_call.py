"""A model whose compilations are looked up on disk before Dynamo is used."""

from __future__ import annotations

import dataclasses
import hashlib
import os
import pickle
import warnings
from functools import cached_property
from typing import TYPE_CHECKING, Any

import torch

from npu_compile.caching.cache_key import (
    key_of_model,
    key_of_settings,
    layout_of_call,
    own_folders,
    state_of_torch,
)
from npu_compile.caching.code_reader import CodeReader, is_versioned_file, words_asked_for
from npu_compile.caching.stored_graph import (
    CacheEntry,
    StoredFunction,
    found_by,
    function_with,
    operators_of,
    rebuilt,
    reference_to,
    references_of,
    stored,
)
from npu_compile.caching.uncacheable import UncacheableError
from npu_compile.caching.value_checks import ValueChecks, ValueReader, function_of, selected
from npu_compile.caching.value_content import operator_content
from npu_compile.compilation.dynamo_call import call_of
from npu_compile.compilation.graph_compiler import CompilationReport
from npu_compile.errors import CompileCacheWarning
from npu_compile.torch_internals import (
    OpOverload,
    codes_compiled_from,
    compile_telling_guards,
    name_of_operator,
    traced_code,
)
from piecewise_split import SplitPlan

if TYPE_CHECKING:
    import inspect
    from collections.abc import Callable, Mapping, Sequence
    from types import CodeType

    from npu_compile.caching.cache_folder import CacheFolder
    from npu_compile.compilation.graph_compiler import GraphCompiler
    from npu_compile.torch_internals import GuardOfDynamo
    from piecewise_split import Piece

_GRAPH_PREFIX = "__compiled_fn"
# Dynamo answers these of inputs without a guard, torch 2.13.
_UNCHECKED = frozenset({"_base", "grad_fn", "is_leaf"})
# The layouts of the arguments, and the state of torch.
_Call = tuple[tuple[object, ...], tuple[object, ...]]


class CachedCall:
    """Calls a model with a cached compilation, or else with Dynamo, and then caches the result.

    An entry is used if everything that Dynamo read from the model is unchanged, and so is the code
    that Dynamo traced. This is compared with the entry once, and before each further call with the
    values found then, as Dynamo's guards do. Compilations that depend on something that cannot be
    compared are not cached; the compilation report gives the reason.

    Use it from one host thread at a time.

    Args:
        compiler: the backend; reports of cached compilations are added to its own.
        prepare: for split graphs, returns the callable that runs in place of a piece's function.
        dynamic_dims: for each argument the dimensions whose size changes between calls.
        software: the key of `key_of_software`.
    """

    def __init__(
        self,
        model: Callable[..., Any],
        compiler: GraphCompiler,
        *,
        folder: CacheFolder,
        prepare: Callable[[Callable[..., Any], str, bool], Callable[..., Any]] | None,
        signature: inspect.Signature,
        dynamic_dims: Mapping[str, tuple[int, ...]],
        software: str,
    ) -> None:
        self._model = model
        self._compiler = compiler
        self._folder = folder
        self._prepare = prepare
        self._software = software
        positions = {name: position for position, name in enumerate(signature.parameters)}
        self._dims: dict[object, tuple[int, ...]] = dict(dynamic_dims.items())
        self._dims.update({positions[name]: dims for name, dims in dynamic_dims.items()})
        self._function = call_of(model)
        names, cells = self._function.__code__.co_freevars, self._function.__closure__ or ()
        self._cells = {name: cell.cell_contents for name, cell in zip(names, cells, strict=True)}
        self._entries: list[tuple[tuple[object, ...], ValueChecks, Callable[..., Any]]] = []
        self._looked_for: set[_Call] = set()
        self._settings: dict[object, str] = {}
        self._misses: list[str] = []
        self._compiling: _Compiling | None = None
        self._local_names: dict[str, object] = {}
        self._calling: _Call | str = ""

    @cached_property
    def _compiled(self) -> Callable[..., Any]:
        # Only where nothing is found: it imports modules of torch that a found entry does not need.
        return compile_telling_guards(self._function, self._backend, self._note_guards)

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        """Call the model."""
        local_names = {"args": args, "kwargs": kwargs, "model": self._model}
        state = state_of_torch()
        for known_state, checks, found in self._entries:
            if known_state == state and checks.still_fit(local_names):
                return found(*args, **kwargs)
        try:
            call = (layout_of_call(args, kwargs, self._dims), state)
        except UncacheableError as error:
            return self._compile(str(error), local_names)
        if call not in self._looked_for:
            # Once: what Dynamo compiled since then, it finds faster itself. The settings are read
            # now, for Dynamo has some of its own while it compiles.
            self._settings[state[-1]] = key_of_settings()
            self._looked_for.add(call)
            entry = self._find(local_names, call)
            if entry is not None:
                return entry(*args, **kwargs)
        return self._compile(call, local_names)

    def _key(self, call: _Call) -> str:
        """Return the key of the entries for a call.

        Raises:
            UncacheableError: The model has weights that cannot be compared.
        """
        layout, state = call
        is_split = self._prepare is not None
        dims = sorted((str(name), each) for name, each in self._dims.items())
        model = key_of_model(self._model)
        parts = (
            self._software,
            model,
            is_split,
            dims,
            layout,
            state[:-1],
            self._settings[state[-1]],
        )
        return hashlib.sha256(repr(parts).encode()).hexdigest()[:32]

    def _find(self, local_names: dict[str, object], call: _Call) -> Callable[..., Any] | None:
        """Return a callable from an entry that fits; note why the others do not."""
        self._misses = []
        try:
            key = self._key(call)
        except UncacheableError:
            # Said by the report of the compilation that follows.
            return None
        for name, data in self._folder.entries(key):
            try:
                entry = CacheEntry.from_bytes(data)
                checks = self._checked(entry, local_names)
                graph = rebuilt(entry, self._prepare or (lambda function, *_: function))
                more = {entry.graph_name: graph}
                found = function_with(entry.entry, cells=self._cells, more=more)
                plan = None if entry.plan is None else SplitPlan.from_json(entry.plan)
                fusions = None if entry.fusions is None else pickle.loads(entry.fusions)  # noqa: S301
            except UncacheableError as error:
                self._misses.append(f"{name} does not fit: {error}")
                continue
            except Exception as error:  # noqa: BLE001 - no entry may stop a model that compiles
                self._folder.warn_unreadable(name, f"{type(error).__name__}: {error}")
                continue
            self._entries.append((call[1], checks, found))
            self._compiler.reports.append(
                CompilationReport(
                    fusions=fusions,
                    plan=plan,
                    num_captured_pieces=sum(not piece.is_splitting for piece in entry.pieces),
                    cache=f"from the compile cache: {name}",
                )
            )
            return found
        return None

    def _checked(self, entry: CacheEntry, local_names: dict[str, object]) -> ValueChecks:
        """Return the checks of an entry that fits this process.

        Raises:
            UncacheableError: It does not fit; the message says what differs.
        """
        reader = CodeReader()
        for name, content in entry.operators.items():
            operator = _operator(name)
            if operator is None or operator_content(operator, reader) != content:
                raise UncacheableError(f"operator {name} is not what it was")
        modules = {name: found_by(each) for name, each in entry.modules.items()}
        checks = ValueChecks(
            function_of(entry.read),
            entry.names,
            [frozenset(each) for each in entry.checks],
            dynamic_dims=self._dims_by_name(),
            modules=modules,
        )
        contents, aliases = checks.contents(local_names, reader)
        for name, was, now in zip(entry.names, entry.contents, contents, strict=True):
            if tuple(was) != tuple(now):
                raise UncacheableError(f"{name} was {was[1][:200]}, and is {now.text[:200]}")
        if tuple(entry.aliases) != aliases:
            raise UncacheableError("other tensors are one and the same")
        return checks

    def _dims_by_name(self) -> dict[str, tuple[int, ...]]:
        return {
            f"L['args'][{name}]" if isinstance(name, int) else f"L['kwargs']['{name}']": dims
            for name, dims in self._dims.items()
        }

    def _compile(self, call: _Call | str, local_names: dict[str, object]) -> Any:
        """Call the model through Dynamo, and cache what it compiled, if anything.

        A text in place of the call is the reason why it is not cached.
        """
        args: Any = local_names["args"]
        kwargs: Any = local_names["kwargs"]
        known = set(map(id, codes_compiled_from(self._function)))
        self._local_names, self._calling = local_names, call
        try:
            output = self._compiled(*args, **kwargs)
        finally:
            compiling, self._compiling, self._local_names = self._compiling, None, {}
        if compiling is None:
            return output
        codes = [each for each in codes_compiled_from(self._function) if id(each) not in known]
        try:
            entry = compiling.entry_with(codes, self._function)
            name = self._folder.store(compiling.key, entry.to_bytes())
            said = f"compiled, and put into the compile cache: {name}"
        except UncacheableError as error:
            said = f"compiled, and not put into the compile cache: {error}"
        except (OSError, ValueError) as error:
            said = f"compiled, and not put into the compile cache: {error}"
            warnings.warn(
                f"writing into the compile cache {str(self._folder.path)!r}: {error}; going on "
                "without",
                CompileCacheWarning,
                stacklevel=2,
            )
        report = dataclasses.replace(compiling.report, cache="; ".join((said, *self._misses)))
        self._misses = []
        reports = self._compiler.reports
        reports[reports.index(compiling.report)] = report
        return output

    def _backend(
        self, graph_module: torch.fx.GraphModule, example_inputs: Sequence[Any]
    ) -> Callable[..., Any]:
        operators = operators_of(graph_module)
        compiled = self._compiler(graph_module, example_inputs)
        self._compiling = _Compiling(
            graph_module=graph_module,
            compiled=compiled,
            pieces=self._compiler.pieces,
            operators=operators,
            traced=traced_code(),
            report=self._compiler.reports[-1],
        )
        return compiled

    def _note_guards(self, guards: list[GuardOfDynamo]) -> None:
        """Read the compilation's dependencies before its first run can change any of them."""
        compiling = self._compiling
        if compiling is None:
            return
        if isinstance(self._calling, str):
            compiling.reason = self._calling
            return
        try:
            compiling.key = self._key(self._calling)
            module = self._function.__globals__
            compiling.note_guards(guards, self._local_names, self._dims_by_name(), module)
        except UncacheableError as error:
            compiling.reason = str(error)
        except Exception as error:  # noqa: BLE001 - Dynamo would take it for an error of the model
            compiling.reason = f"looking at what it depends on failed: {error!r}"
            warnings.warn(compiling.reason, CompileCacheWarning, stacklevel=2)


@dataclasses.dataclass(kw_only=True)
class _Compiling:
    """State of the current compilation, from the backend call to its end."""

    graph_module: torch.fx.GraphModule
    compiled: Callable[..., Any]
    pieces: Sequence[tuple[Piece, Callable[..., Any]]]
    operators: list[OpOverload]
    traced: list[CodeType]
    report: CompilationReport
    key: str = ""
    reason: str = "Dynamo told no guards"
    values: dict[str, Any] = dataclasses.field(default_factory=dict)

    def note_guards(
        self,
        guards: list[GuardOfDynamo],
        local_names: dict[str, object],
        dims: dict[str, tuple[int, ...]],
        module: Mapping[str, object],
    ) -> None:
        reader = CodeReader()
        names, conditions = selected(guards)
        conditions += self._absent_names(names, local_names, module)
        reading = ValueReader(list(names), conditions)
        modules = {name: module[name] for name in reading.aliases if name in module}
        references = {name: reference_to(name, value) for name, value in modules.items()}
        checks = ValueChecks(
            function_of(reading.code),
            list(names),
            list(names.values()),
            dynamic_dims=dims,
            modules=modules,
        )
        contents, aliases = checks.contents(local_names, reader)
        operators = {
            name_of_operator(each): operator_content(each, reader) for each in self.operators
        }
        self._require_known(reader)
        self.values = {
            "read": reading.code,
            "names": tuple(names),
            "checks": tuple(tuple(sorted(each)) for each in names.values()),
            "contents": tuple((each.kind, each.text) for each in contents),
            "aliases": aliases,
            "modules": references,
            "operators": operators,
        }
        self.reason = ""

    def _absent_names(
        self,
        names: Mapping[str, frozenset[str]],
        local_names: dict[str, object],
        module: Mapping[str, object],
    ) -> list[str]:
        """Return conditions for names that the code may look up in modules that do not have them.

        Dynamo has no guard for this.
        """
        words = {word for code in self._traced_of_others() for word in words_asked_for(code)}
        modules = [name for name, kinds in names.items() if "MODULE_MATCH" in kinds]
        reading = ValueReader(modules, [])
        values, _ = function_of(reading.code)(local_names, module)
        lacking = [
            (name, sorted(words - vars(value).keys()))
            for name, value in zip(modules, values, strict=True)
        ]
        return [
            f"not vars({name}).keys() & {{{', '.join(map(repr, absent))}}}"
            for name, absent in lacking
            if absent
        ]

    def _traced_of_others(self) -> list[CodeType]:
        return [each for each in self.traced if not is_versioned_file(each.co_filename)]

    def _require_known(self, reader: CodeReader) -> None:
        """Check that each function that Dynamo traced is among those that are compared."""
        for code in self._traced_of_others():
            unchecked = _UNCHECKED.intersection((*code.co_names, *words_asked_for(code)))
            if unchecked:
                raise UncacheableError(
                    f"{code.co_name} ({code.co_filename}, line {code.co_firstlineno}) reads "
                    f"{min(unchecked)} of a tensor, which Dynamo takes for a constant"
                )
        folders = own_folders()
        for code in self.traced:
            if code is os.getenv.__code__:
                raise UncacheableError("it calls os.getenv, and Dynamo has no guard on its result")
            if code not in reader.codes and not is_versioned_file(code.co_filename, folders):
                raise UncacheableError(
                    f"Dynamo looked into {code.co_name} ({code.co_filename}, line "
                    f"{code.co_firstlineno}), which no value that it compares leads to"
                )

    def entry_with(self, codes: list[CodeType], function: Any) -> CacheEntry:
        """Return the entry, given the code objects that Dynamo runs in place of the function.

        Raises:
            UncacheableError: It cannot be cached.
        """
        if self.reason or len(codes) != 1:
            raise UncacheableError(self.reason or "Dynamo kept no code of it")
        code = codes[0]
        module = function.__globals__
        graph_names = [name for name in code.co_names if name.startswith(_GRAPH_PREFIX)]
        if len(graph_names) != 1:
            raise UncacheableError(f"Dynamo's code calls {len(graph_names)} graphs")
        references = references_of(code, module, frozenset(graph_names))
        plan, fusions = self.report.plan, self.report.fusions
        return CacheEntry(
            entry=StoredFunction(code=code, references=references, cells={}),
            graph_name=graph_names[0],
            **stored(self.compiled, self.graph_module, self.pieces),
            **self.values,
            plan=None if plan is None else plan.to_json(),
            fusions=None if fusions is None else pickle.dumps(fusions),
        )


def _operator(name: str) -> OpOverload | None:
    namespace, _, rest = name.partition("::")
    packet, _, overload = rest.partition(".")
    found = getattr(getattr(torch.ops, namespace), packet, None)
    return None if found is None else getattr(found, overload or "default", None)
