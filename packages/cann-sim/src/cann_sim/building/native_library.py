"""The native libraries: which sources each is made of, and how it is compiled and linked."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from types import MappingProxyType
from typing import TYPE_CHECKING, Final

from cann_sim.building.translation_units import translation_units
from cann_sim.settings import EXTERNAL_EVENT_FORMS

if TYPE_CHECKING:
    from collections.abc import Iterator

    from cann_sim.inventory.installation import Installation

NATIVE = Path(__file__).parents[1] / "native"

STANDARD = "c++20"
"""The C++ standard of all sources: the headers of torch 2.10 and of 2.14 need it."""

_FLAGS = (
    f"-std={STANDARD}",
    "-O1",
    "-fPIC",
    "-fvisibility=hidden",
    "-DFUNC_VISIBILITY",
    "-pthread",
)
_WARNINGS = ("-Wall", "-Wextra", "-Wno-deprecated-declarations")

# Only the library with the value functions makes torch_npu use values.
_VALUE_SOURCE = "value_signal.cpp"

# Compiled by themselves: what one of two libraries lacks, and what declares functions otherwise
# than CANN's headers do.
_ALONE = (_VALUE_SOURCE, "unsimulated.cpp")

_OFFERED_OPERATIONS = "offered_operations.cpp"

_TORCH_HEADERS = NATIVE / "operators" / "interface" / "torch_headers.h"

# What every operator needs and torch_npu looks for: in the library that is there from the start.
_FIRST_FOLDERS = ("cost", "coverage", "documented", "interface")

# The libraries of the other operators, in the order in which they are compiled and in which an
# operator is looked for: a first program prints a tensor, then multiplies matrices. Each uses only
# what stands before it.
_DEFERRED_FOLDERS: Final = MappingProxyType(
    {
        "tensors": ("conversion", "index", "math", "random"),
        "layers": ("activation", "cache", "matmul", "normalization", "quantization", "rotary"),
        "attention": ("attention", "fused_infer_attention", "moe", "sparse_attention"),
        "training": ("compiled", "image", "training"),
    }
)


@dataclass(frozen=True, kw_only=True)
class NativeLibrary:
    """One shared library.

    Attributes:
        name: File name, which is also its SONAME.
        folder: Folder in the build, relative.
        sources: C++ sources, sorted.
        headers: Headers that the sources may include, sorted.
        compile_flags: Flags of every source.
        precompiled_header: A header that includes only installed headers, which may be compiled
            once and included before every source; ``None`` if there is none.
        link_flags: Flags of the library; ``{build}`` is replaced by the folder of the build.
        stand_in_headers: Our headers that replace installed ones.
        is_deferred: Whether a start does not need it: the operators' library loads it when one of
            its functions is called (``native/deferred``).
    """

    name: str
    folder: str
    sources: tuple[Path, ...]
    headers: tuple[Path, ...]
    compile_flags: tuple[str, ...]
    precompiled_header: Path | None = None
    link_flags: tuple[str, ...]
    stand_in_headers: tuple[Path, ...] = ()
    is_deferred: bool = False

    @property
    def units(self) -> tuple[tuple[Path, ...], ...]:
        """The sources in groups, each compiled as one translation unit."""
        return tuple(translation_units(self.sources, _ALONE))


def native_libraries(installation: Installation) -> tuple[NativeLibrary, ...]:
    """Return the libraries in the order in which they are linked and loaded.

    Args:
        installation: The torch and torch_npu to build against.
    """
    flags = _flags(installation)
    return (
        *_runtime_libraries(flags),
        NativeLibrary(
            name="libacl_op_compiler.so",
            folder="common",
            sources=_files("compiler", "*.cpp"),
            headers=(
                *_files("compiler", "*.h"),
                *_files("operators/compiled", "compiled_call.h"),
                *_files("runtime", "**/*.h"),
            ),
            compile_flags=flags,
            link_flags=_LINK_RUNTIME,
        ),
        *_collective_libraries(flags, installation),
        NativeLibrary(
            name="libge_runner.so",
            folder="common",
            sources=_files("graph_engine", "*.cpp"),
            headers=(),
            compile_flags=flags,
            link_flags=(),
        ),
        *_libraries_without_functions(flags, installation),
        _operator_library(flags, installation),
        _transformer_boost_library(flags),
        *_deferred_libraries(flags, installation),
        _engine_kernels_library(flags, installation),
        # torch_npu looks for the executors' functions here; a look-up includes what it links to.
        NativeLibrary(
            name="libnnopbase.so",
            folder="common",
            sources=(),
            headers=(),
            compile_flags=flags,
            link_flags=("-L{build}/common", "-Wl,--no-as-needed", "-lopapi"),
        ),
    )


def _flags(installation: Installation) -> tuple[str, ...]:
    """Return the flags of every source."""
    return (
        *_FLAGS,
        *_WARNINGS,
        *(
            []
            if installation.supported.declares_conditional_tasks
            else ["-DCANN_SIM_DECLARES_CONDITIONAL_TASKS"]
        ),
        *(f"-isystem{folder}" for folder in installation.interface_folders),
    )


_LINK_RUNTIME = ("-L{build}/external-events-value", "-lascendcl")


def _runtime_libraries(flags: tuple[str, ...]) -> Iterator[NativeLibrary]:
    sources = _files("runtime", "**/*.cpp")
    for form in EXTERNAL_EVENT_FORMS:
        yield NativeLibrary(
            name="libascendcl.so",
            folder=f"external-events-{form}",
            sources=tuple(s for s in sources if form == "value" or s.name != _VALUE_SOURCE),
            headers=_files("runtime", "**/*.h"),
            compile_flags=flags,
            link_flags=("-pthread",),
        )


def _collective_libraries(
    flags: tuple[str, ...], installation: Installation
) -> Iterator[NativeLibrary]:
    """Yield the collectives, and the second name under which torch_npu looks for their groups."""
    torch_include = installation.torch_folder / "include"
    yield NativeLibrary(
        name="libhccl.so",
        folder="common",
        sources=_files("collectives", "*.cpp"),
        headers=(*_files("collectives", "*.h"), *_files("runtime", "**/*.h")),
        # Of torch only the arithmetic of half precision, which is all in headers.
        compile_flags=(*flags, f"-isystem{torch_include}"),
        link_flags=_LINK_RUNTIME,
    )
    yield NativeLibrary(
        name="libhcomm.so",
        folder="common",
        sources=(),
        headers=(),
        compile_flags=flags,
        link_flags=("-L{build}/common", "-Wl,--no-as-needed", "-lhccl"),
    )


def _libraries_without_functions(
    flags: tuple[str, ...], installation: Installation
) -> Iterator[NativeLibrary]:
    """Yield libraries that torch_npu, or torchair in it, links to without using any function.

    With a CUDA build of torch, one of them loads the library that must be loaded, and
    run, after torch and before torch_npu: in a process started by ``cann-sim run``, only libraries
    that torch_npu links to are loaded then.
    """
    brought: tuple[str, ...] = ()
    if installation.is_cuda_build:
        cuda_build = _cuda_build_library(flags, installation)
        yield cuda_build
        brought = ("-L{build}/common", "-Wl,--no-as-needed", "-lcann_sim_cuda_build")
    for name in ("graph", "acl_tdt_channel", "fmk_parser", "ascend_protobuf"):
        yield NativeLibrary(
            name=f"lib{name}.so",
            folder="common",
            sources=(),
            headers=(),
            compile_flags=flags,
            link_flags=brought if name == "acl_tdt_channel" else (),
        )


def _cuda_build_library(flags: tuple[str, ...], installation: Installation) -> NativeLibrary:
    """Return the library that lets torch_npu be loaded beside a CUDA build of torch."""
    return NativeLibrary(
        name="libcann_sim_cuda_build.so",
        folder="common",
        sources=_files("cuda_build", "*.cpp"),
        headers=(),
        compile_flags=_with_torch(flags, installation),
        link_flags=_link_torch(installation, "c10", "c10_cuda"),
        stand_in_headers=_files("torch_headers", "**/*.h"),
    )


def _operator_library(flags: tuple[str, ...], installation: Installation) -> NativeLibrary:
    """Return the library in which torch_npu looks for operators; it finds them in deferred ones."""
    return NativeLibrary(
        name="libopapi.so",
        folder="common",
        sources=(
            *_files("deferred", "*.cpp"),
            *(file for folder in _FIRST_FOLDERS for file in _files(f"operators/{folder}", "*.cpp")),
        ),
        headers=_operator_headers(),
        compile_flags=_with_torch(flags, installation),
        link_flags=(*_LINK_RUNTIME, *_link_torch(installation, "torch_cpu", "c10")),
        stand_in_headers=_files("torch_headers", "**/*.h"),
    )


def _transformer_boost_library(flags: tuple[str, ...]) -> NativeLibrary:
    """Return the library that torch_npu's ATB operators link to (Ascend Transformer Boost)."""
    return NativeLibrary(
        name="libatb.so",
        folder="common",
        sources=_files("atb", _OFFERED_OPERATIONS),
        headers=_files("deferred", "*.h"),
        compile_flags=flags,
        link_flags=("-L{build}/common", "-lopapi"),
    )


