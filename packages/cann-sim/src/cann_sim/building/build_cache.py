"""The folder of built files, and the keys of its entries."""

from __future__ import annotations

import fcntl
import hashlib
import os
import sys
import tempfile
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Final, TextIO

from cann_sim.errors import CacheError

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

_ROOM: Final = "some 500 MB"


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


def cache_error(error: OSError, purpose: str) -> CacheError:
    """Return the error for a file that cannot be written.

    Args:
        error: The cause.
        purpose: The current operation.
    """
    return CacheError(
        f"cann-sim was {purpose}: expected a folder that it can write to, with {_ROOM} of room, "
        f"found {error.strerror}{f' at {error.filename}' if error.filename else ''}. Free it, or "
        "choose another folder with the environment variable CANN_SIM_CACHE."
    )


def require_writable() -> None:
    """See whether the folder of built files can be made and written to.

    Raises:
        CacheError: It cannot.
    """
    folder = cache_folder()
    try:
        folder.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryFile(dir=folder) as file:
            file.write(b"written")
    except OSError as error:
        raise cache_error(error, f"opening its folder of built files, {folder}") from error


@contextmanager
def locked(file: Path) -> Iterator[bool]:
    """Hold a lock between processes for the duration of the block.

    Reports on stderr if another process has the lock, or if the file system has no locks; in that
    case the block runs without a lock.

    Args:
        file: The lock file. It is created, and stays.

    Yields:
        Whether the lock was acquired: false on a file system without locks.

    Raises:
        CacheError: The file cannot be created.
    """
    try:
        file.parent.mkdir(parents=True, exist_ok=True)
        handle = file.open("w")
    except OSError as error:
        raise cache_error(error, f"opening its folder of built files, {file.parent}") from error
    with handle:
        held = True
        try:
            _lock(handle)
        except OSError as error:
            sys.stderr.write(
                f"cann-sim: {file.parent} has no locks ({error.strerror}); processes that start at "
                "once may each compile\n"
            )
            held = False
        yield held


def is_locked(file: Path) -> bool:
    """Return whether a process holds the lock of this file; not on a file system without locks."""
    try:
        with file.open() as handle:
            fcntl.flock(handle, fcntl.LOCK_SH | fcntl.LOCK_NB)
    except BlockingIOError:
        return True
    except OSError:
        return False
    return False


def _lock(handle: TextIO) -> None:
    try:
        fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        sys.stderr.write("cann-sim: waiting for another process that builds the same libraries\n")
        fcntl.flock(handle, fcntl.LOCK_EX)
