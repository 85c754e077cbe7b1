"""The package's options in the engine's configuration, and the check of the engine's version."""

from __future__ import annotations

import json
import os
import re
from collections.abc import Mapping
from dataclasses import dataclass, fields
from importlib.metadata import PackageNotFoundError, version
from types import MappingProxyType
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from attn_update import UpdaterChoice

KEY = "npu_graph"
"""The key in vLLM's ``additional_config``. Without it the engine's own code runs, untouched."""

VARIABLE = "VLLM_NPU_GRAPH"
"""The environment variable with the value of the key, as JSON, for vllm-ascend 0.30, which rejects
unknown keys in ``additional_config``."""

TRIED = MappingProxyType({"0.23.0": "0.23.0", "0.30.0rc2": "0.30.0"})
"""The versions of vllm-ascend that were tried, each with its vllm."""

_FOLDERS = ("v0_30", "v0_23")


class OptionsError(ValueError):
    """The value of the key is no mapping of known options."""


class EngineVersionError(RuntimeError):
    """The engine is of a version that was not tried: its private parts may have moved."""


@dataclass(frozen=True, kw_only=True)
class Options:
    """The value of the key: ``true``, or a mapping; see the README.

    Attributes:
        native_folder: Where the native updater is built; None for ``~/.cache/attn-update``.
        plan: Whether graph memory is planned before the KV cache is sized, and steps are counted.
        fusions: What `fx_passes.PassSelection.read` takes; None for no fusions.
    """

    attention: bool = True
    updater: UpdaterChoice = "auto"
    native_folder: str | None = None
    graphs: bool = False
    plan: bool = False
    fusions: Mapping[str, object] | None = None
    any_version: bool = False

    @classmethod
    def read(cls, additional_config: Mapping[str, object] | None) -> Options | None:
        """Return the options, or None if key and variable are absent or false.

        Args:
            additional_config: Of the engine; its key takes precedence over the variable.

        Raises:
            OptionsError: The value is not one that the README describes.
        """
        value = (additional_config or {}).get(KEY)
        if value is None:
            value = _read_variable()
        if value is None or isinstance(value, bool):
            return cls() if value else None
        known = {field.name for field in fields(cls)}
        if not isinstance(value, dict) or not known.issuperset(value):
            expected = f"true, false or a mapping of {', '.join(sorted(known))}"
            raise _wrong(f"{KEY!r} of additional_config", expected, value)
        for name in ("attention", "graphs", "plan", "any_version"):
            if not isinstance(value.get(name, False), bool):
                raise _wrong(f"{name!r} of {KEY!r}", "true or false", value[name])
        folder = value.get("native_folder")
        if folder is not None and not isinstance(folder, str):
            raise _wrong(f"'native_folder' of {KEY!r}", "the path of a folder", folder)
        fusions = value.get("fusions")
        if fusions is None or isinstance(fusions, bool):
            fusions = {} if fusions else None
        elif not isinstance(fusions, Mapping):
            raise _wrong(f"'fusions' of {KEY!r}", "true, false or a mapping", fusions)
        return cls(**{**value, "fusions": fusions})

    def check_engine(self) -> None:
        """Refuse an engine of other versions than those of `TRIED`.

        Raises:
            EngineVersionError: It is another one, and `any_version` is not set.
        """
        ascend, vllm = _installed("vllm-ascend"), _installed("vllm")
        if TRIED.get(ascend) == vllm or self.any_version:
            return
        pairs = [f"vllm-ascend {own} and vllm {of}" for own, of in TRIED.items()]
        *_, (newest, its_vllm) = TRIED.items()
        raise EngineVersionError(
            f"loading vllm-npu-graph: tried with {', or with '.join(pairs)}, found vllm-ascend "
            f"{ascend} and vllm {vllm}; install one pair, as with `pip install "
            f"vllm-ascend=={newest}` and then `VLLM_TARGET_DEVICE=empty VLLM_VERSION_OVERRIDE="
            f"{its_vllm} pip install --no-binary vllm vllm=={its_vllm}`, or leave worker_cls and "
            f"{KEY!r} out to do without, or set any_version in {KEY!r} to go on"
        )


def _read_variable() -> object:
    text = os.environ.get(VARIABLE, "null")
    try:
        return json.loads(text)
    except json.JSONDecodeError as error:
        raise _wrong(f"the environment variable {VARIABLE}", "JSON, such as true", text) from error


def release_folder() -> str:
    """Return the folder of this package for the installed vllm-ascend.

    For an untested release, that is the newest folder that is not newer than the release.
    """
    found = tuple(map(int, re.findall(r"\d+", _installed("vllm-ascend"))[:2]))
    return next(
        (each for each in _FOLDERS if tuple(map(int, re.findall(r"\d+", each))) <= found),
        _FOLDERS[-1],
    )


def _installed(name: str) -> str:
    """Return a version without its build suffix, as in ``0.23.0+empty``."""
    try:
        return version(name).partition("+")[0]
    except PackageNotFoundError:
        return "none"


def _wrong(what: str, expected: str, found: object) -> OptionsError:
    return OptionsError(f"reading {what}: expected {expected}, found {found!r}")
