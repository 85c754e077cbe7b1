"""The programs of the how-to pages run unchanged."""

from __future__ import annotations

import re
import sys
from pathlib import Path
from types import ModuleType

import pytest
import torch

import fx_passes
from fx_passes.functional import FunctionalBackend

PAGES = Path(__file__).parents[3] / "docs" / "how-to"


def run_page(name: str, blocks: int | None = None) -> dict[str, object]:
    """Run the Python blocks of a page, or the first ones, as one program; return its variables."""
    page = PAGES / name
    if not page.exists():
        pytest.skip("the documents of the repository are not here")
    programs = re.findall(r"```python\n(.*?)```", page.read_text(encoding="utf-8"), re.DOTALL)[
        :blocks
    ]
    module = ModuleType(page.stem.replace("-", "_"))
    # Dynamo of torch 2.10 looks the module of a function up by its name.
    sys.modules[module.__name__] = module
    try:
        exec(compile("\n".join(programs), page.name, "exec"), vars(module))
    finally:
        del sys.modules[module.__name__]
    return vars(module)


def test_first_block_of_add_a_pass_needs_what_the_package_declares(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    # Python refuses to import what is None here.
    monkeypatch.setitem(sys.modules, "torch_npu", None)
    monkeypatch.setitem(sys.modules, "cann_sim", None)

    run_page("add-a-pass.md", blocks=1)

    assert "aten.sigmoid.default" in capsys.readouterr().out


def test_add_a_pass_on_simulated_cann_adds_a_rule_that_works(
    capsys: pytest.CaptureFixture[str],
) -> None:
    namespace = run_page("add-a-pass.md")

    output = capsys.readouterr().out
    assert "aten.sigmoid.default" in output
    assert "raise_fast_gelu: 1 matched, 0 near misses" in output
    assert output.splitlines()[-1] == "npu:0"
    extended = namespace["extended"]
    assert isinstance(extended, fx_passes.Pipeline)
    assert extended.names()[:3] == ["normalize", "activations", "raise_fast_gelu"]
    assert isinstance(namespace["result"], torch.Tensor)


def test_fuse_around_writes_on_simulated_cann_fuses_and_copies_no_cache() -> None:
    torch._dynamo.reset()

    namespace = run_page("fuse-around-writes.md")

    backend = namespace["backend"]
    assert isinstance(backend, FunctionalBackend)
    (result,) = backend.results
    assert result.report.match_counts()["fuse_add_rms_norm"] == 1
    assert result.report.near_misses("reinplace") == ()
