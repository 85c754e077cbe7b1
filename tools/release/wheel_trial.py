"""Tries a package as users get it: its wheel, and nothing of the tree.

First what the package declares for running is installed, and nothing else: it is imported, and the
plain programs of its README run. Then come its optional parts and, where the README runs programs
under ``cann-sim``, the simulator. Last come the requirements of its tests, and the tests of the
source distribution run against the wheel. Siblings are wheels too.
"""

from __future__ import annotations

import shlex
import shutil
import sys
import tarfile
from dataclasses import dataclass
from typing import TYPE_CHECKING

from release.command import output_of
from release.errors import ReleaseError
from release.readme_programs import readme_programs
from release.unpacking import unpack
from sessions.package import Package, find_package

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

    from release.installer import Environment, Installer
    from release.readme_programs import Program

SIMULATOR = "cann-sim"

# Run in an empty folder; its arguments are the distributions of the package and its siblings.
IMPORT_PROGRAM = """
import importlib, importlib.metadata, pathlib, sys

for name in sys.argv[1:]:
    module = importlib.import_module(name.replace("-", "_"))
    file = pathlib.Path(module.__file__)
    assert file.is_relative_to(sys.prefix), f"{name} was imported from {file}"
    stated = importlib.metadata.version(name)
    assert stated == module.__version__, (name, stated, module.__version__)
    assert (file.parent / "py.typed").is_file(), f"{name} has no py.typed"
"""