def _deferred_libraries(
    flags: tuple[str, ...], installation: Installation
) -> Iterator[NativeLibrary]:
    """Yield the libraries that define the operators, and last the one of ATB's operations."""
    atb = tuple(file for file in _files("atb", "*.cpp") if file.name != _OFFERED_OPERATIONS)
    sources = {
        name: tuple(file for folder in folders for file in _files(f"operators/{folder}", "*.cpp"))
        for name, folders in _DEFERRED_FOLDERS.items()
    }
    before: tuple[str, ...] = ("-lopapi",)
    for name, files in {**sources, "atb": atb}.items():
        yield NativeLibrary(
            name=f"libcann_sim_{name}.so",
            folder="common",
            sources=files,
            headers=(*_operator_headers(), *_files("atb", "*.h")),
            compile_flags=_with_torch(flags, installation),
            precompiled_header=_TORCH_HEADERS,
            link_flags=(
                "-Wl,--no-undefined",
                "-L{build}/common",
                *before,
                *_LINK_RUNTIME,
                *_link_torch(installation, "torch_cpu", "c10"),
            ),
            stand_in_headers=_files("torch_headers", "**/*.h"),
            is_deferred=True,
        )
        before = (*before, f"-lcann_sim_{name}")


def _operator_headers() -> tuple[Path, ...]:
    return (
        *_files("operators", "**/*.h"),
        *_files("deferred", "*.h"),
        *_files("runtime", "launch.h"),
        *_files("runtime", "soc.h"),
    )


