"""Drives everything: ``./nox -s demo``, ``./nox`` (the gate), ``./nox -s bench -- NAME``.

Sessions that concern one package carry the package as their parameter: ``types(<package>)``,
``tests(<package>)`` and ``build(<package>)`` for each folder below ``packages/``. Sessions that run
the gate's tests with larger numbers are rows of ``tools/sessions/testing/long_tests.py``; all of
them: ``./nox -t long``. Environments are made by uv from the packages' own metadata
(``tools/sessions``), below ``.nox``.
"""

from __future__ import annotations

import os
import shutil
import sys
from pathlib import Path
from typing import TYPE_CHECKING

import nox
from nox.command import CommandFailed

sys.path.insert(0, str(Path(__file__).parent / "tools"))

from sessions.engine_environment import ENGINES
from sessions.interpreter import find_interpreter
from sessions.package import Package, packages
from sessions.project_environments import (
    declared_by_packages,
    engine_python,
    everything,
    find_installer,
    installer_with_torch,
    package_environment,
)
from sessions.testing.compat_run import run_compat
from sessions.testing.device_check import run_device_check
from sessions.testing.long_tests import LONG_TESTS, LongTests
from sessions.testing.test_runs import (
    ENVIRONMENT,
    EXAMPLES,
    all_cores,
    all_tests,
    build_simulator,
    run_package_tests,
    run_shared_tests,
)
from sessions.torch_release import release_share, releases
from sessions.workspace import ROOT, changed_packages, tool_requirements

if TYPE_CHECKING:
    from collections.abc import Sequence

    from sessions.engine_environment import Engine
    from sessions.torch_release import TorchRelease

nox.needs_version = ">=2026.4"
nox.options.default_venv_backend = "none"

PACKAGES = [nox.param(package, id=package.name, tags=[package.name]) for package in packages(ROOT)]
RELEASES = [nox.param(release, id=release.name) for release in releases()]


@nox.session(tags=["gate"])
def lint(session: nox.Session) -> None:
    """Check style, format, architecture, and that every public name has a user."""
    python = find_installer(session).environment(
        "lint", tool_requirements("lint"), python=sys.executable
    )
    folder = Path(python).parent
    sources = [str(package.folder / "src") for package in packages(ROOT)]
    imports = {"PYTHONPATH": os.pathsep.join(sources)}
    commands = {
        "ruff check": ([str(folder / "ruff"), "check", "."], {}),
        "ruff format": ([str(folder / "ruff"), "format", "--check", "."], {}),
        "import-linter": ([str(folder / "lint-imports"), "--no-cache"], imports),
        "architecture": ([python, "tools/check_architecture.py", *sources, "examples"], {}),
        "public names": ([sys.executable, "-m", "name_users"], {"PYTHONPATH": str(ROOT / "tools")}),
    }
    failed = [
        name
        for name, (command, environment) in commands.items()
        if not _succeeds(session, command, environment)
    ]
    if failed:
        session.error(f"failed: {', '.join(failed)}")


@nox.session(tags=["gate"])
@nox.parametrize("package", PACKAGES)
def types(session: nox.Session, package: Package) -> None:
    """Check the types of one package, its tests included, with mypy strict."""
    _mypy(session, everything(session), package.folder, "src", "tests")


@nox.session(name="types_others", tags=["gate"])
def types_others(session: nox.Session) -> None:
    """Check the types of the example, the integration tests, the benchmarks and the tools."""
    python = everything(session)
    examples = ("examples/qwen3_engine", "examples/one_package")
    for target in (*examples, "integration-tests", "benchmarks", "tools"):
        _mypy(session, python, ROOT, target)


@nox.session(tags=["gate"])
def tools(session: nox.Session) -> None:
    """Test the tools that sessions and releases use."""
    _test_tools(session, *(session.posargs or ["tools/tests"]))


