"""The operators that an installed torch_npu may look up in the operator library.

torch_npu looks operators up by name, and silently uses an older API if one is missing. The
simulated library therefore provides every name that torch_npu knows; a name without an
implementation fails when it is called. The names are string constants in torch_npu's libraries.
"""

from __future__ import annotations

import re
from types import MappingProxyType
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping
    from pathlib import Path

_NAME: Final = re.compile(rb"(?<![A-Za-z0-9_])(aclnn[A-Z][A-Za-z0-9]*?)(GetWorkspaceSize)\x00")
_MAX_NAME: Final = re.compile(rb"(?<![A-Za-z0-9_])(aclnn[A-Z][A-Za-z0-9]*)GetMaxWorkspaceSize\x00")

# Names torch_npu knows and the simulator must not offer, with the reason: their presence would
# lead torch_npu to a road that the simulator does not want.
NOT_OFFERED: Final[Mapping[str, str]] = MappingProxyType(
    {
        "aclnnFlatQuantV2": "of other devices; aclnnFlatQuant serves where it is missing",
        "aclnnLessScalar": "CANN has no such operator; it would compare the wrong way round",
        "aclnnSilentCheck": "a background check of training that torch_npu adds where it exists",
        "aclnnSilentCheckV2": "as aclnnSilentCheck",
        "aclnnTopkV2": "of a later CANN, undocumented; aclnnTopk serves where it is missing",
    },
)


def requested_operators(libraries: Iterable[Path]) -> tuple[str, ...]:
    """Return the operators that the libraries name, sorted, without those of `NOT_OFFERED`.

    Args:
        libraries: The shared libraries of torch_npu (`torch_npu/lib/*.so`).

    Returns:
        Names without a suffix, for instance `aclnnAdd`.

    Raises:
        OSError: A library cannot be read.
        ValueError: No library names an operator; they are not those of torch_npu.
    """
    names: set[str] = set()
    paths = list(libraries)
    for path in paths:
        names |= {match[1].decode() for match in _NAME.finditer(path.read_bytes())}
    if not names:
        listed = ", ".join(map(str, paths)) or "no library"
        message = (
            f"finding the operators torch_npu asks for: expected names like aclnnAdd in {listed}, "
            "found none; give the shared libraries of an installed torch_npu"
        )
        raise ValueError(message)
    return tuple(sorted(names - NOT_OFFERED.keys()))


def max_workspace_operators(libraries: Iterable[Path]) -> tuple[str, ...]:
    """Return the operators that the libraries ask for a workspace that serves all later calls.

    Args:
        libraries: The shared libraries of torch_npu.

    Returns:
        Names without a suffix, sorted.

    Raises:
        OSError: A library cannot be read.
    """
    found = (_MAX_NAME.findall(path.read_bytes()) for path in libraries)
    return tuple(sorted({name.decode() for names in found for name in names}))


def requested_operators_source(libraries: Iterable[Path]) -> str:
    """Return the text of `requested_operators.h`, which `offered_operators.cpp` includes.

    Args:
        libraries: The shared libraries of torch_npu.

    Returns:
        One `CANN_SIM_OFFERED(function, operator)` a line, for each function torch_npu may look up.

    Raises:
        OSError: A library cannot be read.
        ValueError: No library names an operator.
    """
    paths = list(libraries)
    names = requested_operators(paths)
    functions = [(name + suffix, name) for name in names for suffix in ("", "GetWorkspaceSize")]
    functions += [(f"{name}GetMaxWorkspaceSize", name) for name in max_workspace_operators(paths)]
    return "".join(f"CANN_SIM_OFFERED({function}, {name})\n" for function, name in functions)
