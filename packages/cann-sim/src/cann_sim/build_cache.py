"""Where built files are kept, and the keys by which they are found again."""

from __future__ import annotations

import fcntl
import hashlib
import os
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator


def cache_folder() -> Path:
    """Return the folder of built files: ``$CANN_SIM_CACHE``, or one in the user's cache."""
    chosen = os.environ.get("CANN_SIM_CACHE")
    if chosen:
        return Path(chosen).expanduser().absolute()
    home = os.environ.get("XDG_CACHE_HOME")
    return (Path(home) if home else Path.home() / ".cache") / "cann-sim"


def content_key(texts: Iterable[str], files: Iterable[Path]) -> str:
    """Return a key that changes with the texts and with the names and contents of the files."""
    digest = hashlib.sha256()
    for text in texts:
        digest.update(text.encode() + b"\0")
    for file in files:
        digest.update(file.name.encode() + b"\0" + file.read_bytes() + b"\0")
    return digest.hexdigest()[:32]


@contextmanager
def locked(file: Path) -> Iterator[None]:
    """Hold a lock between processes for the duration of the block.

    Args:
        file: The lock file. It is made, and stays.
    """
    file.parent.mkdir(parents=True, exist_ok=True)
    with file.open("w") as handle:
        fcntl.flock(handle, fcntl.LOCK_EX)
        yield
