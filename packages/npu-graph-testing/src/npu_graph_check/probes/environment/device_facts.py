"""Properties that the device reports."""

from __future__ import annotations

from typing import TYPE_CHECKING

from npu_graph_check.cann.installed_versions import installed_versions, soc_name
from npu_graph_check.cann.runtime import Cann

if TYPE_CHECKING:
    from npu_graph_check.probe import Look


def versions(look: Look) -> None:
    """Ask for the SoC and the versions."""
    cann = Cann()
    known = installed_versions(cann)
    look.expect("whether it is an Ascend 910", soc_name(cann)[:9], "Ascend910")
    for name in ("cann", "driver"):
        look.expect(f"whether the version of {name} is known", known[name][:1].isdigit(), True)
