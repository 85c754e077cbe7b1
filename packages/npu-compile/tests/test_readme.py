from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path


def test_readme_example_prints_what_the_text_says(tmp_path: Path) -> None:
    text = (Path(__file__).parents[1] / "README.md").read_text(encoding="utf-8")
    # The second one needs an NPU, or the simulator: integration-tests/test_readme_programs.py.
    example, _ = re.findall(r"```python\n(.*?)```", text, flags=re.DOTALL)
    promised, *_ = re.findall(r"It prints `(.*?)`", text)
    script = tmp_path / "example.py"
    script.write_text(example, encoding="utf-8")

    done = subprocess.run([sys.executable, script], capture_output=True, text=True, check=False)

    assert done.stdout.strip() == promised, done.stderr
