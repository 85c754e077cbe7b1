"""Compiles sources to object files in parallel, with a precompiled header."""

from __future__ import annotations

import os
import sys
from collections import Counter
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from cann_sim.building.compilation_progress import CompilationProgress

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence
    from concurrent.futures import Future
    from pathlib import Path

    from cann_sim.building.compiler import Compiler

_MOST_PROCESSES: Final = 8

# Compiling torch's headers once takes about as long as including them in this many units.
_UNITS_PER_HEADER: Final = 5


@dataclass(frozen=True, kw_only=True)
class ObjectFile:
    """One object file to build.

    Attributes:
        path: The object file. It appears only when it is complete.
        sources: Its C++ sources, at least one, concatenated to one translation unit.
        flags: Flags of the compiler.
        precompiled_header: A header that may be included before the sources, and be compiled once
            for all. The sources include everything they need themselves, so it does not matter
            whether this is done. ``None`` if there is none.
        rank: Files of a lower rank are built first.
    """

    path: Path
    sources: tuple[Path, ...]
    flags: tuple[str, ...]
    precompiled_header: Path | None
    rank: int = 0

    @property
    def weight(self) -> int:
        """Relative compile time; headers count like some 10,000 bytes of sources."""
        return 10_000 + sum(source.stat().st_size for source in self.sources)


def compile_all(
    files: Sequence[ObjectFile],
    compiler: Compiler,
    scratch: Path,
    when_made: Callable[[ObjectFile], None] = lambda _: None,
) -> None:
    """Build object files on several cores: by rank, and within a rank the largest first.

    If many of them have a header that may be precompiled, it is compiled first; files that begin
    before it is ready use its text. Shows progress on stderr.

    Args:
        files: Files to build.
        compiler: The compiler.
        scratch: A folder on the file system of the object files, for precompiled headers of some
            150 MB and for incomplete files. It must exist; the caller removes it.
        when_made: Called in this thread with each finished file, while others are compiled.

    Raises:
        CompilationError: The compiler rejected a source.
        CacheError: There was no room for its output.
    """
    if not files:
        return
    processes = min(os.cpu_count() or 1, _MOST_PROCESSES)
    uses = Counter((file.precompiled_header, file.flags) for file in files)
    with (
        ThreadPoolExecutor(processes) as pool,
        CompilationProgress(
            sys.stderr,
            total=sum(file.weight for file in files),
            sources=sum(len(file.sources) for file in files),
        ) as shown,
    ):
        headers: dict[tuple[Path | None, tuple[str, ...]], Future[Path]] = {
            (header, flags): pool.submit(
                _precompile, header, flags, compiler, scratch / f"{index}-{header.name}"
            )
            for index, ((header, flags), count) in enumerate(uses.items())
            if header is not None and count > _UNITS_PER_HEADER * processes
        }
        order = sorted(files, key=lambda file: (file.rank, -file.weight))
        header_of = {file: headers.get((file.precompiled_header, file.flags)) for file in order}
        futures = {
            pool.submit(_compile, file, header_of[file], compiler, scratch): file for file in order
        }
        try:
            for future in shown.while_waiting(futures):
                future.result()
                shown.add(futures[future].weight, len(futures[future].sources))
                when_made(futures[future])
        except BaseException:
            pool.shutdown(cancel_futures=True)
            # What is wrong with a header is said of the header, not of the source that read it.
            for header in headers.values():
                if not header.cancelled():
                    header.result()
            raise


def _precompile(header: Path, flags: tuple[str, ...], compiler: Compiler, copy: Path) -> Path:
    """Compile a copy of the header; the compiler uses the result next to it with this name."""
    copy.write_bytes(header.read_bytes())
    compiler.run(
        [*flags, "-x", "c++-header", str(copy), "-o", f"{copy}.gch"],
        f"precompiling {header.parent.name}/{header.name}",
    )
    return copy


def _compile(
    file: ObjectFile, header: Future[Path] | None, compiler: Compiler, scratch: Path
) -> None:
    partial = scratch / file.path.name
    # The compiler takes what it precompiled only for what is included first of all.
    *first, last = file.sources
    front = list(first)
    if header is not None and file.precompiled_header is not None:
        front.insert(0, header.result() if header.done() else file.precompiled_header)
    included = [text for path in front for text in ("-include", str(path))]
    more = f" behind {len(first)} more of that folder" if first else ""
    compiler.run(
        [*file.flags, *included, "-c", str(last), "-o", str(partial)],
        f"compiling {last.parent.name}/{last.name}{more}",
    )
    partial.rename(file.path)