@nox.session(tags=["gate"])
@nox.parametrize("package", PACKAGES)
def tests(session: nox.Session, package: Package) -> None:
    """Test one package, as a wheel, in an environment that has only what it declares."""
    installer, release = installer_with_torch(session)
    name = f"tests-{package.name}"
    python = package_environment(installer, package, release, name=name, python=sys.executable)
    report = ROOT / "build" / "tests" / f"{package.name}.xml"
    run_package_tests(
        session, python, package, *all_tests(), f"--junitxml={report}", *session.posargs
    )


@nox.session(tags=["gate"])
def integration(session: nox.Session) -> None:
    """Test the packages together, and the example engine, on simulated CANN."""
    targets = session.posargs or ["examples/qwen3_engine/tests", "integration-tests", *all_cores()]
    run_shared_tests(session, everything(session), *targets)


@nox.session(tags=["gate"])
@nox.parametrize("release", RELEASES[:1])
def share(session: nox.Session, release: TorchRelease) -> None:
    """Run a few tests of every package, as wheels, on the oldest release of torch."""
    installer, main = installer_with_torch(session)
    if release == main:
        session.skip(f"all tests run on torch {release.torch} already")
    requirements = {*declared_by_packages(), *map(installer.wheel, packages(ROOT))}
    name = f"share-{release.name}"
    python = installer.environment(name, requirements, release=release, python=sys.executable)
    for package in packages(ROOT):
        run_package_tests(session, python, package, *release_share()[package.name], *all_cores())


@nox.session(default=False)
@nox.parametrize("release", RELEASES)
def compat(session: nox.Session, release: TorchRelease) -> None:
    """Test every package, as a wheel, on one release of torch and torch_npu, and keep the figures.

    After ``--``: names of packages, which leave the others out; tests of one package, as
    ``cann-sim:tests/runtime``; ``--python=3.12`` instead of the release's own; further options are
    pytest's.
    """
    run_compat(session, release)


@nox.session(default=False)
@nox.parametrize("release", RELEASES)
def device_check(session: nox.Session, release: TorchRelease) -> None:
    """Run npu-graph-check, installed from wheels, on simulated CANN; see build/device-check.

    After ``--``: ``--python=3.13`` instead of the release's own; further options are those of
    ``npu-graph-check run``.
    """
    run_device_check(session, release)


@nox.session(default=False)
def changed(session: nox.Session) -> None:
    """Run the gate for the packages that differ from a revision (after `--`; default HEAD)."""
    (base,) = session.posargs or ["HEAD"]
    names = [package.name for package in changed_packages(base)]
    session.log(f"changed since {base}, or using what has changed: {', '.join(names) or 'nothing'}")
    session.notify("lint", posargs=[])
    for name in names:
        session.notify(f"types({name})", posargs=[])
        session.notify(f"tests({name})", posargs=[])
    session.notify("types_others", posargs=[])
    session.notify("integration", posargs=[])


@nox.session(default=False)
def demo(session: nox.Session) -> None:
    """Decode a Qwen3 checkpoint in every mode on simulated CANN and compare with transformers."""
    python = everything(session)
    session.run(python, "examples/qwen3_demo.py", *session.posargs, env=EXAMPLES, external=True)


