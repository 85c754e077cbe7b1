"""Finding torch and torch_npu, and rejecting incompatible ones."""

from __future__ import annotations

import dataclasses
import importlib.metadata
import importlib.util
from typing import TYPE_CHECKING

import pytest

from cann_sim.errors import InstallationError
from cann_sim.inventory.installation import find_installation
from cann_sim.inventory.supported_versions import SUPPORTED_VERSIONS, SupportedVersion

if TYPE_CHECKING:
    from pathlib import Path


def versions(monkeypatch: pytest.MonkeyPatch, torch: str, torch_npu: str) -> None:
    known = {"torch": torch, "torch_npu": torch_npu}
    monkeypatch.setattr(importlib.metadata, "version", known.__getitem__)


def test_installation_is_found_with_its_headers() -> None:
    found = find_installation()
    assert (found.torch_folder / "include" / "ATen" / "ATen.h").exists()
    assert (found.interface_folders[0] / "acl" / "acl_rt.h").exists()


@pytest.mark.parametrize(
    ("there", "expected"),
    [
        (("third_party/acl/inc",), ("third_party/acl/inc", ".")),
        ((".", "third_party/acl/inc"), (".",)),
        ((".",), (".",)),
    ],
    ids=["as in 2.10.0.post4", "as in 2.10.0.post6", "at the top alone"],
)
def test_headers_are_taken_from_where_they_are(
    tmp_path: Path, there: tuple[str, ...], expected: tuple[str, ...]
) -> None:
    """Those below third_party include those at the top, where both are."""
    include = tmp_path / "include"
    for folder in there:
        header = include / folder / "acl" / "acl_rt.h"
        header.parent.mkdir(parents=True)
        header.touch()
    found = dataclasses.replace(find_installation(), torch_npu_folder=tmp_path)
    assert found.interface_folders == tuple(include / folder for folder in expected)


def test_torch_of_another_minor_version_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    versions(monkeypatch, "2.12.1+cpu", "2.13.0.post1")
    with pytest.raises(
        InstallationError,
        match=r"expected torch 2\.13 .* found torch 2\.12\.1.*pip install 'torch==2\.13\.0'$",
    ):
        find_installation()


@pytest.mark.parametrize("found", ["2.9.1", "2.15.0", "3.0.0"])
def test_torch_npu_of_an_unknown_minor_version_is_refused(
    monkeypatch: pytest.MonkeyPatch, found: str
) -> None:
    versions(monkeypatch, found, found)
    with pytest.raises(
        InstallationError,
        match=rf"a version from 2\.10 to 2\.14, found {found}\. Install one: pip install",
    ):
        find_installation()


@pytest.mark.parametrize("supported", SUPPORTED_VERSIONS, ids=lambda version: version.minor)
def test_every_supported_minor_version_is_found(
    monkeypatch: pytest.MonkeyPatch, supported: SupportedVersion
) -> None:
    versions(monkeypatch, f"{supported.minor}.0+cpu", f"{supported.minor}.0.post2")
    assert find_installation().supported is supported


def test_missing_torch_npu_is_refused_with_the_remedy(monkeypatch: pytest.MonkeyPatch) -> None:
    find = importlib.util.find_spec
    monkeypatch.setattr(
        importlib.util, "find_spec", lambda name: None if name == "torch_npu" else find(name)
    )
    with pytest.raises(InstallationError, match="pip install torch_npu numpy pyyaml"):
        find_installation()
