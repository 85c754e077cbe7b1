"""Building the native libraries, once for each set of sources, versions and flags."""

from __future__ import annotations

import os
import platform
import shutil
import subprocess
import sys
import tempfile
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Final

from cann_sim.building.build_cache import (
    cache_error,
    cache_folder,
    content_key,
    is_locked,
    locked,
)
from cann_sim.building.compilation import ObjectFile, compile_all
from cann_sim.building.compiler import Compiler, find_compiler
from cann_sim.building.included_files import included_files
from cann_sim.building.native_library import (
    NATIVE,
    STANDARD,
    NativeLibrary,
    native_libraries,
)
from cann_sim.errors import CompilerNotFoundError
from cann_sim.inventory.installation import Installation, find_installation

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping, Sequence


# Beside the operators' library: the Python that can build, and the names of the deferred libraries
# in their order, a line each. native/deferred/deferred_libraries.cpp reads it.
_DEFERRED_LIST: Final = "deferred-libraries"


@dataclass(frozen=True, kw_only=True)
class Build:
    """Native libraries on disk.

    Attributes:
        folder: Their folder. It belongs to the cache; its content never changes, but deferred
            libraries may still be added.
        libraries: Every library, in the order in which they are linked.
    """

    folder: Path
    libraries: tuple[NativeLibrary, ...]

    def search_path(self, external_events: str) -> tuple[Path, ...]:
        """Return the folders in which the dynamic linker finds the libraries.

        Args:
            external_events: One of ``EXTERNAL_EVENT_FORMS``.
        """
        return (self.folder / f"external-events-{external_events}", self.folder / "common")

    def library_paths(self, external_events: str) -> tuple[Path, ...]:
        """Return the files to load at a start, in order.

        Args:
            external_events: One of ``EXTERNAL_EVENT_FORMS``.
        """
        folders = {path.name for path in self.search_path(external_events)}
        return tuple(
            _file(self.folder, library)
            for library in self.libraries
            if library.folder in folders and not library.is_deferred
        )

    @property
    def deferred_paths(self) -> tuple[Path, ...]:
        """The files that are loaded when a function of theirs is called, in order."""
        return tuple(_file(self.folder, each) for each in self.libraries if each.is_deferred)


def build() -> Build:
    """Return the native libraries, and build those that are not in the cache.

    Safe in several processes at once: one builds, the others wait for it. Remains of killed
    processes are removed. Shows progress on stderr if something is compiled.

    Raises:
        InstallationError: torch or torch_npu is missing or is not supported.
        CompilerNotFoundError: Something must be built and there is no suitable C++ compiler.
        CompilationError: The compiler rejected a source.
        CacheError: There is no permission or no room to write the output.
    """
    return _build(lambda _: True)


def build_for_start() -> Build:
    """Return the native libraries, of which those needed for a start are built.

    The others, which define the operators, are built by a background process that outlives this
    one. A program waits for such a library when it calls an operator of it (``native/deferred``).

    Raises:
        InstallationError: As for `build`, for the libraries needed for a start; so are other
            errors.
    """
    built = _build(lambda library: not library.is_deferred)
    if not _has(built.folder, built.libraries):
        _note_builder(built.folder, built.libraries)
        lock = _lock_file(built.folder)
        if not is_locked(lock):
            _build_behind(lock.with_suffix(".log"))
    return built


def _build(is_wanted: Callable[[NativeLibrary], bool]) -> Build:
    installation = find_installation()
    libraries = native_libraries(installation)
    cache = cache_folder()
    sources_key = _sources_key(libraries, installation)
    try:
        compiler = find_compiler()
    except CompilerNotFoundError:
        earlier = _any_build(cache, sources_key, libraries)
        if earlier is None:
            raise
        return Build(folder=earlier, libraries=libraries)
    folder = _build_folder(cache, sources_key, compiler.version)
    wanted = tuple(library for library in libraries if is_wanted(library))
    if not _has(folder, wanted):
        compiler.require(STANDARD)
        with locked(_lock_file(folder)) as alone:
            if not _has(folder, wanted):
                objects = cache / "objects"
                try:
                    if alone:
                        _remove_remains(folder, objects)
                    _build_into(folder, libraries, wanted, compiler, objects, installation)
                except OSError as error:
                    raise cache_error(error, f"building its native libraries in {cache}") from error
    return Build(folder=folder, libraries=libraries)


