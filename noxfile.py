"""Drives everything: ``./nox -s demo``, ``./nox`` (the gate), ``./nox -s bench -- NAME``.

Sessions that concern one package carry the package as their parameter: ``types(<package>)``,
``tests(<package>)`` and ``build(<package>)`` for each folder below ``packages/``. Environments are
made by uv from the packages' own metadata (``tools/sessions``), below ``.nox``.
"""

from __future__ import annotations

import os
import shutil
import sys
from pathlib import Path
from typing import TYPE_CHECKING

import nox
from nox.command import CommandFailed
from nox.virtualenv import find_uv

sys.path.insert(0, str(Path(__file__).parent / "tools"))

from sessions.compat_results import keep_result, read_result
from sessions.engine_environment import ENGINES, engine_environment
from sessions.environment import Installer
from sessions.installer_settings import installer_settings
from sessions.interpreter import find_interpreter
from sessions.package import Package, packages
from sessions.timer_slack import let_sleeps_end_late
from sessions.torch_release import choose_torch, release_share, releases
from sessions.workspace import ROOT, changed_packages, tool_requirements

if TYPE_CHECKING:
    from collections.abc import Sequence

    from sessions.engine_environment import Engine
    from sessions.torch_release import TorchRelease

nox.needs_version = ">=2026.4"
nox.options.default_venv_backend = "none"

PACKAGES = [nox.param(package, id=package.name, tags=[package.name]) for package in packages(ROOT)]
RELEASES = [nox.param(release, id=release.name) for release in releases()]

# torch_npu registers itself for loading by `import torch`, which fails without device libraries.
# cann_sim.activate() and `cann-sim run` load the simulated ones; all else imports torch alone.
# Bytecode is written whatever the caller set: without it every start of Python compiles torch
# and torch_npu anew, some 10 seconds, and many tests start one. Dynamo fills a large buffer at each
# compilation, to empty the caches before it times the guards: malloc keeps its memory, which it
# otherwise gives back to the system and takes again, a fifth of the CPU time of some tests.
ENVIRONMENT = {
    "TORCH_DEVICE_BACKEND_AUTOLOAD": "0",
    "PYTHONDONTWRITEBYTECODE": "",
    "MALLOC_MMAP_THRESHOLD_": str(1 << 30),
    "MALLOC_TRIM_THRESHOLD_": str(1 << 30),
}


