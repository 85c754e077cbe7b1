"""The configuration of a compilation: an immutable value from Python, a mapping, JSON or a file."""

from __future__ import annotations

import dataclasses
import json
import sys
from collections.abc import Callable, Mapping, Sequence
from enum import Enum
from pathlib import Path
from types import MappingProxyType
from typing import Any, Final, TypeVar

from npu_compile.configuration.config_values import (
    name_hint,
    refusal,
    require_boolean,
    require_positive,
)
from npu_compile.configuration.option_aliases import OPTION_ALIASES, read_flags, with_own_names
from npu_compile.errors import ConfigError
from npu_graph_runtime import AddressCheck, RunMode
from npu_graph_runtime.diagnosis import CaptureGuard
from npu_graph_runtime.errors import CaptureSizeError
from npu_graph_runtime.planning import CaptureBudget

if sys.version_info >= (3, 11):
    import tomllib
else:
    import tomli as tomllib


_Member = TypeVar("_Member", bound=Enum)


class CompileMode(str, Enum):
    """How a compiled model is executed.

    Attributes:
        EAGER: fused operators are launched one by one; nothing is captured.
        FULL: the whole model is captured, including attention, whose step parameters are updated in
            the captured graph at each replay: decode steps of ``capture_sizes``, and prefill and
            mixed steps of ``prefill_capture_sizes``.
        PIECEWISE: the graph is split at the splitting ops. The pieces between them are captured;
            the splitting ops run eagerly.
        FULL_DECODE_AND_PIECEWISE: decode as in ``FULL``, prefill and mixed batches as in
            ``PIECEWISE``.
        BREAKABLE: like ``PIECEWISE``, but the model itself marks the functions that run eagerly,
            with ``npu_graph_runtime.runs_eagerly``. Without fusions no compiler is needed.
        TORCHAIR: like ``FULL``, but the fused graph is also compiled by a compiler of torch_npu,
            chosen by ``inner_compiler``.
        MEASURED: each graph key uses the mode of ``measured_modes`` with the lowest host time per
            step, which the runners measure when they capture.
    """

    EAGER = "eager"
    FULL = "full"
    PIECEWISE = "piecewise"
    FULL_DECODE_AND_PIECEWISE = "full_decode_and_piecewise"
    BREAKABLE = "breakable"
    TORCHAIR = "torchair"
    MEASURED = "measured"

    @property
    def splits(self) -> bool:
        """Whether the graph is split at splitting ops."""
        return self in {CompileMode.PIECEWISE, CompileMode.FULL_DECODE_AND_PIECEWISE}

    @property
    def decode_run_mode(self) -> RunMode:
        """The run mode of decode steps that fit a capture size; ``EAGER`` if it is measured."""
        is_full = self is CompileMode.FULL_DECODE_AND_PIECEWISE
        return RunMode.FULL if is_full else self.prefill_run_mode

    @property
    def prefill_run_mode(self) -> RunMode:
        """The run mode of prefill steps that fit a capture size; ``EAGER`` if it is measured."""
        if self in {CompileMode.FULL, CompileMode.TORCHAIR}:
            return RunMode.FULL
        captures = self.splits or self is CompileMode.BREAKABLE
        return RunMode.BREAKABLE if captures else RunMode.EAGER


_NOT_MEASURED: Final = frozenset({CompileMode.MEASURED, CompileMode.TORCHAIR})


class InnerCompiler(str, Enum):
    """The torch_npu compiler that mode ``torchair`` uses. A process can use only one of them.

    Attributes:
        NPUGRAPH_EX: npugraph_ex, configured to run eagerly so that it captures nothing itself.
        TORCHAIR: torchair in its mode ``reduce-overhead``, also without capture. torch_npu
            deprecates it.
    """

    NPUGRAPH_EX = "npugraph_ex"
    TORCHAIR = "torchair"


class Fusions(str, Enum):
    """The fx-passes pipelines that a configuration can name.

    Attributes:
        DEFAULT: ``fx_passes.default_npu_pipeline``, which fuses the torch_npu operators that a
            model calls.
        RAISE: ``fx_passes.raising.raising_pipeline``, which first rewrites plain torch code (norms,
            rotary embedding, activations, attention) into these operators.
        NONE: no fusion.
    """

    DEFAULT = "default"
    RAISE = "raise"
    NONE = "none"


