"""Programs of READMEs that no package can run from its wheel alone print the documented output."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).parents[1]


def programs(readme: str) -> list[str]:
    text = (ROOT / readme).read_text(encoding="utf-8")
    return re.findall(r"^```python\n(.*?)^```$", text, flags=re.DOTALL | re.MULTILINE)


def printed(program: str, folder: Path, *arguments: str) -> str:
    (folder / "example.py").write_text(program, encoding="utf-8")
    command = [sys.executable, *arguments, "example.py"]
    # The sessions switch the loading of torch_npu by torch off; readers have it on.
    environment = {k: v for k, v in os.environ.items() if k != "TORCH_DEVICE_BACKEND_AUTOLOAD"}
    done = subprocess.run(
        command, cwd=folder, env=environment, capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr
    return done.stdout


def test_program_of_the_front_page_runs_on_any_machine(tmp_path: Path) -> None:
    (program,) = programs("README.md")
    # Where torch_npu is installed, torch loads it, which needs its libraries.
    simulated = ("-m", "cann_sim", "run", "--", sys.executable)

    assert printed(program, tmp_path, *simulated) == "torch.Size([4, 8])\n"


def test_npu_compile_updates_attention_in_its_readme(tmp_path: Path) -> None:
    _, program = programs("packages/npu-compile/README.md")
    simulated = ("-m", "cann_sim", "run", "--", sys.executable)

    assert printed(program, tmp_path, *simulated) == "[7, 30] True\n[8, 31] True\n"


def test_runner_has_metadata_made_in_its_how_to(tmp_path: Path) -> None:
    (program,) = programs("docs/how-to/metadata-in-a-runner.md")
    simulated = ("-m", "cann_sim", "run", "--", sys.executable)

    assert printed(program, tmp_path, *simulated) == "[7, 30, 12] True\n[8, 31, 13] True\n"


def test_cann_sim_runs_the_graph_of_its_readme(tmp_path: Path) -> None:
    program, _ = programs("packages/cann-sim/README.md")

    assert printed(program, tmp_path) == "tensor([5., 5., 5., 5.]) 1\n"
