"""Putting the simulated libraries under torch_npu, in this process or in one that is started."""

from __future__ import annotations

import ctypes
import os
import sys
from pathlib import Path
from typing import TYPE_CHECKING

from cann_sim.building.native_build import Build, build_for_start
from cann_sim.errors import ActivationError
from cann_sim.settings import check_settings, external_event_form

if TYPE_CHECKING:
    from collections.abc import Mapping

# As in an installed CANN, whose set-up script puts its Python packages on the path.
_PYTHON_PACKAGES = Path(__file__).parent / "python_packages"

# What an installed CANN's set-up script names ASCEND_HOME_PATH. Where that variable is not set,
# torch_npu looks for CANN's version through everything below the current folder, at each start.
_TOOLKIT = Path(__file__).parent / "toolkit"


def activate() -> None:
    """Load the simulated libraries, so that ``import torch_npu`` finds them.

    Call it before torch is imported, because ``import torch`` loads torch_npu automatically. With
    ``TORCH_DEVICE_BACKEND_AUTOLOAD=0`` you can also call it between ``import torch`` and
    ``import torch_npu``. A second call does nothing. Builds the runtime if it is not
    in the cache, and starts a background process that builds the operators. The libraries stay
    loaded until the process ends. Sets ``ASCEND_HOME_PATH`` and ``ASCEND_OPP_PATH`` if the first is
    not set, as CANN's set-up script does.

    Raises:
        ActivationError: torch_npu is already imported with other libraries, or a library cannot be
            loaded.
        SettingError: An environment variable ``CANN_SIM_*`` is unknown or has a wrong value.
        InstallationError: torch or torch_npu is missing or is not supported.
        CompilerNotFoundError: The libraries must be built and there is no suitable C++ compiler.
        CompilationError: The compiler rejected a source.
        CacheError: The libraries cannot be written.
    """
    if is_active():
        return
    loaded = _loaded_path("libascendcl.so")
    if loaded is not None:
        raise ActivationError(
            "cann-sim was to put its libraries under torch_npu: expected that no device libraries "
            f"are loaded, found {loaded}. Call cann_sim.activate() before torch_npu is imported "
            "(TORCH_DEVICE_BACKEND_AUTOLOAD=0 keeps 'import torch' from importing it), and start "
            "Python without the CANN folders in LD_LIBRARY_PATH."
        )
    check_settings(os.environ)
    built = build_for_start()
    os.environ.update({**_toolkit_environment(os.environ), **_log_environment(os.environ)})
    for path in built.library_paths(external_event_form(os.environ)):
        _load(path)
    sys.path.append(str(_PYTHON_PACKAGES))


def _load(library: Path) -> None:
    """Load a library, whose dependencies are loaded already and are found by their SONAME."""
    try:
        ctypes.CDLL(str(library), mode=ctypes.RTLD_LOCAL)
    except OSError as error:
        raise ActivationError(
            f"cann-sim was to load {library.name} into this process: expected that it and what it "
            f"needs can be loaded, found: {error}. If that names a library of torch or CUDA, see "
            "whether 'import torch' works with TORCH_DEVICE_BACKEND_AUTOLOAD=0; if it names one "
            f"in {library.parent}, remove that folder, and it is built again."
        ) from error


def is_active() -> bool:
    """Return whether the simulated runtime is loaded in this process."""
    loaded = _loaded_path("libascendcl.so")
    return loaded is not None and _is_ours(loaded)


def launch_environment(
    environment: Mapping[str, str], built: Build | None = None
) -> dict[str, str]:
    """Return an environment in which a new process finds the simulated libraries.

    Args:
        environment: The environment to start from.
        built: The libraries. If None, the runtime is built if necessary, and the operators in the
            background.

    Raises:
        SettingError: An environment variable ``CANN_SIM_*`` is unknown or has a wrong value.
        InstallationError: As for `activate`, if something must be built; so are the other errors.
    """
    check_settings(environment)
    built = built or build_for_start()
    folders = [str(path) for path in built.search_path(external_event_form(environment))]
    before = environment.get("LD_LIBRARY_PATH")
    path = os.pathsep.join([*folders, *filter(None, [before])])
    modules = os.pathsep.join(filter(None, [environment.get("PYTHONPATH"), str(_PYTHON_PACKAGES)]))
    added = {"LD_LIBRARY_PATH": path, "PYTHONPATH": modules}
    added |= _toolkit_environment(environment)
    return {**environment, **_log_environment(environment), **added}


def _toolkit_environment(environment: Mapping[str, str]) -> dict[str, str]:
    """Return where torch_npu finds CANN's folders, unless the caller has said it."""
    if environment.get("ASCEND_HOME_PATH"):
        return {}
    operators = environment.get("ASCEND_OPP_PATH") or str(_TOOLKIT / "opp")
    return {"ASCEND_HOME_PATH": str(_TOOLKIT), "ASCEND_OPP_PATH": operators}


def _log_environment(environment: Mapping[str, str]) -> dict[str, str]:
    """Return variables that make torch_npu write the log lines that ``CANN_SIM_LOG`` shows."""
    level = {"missing": "2", "all": "0"}.get(environment.get("CANN_SIM_LOG", ""))
    name = "ASCEND_GLOBAL_LOG_LEVEL"
    return {} if level is None or name in environment else {name: level}


def _loaded_path(library: str) -> str | None:
    """Return where a loaded library came from, or None where it is not loaded."""
    with Path("/proc/self/maps").open(encoding="utf-8", errors="replace") as maps:
        for line in maps:
            path = line.rstrip("\n").partition("/")[2]
            if path.rpartition("/")[2] == library:
                return "/" + path
    return None


def _is_ours(path: str) -> bool:
    return hasattr(ctypes.CDLL(path), "cann_sim_counters")