class CaptureFailure(str, Enum):
    """What a runner does if the device rejects a size, for example for lack of memory.

    Attributes:
        RAISE: release all captured graphs and raise the error.
        SKIP_SIZE: warn and continue with the other sizes. Batches of this size are padded to the
            next captured size, or run eagerly if there is none. If the device rejects all sizes,
            the first error is raised.
    """

    RAISE = "raise"
    SKIP_SIZE = "skip_size"


@dataclasses.dataclass(frozen=True, kw_only=True, slots=True)
class CompileConfig:
    """Options of a compilation.

    Attributes:
        mode: how the compiled model is executed; a string is accepted.
        splitting_ops: names of the operators (``"namespace::name"`` or
            ``"namespace::name.overload"``) at which the graph is split. Required by, and only used
            in, the modes ``piecewise`` and ``full_decode_and_piecewise``.
        allow_absent: whether splitting ops may be missing from a model, for a list that serves
            several models. A model that calls none of them is captured as one piece.
        side_inputs: maps a splitting op to the names of values that its piece receives in addition
            to the inputs that the graph shows; a mapping is accepted. See
            ``piecewise_split.plan_split``.
        measured_modes: modes that ``measured`` chooses from: any of ``eager``, ``full``,
            ``piecewise``, ``full_decode_and_piecewise`` and ``breakable``, as strings or members.
            If steps cost the same, earlier modes win. Default: ``eager``, ``full`` and, with
            ``splitting_ops``, ``piecewise``. Only used in mode ``measured``.
        inner_compiler: the compiler of mode ``torchair``; a string is accepted. Only used in that
            mode.
        capture_sizes: decode batch sizes (rows) to capture graphs for. A batch is padded to the
            next size, its bucket, in every mode. Sorted and unique after construction.
        prefill_capture_sizes: numbers of tokens to capture prefill and mixed steps for. Steps are
            padded to these sizes in every mode, so that modes compare bitwise, and captured in
            modes that capture prefill. Sorted and unique after construction.
        fuse: ``False`` disables the pipeline, like ``fusions="none"``.
        fusions: the pipeline: ``"default"``, ``"raise"``, ``"none"`` (see ``Fusions``), or
            ``"module:function"`` for a function without arguments that returns an
            ``fx_passes.Pipeline``. In Python, you can pass the pipeline itself to `compile_model`.
        disabled_fusions: names of passes and rules to leave out of the pipeline.
        exact_fusions: whether to run only rules that keep results bitwise identical.
        required_fusions: names of rules that must match in every graph; otherwise compilation fails
            with the reasons.
        soc: name of the device, as returned by ``torch.npu.get_device_name()``, for fusions into
            kernels that not all devices have. Only used with ``"default"`` and ``"raise"``.
        address_check: when captured callables compare their inputs with those of the capture; a
            string is accepted. The runners own static buffers, so ``first_replay`` finds every
            mistake that they can make. In the ``torch.compile`` backend, a piece that reads the
            result of a splitting op compares at every replay, unless this is ``never``.
        warmup_runs: eager runs of a callable before it is captured, at least 1. The first run of an
            operator may allocate or synchronise, which a capture forbids.
        capture_guard: ``off``, ``warn`` or ``raise``; a string is accepted. Unless ``off``, an
            extra eager run before each capture finds work that cannot be captured, and names its
            source line. It makes captures slower; replays cost nothing.
        shadow_every: ``n``: run every ``n``-th captured step eagerly as well, and compare it with
            its graphs; a difference raises ``ShadowDifferenceError``. See
            ``npu_graph_runtime.diagnosis.ShadowValidation`` for the cost. A decode runner with run
            mode ``FULL`` then needs ``set_lengths``. ``None`` compares no step.
        capture_failure: what runners do if the device rejects a size; a string is accepted.
        capture_budget: limits for the captured graphs of all runners of the model; a mapping is
            accepted. An empty mapping means everything the device has left. Sizes that do not fit,
            judged by the first two captures, are dropped. ``None`` measures nothing and captures
            all sizes.
        cache_folder: folder where `compile_model` stores compilations and looks for them; a path is
            accepted. ``None`` disables the cache. Files in it are executed, so nobody else may be
            able to write there.

    Raises:
        ConfigError: A value has the wrong type or is out of range, or two values contradict each
            other.
    """

    mode: CompileMode = CompileMode.EAGER
    splitting_ops: tuple[str, ...] = ()
    allow_absent: bool = False
    side_inputs: tuple[tuple[str, tuple[str, ...]], ...] = ()
    measured_modes: tuple[CompileMode, ...] = ()
    inner_compiler: InnerCompiler = InnerCompiler.NPUGRAPH_EX
    capture_sizes: tuple[int, ...] = ()
    prefill_capture_sizes: tuple[int, ...] = ()
    fuse: bool = True
    fusions: str = Fusions.DEFAULT.value
    disabled_fusions: tuple[str, ...] = ()
    exact_fusions: bool = False
    required_fusions: tuple[str, ...] = ()
    soc: str = ""
    address_check: AddressCheck = AddressCheck.FIRST_REPLAY
    warmup_runs: int = 1
    capture_guard: CaptureGuard = CaptureGuard.OFF
    shadow_every: int | None = None
    capture_failure: CaptureFailure = CaptureFailure.RAISE
    capture_budget: CaptureBudget | None = None
    cache_folder: str | None = None

    def __post_init__(self) -> None:
        set_field = object.__setattr__
        for key, enumeration in _ENUMERATIONS.items():
            set_field(self, key, _member(enumeration, key, getattr(self, key)))
        set_field(self, "measured_modes", self._read_measured_modes())
        set_field(self, "capture_budget", _budget(self.capture_budget))
        set_field(self, "cache_folder", _folder(self.cache_folder))
        set_field(self, "side_inputs", _side_inputs(self.side_inputs))
        for key in ("splitting_ops", "disabled_fusions", "required_fusions"):
            set_field(self, key, _names(key, getattr(self, key)))
        for key in ("capture_sizes", "prefill_capture_sizes"):
            set_field(self, key, _sizes(key, getattr(self, key)))
        require_positive("warmup_runs", self.warmup_runs)
        if self.shadow_every is not None:
            require_positive("shadow_every", self.shadow_every)
        for key in ("fuse", "exact_fusions", "allow_absent"):
            require_boolean(key, getattr(self, key))
        set_field(self, "fusions", self._read_fusions())
        set_field(self, "fuse", self.fuse and self.fusions != Fusions.NONE)
        self._check_fusions()
        if self.splits and not self.splitting_ops:
            mode = next(each for each in self.modes if each.splits)
            raise refusal(
                f"mode {mode.value!r} needs splitting_ops, found none; name the attention operator "
                "of the model, e.g. ('my_engine::attention',)"
            )

    @property
    def modes(self) -> tuple[CompileMode, ...]:
        """The modes that steps may run in: the measured modes, or the single mode."""
        return self.measured_modes if self.mode is CompileMode.MEASURED else (self.mode,)

    @property
    def splits(self) -> bool:
        """Whether the graph is split at splitting ops."""
        return any(mode.splits for mode in self.modes)

    @property
    def decode_run_modes(self) -> tuple[RunMode, ...]:
        """The run modes of decode steps that fit a capture size; several only if measured."""
        return tuple(dict.fromkeys(mode.decode_run_mode for mode in self.modes))

    @property
    def prefill_run_modes(self) -> tuple[RunMode, ...]:
        """The run modes of prefill steps that fit a capture size; several only if measured."""
        return tuple(dict.fromkeys(mode.prefill_run_mode for mode in self.modes))

    @classmethod
    def of(cls, config: CompileConfig | Mapping[str, Any] | None) -> CompileConfig:
        """Return a configuration from a configuration, a mapping, or ``None`` for the defaults.

        Raises:
            ConfigError: as for :meth:`from_mapping`.
        """
        if isinstance(config, CompileConfig):
            return config
        return cls() if config is None else cls.from_mapping(config)

    @classmethod
    def from_mapping(cls, values: Mapping[str, Any]) -> CompileConfig:
        """Create a configuration from keys and values, for example of a parsed JSON object.

        Args:
            values: maps field names of this class to values; lists are accepted for tuples. You can
                also use options of SGLang and vLLM, see ``OPTION_ALIASES``.

        Raises:
            ConfigError: A key is unknown (the message names the nearest known one), a value is
                invalid, or two options contradict each other.
        """
        known = [field.name for field in dataclasses.fields(cls)]
        values = with_own_names(values)
        for key in values:
            if key not in known:
                hint = name_hint(key, known, near=OPTION_ALIASES)
                raise refusal(f"unknown key {key!r}; {hint}")
        return cls(**values)

    @classmethod
    def from_json(cls, text: str) -> CompileConfig:
        """Create a configuration from a JSON object.

        Raises:
            ConfigError: The text is not a JSON object, or as for :meth:`from_mapping`.
        """
        return cls._read(text, json.loads, "JSON")

    @classmethod
    def from_file(cls, path: str | Path) -> CompileConfig:
        """Create a configuration from a file: TOML if its name ends in ``.toml``, else JSON.

        Raises:
            ConfigError: The file cannot be read, or as for :meth:`from_json`.
        """
        try:
            text = Path(path).read_text(encoding="utf-8")
        except (OSError, UnicodeDecodeError) as error:
            raise ConfigError(f"reading the configuration file {str(path)!r}: {error}") from error
        try:
            is_toml = Path(path).suffix == ".toml"
            return cls._read(text, tomllib.loads, "TOML") if is_toml else cls.from_json(text)
        except ConfigError as error:
            raise ConfigError(f"{error} (in the file {str(path)!r})") from error

    @classmethod
    def from_flags(cls, arguments: Sequence[str]) -> CompileConfig:
        """Create a configuration from command line flags, as engines accept them.

        Args:
            arguments: words such as ``["--mode", "full", "--capture-sizes", "1", "2"]``: field
                names with ``-`` for ``_``, or options of ``OPTION_ALIASES``. A flag without a value
                is true. A value is parsed as JSON, or else used as a string.

        Raises:
            ConfigError: The words are not flags, or as for :meth:`from_mapping`.
        """
        fields = dataclasses.fields(cls)
        lists = [field.name for field in fields if isinstance(field.default, tuple)]
        return cls.from_mapping(read_flags(arguments, lists))

    def to_mapping(self) -> dict[str, Any]:
        """Return all keys and values as plain data for JSON; `from_mapping` accepts the result."""
        values = {field.name: getattr(self, field.name) for field in dataclasses.fields(self)}
        values["side_inputs"] = dict(self.side_inputs)
        return {key: _plain(value) for key, value in values.items()}

    def _read_measured_modes(self) -> tuple[CompileMode, ...]:
        given = _sequence("measured_modes", self.measured_modes)
        modes = tuple(_member(CompileMode, "measured_modes", each) for each in given)
        for mode in modes:
            if mode in _NOT_MEASURED:
                known = [each.value for each in CompileMode if each not in _NOT_MEASURED]
                raise refusal(
                    f"measured_modes holds {mode.value!r}, which is compiled in another way; "
                    f"expected some of {', '.join(known)}"
                )
        if CompileMode.BREAKABLE in modes and any(mode.splits for mode in modes):
            raise refusal(
                "measured_modes holds 'breakable' and a mode that splits, which both run "
                "segments, and the same ones; name one of the two"
            )
        if modes or self.mode is not CompileMode.MEASURED:
            return tuple(dict.fromkeys(modes))
        # What takes no memory is preferred, then what is one graph.
        split = (CompileMode.PIECEWISE,) if self.splitting_ops else ()
        return (CompileMode.EAGER, CompileMode.FULL, *split)

    def _read_fusions(self) -> str:
        known = [each.value for each in Fusions]
        given: object = self.fusions
        found = given.value if isinstance(given, Fusions) else given
        module, _, function = found.partition(":") if isinstance(found, str) else ("", "", "")
        if found not in known and not (module and function):
            raise refusal(f"fusions is {found!r}; {name_hint(found, known)}, or 'module:function'")
        return str(found)

    def _check_fusions(self) -> None:
        """Reject pipeline options that do not apply to this configuration."""
        soc: object = self.soc
        if not isinstance(soc, str):
            raise refusal(
                "soc must be the name of a device, as torch.npu.get_device_name() gives it, found "
                f"{soc!r}"
            )
        if self.soc and ":" in self.fusions:
            raise refusal(
                f"soc is {self.soc!r}, but the function {self.fusions!r} makes the pipeline; leave "
                "soc out and let the function choose"
            )
        if self.required_fusions and not self.fuse:
            raise refusal(
                f"required_fusions names {self.required_fusions[0]!r}, but nothing is fused; leave "
                "one of the two out"
            )

    @classmethod
    def _read(cls, text: str, loads: Callable[[str], Any], form: str) -> CompileConfig:
        try:
            values = loads(text)
        except ValueError as error:
            raise refusal(f"not valid {form}: {error}") from error
        if not isinstance(values, dict):
            raise refusal(f"expected a {form} object, found {type(values).__name__}: {text[:60]!r}")
        return cls.from_mapping(values)


