from __future__ import annotations

import pytest
import torch

import npu_compile
import piecewise_split
from npu_compile.errors import SiblingVersionError
from npu_graph_runtime import FakeDevice


def test_siblings_in_their_ranges_are_taken() -> None:
    compiled = npu_compile.compile_model(torch.nn.ReLU(), device=FakeDevice())

    assert compiled(torch.tensor([-1.0, 1.0])).tolist() == [0.0, 1.0]


@pytest.mark.parametrize("version", ["0.0.9", "0.1.0.dev0", "1.0.0"])
def test_sibling_outside_of_its_range_is_named_at_first_use(
    monkeypatch: pytest.MonkeyPatch, version: str
) -> None:
    monkeypatch.setattr(piecewise_split, "__version__", version)

    with pytest.raises(SiblingVersionError) as caught:
        npu_compile.compile_model(torch.nn.ReLU(), device=FakeDevice())

    message = str(caught.value)
    assert f"found piecewise-split {version} in {piecewise_split.__file__}" in message
    assert "expected piecewise-split" in message
    assert "pip install" in message


def test_backend_of_torch_compile_refuses_it_too(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(piecewise_split, "__version__", "0.0.9")

    with pytest.raises(SiblingVersionError, match=r"found piecewise-split 0\.0\.9"):
        npu_compile.Backend(npu_compile.CompileConfig())


def test_later_patch_of_a_sibling_is_taken(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(piecewise_split, "__version__", "0.1.7")

    npu_compile.Backend(npu_compile.CompileConfig())
