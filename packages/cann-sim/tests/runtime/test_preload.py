"""Libraries in LD_PRELOAD that override functions of the runtime, as memory savers do."""

from __future__ import annotations

import subprocess
import sys
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from pathlib import Path

HOOK = r"""
#include <dlfcn.h>
#include <stddef.h>
#include <stdio.h>

int aclrtMallocAlign32(void** address, size_t bytes, int policy) {
  int (*real)(void**, size_t, int) = dlsym(RTLD_NEXT, "aclrtMallocAlign32");
  printf("hook %d\n", real != NULL);
  fflush(stdout);
  return real == NULL ? -1 : real(address, bytes, policy);
}
"""


def test_preloaded_library_finds_the_function_it_wraps(run_python: Any, tmp_path: Path) -> None:
    source, library = tmp_path / "hook.c", tmp_path / "libhook.so"
    source.write_text(HOOK)
    compile_hook = ["gcc", "-D_GNU_SOURCE", "-shared", "-fPIC", str(source), "-o", str(library)]
    subprocess.run(compile_hook, check=True)
    done = run_python(
        "import torch, torch_npu; print(torch.ones(1 << 20).npu().sum().item())",
        program=(sys.executable, "-m", "cann_sim", "run", "--", sys.executable, "-c"),
        environment={"LD_PRELOAD": str(library)},
    )
    assert "hook 1" in done.output, done.errors
    assert "1048576.0" in done.output, done.errors
