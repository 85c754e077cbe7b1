"""vLLM-Ascend's allocator of its sleep mode, built from the engine's own source for this machine.

The wheel has it in `vllm_ascend_C`, together with operators that link to libraries of CANN which
are not simulated. The source distribution, which ``./nox`` keeps in build/engines, has it in a file
that calls CANN's runtime alone.
"""

from __future__ import annotations

import importlib.util
import os
import subprocess
import sys
import sysconfig
import tarfile
from pathlib import Path

SOURCE = "csrc/camem_allocator.cpp"
NAME = "vllm_ascend.vllm_ascend_C"


def build(archive: Path, folder: Path) -> Path:
    """Compile the allocator of a source distribution into a folder, and return the module.

    Run under ``cann-sim run``, whose library of the runtime it is linked with.

    Raises:
        CalledProcessError: From the compiler, which printed why.
    """
    import torch_npu

    name = archive.name.removesuffix(".tar.gz")
    with tarfile.open(archive) as files:
        files.extract(f"{name}/{SOURCE}", folder, filter="data")
    # The engine looks the module up by the name of its file.
    made = folder / "vllm_ascend_C.so"
    headers = Path(torch_npu.__file__).parent / "include" / "third_party" / "acl" / "inc"
    places = [f"-L{each}" for each in os.environ["LD_LIBRARY_PATH"].split(os.pathsep) if each]
    includes = [f"-I{sysconfig.get_path('include')}", f"-I{headers}"]
    command = ["g++", "-O2", "-shared", "-fPIC", "-o", str(made), *includes]
    source = str(folder / name / SOURCE)
    subprocess.run([*command, source, *places, "-lascendcl"], check=True)
    return made


def install(module: Path) -> None:
    """Make the engine import the built allocator, in this process and forked ones."""
    import vllm_ascend

    spec = importlib.util.spec_from_file_location(NAME, module)
    if spec is None or spec.loader is None:
        raise ImportError(f"{module} is no extension module of this Python")
    loaded = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(loaded)
    sys.modules[NAME] = vllm_ascend.vllm_ascend_C = loaded