def _engine_kernels_library(flags: tuple[str, ...], installation: Installation) -> NativeLibrary:
    """Return the library that `cann_sim.engine_kernels` calls: engines' own kernels."""
    torch_include = installation.torch_folder / "include"
    return NativeLibrary(
        name="libcann_sim_engine_kernels.so",
        folder="common",
        sources=_files("engine_kernels", "*.cpp"),
        headers=(*_files("engine_kernels", "*.h"), *_files("runtime", "launch.h")),
        # Of torch only the arithmetic of half precision, which is all in headers.
        compile_flags=(*flags, f"-isystem{torch_include}"),
        link_flags=(*_LINK_RUNTIME, "-L{build}/common", "-lopapi"),
    )


def _with_torch(flags: tuple[str, ...], installation: Installation) -> tuple[str, ...]:
    torch_include = installation.torch_folder / "include"
    return (
        *flags,
        "-D_GLIBCXX_USE_CXX11_ABI=1",
        f"-I{NATIVE / 'torch_headers'}",
        f"-isystem{torch_include}",
    )


def _link_torch(installation: Installation, *names: str) -> tuple[str, ...]:
    libraries = installation.torch_folder / "lib"
    return (
        f"-L{libraries}",
        "-Wl,--no-as-needed",
        *(f"-l{name}" for name in names),
        f"-Wl,-rpath,{libraries}",
    )


def _files(folder: str, pattern: str) -> tuple[Path, ...]:
    return tuple(sorted((NATIVE / folder).glob(pattern)))
