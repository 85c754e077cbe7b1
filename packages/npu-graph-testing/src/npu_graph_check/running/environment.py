"""Facts about the device and the software, for the head of a file of results.

``python -m npu_graph_check.running.environment npu`` prints them in a separate process, because
torch_npu may end it.
"""

from __future__ import annotations

import json
import os
import platform
import subprocess
import sys
import tempfile
from importlib.metadata import PackageNotFoundError, version

from npu_graph_check.end_with_parent import end_with_parent
from npu_graph_check.errors import CheckError, NoDeviceError
from npu_graph_check.running.start import probe_variables

_START_SECONDS = 300
_PACKAGES = (
    "npu-graph-testing",
    "npu-graph-runtime",
    "attn-update",
    "fx-passes",
    "npu-compile",
    "cann-sim",
)
# What changes what a device or the simulator answers.
_SETTINGS = ("TASK_QUEUE_ENABLE", "PYTORCH_NPU_ALLOC_CONF", "ASCEND_LAUNCH_BLOCKING")
_SETTING_PREFIX = "CANN_SIM_"


def read_environment(device: str) -> dict[str, str]:
    """Return versions, device and settings, as text by name; starts the device in a process.

    Raises:
        NoDeviceError: torch or torch_npu is missing, does not load, or sees no device.
    """
    for package in ("torch", "torch_npu") if device == "npu" else ("torch",):
        if _installed(package) == _MISSING:
            raise NoDeviceError(
                f"looking for the device: {package} is not installed; install the version that "
                "fits (docs/versions.md), or choose another --device"
            )
    command = [sys.executable, "-m", __name__, device]
    try:
        with tempfile.TemporaryDirectory(prefix="npu-graph-check-") as folder:
            done = subprocess.run(  # noqa: S603 - this interpreter
                command,
                env=probe_variables(os.environ),
                # In that of the user a `torch.py` would be imported.
                cwd=folder,
                capture_output=True,
                text=True,
                check=False,
                timeout=_START_SECONDS,
            )
    except subprocess.TimeoutExpired:
        raise NoDeviceError(
            f"starting the device: nothing came back within {_START_SECONDS} s; see whether "
            "another process holds it: npu-smi info"
        ) from None
    found: dict[str, str] | None = None
    for line in done.stdout.splitlines():
        if line.startswith("{"):
            found = json.loads(line)
    if found is None:
        last = (done.stderr.strip().splitlines() or [f"status {done.returncode}"])[-1]
        raise NoDeviceError(f"starting the device: {last[:400]}")
    if "error" in found:
        raise NoDeviceError(found["error"])
    return found


def main() -> None:
    """Print the facts, or the reason why they are unknown, as a line of JSON."""
    end_with_parent()
    device = sys.argv[1]
    try:
        found = {**_software(), **(_npu() if device == "npu" else _cuda()), **_settings()}
    except (CheckError, ImportError, RuntimeError) as error:
        lines = str(error).strip().splitlines() or [type(error).__name__]
        found = {"error": f"starting the device: {lines[0][:400]}"}
    sys.stdout.write(json.dumps(found) + "\n")
    sys.stdout.flush()
    os._exit(0)


_MISSING = "not installed"


def _installed(package: str) -> str:
    try:
        return version(package)
    except PackageNotFoundError:
        return _MISSING


def _software() -> dict[str, str]:
    names = ("torch", "torch_npu", *_PACKAGES)
    return {
        "python": platform.python_version(),
        "machine": platform.machine(),
        "system": platform.platform(),
        **{name: _installed(name) for name in names},
    }


def _npu() -> dict[str, str]:
    from npu_graph_check.cann.installed_versions import installed_versions  # noqa: PLC0415
    from npu_graph_check.cann.runtime import Cann  # noqa: PLC0415
    from npu_graph_runtime import NpuDevice  # noqa: PLC0415 - loads torch

    # CANN first: torch_npu says less of a library that is missing.
    known = installed_versions(Cann())
    NpuDevice().synchronize()
    return {"device": "npu", **known}


def _cuda() -> dict[str, str]:
    import torch  # noqa: PLC0415

    from npu_graph_runtime import CudaDevice  # noqa: PLC0415 - loads torch

    CudaDevice().synchronize()
    return {
        "device": "cuda",
        "soc": torch.cuda.get_device_name(0),
        "cuda": str(torch.version.cuda),
        "devices": str(torch.cuda.device_count()),
    }


def _settings() -> dict[str, str]:
    names = [*_SETTINGS, *sorted(name for name in os.environ if name.startswith(_SETTING_PREFIX))]
    return {name: os.environ.get(name, "not set") for name in names}


if __name__ == "__main__":
    main()
