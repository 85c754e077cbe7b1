"""What the engine's configuration says about this package, and whether the engine fits it."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, fields
from importlib.metadata import PackageNotFoundError, requires, version
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from attn_update import UpdaterChoice

KEY = "npu_graph"
"""The key in vLLM's ``additional_config``. Without it the engine's own code runs, untouched."""

_PINNED = re.compile(r"([\w.-]+)==([^;\s]+).*extra == ['\"](engine[\w.-]*)['\"]")


class OptionsError(ValueError):
    """The value of the key is no mapping of known options."""


class EngineVersionError(RuntimeError):
    """The engine is of a version that was not tried: its private parts may have moved."""


@dataclass(frozen=True, kw_only=True)
class Options:
    """The value of the key: ``true``, or a mapping; see the README.

    Attributes:
        fusions: What `fx_passes.PassSelection.read` takes; None for no fusions.
    """

    attention: bool = True
    updater: UpdaterChoice = "auto"
    graphs: bool = False
    fusions: Mapping[str, object] | None = None
    any_version: bool = False

    @classmethod
    def read(cls, additional_config: Mapping[str, object] | None) -> Options | None:
        """Return the options, or None where the key is absent or false."""
        value = (additional_config or {}).get(KEY)
        if value is None or isinstance(value, bool):
            return cls() if value else None
        known = {field.name for field in fields(cls)}
        if not isinstance(value, dict) or not known.issuperset(value):
            expected = f"true, false or a mapping of {', '.join(sorted(known))}"
            raise _wrong(f"{KEY!r} of additional_config", expected, value)
        for name in ("attention", "graphs", "any_version"):
            if not isinstance(value.get(name, False), bool):
                raise _wrong(f"{name!r} of {KEY!r}", "true or false", value[name])
        fusions = value.get("fusions")
        if fusions is None or isinstance(fusions, bool):
            fusions = {} if fusions else None
        elif not isinstance(fusions, Mapping):
            raise _wrong(f"'fusions' of {KEY!r}", "true, false or a mapping", fusions)
        return cls(**{**value, "fusions": fusions})

    def check_engine(self) -> None:
        """Refuse an engine of other versions than those of one of this package's extras."""
        pins = [pin.groups() for pin in map(_PINNED.match, requires("vllm-npu-graph") or ()) if pin]
        tried = {extra: {name: own for name, own, by in pins if by == extra} for *_, extra in pins}
        try:
            found = {name: version(name).partition("+")[0] for name, *_ in pins}  # no +empty
        except PackageNotFoundError as error:
            found = {error.name: "none"}
        if found not in tried.values() and not self.any_version:
            texts = [" and ".join(map(" ".join, each.items())) for each in (*tried.values(), found)]
            raise EngineVersionError(
                f"loading vllm-npu-graph: tried with {', or with '.join(texts[:-1])}, found "
                f"{texts[-1]}; install one of the extras {', '.join(tried)} of vllm-npu-graph, or "
                f"set any_version in {KEY!r} to go on"
            )


def _wrong(what: str, expected: str, found: object) -> OptionsError:
    return OptionsError(f"reading {what}: expected {expected}, found {found!r}")
