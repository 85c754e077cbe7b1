"""The command line: what it takes, and that an error is one message."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from release.__main__ import main

if TYPE_CHECKING:
    from conftest import Repository


def test_release_of_a_named_version_fails_with_one_message(
    repository: Repository, capsys: pytest.CaptureFixture[str]
) -> None:
    repository.tag("leaf-v0.1.0")

    status = main(["--root", str(repository.root), "cut", "leaf", "--write", "--version", "0.1.0"])

    assert status == 1
    assert capsys.readouterr().err == (
        "release: releasing leaf 0.1.0: it exists already, at leaf-v0.1.0; name a newer version, "
        "or none for the next one\n"
    )


def test_unknown_package_is_named_with_the_known_ones(
    repository: Repository, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["--root", str(repository.root), "build", "leaves"]) == 1
    assert "no package is named 'leaves'; there are: leaf, top" in capsys.readouterr().err


def test_text_that_is_not_a_version_is_refused(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit):
        main(["cut", "leaf", "--version", "next"])
    assert "'next' is no version such as 0.1.0" in capsys.readouterr().err


def test_changes_are_reported_by_package(
    repository: Repository, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["--root", str(repository.root), "changes", "main"]) == 0
    assert "top: sources as they were\n" in capsys.readouterr().out