def _build_behind(log: Path) -> None:
    """Start a process that builds all, and belongs to nobody: no program has to reap it."""
    sys.stderr.write(
        "cann-sim: compiling the operators behind the program; what calls one that is not there "
        f"yet waits for it ({log})\n"
    )
    command = '"$0" -m cann_sim build </dev/null >"$1" 2>&1 &'
    subprocess.run(
        ["/bin/sh", "-c", command, sys.executable, str(log)], start_new_session=True, check=False
    )


def cached_build() -> Path | None:
    """Return the folder that `build` would find, or None where it would have to build.

    Raises:
        InstallationError: torch or torch_npu is missing or does not fit.
    """
    installation = find_installation()
    libraries = native_libraries(installation)
    sources_key = _sources_key(libraries, installation)
    try:
        version = find_compiler().version
    except CompilerNotFoundError:
        return _any_build(cache_folder(), sources_key, libraries)
    folder = _build_folder(cache_folder(), sources_key, version)
    return folder if _has(folder, libraries) else None


def _file(folder: Path, library: NativeLibrary) -> Path:
    return folder / library.folder / library.name


def _has(folder: Path, libraries: Iterable[NativeLibrary]) -> bool:
    return all(_file(folder, library).exists() for library in libraries)


def _lock_file(folder: Path) -> Path:
    return folder.parent.parent / f"{folder.name}.lock"


def _build_folder(cache: Path, sources_key: str, compiler_version: str) -> Path:
    return cache / "builds" / f"{sources_key}-{content_key([compiler_version], [])[:8]}"


def _sources_key(libraries: Sequence[NativeLibrary], installation: Installation) -> str:
    texts = [installation.torch_version, installation.torch_npu_version, platform.machine()]
    files = []
    for library in libraries:
        texts += [library.folder, library.name, *library.compile_flags, *library.link_flags]
        files += [*library.sources, *library.headers, *library.stand_in_headers]
    return content_key(texts, files)


def _any_build(cache: Path, sources_key: str, libraries: Sequence[NativeLibrary]) -> Path | None:
    """Return a complete build of the same sources by any compiler."""
    found = sorted((cache / "builds").glob(f"{sources_key}-*"))
    return next((folder for folder in found if _has(folder, libraries)), None)


def _remove_remains(folder: Path, objects: Path) -> None:
    """Remove remains of killed processes; nobody else is building the folder now."""
    for remains in (
        *objects.glob(f"scratch-{folder.name}-*"),
        *folder.parent.glob(f"partial-{folder.name}-*"),
    ):
        shutil.rmtree(remains, ignore_errors=True)


