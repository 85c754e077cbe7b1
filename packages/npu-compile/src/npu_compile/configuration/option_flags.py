"""Options as flags of a command line, such as engines take them."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any, Final

from npu_compile.errors import ConfigError

if TYPE_CHECKING:
    from collections.abc import Collection, Sequence

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
        name: _value(texts, is_list=name in lists or name in LIST_OPTIONS)
        for name, texts in flags.items()
    }


def _value(texts: Sequence[str], *, is_list: bool) -> object:
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