@dataclass(frozen=True, kw_only=True)
class Trial:
    """A package's built files and the folder in which they are tried.

    Attributes:
        package: The package.
        installer: Makes the environment.
        folder: Output goes here; earlier content is removed.
        readme: Whose programs run; None for the package's own.
    """

    package: Package
    installer: Installer
    folder: Path
    readme: Path | None = None

    @property
    def built(self) -> Path:
        """The folder of the files that a release publishes."""
        return self.folder / "dist"

    def build(self) -> list[Path]:
        """Build the package, and have twine check what an index would show of it.

        Returns:
            The source distribution and the wheel.

        Raises:
            ReleaseError: The build or the check failed.
        """
        shutil.rmtree(self.folder, ignore_errors=True)
        self.built.mkdir(parents=True)
        files = self.installer.build(self.package, self.built)
        command = [sys.executable, "-m", "twine", "check", "--strict"]
        output_of(*command, *files, folder=self.built)
        print(f"built, and passed by twine: {', '.join(file.name for file in files)}")
        return files

    def build_siblings(self) -> dict[str, Path]:
        """Build the wheels of all siblings that the package or its tests name, by name."""
        needed = {each.name for each in self.package.declared(extras=True, tests=True).siblings}
        if any(_uses_simulator(program) for program in self._programs()):
            needed.add(SIMULATOR)
        needed.discard(self.package.name)
        return {
            name: self.installer.build_wheel(
                find_package(self.package.root, name), self.folder / "siblings"
            )
            for name in sorted(needed)
        }

    def run(self, siblings: dict[str, Path], pytest_arguments: Sequence[str] = ()) -> None:
        """Import the wheel, and run the README's programs and the tests against it.

        Args:
            siblings: The siblings' wheels by name.
            pytest_arguments: Further arguments for pytest.

        Raises:
            ReleaseError: Something of it failed.
        """
        environment = self.run_readme(siblings)
        self._run_tests(environment, next(self.built.glob("*.whl")), siblings, pytest_arguments)

    def run_readme(self, siblings: dict[str, Path]) -> Environment:
        """Import the wheel, and run the README's programs; return the environment they ran in.

        Args:
            siblings: The siblings' wheels by name.

        Raises:
            ReleaseError: Something of it failed, or printed something else than the README says.
        """
        environment = self.installer.environment(self.folder / "environment")
        wheel = next(self.built.glob("*.whl"))
        names = [each.name for each in self.package.declared().siblings]
        environment.install(wheel, *(siblings[name] for name in names))
        empty = self.folder / "empty"
        empty.mkdir()
        environment.run(
            environment.python, "-c", IMPORT_PROGRAM, self.package.name, *names, folder=empty
        )
        print(f"imported from the wheel: {', '.join([self.package.name, *names])}")
        self._run_programs(environment, [each for each in self._programs() if not each.command])
        commanded = [program for program in self._programs() if program.command]
        if commanded:
            environment.install(*self._with_extras(wheel, siblings, commanded))
            self._run_programs(environment, commanded)
        return environment

    def _programs(self) -> list[Program]:
        return readme_programs(self.readme or self.package.folder / "README.md")

    def _with_extras(
        self, wheel: Path, siblings: dict[str, Path], programs: list[Program]
    ) -> list[str | Path]:
        extras = ",".join(self.package.extras)
        name = self.package.name
        needed: list[str | Path] = [f"{name}[{extras}] @ {wheel.as_uri()}" if extras else wheel]
        needed += [siblings[each.name] for each in self.package.declared(extras=True).siblings]
        if any(_uses_simulator(program) for program in programs) and name != SIMULATOR:
            if siblings[SIMULATOR] in needed:
                needed.remove(siblings[SIMULATOR])
            needed.append(f"{SIMULATOR}[npu] @ {siblings[SIMULATOR].as_uri()}")
        return needed

    def _run_programs(self, environment: Environment, programs: list[Program]) -> None:
        folder = self.folder / "programs"
        folder.mkdir(exist_ok=True)
        # A program that pytest runs must not get the settings of the repository around it.
        (folder / "pytest.ini").write_text("[pytest]\n", encoding="utf-8")
        for program in programs:
            (folder / "example.py").write_text(program.text, encoding="utf-8")
            command = program.command or "python example.py"
            what = (
                f"the program in line {program.line} of the README of {self.package.name}, run as "
                f"`{command}` with what the package declares"
            )
            try:
                output = environment.run("sh", "-c", command, folder=folder)
            except ReleaseError as error:
                raise ReleaseError(f"{what}: {error}") from error
            missing = program.missing(output)
            if missing is not None:
                raise ReleaseError(f"{what}: expected {missing!r} as it says, found:\n{output}")
            print(f"README.md:{program.line}: `{command}` printed {len(program.said)} texts")

    def _run_tests(
        self,
        environment: Environment,
        wheel: Path,
        siblings: dict[str, Path],
        arguments: Sequence[str],
    ) -> None:
        tests = self._lay_out_tests()
        group = f"{self.package.folder / 'pyproject.toml'}:test"
        environment.install(wheel, *siblings.values(), "--group", group)
        configuration = tests.parents[1] / "pyproject.toml"
        command: list[str | Path] = [
            "pytest",
            "-q",
            "-c",
            configuration,
            "--rootdir",
            tests,
            "tests",
            *arguments,
        ]
        print(f"tests of {self.package.name}: {shlex.join(map(str, command))}", flush=True)
        environment.show(*command, folder=tests)

    def _lay_out_tests(self) -> Path:
        """Unpack the source distribution as in a checkout, without ``src``; return the folder."""
        checkout = self.folder / "checkout"
        folder = checkout / "packages" / self.package.name
        archive = next(self.built.glob("*.tar.gz"))
        with tarfile.open(archive) as files:
            unpack(files, checkout / "packages")
        (checkout / "packages" / archive.name.removesuffix(".tar.gz")).rename(folder)
        shutil.rmtree(folder / "src")
        # Tests of documents read docs/how-to; pytest is set in the repository's pyproject.toml.
        shutil.copytree(self.package.root / "docs", checkout / "docs")
        shutil.copy(self.package.root / "pyproject.toml", checkout)
        return folder


def _uses_simulator(program: Program) -> bool:
    return program.command is not None and SIMULATOR in shlex.split(program.command)
