"""The names torch_npu may look up."""

from __future__ import annotations

import ctypes
from importlib.util import find_spec
from pathlib import Path

import pytest

import cann_sim
from cann_sim.building.native_library import NATIVE
from cann_sim.inventory import requested_operators as subject


def libraries() -> list[Path]:
    spec = find_spec("torch_npu")
    assert spec is not None
    assert spec.origin is not None
    return [Path(spec.origin).parent / "lib" / "libtorch_npu.so"]


def test_requested_operators_of_the_installed_torch_npu_are_many_and_sorted() -> None:
    names = subject.requested_operators(libraries())
    assert len(names) > 800
    assert list(names) == sorted(names)
    assert {"aclnnAdd", "aclnnInplaceCopy", "aclnnFusedInferAttentionScoreV3"} <= set(names)
    assert not set(names) & subject.NOT_OFFERED.keys()


def test_requested_operators_of_another_library_are_an_error(tmp_path: Path) -> None:
    other = tmp_path / "libother.so"
    other.write_bytes(b"\x7fELF nothing here")
    with pytest.raises(ValueError, match=r"expected names like aclnnAdd in .*libother\.so"):
        subject.requested_operators([other])


@pytest.mark.absent_in_torch_npu("2.10", reason="it asks for other operators")
def test_header_of_the_sources_is_that_of_the_installed_torch_npu() -> None:
    header = NATIVE / "operators" / "coverage" / "requested_operators.h"
    assert header.read_text() == subject.requested_operators_source(libraries())


@pytest.mark.absent_in_torch_npu("2.10", reason="it asks for other operators")
def test_library_exports_a_pair_for_every_requested_operator() -> None:
    built = cann_sim.build()
    path = next(p for p in built.library_paths("value") if p.name == "libopapi.so")
    cann_sim.activate()
    library = ctypes.CDLL(str(path))
    missing = [
        name
        for name in subject.requested_operators(libraries())
        if not hasattr(library, name) or not hasattr(library, f"{name}GetWorkspaceSize")
    ]
    assert missing == []
