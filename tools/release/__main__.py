"""The commands: ``python -m release COMMAND --help``."""

from __future__ import annotations

import argparse
import sys
from dataclasses import replace
from pathlib import Path

from packaging.version import InvalidVersion, Version

from release.change_check import check_changes
from release.cut import cut_release
from release.errors import ReleaseError
from release.installer import Installer
from release.older_siblings import PACKAGE, try_older_siblings
from release.wheel_trial import Trial
from sessions.errors import WorkspaceError
from sessions.package import find_package, packages

FRONT_PAGE_PACKAGE = "npu-graph-runtime"
"""What the program of the front page needs."""


def main(arguments: list[str] | None = None) -> int:
    """Run one command; return the exit status."""
    options = _parser().parse_args(arguments)
    try:
        options.command(options)
    except (ReleaseError, WorkspaceError) as error:
        sys.stdout.flush()
        print(f"release: {error}", file=sys.stderr)
        return 1
    return 0


def _changes(options: argparse.Namespace) -> None:
    print("\n".join(check_changes(options.root, options.base)))


def _build(options: argparse.Namespace) -> None:
    trial = _trial(options, options.package)
    files = trial.build()
    trial.run(trial.build_siblings(), options.pytest)
    print("\n".join(str(file) for file in files))


def _readmes(options: argparse.Namespace) -> None:
    for name in options.packages or [package.name for package in packages(options.root)]:
        _run_readme(_trial(options, name))
    if not options.packages:
        front = _trial(options, FRONT_PAGE_PACKAGE)
        _run_readme(replace(front, readme=options.root / "README.md"))


def _run_readme(trial: Trial) -> None:
    trial.build()
    trial.run_readme(trial.build_siblings())


def _older_siblings(options: argparse.Namespace) -> None:
    trial = _trial(options, PACKAGE)
    trial.build()
    try_older_siblings(trial)


def _cut(options: argparse.Namespace) -> None:
    release = cut_release(
        find_package(options.root, options.package),
        options.version,
        _installer(options),
        write=options.write,
        pytest_arguments=options.pytest,
    )
    print("\n".join([*release.report, *map(str, release.files)]))
    print(f"{release.package} {release.version}: tag {release.tag} at {release.commit}")


def _trial(options: argparse.Namespace, name: str) -> Trial:
    return Trial(
        package=find_package(options.root, name),
        installer=_installer(options),
        folder=options.root / "build" / "trial" / name,
    )


def _installer(options: argparse.Namespace) -> Installer:
    return Installer(uv=options.uv, python=options.python, overrides=tuple(options.override or ()))


def _version(text: str) -> Version:
    try:
        return Version(text)
    except InvalidVersion as error:
        raise argparse.ArgumentTypeError(f"{text!r} is no version such as 0.1.0") from error


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="release", description=__doc__)
    root = Path(__file__).parents[2]
    parser.add_argument("--root", type=Path, default=root, help="the checkout (this one)")
    commands = parser.add_subparsers(required=True)

    changes = commands.add_parser("changes", help="change notes and public names since a revision")
    changes.add_argument("base", nargs="?", default="main", help="the revision (main)")
    changes.set_defaults(command=_changes)

    trying = argparse.ArgumentParser(add_help=False)
    trying.add_argument("--uv", default="uv", help="the program that makes environments")
    trying.add_argument("--python", default=sys.executable, help="interpreter of environments")
    trying.add_argument(
        "--override", action="append", help="a version that stands for all, as torch==2.13.0"
    )
    trying.add_argument(
        "--pytest", action="append", default=[], help="an argument for the tests: --pytest=-x"
    )

    build = commands.add_parser("build", parents=[trying], help="build a package and try its wheel")
    build.add_argument("package")
    build.set_defaults(command=_build)

    readmes = commands.add_parser(
        "readmes", parents=[trying], help="run the programs of all READMEs, each from wheels"
    )
    readmes.add_argument("packages", nargs="*", help="only those of these packages")
    readmes.set_defaults(command=_readmes)

    older = commands.add_parser(
        "older-siblings", parents=[trying], help=f"try {PACKAGE} with siblings of other versions"
    )
    older.set_defaults(command=_older_siblings)

    cut = commands.add_parser("cut", parents=[trying], help="cut a release of a package")
    cut.add_argument("package")
    cut.add_argument("--version", type=_version, help="default: what the change notes allow")
    cut.add_argument("--write", action="store_true", help="make commit and tag in the repository")
    cut.set_defaults(command=_cut)
    return parser


if __name__ == "__main__":
    sys.exit(main())
