"""Options as others spell them: names of SGLang, vLLM and vLLM-Ascend, flags of a command line."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, Final, NoReturn

from npu_compile.configuration.config_values import (
    is_whole,
    name_hint,
    refusal,
    require_boolean,
    require_positive,
)
from npu_compile.errors import ConfigError
from npu_graph_runtime import (
    CaptureSizes,
    sglang_decode_capture_sizes,
    sglang_prefill_capture_sizes,
)

if TYPE_CHECKING:
    from collections.abc import Collection, Sequence


_COMPILERS: Final = MappingProxyType(
    {"eager": "eager", "npugraph": "full", "piecewise": "piecewise", "npugraph_ex": "torchair"}
)
_CUDAGRAPH_MODES: Final = MappingProxyType(
    {
        "NONE": "eager",
        "PIECEWISE": "piecewise",
        "FULL": "full",
        "FULL_DECODE_ONLY": "full",
        "FULL_AND_PIECEWISE": "full_decode_and_piecewise",
    }
)
# SGLang #15332 splits decode at paged attention where no other operator is named.
_DECODE_SPLITS: Final = ("atb::_npu_paged_attention",)
# SGLang splits prefill at these, of which a model has some.
_PREFILL_SPLITS: Final = (
    "sglang::unified_attention_with_output",
    "sglang::unified_linear_attention_with_output",
    "sglang::gdn_with_output",
    "sglang::inplace_all_reduce",
)
_QUANTIZING_RULES: Final = (
    "fuse_add_rms_norm_dynamic_mx_quant",
    "fuse_add_rms_norm_dynamic_quant",
    "fuse_add_rms_norm_quant",
    "fuse_add_rms_norm_two_quants",
    "fuse_rms_norm_dynamic_mx_quant",
    "fuse_rms_norm_quant",
    "fuse_swiglu_dynamic_quant",
    "fuse_swiglu_mx_quant",
    "fuse_swiglu_quant",
)


# The fields of ``CompileConfig`` that an option sets, and those that others may set otherwise.
_Meaning = tuple[dict[str, Any], dict[str, Any]]
# Takes the name and the value of an option.
_Reader = Callable[[str, object], _Meaning]


def with_own_names(values: Mapping[str, Any]) -> dict[str, Any]:
    """Translate options of other engines into fields of ``CompileConfig``.

    Our fields and names of ``OPTION_ALIASES`` may be mixed; other names are kept. Splitting ops
    without a mode imply mode ``piecewise``.

    Raises:
        ConfigError: A value has no equivalent here, or two options contradict each other.
    """
    values = _without_groups(values)
    own = {key: value for key, value in values.items() if key not in OPTION_ALIASES}
    if "splitting_ops" in own:
        own["splitting_ops"] = _qualified_names(own["splitting_ops"])
    said_by = dict.fromkeys(own, "")
    defaults: dict[str, Any] = {}
    for name, value in values.items():
        if name not in OPTION_ALIASES:
            continue
        said, by_default = OPTION_ALIASES[name](name, value)
        defaults = {**by_default, **defaults}
        for key, translated in said.items():
            if key in own and not _is_same(own[key], translated):
                other = said_by[key] or key
                raise refusal(
                    f"{name} is {value!r}, which is {key} {translated!r} here, but {other} makes "
                    f"it {own[key]!r}; give one of the two"
                )
            own[key] = translated
            said_by[key] = name
    _limit(own, values)
    if own.get("splitting_ops"):
        defaults.setdefault("mode", "piecewise")
        defaults.pop("allow_absent", None)
    elif "splitting_ops" in own:
        defaults.pop("splitting_ops", None)
    return {**defaults, **own}


def _without_groups(values: Mapping[str, Any]) -> dict[str, Any]:
    """Flatten options that engines group under one name."""
    found: dict[str, Any] = {}
    for name, value in values.items():
        inner = {name: value}
        if name in _GROUPS:
            inner = _without_groups(_mapping(name, value))
            known = _GROUPS[name]
            for key in inner:
                if known is not None and key not in known:
                    raise refusal(f"unknown key {key!r} of {name}; {name_hint(key, known)}")
        for key, each in inner.items():
            if key in found and not _is_same(found[key], each):
                raise refusal(f"{key} is {found[key]!r} and {each!r}; give it once")
            found[key] = each
    return found


def _mapping(name: str, value: object) -> Mapping[str, Any]:
    if isinstance(value, str):
        try:
            value = json.loads(value)
        except json.JSONDecodeError as error:
            raise refusal(f"{name} is not valid JSON: {error}") from error
    if not isinstance(value, Mapping):
        raise refusal(f"{name} must be a mapping, found {value!r}")
    return value


def _limit(own: dict[str, Any], values: Mapping[str, Any]) -> None:
    """Drop sizes above a limit; without sizes, use SGLang's sizes up to the limit."""
    for name, (field, formula) in _LIMITS.items():
        limit = values.get(name)
        if limit is None:
            continue
        require_positive(name, limit)
        if field not in own:
            own[field] = tuple(formula(limit))
            continue
        sizes = own[field]
        if isinstance(sizes, (list, tuple)) and all(is_whole(size, least=1) for size in sizes):
            kept = tuple(size for size in sizes if size <= limit)
            if sizes and not kept:
                raise refusal(
                    f"{name} is {limit}, but the smallest of {field} is {min(sizes)}; give a "
                    "smaller size, or a larger limit"
                )
            own[field] = kept


