"""Sessions of the repository; `./nox --list` shows them, `./nox` runs the gate.

Sessions are found from the tree: one `types(<package>)`, `tests(<package>)` and `build(<package>)`
for each folder below `packages/`. Every environment is made by venv and pip from the packages' own
metadata.
"""

from __future__ import annotations

import hashlib
import os
import re
import sys
from pathlib import Path

import nox
from nox.project import dependency_groups, load_toml

nox.needs_version = ">=2026.4"
nox.options.default_venv_backend = "venv"
nox.options.reuse_existing_virtualenvs = True
nox.options.error_on_missing_interpreters = True

ROOT = Path(__file__).parent
PACKAGES = sorted(path.parent for path in ROOT.glob("packages/*/pyproject.toml"))
PARAMETERS = [nox.param(path, id=path.name, tags=[path.name]) for path in PACKAGES]

# torch_npu registers itself for loading by `import torch`, which fails without device libraries.
# cann_sim.activate() and `cann-sim run` load the simulated ones; all else imports torch alone.
ENVIRONMENT = {"TORCH_DEVICE_BACKEND_AUTOLOAD": "0", "PIP_DISABLE_PIP_VERSION_CHECK": "1"}

# The exact version, so that pip prefers a CPU build of it where one is laid out beside the index.
TORCH = "torch==2.13.0"


def _sibling(requirement: str) -> Path | None:
    """Return the folder of the package that a requirement names, if it is one of ours."""
    name = re.split(r"[\[<>=~! ]", requirement, maxsplit=1)[0]
    return next((path for path in PACKAGES if path.name == name), None)


def _requirements(package: Path) -> tuple[list[Path], list[str]]:
    """Return (sibling folders, other requirements) of a package's runtime and test dependencies."""
    project = load_toml(package / "pyproject.toml")
    pending = [*project["project"]["dependencies"], *dependency_groups(project, "test")]
    siblings: list[Path] = []
    others: set[str] = set()
    while pending:
        requirement = pending.pop(0)
        sibling = _sibling(requirement)
        if sibling is None:
            others.add(requirement)
        elif sibling not in siblings:
            siblings.append(sibling)
            pending += load_toml(sibling / "pyproject.toml")["project"]["dependencies"]
    return siblings, sorted(others)


def _groups(*names: str) -> list[str]:
    return list(dependency_groups(load_toml(ROOT / "pyproject.toml"), *names))


def _everything(session: nox.Session) -> str:
    """Return the Python of the environment that has all packages and all tools, made on first use.

    It is made again when the requirements or a package's metadata change; the packages themselves
    are installed editable, so their sources are always those of the tree.
    """
    requirements = {r for path in PACKAGES for r in _requirements(path)[1]}
    requirements |= {TORCH, "hatchling", "editables", *_groups("example", "types")}
    metadata = [(path / "pyproject.toml").read_text() for path in PACKAGES]
    wanted = hashlib.sha256(repr((sorted(requirements), metadata)).encode()).hexdigest()
    folder = ROOT / ".nox" / "everything"
    python = str(folder / "bin" / "python")
    mark = folder / "wanted.sha256"
    if not mark.exists() or mark.read_text() != wanted:
        session.run(sys.executable, "-m", "venv", "--clear", str(folder), external=True)
        install = [python, "-m", "pip", "install", "-q"]
        session.run(*install, *sorted(requirements), env=ENVIRONMENT, external=True)
        editable = [argument for path in PACKAGES for argument in ("-e", str(path))]
        without = ["--no-build-isolation", "--no-deps"]
        session.run(*install, *without, *editable, env=ENVIRONMENT, external=True)
        mark.write_text(wanted)
    return python


@nox.session(tags=["gate"])
def lint(session: nox.Session) -> None:
    """Check style, format and architecture."""
    session.install(*_groups("lint"))
    session.run("ruff", "check", ".")
    session.run("ruff", "format", "--check", ".")
    sources = os.pathsep.join(str(path / "src") for path in PACKAGES)
    session.run("lint-imports", "--no-cache", env={"PYTHONPATH": sources})
    session.run(
        "python",
        "tools/check_architecture.py",
        *[str(path / "src") for path in PACKAGES],
        "examples",
    )


@nox.session(venv_backend="none", tags=["gate"])
@nox.parametrize("package", PARAMETERS)
def types(session: nox.Session, package: Path) -> None:
    """Check the types of one package, its tests included, with mypy strict."""
    python = _everything(session)
    command = [python, "-m", "mypy", "--config-file", str(ROOT / "pyproject.toml")]
    session.chdir(package)
    session.run(*command, "--cache-dir", str(ROOT / ".mypy_cache"), "src", "tests", external=True)


