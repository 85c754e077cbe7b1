"""The versions of the four packages that this one joins, against the ranges it was released with.

An installer keeps to the ranges, unless it was told not to (``--no-deps``) or a package was laid in
by hand.
"""

from __future__ import annotations

from importlib.metadata import PackageNotFoundError, requires

from packaging.requirements import Requirement

import attn_update
import fx_passes
import npu_graph_runtime
import piecewise_split
from npu_compile.errors import SiblingVersionError


def check_sibling_versions() -> None:
    """Raise if a package that was imported is outside of the range that npu-compile states.

    The ranges are read from npu-compile's installed metadata. Where it is imported without being
    installed, nothing states a range and nothing is checked.

    Raises:
        SiblingVersionError: one is outside; the message names it, its file and the range.
    """
    try:
        requirements = [Requirement(text) for text in requires("npu-compile") or ()]
    except PackageNotFoundError:
        return
    for module in (attn_update, fx_passes, npu_graph_runtime, piecewise_split):
        name = module.__name__.replace("_", "-")
        for requirement in requirements:
            if requirement.name != name or requirement.marker is not None:
                continue
            if not requirement.specifier.contains(module.__version__, prereleases=True):
                raise SiblingVersionError(
                    f"npu-compile: expected {requirement}, found {name} {module.__version__} in "
                    f"{module.__file__}; install it with `pip install '{requirement}'`"
                )
