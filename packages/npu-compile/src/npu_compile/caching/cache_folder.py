"""The folder of a compile cache. Entries are written atomically and validated when read."""

from __future__ import annotations

import hashlib
import os
import tempfile
import warnings
from pathlib import Path
from typing import TYPE_CHECKING, Final

from npu_compile.errors import CompileCacheWarning

if TYPE_CHECKING:
    from collections.abc import Iterator

_MAGIC: Final = b"npu-compile cache 1\n"
_SUFFIX: Final = ".npucompile"
_DIGEST_SIZE: Final = hashlib.sha256().digest_size


class CacheFolder:
    """Files named ``<key>.<content>.npucompile``, both hashes; several processes may use it.

    A file appears by a rename after it was written completely, and is never changed. Any other file
    of that name is ignored with a warning. Entries are executed, so nobody else may be able to
    write here.

    Args:
        path: path of the folder; created when the first entry is written.
    """

    def __init__(self, path: str | Path) -> None:
        self.path = Path(path)

    def entries(self, key: str) -> Iterator[tuple[str, bytes]]:
        """Yield name and content of each valid entry for a key, the newest first."""
        try:
            found = [
                (entry.stat().st_mtime_ns, entry.name)
                for entry in os.scandir(self.path)
                if entry.name.startswith(f"{key}.") and entry.name.endswith(_SUFFIX)
            ]
        except FileNotFoundError:
            return
        except OSError as error:
            self._warn(f"looking into the compile cache {str(self.path)!r}: {error}; going without")
            return
        for _, name in sorted(found, reverse=True):
            content = self._read(name)
            if content is not None:
                yield name, content

    def store(self, key: str, content: bytes) -> str:
        """Write an entry and return the name of its file; an existing file is kept.

        Raises:
            OSError: The entry cannot be written. Nothing is left of it.
        """
        digest = hashlib.sha256(content).digest()
        name = f"{key}.{digest.hex()[:16]}{_SUFFIX}"
        self.path.mkdir(parents=True, exist_ok=True)
        # In the same folder, for a rename is only whole within one file system.
        descriptor, partial = tempfile.mkstemp(prefix=".", suffix=".partial", dir=self.path)
        try:
            with os.fdopen(descriptor, "wb") as file:
                file.write(_MAGIC + digest + content)
                file.flush()
                os.fsync(file.fileno())
            Path(partial).replace(self.path / name)
        except BaseException:
            Path(partial).unlink(missing_ok=True)
            raise
        return name

    def warn_unreadable(self, name: str, reason: str) -> None:
        """Warn that an entry is ignored."""
        self._warn(f"reading the compile cache, {str(self.path / name)!r}: {reason}; ignored")

    def _read(self, name: str) -> bytes | None:
        try:
            return _content((self.path / name).read_bytes())
        except (OSError, ValueError) as error:
            self.warn_unreadable(name, str(error))
            return None

    def _warn(self, message: str) -> None:
        warnings.warn(message, CompileCacheWarning, stacklevel=3)


def _content(data: bytes) -> bytes:
    """Return the stored content.

    Raises:
        ValueError: The file is not a complete entry.
    """
    if not data.startswith(_MAGIC):
        short = _MAGIC.startswith(data)
        raise ValueError("truncated" if short else "not an entry of this version of the cache")
    digest, content = data[len(_MAGIC) :][:_DIGEST_SIZE], data[len(_MAGIC) + _DIGEST_SIZE :]
    if hashlib.sha256(content).digest() != digest:
        raise ValueError("truncated or changed: its content does not have the hash it names")
    return content