def _build_into(
    folder: Path,
    libraries: Sequence[NativeLibrary],
    wanted: Sequence[NativeLibrary],
    compiler: Compiler,
    objects: Path,
    installation: Installation,
) -> None:
    """Make the wanted libraries of the folder that are not in it.

    The folder appears when all are complete that are not deferred, and each of the others when it
    is, which are compiled in their order.
    """
    objects.mkdir(parents=True, exist_ok=True)
    folder.parent.mkdir(parents=True, exist_ok=True)
    deferred = [library for library in wanted if library.is_deferred]
    object_files = {
        library: [
            ObjectFile(
                path=objects / f"{_object_key(library, unit, compiler, installation)}.o",
                sources=unit,
                flags=library.compile_flags,
                precompiled_header=library.precompiled_header,
                rank=1 + deferred.index(library) if library.is_deferred else 0,
            )
            for unit in library.units
        ]
        for library in wanted
        if not _file(folder, library).exists()
    }
    missing = {
        file.path: file
        for files in object_files.values()
        for file in files
        if not file.path.exists()
    }
    scratch = Path(tempfile.mkdtemp(prefix=f"scratch-{folder.name}-", dir=objects))

    def link_what_is_compiled(_: ObjectFile | None = None) -> None:
        paths = {
            library: [file.path for file in files]
            for library, files in object_files.items()
            if not missing.keys() & {file.path for file in files}
        }
        first = {library: inputs for library, inputs in paths.items() if not library.is_deferred}
        if not folder.exists() and first.keys() == set(wanted) - set(deferred):
            _make_folder(folder, libraries, first, compiler)
        for library in deferred:
            # One that is not there yet is what those behind it are linked to.
            if not _file(folder, library).exists():
                if not folder.exists() or library not in paths:
                    break
                _link(library, paths[library], folder, scratch / library.name, compiler)
                (scratch / library.name).rename(_file(folder, library))

    def when_made(file: ObjectFile) -> None:
        del missing[file.path]
        link_what_is_compiled()

    try:
        link_what_is_compiled()
        compile_all(tuple(missing.values()), compiler, scratch, when_made)
    finally:
        shutil.rmtree(scratch, ignore_errors=True)


def _make_folder(
    folder: Path,
    libraries: Sequence[NativeLibrary],
    inputs: Mapping[NativeLibrary, list[Path]],
    compiler: Compiler,
) -> None:
    """Make the folder with the libraries that are not deferred; it appears only with all."""
    partial = Path(tempfile.mkdtemp(prefix=f"partial-{folder.name}-", dir=folder.parent))
    try:
        for library, files in inputs.items():
            _link(library, files, partial, _file(partial, library), compiler)
        _note_builder(partial, libraries)
        partial.chmod(0o755)
        partial.rename(folder)
    except BaseException:
        shutil.rmtree(partial, ignore_errors=True)
        # Without locks another process may have been first.
        if not folder.exists():
            raise


def _note_builder(build: Path, libraries: Sequence[NativeLibrary]) -> None:
    """Write the information about deferred libraries for the operators' library."""
    names = [library.name for library in libraries if library.is_deferred]
    if not names:
        return
    file = build / "common" / _DEFERRED_LIST
    partial = file.with_name(f"{file.name}-{os.getpid()}")
    try:
        partial.write_text("".join(f"{line}\n" for line in (sys.executable, *names)))
        partial.rename(file)
    except OSError as error:
        raise cache_error(error, f"writing {file}") from error


def _object_key(
    library: NativeLibrary,
    unit: tuple[Path, ...],
    compiler: Compiler,
    installation: Installation,
) -> str:
    # Environments that have the same versions at different places share their objects.
    flags = "\0".join(library.compile_flags)
    flags = flags.replace(f"{installation.torch_folder}/", f"torch {installation.torch_version}/")
    flags = flags.replace(
        f"{installation.torch_npu_folder}/", f"torch_npu {installation.torch_npu_version}/"
    )
    flags = flags.replace(f"{NATIVE}/", "native/")
    read = [file for source in unit for file in (source, *included_files(source))]
    return content_key([compiler.version, flags], [*read, *library.stand_in_headers])


def _link(
    library: NativeLibrary, inputs: list[Path], build: Path, target: Path, compiler: Compiler
) -> None:
    target.parent.mkdir(exist_ok=True)
    flags = [flag.replace("{build}", str(build)) for flag in library.link_flags]
    compiler.run(
        [
            "-shared",
            f"-Wl,-soname,{library.name}",
            "-o",
            str(target),
            *map(str, inputs),
            *flags,
        ],
        f"linking {library.name}",
    )
