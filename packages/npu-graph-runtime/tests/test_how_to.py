"""The pages on adding a device and on hangs are up to date, and their programs run."""

from __future__ import annotations

import importlib.util
import inspect
import re
from pathlib import Path
from typing import Any

import pytest

from npu_graph_runtime import FakeDevice, GraphDevice

ROOT = Path(__file__).parents[3]
PAGES = ROOT / "docs" / "how-to"

pytestmark = pytest.mark.skipif(
    not PAGES.exists(), reason="the documents of the repository are not here"
)


def run_program(page: str) -> dict[str, Any]:
    text = (PAGES / page).read_text(encoding="utf-8")
    (program,) = re.findall(r"```python\n(.*?)```", text, flags=re.DOTALL)
    namespace: dict[str, Any] = {"__name__": "program"}
    exec(compile(program, page, "exec", dont_inherit=True), namespace)
    return namespace


def test_contract_of_the_page_on_devices_passes() -> None:
    contract = run_program("add-a-device.md")["TestMyDevice"]
    tests = [name for name in dir(contract) if name.startswith("test_")]
    assert len(tests) > 20
    for name in tests[:3]:
        getattr(contract(), name)(FakeDevice())


def test_page_on_devices_names_every_member_of_the_seam() -> None:
    page = (PAGES / "add-a-device.md").read_text(encoding="utf-8")
    members = {name for name, _ in inspect.getmembers(GraphDevice, inspect.isfunction)}
    members |= set(GraphDevice.__annotations__)
    assert {name for name in members if not name.startswith("_")} >= {"capture", "free_streams"}
    for name in members:
        assert name.startswith("_") or f"`{name}`" in page, name


def test_page_on_hangs_finds_the_layer(capsys: pytest.CaptureFixture[str]) -> None:
    run_program("diagnose-a-hang.md")

    assert "layers.0.mlp" in capsys.readouterr().out


def test_page_on_hangs_has_the_codes_of_the_table() -> None:
    path = ROOT / "tools" / "hang_page.py"
    if not path.exists():
        pytest.skip("the tools of the repository are not here")
    spec = importlib.util.spec_from_file_location("hang_page", path)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    page = (PAGES / "diagnose-a-hang.md").read_text(encoding="utf-8")

    assert page == module.with_tables(page), "run tools/hang_page.py --write"
