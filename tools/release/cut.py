"""Cuts a release: a commit with version and changelog, tested files, and a tag.

Everything happens in a worktree of its own, from committed files. The commit and the tag are added
to the repository only at the very end and on request. A release that fails, or a trial run, leaves
only the built files.
"""

from __future__ import annotations

import shutil
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import datetime, timezone
from typing import TYPE_CHECKING

from packaging.specifiers import SpecifierSet

from release.change_check import check_names
from release.change_notes import changelog_section, read_change_notes
from release.changelog import section_of, with_release
from release.command import git
from release.errors import ReleaseError
from release.next_version import check_version, next_version
from release.releases import last_release, release_subject, released_versions, revision_of
from release.wheel_trial import Trial
from sessions.package import Package, packages

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence
    from pathlib import Path

    from packaging.version import Version

    from release.installer import Installer

PLACEHOLDER = "https://example.org/"


@dataclass(frozen=True, kw_only=True)
class Release:
    """A release, or the result of a trial run.

    Attributes:
        package: Name of the package.
        version: The version.
        tag: Its tag.
        commit: The commit that the tag refers to, or would.
        files: The source distribution and the wheel.
        report: Findings and remaining work, for people.
    """

    package: str
    version: Version
    tag: str
    commit: str
    files: tuple[Path, ...]
    report: tuple[str, ...]


def cut_release(
    package: Package,
    version: Version | None,
    installer: Installer,
    *,
    write: bool,
    pytest_arguments: Sequence[str] = (),
) -> Release:
    """Cut a release of one package.

    Args:
        package: The package, in the repository.
        version: The version, or ``None`` for the next one that the change notes allow; before the
            first release that is the version that the sources state.
        installer: Makes wheels and environments.
        write: Whether commit and tag are made in the repository; otherwise it stays as it is.
        pytest_arguments: Further arguments for the tests of the wheel.

    Raises:
        ReleaseError: The checkout is not clean, the tag exists, the version does not fit the change
            notes, public names broke without a note, or building, checking or testing failed.
    """
    root = package.root
    _check_clean(root)
    version = _choose_version(package, version)
    tag = package.tag(version)
    folder = root / "build" / "release" / package.name
    with _worktree(root, folder / "checkout") as checkout:
        inside = Package(root=checkout, name=package.name)
        names = check_names(inside)
        section = _write_release(inside, version)
        commit = _commit(inside, tag, section)
        trial = Trial(package=inside, installer=installer, folder=folder / "trial")
        files = trial.build()
        trial.run(trial.build_siblings(), pytest_arguments)
        published = tuple(_publish(file, folder / "dist") for file in files)
        change = git(checkout, "show", "--stat", "--patch", "--format=%s", commit)
    if write:
        # Fails, and leaves all as it was, if somebody committed here meanwhile.
        git(root, "merge", "--quiet", "--ff-only", commit)
        git(
            root,
            "tag",
            "--annotate",
            "--message",
            f"{package.name} {version}\n\n{section}",
            tag,
            commit,
        )
    return Release(
        package=package.name,
        version=version,
        tag=tag,
        commit=commit,
        files=published,
        report=(names, change, *_remaining(package, version, tag, write=write)),
    )


def _check_clean(root: Path) -> None:
    changed = git(root, "status", "--porcelain").splitlines()
    if changed:
        shown = "\n".join(f"  {line}" for line in changed[:10])
        raise ReleaseError(
            f"releasing from {root}: expected a clean checkout, found {len(changed)} changes:\n"
            f"{shown}\ncommit or remove them: a release is made of what is committed"
        )


def _choose_version(package: Package, version: Version | None) -> Version:
    last = last_release(package)
    kinds = {note.kind for note in read_change_notes(package)}
    if last is None:
        return version or package.version
    if version is not None and version in released_versions(package):
        raise ReleaseError(
            f"releasing {package.name} {version}: it exists already, at "
            f"{revision_of(package, version)}; name a newer version, or none for the next one"
        )
    if version is None:
        if not kinds:
            raise ReleaseError(f"{package.name}: no change note since {last}; nothing to release")
        return next_version(last, kinds)
    check_version(version, last, kinds)
    return version


@contextmanager
def _worktree(root: Path, folder: Path) -> Iterator[Path]:
    """Check HEAD out into a folder, and remove it again."""
    if folder.exists():
        shutil.rmtree(folder)
    git(root, "worktree", "prune")
    git(root, "worktree", "add", "--quiet", "--detach", str(folder), "HEAD")
    try:
        yield folder
    finally:
        git(root, "worktree", "remove", "--force", str(folder))


def _write_release(package: Package, version: Version) -> str:
    """Write version and changelog, remove the collected notes; return the changelog's section."""
    day = datetime.now(tz=timezone.utc).date()
    notes = read_change_notes(package)
    section = changelog_section(package, version, day) if notes else ""
    if notes and not section:
        section = "No change that users notice."
    text = with_release(package.changelog.read_text(encoding="utf-8"), version, day, section)
    package.changelog.write_text(text, encoding="utf-8")
    package.set_version(str(version))
    for note in notes:
        note.path.unlink()
    return section_of(text, version)


def _commit(package: Package, tag: str, section: str) -> str:
    git(package.root, "add", "--all", str(package.folder))
    message = f"{release_subject(tag)}\n\n{section}"
    git(package.root, "commit", "--quiet", "--no-verify", "--message", message)
    return git(package.root, "rev-parse", "HEAD")


def _publish(file: Path, folder: Path) -> Path:
    """Copy a built file into a folder, in place of those of other versions; return the copy."""
    folder.mkdir(exist_ok=True)
    for path in folder.glob(f"*{file.suffix}"):
        path.unlink()
    shutil.copy2(file, folder)
    return folder / file.name


def _remaining(package: Package, version: Version, tag: str, *, write: bool) -> list[str]:
    lines: list[str] = []
    for user in packages(package.root):
        for requirement in user.requirements(extras=True):
            if requirement.name != package.name:
                continue
            if requirement.specifier != SpecifierSet() and version not in requirement.specifier:
                lines.append(
                    f"afterwards widen `{requirement}` in {user.name}, which excludes {version}, "
                    f"and release {user.name}"
                )
    urls = package.project["project"].get("urls", {})
    if any(url.startswith(PLACEHOLDER) for url in urls.values()):
        lines.append(
            f"[project.urls] of {package.name} still name {PLACEHOLDER}: set them before publishing"
        )
    if write:
        lines.append(f"commit and tag are made; to publish: git push --atomic origin HEAD {tag}")
    else:
        lines.append(
            "tried only, nothing was changed here; with --write it makes the commit and the tag "
            f"{tag}"
        )
    return lines