@nox.session(default=False)
@nox.parametrize("engine", [nox.param(each, id=name) for name, each in ENGINES.items()])
def engine(session: nox.Session, engine: Engine) -> None:
    """Run vLLM-Ascend or SGLang on simulated CANN, with its own code and with ours.

    After ``--``: ``--release=torch-2.10`` for the versions that the engine pins, with the Python of
    that row; ``--part=fusions`` for one of the parts; further options are those of that part, or of
    ``engines/<engine>/session.py``, which then runs alone.
    """
    installer, release = installer_with_torch(session)
    python = sys.executable
    options = []
    modules = list(engine.parts.values())
    for text in session.posargs:
        if text.startswith("--part="):
            part = text.partition("=")[2]
            if part not in engine.parts:
                session.error(f"there is no part {part}; there are: {', '.join(engine.parts)}")
            modules = [engine.parts[part]]
        elif text.startswith("--release="):
            (release,) = (each for each in releases() if each.name == text.partition("=")[2])
            python = find_interpreter(release.python)
        else:
            options.append(text)
    python = engine_python(installer, engine, release, python)
    build_simulator(session, python)
    # Threads of torch's own kernels would wait for each other on the cores that are timed. Where CI
    # is set, torch ends what it warns of elsewhere: operators of the engines that return an input.
    environment = {"OMP_NUM_THREADS": "1", "CI": "", **ENVIRONMENT}
    for module in modules[:1] if options else modules:
        command = [python, "-m", "cann_sim", "run", "--", python, "-m", module, *options]
        session.run(*command, env=environment, external=True)


@nox.session(default=False)
def vllm_ascend_patterns(session: nox.Session) -> None:
    """Run fx-passes on the engine's patterns and compare with docs/vllm-ascend-patterns.md.

    After ``--``: ``--write`` writes it.
    """
    installer, release = installer_with_torch(session)
    python = engine_python(installer, ENGINES["vllm"], release, sys.executable)
    build_simulator(session, python)
    # fx-passes needs torch alone, so it comes from the tree into the engine's environment.
    settings = {"PYTHONPATH": str(ROOT / "packages" / "fx-passes" / "src"), "CANN_SIM_DEVICES": "2"}
    program = [python, "-m", "engines.pages.vllm_patterns", *session.posargs]
    command = [python, "-m", "cann_sim", "run", "--", *program]
    session.run(*command, env={**ENVIRONMENT, **settings}, external=True)


@nox.session(default=False)
def bench(session: nox.Session) -> None:
    """Run the benchmarks named after `--` (default: all); rows go to build/bench."""
    python = everything(session)
    scripts = {
        path.stem.removeprefix("bench_").replace("_", "-"): path
        for path in sorted(ROOT.glob("benchmarks/bench_*.py"))
    }
    names = [argument for argument in session.posargs if not argument.startswith("-")] or list(
        scripts
    )
    options = [text for text in session.posargs if text.startswith("-")]
    for name in names:
        if name not in scripts:
            session.error(f"no benchmark is named {name!r}; there are: {', '.join(scripts)}")
        session.run(python, str(scripts[name]), *options, env=EXAMPLES, external=True)


@nox.session(default=False)
def docs(session: nox.Session) -> None:
    """Build a site of all pages in build/docs/site; fail on a dead link or anchor."""
    python = find_installer(session).environment(
        "docs", tool_requirements("docs"), python=sys.executable
    )
    session.run(python, "tools/site_pages.py", "build/docs/pages", external=True)
    zensical = str(Path(python).parent / "zensical")
    session.run(zensical, "build", "--clean", "--strict", external=True)


@nox.session(default=False)
def aarch64(session: nox.Session) -> None:
    """Compile all C++ for aarch64 by a cross compiler, and run the runtime's scenarios in qemu."""
    python = everything(session)
    installer, release = installer_with_torch(session)
    wheels = ROOT / ".nox" / "aarch64-wheels"
    installer.unpack(wheels, release.requirements, platform="aarch64-manylinux_2_28")
    built = ROOT / "build" / "aarch64"
    environment = {**ENVIRONMENT, "PYTHONPATH": ""}
    command = [python, "tools/cross_build.py", str(wheels), str(built)]
    session.run(*command, env=environment, external=True)


def _long_session(tests: LongTests) -> None:
    """Define a session for one row of the table of long tests."""

    def run(session: nox.Session) -> None:
        tests.run(session)

    run.__doc__ = tests.about
    nox.session(run, name=tests.name, default=False, tags=["long"])


for _row in LONG_TESTS:
    _long_session(_row)


