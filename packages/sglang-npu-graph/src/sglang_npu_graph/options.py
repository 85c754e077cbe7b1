"""The options of this package in the environment, and the check of the engine's version."""

from __future__ import annotations

import json
import re
from dataclasses import dataclass, fields
from importlib.metadata import PackageNotFoundError, requires, version
from types import MappingProxyType
from typing import TYPE_CHECKING, Literal

from sglang_npu_graph.errors import EngineVersionError, OptionsError

if TYPE_CHECKING:
    from collections.abc import Mapping

    from attn_update import UpdaterChoice

VARIABLE = "SGLANG_NPU_GRAPH"
"""The environment variable. Without it the engine's own code runs, untouched."""

_CHOICES = MappingProxyType(
    {"decode": ("update", "capture", "engine"), "prefill": ("breakable", "engine")}
)

_PINNED = re.compile(r"([\w.-]+)==([^;\s]+).*extra == ['\"]engine['\"]")


@dataclass(frozen=True, kw_only=True)
class Options:
    """The value of the variable as JSON: ``1``, ``true``, or an object; see the README.

    Attributes:
        updater: How updates of decode graphs are launched.
        native_folder: Folder of the native updater; None for ``~/.cache/attn-update``.
        decode: ``update`` orders and updates the engine's decode graphs with a lane; ``capture``
            also captures them; ``engine`` uses the engine's own code.
        prefill: ``breakable`` captures prefill in segments if the engine's own option for it is set
            (off by default on NPUs); ``engine`` uses the engine's own code.
        fusions: ``true``, or the argument of `fx_passes.PassSelection.read`: decode steps are fused
            before they are captured. None disables fusion.
        any_version: Whether to accept other versions of the engine than the tested one.
    """

    updater: UpdaterChoice = "auto"
    native_folder: str | None = None
    decode: Literal["update", "capture", "engine"] = "update"
    prefill: Literal["breakable", "engine"] = "breakable"
    fusions: Mapping[str, object] | None = None
    any_version: bool = False

    @classmethod
    def read(cls, environment: Mapping[str, str]) -> Options | None:
        """Return the options, or None where the variable is absent, empty, 0 or false.

        Raises:
            OptionsError: It is something else.
        """
        text = environment.get(VARIABLE, "").strip()
        try:
            value = json.loads(text or "false")
        except ValueError:
            value = text
        if value in {0, 1} if isinstance(value, int) else value is None:
            return cls() if value else None
        known = {field.name for field in fields(cls)}
        if not isinstance(value, dict) or not known.issuperset(value):
            raise OptionsError(
                f"reading the environment variable {VARIABLE}: expected 1, 0 or a JSON object of "
                f"{', '.join(sorted(known))}, found {text!r}"
            )
        fusions = value.get("fusions")
        if fusions is None or isinstance(fusions, bool):
            fusions = {} if fusions else None
        options = cls(**{**value, "fusions": fusions})
        for field, choices in _CHOICES.items():
            if getattr(options, field) not in choices:
                raise OptionsError(
                    f"reading the environment variable {VARIABLE}: {field} is "
                    f"{getattr(options, field)!r}, expected one of {', '.join(choices)}"
                )
        if not isinstance(options.native_folder, str | None):
            raise OptionsError(
                f"reading the environment variable {VARIABLE}: native_folder is "
                f"{options.native_folder!r}, expected the path of a folder"
            )
        return options

    def check_engine(self) -> None:
        """Refuse an engine of another version than those of this package's extra ``engine``.

        Raises:
            EngineVersionError: It is another one, and `any_version` is not set.
        """
        for pinned in map(_PINNED.match, requires("sglang-npu-graph") or ()):
            if pinned is None or self.any_version:
                continue
            name, expected = pinned.groups()
            try:
                found = version(name)
            except PackageNotFoundError:
                found = "none"
            if found.partition("+")[0] != expected:
                raise EngineVersionError(
                    f"loading sglang-npu-graph: tried with {name} {expected}, found {found}; "
                    f"install that, set {VARIABLE}=0 to do without, or "
                    f"{VARIABLE}='{{\"any_version\": true}}' to go on"
                )
