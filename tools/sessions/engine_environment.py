"""Environments that hold an engine which others wrote, as far as it installs beside ours."""

from __future__ import annotations

from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING

from sessions.workspace import ROOT, tool_requirements

if TYPE_CHECKING:
    from sessions.environment import Installer
    from sessions.package import Package
    from sessions.torch_release import TorchRelease

NEVER = "sys_platform == 'never'"
"""A marker by which an override leaves a requirement out."""

_PARTS = (
    "session",
    "runner_v2",
    "turns",
    "turns_v2",
    "engine_names",
    "own_tests",
    "graphs",
    "prefill",
    "eagle",
    "models",
    "ranks",
    "ranks_v2",
    "idle_rank",
    "configuration",
    "drafts",
    "encoder",
    "kv_budget",
    "lora",
    "sleep",
    "failing.failures",
    "failing.seeded_failures",
    "fusions",
    "breaking.breakable",
    "breaking.breakable_features",
    "failing.breakable_faults",
)


@dataclass(frozen=True, kw_only=True)
class Engine:
    """An engine and how it is installed on a machine without its device.

    Attributes:
        name: What the session calls it.
        adapter: The package of this repository that adapts it.
        requirements: Exact versions of the engine.
        left_out: Requirements of the engine that exist for its device only, or that nothing here
            imports.
        overrides: Requirements that replace the engine's own.
        from_source: Requirements that are built from their source distributions.
        read_sources: Requirements whose source distribution a script reads.
        build_requirements: What that build imports, and the setup scripts of what is read.
        build_settings: Environment variables of those.
    """

    name: str
    adapter: str
    requirements: tuple[str, ...]
    left_out: tuple[str, ...]
    overrides: tuple[str, ...] = ()
    from_source: tuple[str, ...] = ()
    read_sources: tuple[str, ...] = ()
    build_requirements: tuple[str, ...] = ()
    build_settings: tuple[tuple[str, str], ...] = ()

    @property
    def parts(self) -> dict[str, str]:
        """The modules that the session runs, by the name of the part; `session` is the first."""
        folder = self.name.replace("-", "_")
        modules = {part.rpartition(".")[2]: f"engines.{folder}.{part}" for part in _PARTS}
        return {
            part: module
            for part, module in modules.items()
            if (ROOT / f"{module.replace('.', '/')}.py").exists()
        }


VLLM = Engine(
    name="vllm",
    adapter="vllm-npu-graph",
    requirements=("vllm-ascend==0.23.0",),
    left_out=(
        "triton-ascend",  # compiles for an NPU
        "memfabric-hybrid",  # caches shared by several hosts
        "memcache-hybrid",
        "arctic-inference",  # speculative decoding by suffixes
        "torchaudio",
    ),
    # Its wheels hold kernels for CUDA; without a device it is Python only, built at installation.
    from_source=("vllm==0.23.0",),
    # `engines/vllm/without_device/allocator.py` compiles the allocator of its sleep mode from it.
    read_sources=("vllm-ascend==0.23.0",),
    build_requirements=(
        "cmake",
        "jinja2",
        "ninja",
        "numpy",
        "packaging",
        "pip",
        "setuptools>=77,<81",
        "setuptools-rust",
        "setuptools-scm",
        "torch",
        "wheel",
    ),
    build_settings=(
        ("VLLM_TARGET_DEVICE", "empty"),
        ("VLLM_VERSION_OVERRIDE", "0.23.0"),
        ("SOC_VERSION", "ascend910b1"),  # vllm-ascend otherwise queries the device
    ),
)

# The newest release that the index has, of both halves a source distribution, without kernels.
VLLM_NEXT = replace(
    VLLM,
    name="vllm-next",
    requirements=(),
    # vLLM and vllm-ascend require conflicting versions: use vLLM's.
    overrides=("fastapi[standard]>=0.133,<0.137",),
    from_source=("vllm==0.30.0", "vllm-ascend==0.30.0rc2"),
    read_sources=(),
    build_settings=(
        ("VLLM_TARGET_DEVICE", "empty"),
        ("VLLM_VERSION_OVERRIDE", "0.30.0"),
        ("COMPILE_CUSTOM_KERNELS", "0"),
        ("SOC_VERSION", "ascend910b1"),
    ),
)