_ENUMERATIONS: Final[Mapping[str, type[Enum]]] = MappingProxyType(
    {
        "mode": CompileMode,
        "address_check": AddressCheck,
        "capture_guard": CaptureGuard,
        "inner_compiler": InnerCompiler,
        "capture_failure": CaptureFailure,
    }
)


def _member(enumeration: type[_Member], key: str, value: object) -> _Member:
    try:
        return enumeration(value)
    except ValueError:
        known = [str(member.value) for member in enumeration]
        hint = name_hint(value, known)
        raise refusal(f"{key} is {value!r}; {hint}") from None


def _budget(value: object) -> CaptureBudget | None:
    if value is None or isinstance(value, CaptureBudget):
        return value
    known = [field.name for field in dataclasses.fields(CaptureBudget)]
    if not isinstance(value, Mapping):
        raise refusal(f"capture_budget must be a mapping of {' and '.join(known)}, found {value!r}")
    for key in value:
        if key not in known:
            raise refusal(f"unknown key {key!r} of capture_budget; {name_hint(key, known)}")
    try:
        return CaptureBudget(**value)
    except CaptureSizeError as error:
        raise refusal(f"capture_budget: {error}") from error


def _folder(value: object) -> str | None:
    if value is None:
        return None
    if not isinstance(value, (str, Path)) or not str(value):
        raise refusal(f"cache_folder must be the path of a folder, found {value!r}")
    return str(value)