@nox.session(name="types_others", venv_backend="none", tags=["gate"])
def types_others(session: nox.Session) -> None:
    """Check the types of the example, the integration tests, the benchmarks and the tools."""
    python = _everything(session)
    command = [python, "-m", "mypy", "--config-file", str(ROOT / "pyproject.toml")]
    cache = ["--cache-dir", str(ROOT / ".mypy_cache")]
    environment = {"MYPYPATH": str(ROOT / "examples")}
    for target in ("examples/qwen3_engine", "integration-tests", "benchmarks", "tools"):
        session.run(*command, *cache, target, env=environment, external=True)


@nox.session(tags=["gate"])
@nox.parametrize("package", PARAMETERS)
def tests(session: nox.Session, package: Path) -> None:
    """Test one package in an environment that has only what it declares."""
    siblings, others = _requirements(package)
    session.install("-q", TORCH, *others, env=ENVIRONMENT)
    session.install("-q", *[str(path) for path in siblings], str(package), env=ENVIRONMENT)
    session.chdir(package)
    configuration = ["-c", str(ROOT / "pyproject.toml"), "--rootdir", str(package)]
    session.run("pytest", "-q", *configuration, "tests", *session.posargs, env=ENVIRONMENT)


@nox.session(venv_backend="none", tags=["gate"])
def integration(session: nox.Session) -> None:
    """Test the packages together, and the example engine, on simulated CANN."""
    python = _everything(session)
    environment = {**ENVIRONMENT, "PYTHONPATH": str(ROOT / "examples")}
    targets = session.posargs or ["examples/qwen3_engine/tests", "integration-tests"]
    session.run(python, "-m", "pytest", "-q", *targets, env=environment, external=True)


@nox.session(venv_backend="none", default=False)
def demo(session: nox.Session) -> None:
    """Decode a Qwen3 checkpoint in every mode on simulated CANN and compare with transformers."""
    python = _everything(session)
    environment = {**ENVIRONMENT, "PYTHONPATH": str(ROOT / "examples")}
    session.run(python, "examples/qwen3_demo.py", *session.posargs, env=environment, external=True)


@nox.session(venv_backend="none", default=False)
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


def _long_tests(session: nox.Session, package: str, test: str, *options: str) -> None:
    """Run tests of which the gate runs a small share, with the options or those after `--`."""
    python = _everything(session)
    session.chdir(ROOT / "packages" / package)
    configuration = ["-c", str(ROOT / "pyproject.toml"), "--rootdir", "."]
    command = [python, "-m", "pytest", "-q", *configuration, test]
    session.run(*command, *(session.posargs or options), env=ENVIRONMENT, external=True)


@nox.session(venv_backend="none", default=False)
def schedules(session: nox.Session) -> None:
    """Run 10,000 fuzzed schedules of replay and update; the gate runs a small share of them."""
    _long_tests(session, "attn-update", "tests/test_fuzzed_schedules.py", "--schedules=10000")
    _long_tests(session, "cann-sim", "tests/runtime/test_update_protocol.py", "--schedules=10000")


@nox.session(venv_backend="none", default=False)
def sanitizers(session: nox.Session) -> None:
    """Run the simulated runtime under AddressSanitizer (with UBSan) and ThreadSanitizer."""
    _long_tests(session, "cann-sim", "tests/native", "--sanitizers=address,thread")


@nox.session(venv_backend="none", default=False)
def soak(session: nox.Session) -> None:
    """Make 1,000 captures and 20,000 replays on simulated CANN; memory and threads stay flat."""
    options = ("--captures=1000", "--replays=20000", "--task-queues=0,1")
    _long_tests(session, "cann-sim", "tests/test_soak.py", *options)


@nox.session(venv_backend="none", default=False)
def random_graphs(session: nox.Session) -> None:
    """Rewrite 10,000 random graphs with random rules; the gate runs a small share of them."""
    _long_tests(session, "fx-passes", "tests/test_random_graphs.py", "--examples=10000")


@nox.session(default=False)
@nox.parametrize("package", PARAMETERS)
def build(session: nox.Session, package: Path) -> None:
    """Build one package's sdist and wheel and try the wheel in an empty environment."""
    session.install("-q", "build", "twine>=7")
    out = ROOT / "build" / "dist" / package.name
    session.run("python", "-m", "build", "-o", str(out), str(package), silent=True)
    session.run("twine", "check", "--strict", *[str(path) for path in sorted(out.iterdir())])
    siblings, _ = _requirements(package)
    wheel = max(out.glob("*.whl"), key=lambda path: path.stat().st_mtime)
    session.install("-q", TORCH, *[str(path) for path in siblings], str(wheel), env=ENVIRONMENT)
    module = package.name.replace("-", "_")
    program = (
        f"import {module}, importlib.metadata as m, importlib.resources as r; "
        f"assert m.version({package.name!r}) == {module}.__version__; "
        f"assert r.files({module!r}).joinpath('py.typed').is_file()"
    )
    session.run("python", "-c", program, env=ENVIRONMENT)
