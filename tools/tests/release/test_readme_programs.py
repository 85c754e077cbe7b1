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

<!-- runs on an NPU, and anywhere as `A=2 cann-sim run -- python example.py` -->
```python
print("`")
```

```text
no program
```

<!-- an ordinary remark -->

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
        (9, 'print("`")\n', "A=2 cann-sim run -- python example.py"),
        (19, "print(3)\n", None),
    ]


@pytest.mark.parametrize("package", packages(ROOT), ids=lambda package: package.name)
def test_every_package_has_a_program_in_its_readme(package: Package) -> None:
    assert readme_programs(package.folder / "README.md")