def _plain(value: object) -> object:
    """Return the value of a field as plain data for JSON."""
    if isinstance(value, Enum):
        return value.value
    if isinstance(value, tuple):
        return [_plain(each) for each in value]
    if isinstance(value, dict):
        return {key: _plain(each) for key, each in value.items()}
    if isinstance(value, CaptureBudget):
        limits = dataclasses.asdict(value)
        return {key: limit for key, limit in limits.items() if limit is not None}
    return value


def _sequence(key: str, value: object) -> tuple[Any, ...]:
    if isinstance(value, str) or not isinstance(value, (tuple, list)):
        raise refusal(f"{key} must be a list or tuple, found {value!r}")
    return tuple(value)


def _names(key: str, value: object) -> tuple[str, ...]:
    names = _sequence(key, value)
    for name in names:
        if not isinstance(name, str) or not name:
            raise refusal(f"{key} holds {name!r}, expected a name")
    return names


def _side_inputs(value: object) -> tuple[tuple[str, tuple[str, ...]], ...]:
    if not isinstance(value, (Mapping, tuple)):
        raise refusal(f"side_inputs must map splitting ops to lists of names, found {value!r}")
    pairs = value.items() if isinstance(value, Mapping) else value
    return tuple((_names("side_inputs", [key])[0], _names(key, names)) for key, names in pairs)


def _sizes(key: str, value: object) -> tuple[int, ...]:
    sizes = _sequence(key, value)
    for size in sizes:
        require_positive(key, size)
    return tuple(sorted(set(sizes)))
