"""Checks the versions of the four packages that npu-compile uses.

An installer ensures these versions, except with ``--no-deps`` or if a package was copied in by
hand.
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
    """Raise an error if an imported package is outside the version range that npu-compile declares.

    The ranges are read from npu-compile's installed metadata. If npu-compile is imported without
    being installed, nothing is checked.

    Raises:
        SiblingVersionError: A version is outside its range. The message names the package, its file
            and the range.
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