def _is_same(left: object, right: object) -> bool:
    if isinstance(left, (list, tuple)) and isinstance(right, (list, tuple)):
        return list(left) == list(right)
    return left == right


def _qualified_names(names: object) -> object:
    """Return operator names as ``namespace::name``, also if given as ``namespace.name``."""
    if not isinstance(names, (list, tuple)):
        return names
    return tuple(
        name.replace(".", "::", 1) if isinstance(name, str) and "::" not in name else name
        for name in names
    )


def _known(option: str, value: object, names: Mapping[str, str]) -> str:
    if isinstance(value, str) and value in names:
        return names[value]
    raise refusal(f"{option} is {value!r}; {name_hint(value, names)}")


def _value_of(field: str, **defaults: Any) -> _Reader:
    """Return a reader of an option that has the value of a field here."""
    return lambda _, value: ({field: value}, defaults)


def _where_true(said: dict[str, Any], **defaults: Any) -> _Reader:
    """Return a reader of an option that means nothing where it is false."""
    return lambda name, value: (said, defaults) if require_boolean(name, value) else ({}, {})


def _compiler(name: str, value: object) -> _Meaning:
    mode = _known(name, value, _COMPILERS)
    return {"mode": mode}, {"splitting_ops": _DECODE_SPLITS} if mode == "piecewise" else {}


def _cudagraph_mode(option: str, value: object) -> _Meaning:
    name = value.upper() if isinstance(value, str) else value
    decode_only = {"prefill_capture_sizes": ()} if name == "FULL_DECODE_ONLY" else {}
    return {"mode": _known(option, name, _CUDAGRAPH_MODES), **decode_only}, {}


def _cudagraph_capture_sizes(_: str, value: object) -> _Meaning:
    # vLLM's sizes are tokens of any batch, and a decode batch has one a row.
    mode = "full_decode_and_piecewise"
    return {"capture_sizes": value}, {"prefill_capture_sizes": value, "mode": mode}


def _torch_compile_max_bs(name: str, value: object) -> NoReturn:
    raise refusal(
        f"{name} is {value!r}, but one compilation serves all batch sizes here, so no batch is too "
        "large for it; leave the option out, or limit what is captured by cuda_graph_max_bs"
    )


def _piecewise_cuda_graph_compiler(name: str, value: object) -> _Meaning:
    if value != "eager":
        raise refusal(
            f"{name} is {value!r}, expected 'eager', as SGLang expects on NPUs: pieces are "
            "captured as they are; for a compiler of torch_npu use mode 'torchair'"
        )
    return {}, {}


def _enable_quantization_fusion(name: str, value: object) -> _Meaning:
    return {} if require_boolean(name, value) else {"disabled_fusions": _QUANTIZING_RULES}, {}


