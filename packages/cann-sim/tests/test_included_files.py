"""Which files a C++ source includes."""

from __future__ import annotations

from typing import TYPE_CHECKING

from cann_sim.building.included_files import included_files
from cann_sim.building.native_library import NATIVE

if TYPE_CHECKING:
    from pathlib import Path


def test_included_files_are_found_through_each_other(tmp_path: Path) -> None:
    (tmp_path / "inner").mkdir()
    (tmp_path / "a.cpp").write_text('#include <vector>\n  #  include "inner/b.h"\n// "c.h"\n')
    (tmp_path / "inner" / "b.h").write_text('#include "../d.h"\n#include "b.h"\n')
    (tmp_path / "d.h").write_text('#include "missing.h"\n')
    (tmp_path / "c.h").write_text("")
    assert included_files(tmp_path / "a.cpp") == (tmp_path / "d.h", tmp_path / "inner" / "b.h")


def test_included_files_of_the_runtime_are_its_headers() -> None:
    names = {path.name for path in included_files(NATIVE / "runtime" / "graph.cpp")}
    assert {"graph.h", "task.h", "monitor.h"} <= names
    assert "faults.h" not in names