@nox.session(tags=["gate"])
def lint(session: nox.Session) -> None:
    """Check style, format and architecture."""
    python = _installer(session).environment(
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
    _mypy(session, _everything(session), package.folder, "src", "tests")


@nox.session(name="types_others", tags=["gate"])
def types_others(session: nox.Session) -> None:
    """Check the types of the example, the integration tests, the benchmarks and the tools."""
    python = _everything(session)
    examples = ("examples/qwen3_engine", "examples/one_package")
    for target in (*examples, "integration-tests", "benchmarks", "tools"):
        _mypy(session, python, ROOT, target)


@nox.session(tags=["gate"])
def tools(session: nox.Session) -> None:
    """Test the tools that the sessions and releases are made of."""
    _test_tools(session, *(session.posargs or ["tools/tests"]))


@nox.session(tags=["gate"])
@nox.parametrize("package", PACKAGES)
def tests(session: nox.Session, package: Package) -> None:
    """Test one package, as a wheel, in an environment that has only what it declares."""
    installer, release = _with_torch(session)
    name = f"tests-{package.name}"
    python = _package_environment(installer, package, release, name=name, python=sys.executable)
    report = ROOT / "build" / "tests" / f"{package.name}.xml"
    _pytest(session, python, package, *_all_tests(), f"--junitxml={report}", *session.posargs)


@nox.session(tags=["gate"])
def integration(session: nox.Session) -> None:
    """Test the packages together, and the example engine, on simulated CANN."""
    python = _everything(session)
    environment = {**ENVIRONMENT, "PYTHONPATH": str(ROOT / "examples")}
    _build_simulator(session, python)
    targets = session.posargs or ["examples/qwen3_engine/tests", "integration-tests", *_all_cores()]
    let_sleeps_end_late()
    session.run(python, "-m", "pytest", "-q", *targets, env=environment, external=True)


@nox.session(tags=["gate"])
@nox.parametrize("release", RELEASES[:1])
def share(session: nox.Session, release: TorchRelease) -> None:
    """Run a few tests of every package, as wheels, on the oldest release of torch."""
    installer, main = _with_torch(session)
    if release == main:
        session.skip(f"all tests run on torch {release.torch} already")
    wheels = [installer.wheel(package) for package in packages(ROOT)]
    python = installer.environment(
        f"share-{release.name}", [*_declared(), *wheels], release=release, python=sys.executable
    )
    for package in packages(ROOT):
        _pytest(session, python, package, *release_share()[package.name], *_all_cores())


@nox.session(default=False)
@nox.parametrize("release", RELEASES)
def compat(session: nox.Session, release: TorchRelease) -> None:
    """Test every package, as a wheel, on one release of torch and torch_npu, and keep the figures.

    After ``--``: names of packages, which leave the others out; tests of one package, as
    ``cann-sim:tests/runtime``; ``--python=3.12`` instead of the release's own; further options are
    pytest's.
    """
    chosen: list[str] = []
    options: list[str] = []
    failed: list[str] = []
    interpreter = release.python
    for text in session.posargs:
        if text.startswith("--python="):
            interpreter = text.removeprefix("--python=")
        else:
            (options if text.startswith("-") else chosen).append(text)
    installer = _installer(session)
    python = find_interpreter(interpreter)
    selected = dict(text.partition(":")[::2] for text in chosen)
    for package in packages(ROOT):
        if selected and package.name not in selected:
            continue
        name = f"compat-{release.name}-{interpreter}-{package.name}"
        environment = _package_environment(installer, package, release, name=name, python=python)
        targets = selected.get(package.name, "").split(",") if selected.get(package.name) else []
        report = ROOT / "build" / "compat" / f"{name}.xml"
        arguments = [*(targets or _all_tests()), f"--junitxml={report}", *options]
        _pytest(session, environment, package, *arguments, success_codes=(0, 1))
        tests = " ".join(text.removeprefix("tests/") for text in targets) or "all"
        result = read_result(report, package=package.name, python=environment, tests=tests)
        keep_result(result)
        if result.failed:
            failed.append(package.name)
    if failed:
        session.error(f"tests failed on {release.name}: {', '.join(failed)}")


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
    python = _everything(session)
    environment = {**ENVIRONMENT, "PYTHONPATH": str(ROOT / "examples")}
    session.run(python, "examples/qwen3_demo.py", *session.posargs, env=environment, external=True)


@nox.session(default=False)
@nox.parametrize("engine", [nox.param(each, id=name) for name, each in ENGINES.items()])
def engine(session: nox.Session, engine: Engine) -> None:
    """Run an engine that others wrote on simulated CANN, with its own code and with ours.

    After ``--``: ``--release=torch-2.10`` for the versions that the engine pins, with the Python of
    that row; ``--part=fusions`` for one of the scripts; further options are that script's, or those
    of ``engines/<engine>_session.py``, which then runs alone.
    """
    installer, release = _with_torch(session)
    python = sys.executable
    options = []
    scripts = engine.scripts
    for text in session.posargs:
        if text.startswith("--part="):
            stem = engine.name.replace("-", "_")
            path = f"engines/{stem}_{text.partition('=')[2]}.py"
            if path not in engine.scripts:
                session.error(f"there is no {path}; there are: {', '.join(engine.scripts)}")
            scripts = [path]
        elif text.startswith("--release="):
            (release,) = (each for each in releases() if each.name == text.partition("=")[2])
            python = find_interpreter(release.python)
        else:
            options.append(text)
    python = _engine_python(installer, engine, release, python)
    _build_simulator(session, python)
    # Threads of torch's own kernels would wait for each other on the cores that are timed. Where CI
    # is set, torch ends what it warns of elsewhere: operators of the engines that return an input.
    environment = {"OMP_NUM_THREADS": "1", "CI": "", **ENVIRONMENT}
    for script in scripts[:1] if options else scripts:
        command = [python, "-m", "cann_sim", "run", "--", python, script, *options]
        session.run(*command, env=environment, external=True)


@nox.session(default=False)
def vllm_ascend_patterns(session: nox.Session) -> None:
    """Compare docs/vllm-ascend-patterns.md with what the engine's patterns give.

    After ``--``: ``--write`` writes it.
    """
    installer, release = _with_torch(session)
    python = _engine_python(installer, ENGINES["vllm"], release, sys.executable)
    _build_simulator(session, python)
    # fx-passes needs torch alone, so it comes from the tree into the engine's environment.
    settings = {"PYTHONPATH": str(ROOT / "packages" / "fx-passes" / "src"), "CANN_SIM_DEVICES": "2"}
    command = [python, "-m", "cann_sim", "run", "--", python, "engines/vllm_patterns.py"]
    session.run(*command, *session.posargs, env={**ENVIRONMENT, **settings}, external=True)


@nox.session(default=False)
def modes(session: nox.Session) -> None:
    """Run every mode on every kind of step, 200 steps each, and compare with docs/modes.md.

    After ``--``: ``--write-matrix`` writes it; ``-k piecewise`` and the like run some.
    """
    python = _everything(session)
    environment = {**ENVIRONMENT, "PYTHONPATH": str(ROOT / "examples")}
    _build_simulator(session, python)
    let_sleeps_end_late()
    sizes = ("--matrix-steps=200", "--matrix-share=0", "--speculative-steps=1000")
    tests = ["integration-tests/mode_matrix", "integration-tests/test_prefill_modes.py"]
    command = [python, "-m", "pytest", "-q", *tests, "--every-mode", *sizes]
    session.run(*command, *session.posargs, env=environment, external=True)


@nox.session(default=False)
def check_teeth(session: nox.Session) -> None:
    """Put every fault between a probe of npu-graph-check and the simulator: the verdict changes.

    Writes docs/check-teeth.md with `-- --write-teeth`. The gate runs a share of them.
    """
    python = _everything(session)
    environment = {**ENVIRONMENT, "PYTHONPATH": str(ROOT / "examples")}
    _build_simulator(session, python)
    let_sleeps_end_late()
    command = [python, "-m", "pytest", "-q", "integration-tests/check_teeth", "--every-fault"]
    session.run(*command, *session.posargs, env=environment, external=True)


@nox.session(default=False)
def bench(session: nox.Session) -> None:
    """Run the benchmarks named after `--` (default: all); rows go to build/bench."""
    python = _everything(session)
    environment = {**ENVIRONMENT, "PYTHONPATH": str(ROOT / "examples")}
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
        session.run(python, str(scripts[name]), *options, env=environment, external=True)


@nox.session(default=False)
def docs(session: nox.Session) -> None:
    """Make a site of all documents in build/docs/site; a dead link or anchor stops it."""
    python = _installer(session).environment(
        "docs", tool_requirements("docs"), python=sys.executable
    )
    session.run(python, "tools/site_pages.py", "build/docs/pages", external=True)
    zensical = str(Path(python).parent / "zensical")
    session.run(zensical, "build", "--clean", "--strict", external=True)


@nox.session(default=False)
def schedules(session: nox.Session) -> None:
    """Run 10,000 fuzzed schedules, and 100 steps of every kind; the gate runs a share of them."""
    session.env["CANN_SIM_MEMORY_CHECK"] = "on"
    _long_tests(session, "attn-update", "tests/test_every_kind.py", "--bursts=25")
    _long_tests(session, "attn-update", "tests/test_fuzzed_schedules.py", "--schedules=10000")
    producers = "tests/producers/test_producer_schedules.py"
    _long_tests(session, "attn-update", producers, "--schedules=10000")
    _long_tests(session, "attn-update", "tests/test_update_lane.py", "--schedules=2500")
    _long_tests(session, "cann-sim", "tests/runtime/test_update_protocol.py", "--schedules=10000")


@nox.session(default=False)
def interrupts(session: nox.Session) -> None:
    """Send 20,000 signals at random times of steps, captures and sessions; the gate sends a few."""
    _long_tests(
        session, "attn-update", "tests/interrupts", "-s", "--signals=20000", "--every-place"
    )


@nox.session(default=False)
def sanitizers(session: nox.Session) -> None:
    """Run the simulated runtime under AddressSanitizer (with UBSan) and ThreadSanitizer."""
    _long_tests(session, "cann-sim", "tests/native", "--sanitizers=address,thread")


@nox.session(default=False)
def soak(session: nox.Session) -> None:
    """Make 1,000 captures, 20,000 replays, 1,000 cycles of sleep and wake: memory stays flat."""
    options = ("--captures=1000", "--replays=20000", "--task-queues=0,1")
    _long_tests(session, "cann-sim", "tests/test_soak.py", *options)
    _long_tests(session, "npu-graph-runtime", "tests/test_sleep_and_wake.py", "--cycles=1000")


@nox.session(default=False)
def serving_soak(session: nox.Session) -> None:
    """Serve for 30 minutes in every mode while the device fails; the gate takes a few episodes."""
    python = _everything(session)
    environment = {**ENVIRONMENT, "PYTHONPATH": str(ROOT / "examples")}
    # What the process keeps is measured, with the settings of malloc that users have.
    for name in ("MALLOC_MMAP_THRESHOLD_", "MALLOC_TRIM_THRESHOLD_"):
        del environment[name]
    _build_simulator(session, python)
    options = session.posargs or ["--soak-minutes=30"]
    command = [python, "-m", "pytest", "-q", "integration-tests/serving_soak", *options]
    session.run(*command, env=environment, external=True)


@nox.session(default=False)
def engine_fuzz(session: nox.Session) -> None:
    """Let 5,000 random engines live through random events; the gate takes a few episodes.

    After ``--``: ``--episodes=100 --seed=7`` for others.
    """
    python = _everything(session)
    environment = {**ENVIRONMENT, "PYTHONPATH": str(ROOT / "examples")}
    _build_simulator(session, python)
    options = session.posargs or ["--episodes=5000"]
    command = [python, "-m", "pytest", "-q", "-s", "integration-tests/engine_fuzz", *options]
    session.run(*command, env=environment, external=True)


@nox.session(default=False)
def breakable_models(session: nox.Session) -> None:
    """Capture 2,000 random models in segments; the gate captures a small share of them."""
    _long_tests(session, "npu-graph-runtime", "tests/breakable", "--models=2000")


@nox.session(default=False)
def aarch64(session: nox.Session) -> None:
    """Compile all C++ for aarch64 by a cross compiler, and run the runtime's scenarios in qemu."""
    python = _everything(session)
    installer, release = _with_torch(session)
    wheels = ROOT / ".nox" / "aarch64-wheels"
    installer.unpack(wheels, release.requirements, platform="aarch64-manylinux_2_28")
    built = ROOT / "build" / "aarch64"
    environment = {**ENVIRONMENT, "PYTHONPATH": ""}
    command = [python, "tools/cross_build.py", str(wheels), str(built)]
    session.run(*command, env=environment, external=True)


@nox.session(default=False)
def architectures(session: nox.Session) -> None:
    """Raise every decoder architecture of transformers, and compare with docs/architectures.md.

    After ``--``: ``--write`` writes it.
    """
    python = _everything(session)
    (package,) = (each for each in packages(ROOT) if each.name == "fx-passes")
    test = "tests/raising/architectures/test_architectures.py"
    _pytest(session, python, package, test, "--every-architecture", *session.posargs)


@nox.session(default=False)
def random_graphs(session: nox.Session) -> None:
    """Rewrite 10,000 random graphs with random rules; the gate runs a small share of them."""
    _long_tests(session, "fx-passes", "tests/test_random_graphs.py", "--examples=10000")


@nox.session(default=False)
def stale_cache(session: nox.Session) -> None:
    """Try all ways for a kept compilation to be stale, each alone; the gate takes some together."""
    _long_tests(session, "npu-compile", "tests/stale", "--each-alone")


@nox.session(default=False)
def every_operator(session: nox.Session) -> None:
    """Spell every operator of torch in every way, on all samples; the gate takes one of each."""
    _long_tests(session, "fx-passes", "tests/normal_form/test_every_operator.py", "--samples=1000")


@nox.session(default=False)
def random_writes(session: nox.Session) -> None:
    """Rewrite 20,000 random programs of writes and views, and 20,000 in six pipelines.

    The gate runs a small share of them. Options of pytest follow ``--``: ``--first-program=5000``.
    """
    for test in ("tests/memory/test_random_writes.py", "tests/memory/test_random_objects.py"):
        _long_tests(session, "fx-passes", test, "--programs=20000")


def _succeeds(session: nox.Session, command: Sequence[str], environment: dict[str, str]) -> bool:
    try:
        session.run(*command, env=environment, external=True)
    except CommandFailed:
        return False
    return True


def _installer(session: nox.Session) -> Installer:
    """Return what makes environments, with pip's settings said to uv."""
    found, uv, _ = find_uv()
    if not found:
        session.error("uv was looked for, found nothing: start the sessions by ./nox, which has it")
    return Installer(session=session, uv=uv, settings=installer_settings())


def _with_torch(session: nox.Session) -> tuple[Installer, TorchRelease]:
    """Return what makes environments, and the release of the gate and the demo."""
    installer = _installer(session)
    choice = choose_torch(installer.settings)
    release = choice.release
    session.log(f"torch {release.torch}, torch_npu {release.torch_npu}: {choice.source}")
    return installer.having(choice.settings), release


def _everything(session: nox.Session) -> str:
    """Return the Python of the environment that has all packages, from the tree, and all tools."""
    installer, release = _with_torch(session)
    requirements = {*_declared(), *tool_requirements("example", "types")}
    return installer.environment(
        "everything", requirements, release=release, python=sys.executable, editable=packages(ROOT)
    )


def _declared() -> set[str]:
    """Return what the packages and their tests declare, each other left out."""
    return {text for package in packages(ROOT) for text in package.declared(tests=True).others}


def _test_tools(session: nox.Session, *arguments: str) -> None:
    installer = _installer(session)
    requirements = tool_requirements("tools", "release")
    python = installer.environment("tools", requirements, python=sys.executable)
    environment = {**installer.settings, "PYTHONPATH": str(ROOT / "tools")}
    session.run(python, "-m", "pytest", "-q", *arguments, env=environment, external=True)


def _package_environment(
    installer: Installer, package: Package, release: TorchRelease, *, name: str, python: str
) -> str:
    """Return the Python of an environment that has a package's wheel and what its tests declare."""
    declared = package.declared(tests=True)
    wheels = [installer.wheel(each) for each in (*declared.siblings, package)]
    return installer.environment(name, [*declared.others, *wheels], release=release, python=python)


def _engine_python(installer: Installer, engine: Engine, release: TorchRelease, python: str) -> str:
    """Return the Python of the environment of an engine and the package that adapts it."""
    (adapter,) = (package for package in packages(ROOT) if package.name == engine.adapter)
    siblings = [*adapter.declared(tests=True).siblings, adapter]
    return engine_environment(installer, engine, release, siblings, python)


def _mypy(session: nox.Session, python: str, folder: Path, *targets: str) -> None:
    command = [python, "-m", "mypy", "--config-file", str(ROOT / "pyproject.toml")]
    cache = ["--cache-dir", str(ROOT / ".mypy_cache")]
    environment = {"MYPYPATH": os.pathsep.join(str(ROOT / name) for name in ("examples", "tools"))}
    session.chdir(folder)
    session.run(*command, *cache, *targets, env=environment, external=True)


def _pytest(
    session: nox.Session,
    python: str,
    package: Package,
    *arguments: str,
    success_codes: Sequence[int] = (0,),
) -> None:
    configuration = ["-c", str(ROOT / "pyproject.toml"), "--rootdir", str(package.folder)]
    if "cann-sim" in {package.name, *(each.name for each in package.declared(tests=True).siblings)}:
        _build_simulator(session, python)
    let_sleeps_end_late()
    session.chdir(package.folder)
    command = [python, "-m", "pytest", "-q", *configuration]
    session.run(*command, *arguments, env=ENVIRONMENT, success_codes=success_codes, external=True)


def _build_simulator(session: nox.Session, python: str) -> None:
    """Compile the simulator where that is not done yet; pytest would not show how far it is."""
    session.run(python, "-m", "cann_sim", "build", env=ENVIRONMENT, external=True)


def _all_tests() -> list[str]:
    """Return pytest's arguments for all tests of a package, on all cores."""
    return ["tests", *_all_cores()]


def _all_cores() -> list[str]:
    cores = len(os.sched_getaffinity(0))
    return ["-n", str(min(cores, 8)), "--dist", "worksteal"] if cores > 1 else []


def _long_tests(session: nox.Session, package: str, test: str, *options: str) -> None:
    """Run tests of which the gate runs a small share, with the options or those after `--`."""
    python = _everything(session)
    (found,) = (each for each in packages(ROOT) if each.name == package)
    _pytest(session, python, found, test, *(session.posargs or options))


def _release(session: nox.Session, *arguments: str) -> None:
    """Run a command of tools/release in an environment that has its tools and nothing of ours."""
    installer = _installer(session)
    requirements = tool_requirements("release")
    python = installer.environment("release", requirements, python=sys.executable)
    environment = {**installer.settings, "PYTHONPATH": str(ROOT / "tools")}
    session.run(python, "-m", "release", *arguments, env=environment, external=True)


def _wheel_options(session: nox.Session) -> list[str]:
    """Return how tools/release makes environments: by the session's uv and with its torch."""
    installer, release = _with_torch(session)
    return [f"--uv={installer.uv}", *[f"--override={text}" for text in release.requirements]]


@nox.session(default=False)
def changes(session: nox.Session) -> None:
    """Stop sources that changed without a change note, and public names that broke unsaid.

    The revision to compare with stands after `--` (default: main).
    """
    _release(session, "changes", *session.posargs)


@nox.session(default=False)
@nox.parametrize("package", PACKAGES)
def build(session: nox.Session, package: Package) -> None:
    """Build one package; from its wheel alone run the README's programs, then its tests."""
    _release(session, "build", package.name, *_wheel_options(session), *session.posargs)


@nox.session(default=False)
def wheels(session: nox.Session) -> None:
    """Build the wheels of all packages into dist, for `pip install --find-links dist`."""
    installer = _installer(session)
    folder = ROOT / "dist"
    folder.mkdir(exist_ok=True)
    for package in packages(ROOT):
        wheel = shutil.copy(installer.wheel(package), folder)
        session.log(f"wrote {Path(wheel).relative_to(ROOT)}")


@nox.session(default=False)
def older_siblings(session: nox.Session) -> None:
    """Test npu-compile with the oldest siblings in its ranges; see that others are refused."""
    _release(session, "older-siblings", *_wheel_options(session), *session.posargs)


# Without the packages' tags: `./nox -t <package>` does not release.
@nox.session(default=False)
@nox.parametrize("package", [nox.param(package, id=package.name) for package in packages(ROOT)])
def release(session: nox.Session, package: Package) -> None:
    """Try a release of one package; with `-- --write` make its commit and tag. Never pushes."""
    _release(session, "cut", package.name, *_wheel_options(session), *session.posargs)


@nox.session(default=False)
def releases_on_a_clone(session: nox.Session) -> None:
    """Cut releases on a clone of what is committed, and see what stops one (minutes)."""
    options = ["--end-to-end", *_wheel_options(session)]
    _test_tools(session, "tools/tests/release/test_end_to_end.py", *options, *session.posargs)
