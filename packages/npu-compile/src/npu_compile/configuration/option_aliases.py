"""Options of SGLang and vLLM, and of the changes proposed to SGLang, under their own names."""

from __future__ import annotations

from types import MappingProxyType
from typing import TYPE_CHECKING, Any, Final

from npu_compile.configuration.config_values import name_hint, require_boolean
from npu_compile.errors import ConfigError

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping

_COMPILERS: Final = MappingProxyType(
    {
        "eager": "eager",
        "npugraph": "full",
        "piecewise": "piecewise",
        "npugraph_ex": "torchair",
    }
)
_CUDAGRAPH_MODES: Final = MappingProxyType(
    {
        "NONE": "eager",
        "PIECEWISE": "piecewise",
        "FULL_DECODE_ONLY": "full",
        "FULL_AND_PIECEWISE": "full_decode_and_piecewise",
    }
)


def with_own_names(values: Mapping[str, Any]) -> dict[str, Any]:
    """Return options with those of other engines said in the fields of ``CompileConfig``.

    Args:
        values: names to values, ours and those in ``OPTION_ALIASES`` mixed; others stay.

    Raises:
        ConfigError: a value that has no meaning here, or two options that say different things.
    """
    own = {key: value for key, value in values.items() if key not in OPTION_ALIASES}
    said_by = dict.fromkeys(own, "")
    for name, value in values.items():
        if name not in OPTION_ALIASES:
            continue
        for key, translated in OPTION_ALIASES[name](value):
            if key in own and not _is_same(own[key], translated):
                other = said_by[key] or key
                raise ConfigError(
                    f"reading the configuration: {name} is {value!r}, which is {key} "
                    f"{translated!r} here, but {other} makes it {own[key]!r}; give one of the two"
                )
            own[key] = translated
            said_by[key] = name
    if "splitting_ops" in own:
        own["splitting_ops"] = _qualified_names(own["splitting_ops"])
    return own


def _is_same(left: object, right: object) -> bool:
    if isinstance(left, (list, tuple)) and isinstance(right, (list, tuple)):
        return list(left) == list(right)
    return left == right


def _qualified_names(names: object) -> object:
    """Return names of operators as ``namespace::name`` where they are ``namespace.name``."""
    if not isinstance(names, (list, tuple)):
        return names
    return tuple(
        name.replace(".", "::", 1) if isinstance(name, str) and "::" not in name else name
        for name in names
    )


def _compiler(value: object) -> Iterator[tuple[str, Any]]:
    yield "mode", _known("compiler", value, _COMPILERS)


def _cudagraph_mode(value: object) -> Iterator[tuple[str, Any]]:
    name = value.upper() if isinstance(value, str) else value
    if name == "FULL":
        raise ConfigError(
            "reading the configuration: cudagraph_mode is 'FULL', but prefill and mixed batches "
            "cannot be captured whole here; use 'FULL_DECODE_ONLY' or 'FULL_AND_PIECEWISE'"
        )
    yield "mode", _known("cudagraph_mode", name, _CUDAGRAPH_MODES)


def _cudagraph_capture_sizes(value: object) -> Iterator[tuple[str, Any]]:
    # vLLM's sizes are tokens of any batch, and a decode batch has one a row.
    yield "capture_sizes", value
    yield "prefill_capture_sizes", value


def _cuda_graph_bs(value: object) -> Iterator[tuple[str, Any]]:
    yield "capture_sizes", value


def _piecewise_cuda_graph_tokens(value: object) -> Iterator[tuple[str, Any]]:
    yield "prefill_capture_sizes", value


def _disable_cuda_graph(value: object) -> Iterator[tuple[str, Any]]:
    if require_boolean("disable_cuda_graph", value):
        yield "mode", "eager"


def _enable_debug_mode(value: object) -> Iterator[tuple[str, Any]]:
    if require_boolean("enable_debug_mode", value):
        yield "address_check", "always"


def _known(option: str, value: object, names: Mapping[str, str]) -> str:
    if isinstance(value, str) and value in names:
        return names[value]
    raise ConfigError(
        f"reading the configuration: {option} is {value!r}; {name_hint(value, names)}"
    )


OPTION_ALIASES: Final[Mapping[str, Callable[[object], Iterator[tuple[str, Any]]]]] = (
    MappingProxyType(
        {
            "compiler": _compiler,
            "cudagraph_mode": _cudagraph_mode,
            "cudagraph_capture_sizes": _cudagraph_capture_sizes,
            "cuda_graph_bs": _cuda_graph_bs,
            "piecewise_cuda_graph_tokens": _piecewise_cuda_graph_tokens,
            "disable_cuda_graph": _disable_cuda_graph,
            "enable_debug_mode": _enable_debug_mode,
        }
    )
)
"""Options of others by name; each gives the fields of ``CompileConfig`` that it stands for."""
