"""Building the native libraries, once for each set of sources, versions and flags."""

from __future__ import annotations

import platform
import shutil
import tempfile
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from cann_sim.building.build_cache import cache_error, cache_folder, content_key, locked
from cann_sim.building.compilation import ObjectFile, compile_all
from cann_sim.building.compiler import Compiler, find_compiler
from cann_sim.building.included_files import included_files
from cann_sim.building.native_library import STANDARD, NativeLibrary, native_libraries
from cann_sim.errors import CompilerNotFoundError
from cann_sim.inventory.installation import Installation, find_installation

if TYPE_CHECKING:
    from collections.abc import Sequence


@dataclass(frozen=True, kw_only=True)
class Build:
    """Native libraries on disk.

    Attributes:
        folder: Their folder. It belongs to the cache and is never changed once it is there.
        libraries: Every library, in the order in which they are loaded.
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
        """Return the files to load, in order.

        Args:
            external_events: One of ``EXTERNAL_EVENT_FORMS``.
        """
        folders = {path.name for path in self.search_path(external_events)}
        return tuple(
            self.folder / library.folder / library.name
            for library in self.libraries
            if library.folder in folders
        )


def build() -> Build:
    """Return the native libraries, and build them first where they are not in the cache.

    Safe in several processes at once: one builds, the others wait for it. What a process that was
    killed left behind is removed. Shows on stderr how far it is where something is compiled.

    Raises:
        InstallationError: torch or torch_npu is missing or does not fit.
        CompilerNotFoundError: Something has to be built and there is no C++ compiler that can.
        CompilationError: A source was refused by the compiler.
        CacheError: There is no permission or no room to write what is built.
    """
    installation = find_installation()
    libraries = native_libraries(installation)
    cache = cache_folder()
    sources_key = _sources_key(libraries, installation)
    try:
        compiler = find_compiler()
    except CompilerNotFoundError:
        earlier = _any_build(cache, sources_key)
        if earlier is None:
            raise
        return Build(folder=earlier, libraries=libraries)
    folder = _build_folder(cache, sources_key, compiler.version)
    if not folder.exists():
        compiler.require(STANDARD)
        with locked(cache / f"{folder.name}.lock") as alone:
            if not folder.exists():
                try:
                    if alone:
                        _remove_remains(folder, cache / "objects")
                    _build_into(folder, libraries, compiler, cache / "objects", installation)
                except OSError as error:
                    raise cache_error(error, f"building its native libraries in {cache}") from error
    return Build(folder=folder, libraries=libraries)


def cached_build() -> Path | None:
    """Return the folder that `build` would find, or None where it would have to build.

    Raises:
        InstallationError: torch or torch_npu is missing or does not fit.
    """
    installation = find_installation()
    sources_key = _sources_key(native_libraries(installation), installation)
    try:
        version = find_compiler().version
    except CompilerNotFoundError:
        return _any_build(cache_folder(), sources_key)
    folder = _build_folder(cache_folder(), sources_key, version)
    return folder if folder.exists() else None


def _build_folder(cache: Path, sources_key: str, compiler_version: str) -> Path:
    return cache / "builds" / f"{sources_key}-{content_key([compiler_version], [])[:8]}"


def _sources_key(libraries: Sequence[NativeLibrary], installation: Installation) -> str:
    texts = [installation.torch_version, installation.torch_npu_version, platform.machine()]
    files = []
    for library in libraries:
        texts += [library.folder, library.name, *library.compile_flags, *library.link_flags]
        files += [*library.sources, *library.headers]
    return content_key(texts, files)


def _any_build(cache: Path, sources_key: str) -> Path | None:
    """Return a build of the same sources by any compiler."""
    found = sorted((cache / "builds").glob(f"{sources_key}-*"))
    return found[0] if found else None


def _remove_remains(folder: Path, objects: Path) -> None:
    """Remove what processes that were killed left behind; no other is building the folder now."""
    for remains in (
        *objects.glob(f"scratch-{folder.name}-*"),
        *folder.parent.glob(f"partial-{folder.name}-*"),
    ):
        shutil.rmtree(remains, ignore_errors=True)


def _build_into(
    folder: Path,
    libraries: Sequence[NativeLibrary],
    compiler: Compiler,
    objects: Path,
    installation: Installation,
) -> None:
    """Make the folder with all libraries; it appears only when it is complete."""
    objects.mkdir(parents=True, exist_ok=True)
    folder.parent.mkdir(parents=True, exist_ok=True)
    object_files = {
        library: [
            ObjectFile(
                path=objects / f"{_object_key(library, unit, compiler, installation)}.o",
                sources=unit,
                flags=library.compile_flags,
                precompiled_header=library.precompiled_header,
            )
            for unit in library.units
        ]
        for library in libraries
    }
    missing = {
        file.path: file
        for files in object_files.values()
        for file in files
        if not file.path.exists()
    }
    scratch = Path(tempfile.mkdtemp(prefix=f"scratch-{folder.name}-", dir=objects))
    try:
        compile_all(tuple(missing.values()), compiler, scratch)
    finally:
        shutil.rmtree(scratch, ignore_errors=True)
    partial = Path(tempfile.mkdtemp(prefix=f"partial-{folder.name}-", dir=folder.parent))
    try:
        for library, files in object_files.items():
            _link(library, [file.path for file in files], partial, compiler)
        partial.chmod(0o755)
        partial.rename(folder)
    except BaseException:
        shutil.rmtree(partial, ignore_errors=True)
        # Without locks another process may have been first.
        if not folder.exists():
            raise


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
    read = [file for source in unit for file in (source, *included_files(source))]
    return content_key([compiler.version, flags], read)


def _link(library: NativeLibrary, inputs: list[Path], build: Path, compiler: Compiler) -> None:
    target = build / library.folder / library.name
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
