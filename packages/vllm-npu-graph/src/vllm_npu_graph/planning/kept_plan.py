"""The forecast of graph memory in a file, named by what it was measured with."""

from __future__ import annotations

import hashlib
import json
import logging
import os
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Mapping

_LOGGER = logging.getLogger("vllm.npu_graph")
_FORMAT = 1


class KeptPlan:
    """The file of one start's forecast.

    Attributes:
        path: The file. Its name contains a hash of the factors.
    """

    def __init__(self, folder: str | os.PathLike[str], factors: Mapping[str, str]) -> None:
        self._factors = dict(factors)
        text = json.dumps([_FORMAT, self._factors], sort_keys=True)
        digest = hashlib.sha256(text.encode()).hexdigest()[:16]
        self.path = Path(folder) / f"graph-memory-{digest}.json"

    def find(self) -> int | None:
        """Return the kept bytes, or None if there are none; a wrong file is logged and ignored."""
        try:
            found = json.loads(self.path.read_text(encoding="utf-8"))
        except FileNotFoundError:
            return None
        except (OSError, ValueError) as error:
            reason = str(error)
        else:
            reason = self._find_fault(found)
            if not reason:
                num_bytes: int = found["num_bytes"]
                return num_bytes
        _LOGGER.warning(
            "vllm-npu-graph ignores the plan of graph memory %s and measures again: %s",
            self.path,
            reason,
        )
        return None

    def keep(self, num_bytes: int) -> None:
        """Write the bytes, replacing what was kept; a failure is logged."""
        made = {"format": _FORMAT, "factors": self._factors, "num_bytes": num_bytes}
        # Others read whole files only, also if this process ends.
        part = self.path.with_name(f"{self.path.name}.{os.getpid()}")
        try:
            self.path.parent.mkdir(parents=True, exist_ok=True)
            part.write_text(json.dumps(made, indent=1, sort_keys=True), encoding="utf-8")
            part.replace(self.path)
        except OSError as error:
            _LOGGER.warning(
                "vllm-npu-graph keeps no plan of graph memory in %s: %s; the next start measures "
                "again. Make the folder writable, or set VLLM_CACHE_ROOT",
                self.path,
                error,
            )

    def _find_fault(self, found: object) -> str:
        """Return why a file's content is not this start's plan; empty if it is."""
        if not isinstance(found, dict) or found.get("format") != _FORMAT:
            return f"expected an object of format {_FORMAT}"
        if found.get("factors") != self._factors:
            return "it was written for another model, version or set of sizes"
        num_bytes = found.get("num_bytes")
        if not isinstance(num_bytes, int) or isinstance(num_bytes, bool) or num_bytes < 0:
            return f"expected a number of bytes, found {num_bytes!r}"
        return ""