def _succeeds(session: nox.Session, command: Sequence[str], environment: dict[str, str]) -> bool:
    try:
        session.run(*command, env=environment, external=True)
    except CommandFailed:
        return False
    return True


def _test_tools(session: nox.Session, *arguments: str) -> None:
    installer = find_installer(session)
    requirements = tool_requirements("tools", "release")
    python = installer.environment("tools", requirements, python=sys.executable)
    environment = {**installer.settings, "PYTHONPATH": str(ROOT / "tools")}
    session.run(python, "-m", "pytest", "-q", *arguments, env=environment, external=True)


def _mypy(session: nox.Session, python: str, folder: Path, *targets: str) -> None:
    command = [python, "-m", "mypy", "--config-file", str(ROOT / "pyproject.toml")]
    cache = ["--cache-dir", str(ROOT / ".mypy_cache")]
    environment = {"MYPYPATH": os.pathsep.join(str(ROOT / name) for name in ("examples", "tools"))}
    session.chdir(folder)
    session.run(*command, *cache, *targets, env=environment, external=True)


def _release(session: nox.Session, *arguments: str) -> None:
    """Run a command of tools/release in an environment without our packages."""
    installer = find_installer(session)
    requirements = tool_requirements("release")
    python = installer.environment("release", requirements, python=sys.executable)
    environment = {**installer.settings, "PYTHONPATH": str(ROOT / "tools")}
    session.run(python, "-m", "release", *arguments, env=environment, external=True)


def _wheel_options(session: nox.Session) -> list[str]:
    """Return how tools/release makes environments: by the session's uv and with its torch."""
    installer, release = installer_with_torch(session)
    return [f"--uv={installer.uv}", *[f"--override={text}" for text in release.requirements]]


@nox.session(default=False)
def changes(session: nox.Session) -> None:
    """Fail if sources changed without a change note, or a public name broke without a breaking one.

    Pass the revision to compare with after `--` (default: main).
    """
    _release(session, "changes", *session.posargs)


@nox.session(default=False)
@nox.parametrize("package", PACKAGES)
def build(session: nox.Session, package: Package) -> None:
    """Build one package, then run its README's programs and its tests from the wheel."""
    _release(session, "build", package.name, *_wheel_options(session), *session.posargs)


@nox.session(default=False)
def wheels(session: nox.Session) -> None:
    """Build the wheels of all packages into dist, for `pip install --find-links dist`."""
    installer = find_installer(session)
    folder = ROOT / "dist"
    folder.mkdir(exist_ok=True)
    for package in packages(ROOT):
        wheel = shutil.copy(installer.wheel(package), folder)
        session.log(f"wrote {Path(wheel).relative_to(ROOT)}")


@nox.session(default=False)
def readmes(session: nox.Session) -> None:
    """Run the programs of READMEs (names of packages follow `--`) from wheels, as printed."""
    _release(session, "readmes", *_wheel_options(session), *session.posargs)


@nox.session(default=False)
def older_siblings(session: nox.Session) -> None:
    """Test npu-compile with the oldest siblings in its ranges; older ones must be rejected."""
    _release(session, "older-siblings", *_wheel_options(session), *session.posargs)


# Without the packages' tags: `./nox -t <package>` does not release.
@nox.session(default=False)
@nox.parametrize("package", [nox.param(package, id=package.name) for package in packages(ROOT)])
def release(session: nox.Session, package: Package) -> None:
    """Try a release of one package; with `-- --write`, make its commit and tag. Never pushes."""
    _release(session, "cut", package.name, *_wheel_options(session), *session.posargs)


@nox.session(default=False)
def releases_on_a_clone(session: nox.Session) -> None:
    """Release on a clone of the last commit, and test what prevents a release (minutes)."""
    options = ["--end-to-end", *_wheel_options(session)]
    _test_tools(session, "tools/tests/release/test_end_to_end.py", *options, *session.posargs)
