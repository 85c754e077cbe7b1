"""Unpacking archives on every Python that drives the tools."""

from __future__ import annotations

import tarfile
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from pathlib import Path


def unpack(files: tarfile.TarFile, folder: Path) -> None:
    """Unpack an archive of this repository's files into a folder.

    Python 3.10 before .12 and 3.11 before .4 know no filters; Debian 12 has such a one.
    """
    files.extraction_filter = getattr(tarfile, "data_filter", lambda member, _: member)
    files.extractall(folder)  # noqa: S202 (ours, not a stranger's)
