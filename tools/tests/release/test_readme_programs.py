from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from release.readme_programs import readme_programs
from sessions.package import packages

if TYPE_CHECKING:
    from sessions.package import Package

ROOT = Path(__file__).parents[3]

README = """# Title

```python
print(1)
```

Save it as `example.py`. Without an NPU, run it as
`A=2 cann-sim run -- python example.py`:

```python
print("`")
```

```text
no program
```

An ordinary remark.

```python
print(3)
```
"""


def test_programs_and_how_they_are_run(tmp_path: Path) -> None:
    readme = tmp_path / "README.md"
    readme.write_text(README)

    programs = readme_programs(readme)

    assert [(each.line, each.text, each.command) for each in programs] == [
        (4, "print(1)\n", None),
        (11, 'print("`")\n', "A=2 cann-sim run -- python example.py"),
        (21, "print(3)\n", None),
    ]


@pytest.mark.parametrize("package", packages(ROOT), ids=lambda package: package.name)
def test_every_package_has_a_program_in_its_readme(package: Package) -> None:
    assert readme_programs(package.folder / "README.md")


@pytest.mark.parametrize("package", packages(ROOT), ids=lambda package: package.name)
def test_programs_print_and_readers_see_how_they_are_run(package: Package) -> None:
    readme = package.folder / "README.md"
    assert "<!--" not in readme.read_text(encoding="utf-8")
    for program in readme_programs(readme):
        # pytest prints for the one program that is a test.
        assert "print(" in program.text or "pytest" in (program.command or ""), program.line
        if "NpuDevice(0)" in program.text and "FakeDevice" not in program.text:
            assert program.command == "cann-sim run -- python example.py", program.line