OPTION_ALIASES: Final[Mapping[str, _Reader]] = MappingProxyType(
    {
        "compiler": _compiler,
        "cudagraph_mode": _cudagraph_mode,
        "cudagraph_capture_sizes": _cudagraph_capture_sizes,
        "cuda_graph_bs": _value_of("capture_sizes", mode="full"),
        "cuda_graph_max_bs": lambda *_: ({}, {"mode": "full"}),  # and see `_LIMITS`
        "piecewise_cuda_graph_tokens": _value_of("prefill_capture_sizes"),
        "piecewise_cuda_graph_max_tokens": lambda *_: ({}, {}),  # see `_LIMITS`
        "piecewise_cuda_graph_compiler": _piecewise_cuda_graph_compiler,
        "disable_cuda_graph": _where_true({"mode": "eager"}),
        "enable_debug_mode": _where_true({"address_check": "always"}),
        "enable_graph_rewrite": lambda name, value: ({"fuse": require_boolean(name, value)}, {}),
        # SGLang splits prefill, and goes on to capture decode whole.
        "enable_piecewise_cuda_graph": _where_true(
            {"mode": "full_decode_and_piecewise"}, splitting_ops=_PREFILL_SPLITS, allow_absent=True
        ),
        "enable_piecewise_npu_graph_decode": _where_true(
            {"mode": "piecewise"}, splitting_ops=_DECODE_SPLITS
        ),
        "enable_quantization_fusion": _enable_quantization_fusion,
        "enable_torch_compile": _where_true({"fuse": True}, mode="full"),
        "enable_torch_npugraph_ex_compile": _where_true({"mode": "torchair"}),
        "torch_compile_max_bs": _torch_compile_max_bs,
    }
)
"""Options of others by name; each gives the fields of ``CompileConfig`` that it stands for."""

_LIMITS: Final[Mapping[str, tuple[str, Callable[[int], CaptureSizes]]]] = MappingProxyType(
    {
        "cuda_graph_max_bs": ("capture_sizes", sglang_decode_capture_sizes),
        "piecewise_cuda_graph_max_tokens": ("prefill_capture_sizes", sglang_prefill_capture_sizes),
    }
)

_OF_ASCEND: Final = frozenset({"enable_graph_rewrite", "enable_quantization_fusion"})
# Options that hold others, and which; `None` for any.
_GROUPS: Final[Mapping[str, frozenset[str] | None]] = MappingProxyType(
    {
        "compilation_config": None,
        "additional_config": _OF_ASCEND,
        "ascend_compilation_config": _OF_ASCEND,
    }
)


# Options of other engines of which one value is a list of one.
LIST_OPTIONS: Final = frozenset(
    {"cuda_graph_bs", "cudagraph_capture_sizes", "piecewise_cuda_graph_tokens"}
)


def read_flags(arguments: Sequence[str], lists: Collection[str]) -> dict[str, Any]:
    """Return options by name.

    ``--capture-sizes 1 2`` and ``--capture-sizes=1`` give lists, as all options of ``lists`` and
    ``LIST_OPTIONS`` do; ``--enable-torch-compile`` gives true. A value is JSON, or else a text.

    Raises:
        ConfigError: a word before the first flag, or a flag twice.
    """
    flags: dict[str, list[str]] = {}
    latest: list[str] | None = None
    for word in arguments:
        if not word.startswith("--"):
            if latest is None:
                raise ConfigError(
                    f"reading the flags: expected a flag such as --mode, found {word!r}"
                )
            latest.append(word)
            continue
        text, equals, value = word.partition("=")
        name = text[2:].replace("-", "_")
        if name in flags:
            raise ConfigError(f"reading the flags: {text} is given twice; give it once")
        latest = flags[name] = [value] if equals else []
    return {
        name: _flag_value(texts, is_list=name in lists or name in LIST_OPTIONS)
        for name, texts in flags.items()
    }


def _flag_value(texts: Sequence[str], *, is_list: bool) -> object:
    if not texts:
        return True
    values = [_parsed(text) for text in texts]
    if len(values) > 1 or (is_list and not isinstance(values[0], (list, dict))):
        return values
    return values[0]


def _parsed(text: str) -> object:
    try:
        return json.loads(text)
    except json.JSONDecodeError:
        return text