SGLANG = Engine(
    name="sglang",
    adapter="sglang-npu-graph",
    requirements=(
        "sglang==0.5.23",
        "dill",  # imported, and brought by requirements that are left out
        "loguru",
        "protobuf<5",  # of torchair
        "setuptools<81",
        "numpy<2.4",  # Triton 3.6 interprets with arrays of one element as numbers
        "torch_npu",  # which the engine's metadata leave to its users
        # Runs the engine's Triton kernels as Python: nothing here compiles them.
        "triton>=3.6,<3.8",
    ),
    left_out=(
        "cuda-python",  # and other libraries and kernels for CUDA
        "decord2",
        "flash-attn-4",
        "flashinfer-python",
        "humming-kernels",
        "kernels",
        "nvidia-cutlass-dsl",
        "nvidia-mathdx",
        "nvshmem4py-cu13",
        "quack-kernels",
        "sgl-deep-ep",
        "sgl-deep-gemm",
        "sgl-flash-mla",
        "sglang-kernel",
        "tilelang",
        "torch-memory-saver",
        "anthropic",  # interfaces, formats and checkpoints that no session uses
        "blobfile",
        "build",
        "datasets",
        "deepseek-recipe",
        "easydict",
        "mistral-common",
        "modelscope",
        "outlines",
        "py-spy",
        "smg-grpc-servicer",
        "tml-renderers",
        "av",  # sound and pictures
        "soundfile",
        "timm",
        "torchaudio",
        "torchcodec",
    ),
)

ENGINES = {engine.name: engine for engine in (VLLM, VLLM_NEXT, SGLANG)}


def engine_environment(
    installer: Installer,
    engine: Engine,
    release: TorchRelease,
    siblings: list[Package],
    python: str,
) -> str:
    """Make or update the environment of an engine, and return its Python.

    It has the engine at its pinned versions, except torch and torch_npu, and our wheels.

    Args:
        installer: Makes it.
        engine: What is installed.
        release: The versions of torch and torch_npu.
        siblings: Packages of this repository.
        python: Version or path of the interpreter.
    """
    requirements = [
        *engine.requirements,
        *tool_requirements("engines"),
        *[installer.wheel(package) for package in siblings],
    ]
    if engine.from_source:
        requirements += map(str, _built_wheels(installer, engine, release, python))
    overrides = [f"{name}; {NEVER}" for name in engine.left_out]
    return installer.environment(
        f"engine-{engine.name}-{release.name}",
        requirements,
        release=release,
        python=python,
        overrides=[*overrides, *engine.overrides, _torchvision(release)],
        compiled=True,
    )


def _torchvision(release: TorchRelease) -> str:
    """Return the torchvision for a torch: 0.25 for 2.10, 0.26 for 2.11, and so on."""
    minor = int(release.torch.split(".")[1])
    return f"torchvision==0.{minor + 15}.0"


def _built_wheels(
    installer: Installer, engine: Engine, release: TorchRelease, python: str
) -> list[Path]:
    """Build an engine's wheels from source distributions, or return those of an earlier build."""
    builder = installer.environment(
        f"engine-{engine.name}-build-{release.name}",
        engine.build_requirements,
        release=release,
        python=python,
    )
    folder = Path(builder).parents[1] / "wheels"
    options = ["--quiet", "--no-deps", "--no-build-isolation"]
    settings = {**installer.settings, **dict(engine.build_settings)}
    session = installer.session
    # The engine's own tests are in them, for `engines/<engine>/own_tests.py`, and its allocator.
    sources = ROOT / "build" / "engines"
    for requirement in (*engine.from_source, *engine.read_sources):
        if not _source(requirement, sources).exists():
            options_of_source = ["--no-binary=:all:", "--dest", str(sources), requirement]
            command = [builder, "-m", "pip", "download", *options, *options_of_source]
            session.run(*command, env=settings, external=True)
    wheels = []
    for requirement in engine.from_source:
        archive = _source(requirement, sources)
        pattern = f"{archive.name.removesuffix('.tar.gz')}*.whl"
        if not list(folder.glob(pattern)):
            command = [builder, "-m", "pip", "wheel", *options, "--wheel-dir", str(folder)]
            session.run(*command, str(archive), env=settings, external=True)
        (wheel,) = folder.glob(pattern)
        wheels.append(wheel)
    return wheels


def _source(requirement: str, folder: Path) -> Path:
    """Return the source distribution of an exact requirement."""
    name, _, version = requirement.partition("==")
    return folder / f"{name.replace('-', '_')}-{version}.tar.gz"
