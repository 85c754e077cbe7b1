from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from release.readme_programs import Program, readme_programs
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


@pytest.mark.parametrize(
    ("program", "after", "said"),
    [
        ('print("done")', "", ("done",)),
        ("print(total)  # 3.0", "", ("3.0",)),
        (
            "print(total, count)",
            "It prints `3.0 1.` and\n`4.0 2`. Also see `this`.",
            ("3.0 1.", "4.0 2"),
        ),
        ("print(plan)", "It prints\n\n```text\na  b\nc\n  ...\n```", ("a  b", "c")),
        ("print(plan)", "It prints\n\n```text\na\n```\n\n```text\nb\n```", ("a",)),
        ("print(plan)  # 1", "It prints `2` too.", ("1", "2")),
        ("print(plan)", "The plan has `names`.\n\nIt prints `no more`.", ()),
        ("x = 1  # 2", "", ()),
    ],
)
def test_expected_output_is_read_from_the_readme(
    tmp_path: Path, program: str, after: str, said: tuple[str, ...]
) -> None:
    readme = tmp_path / "README.md"
    readme.write_text(f"# Title\n\n```python\n{program}\n```\n\n{after}\n")

    assert [each.said for each in readme_programs(readme)] == [said]


@pytest.mark.parametrize(
    ("said", "in_any_order", "output", "missing"),
    [
        (("1", "2"), False, "1\n2\n", None),
        (("captured=1", "a  b"), False, "Counters(captured=1)\na b\n", None),
        (("1", "2"), False, "2\n1\n", "2"),
        (("1", "2"), True, "2\n1\n", None),
        (("1",), False, "", "1"),
    ],
)
def test_output_that_lacks_what_the_readme_says_is_found(
    said: tuple[str, ...], in_any_order: bool, output: str, missing: str | None
) -> None:
    program = Program(line=1, text="", command=None, said=said, in_any_order=in_any_order)

    assert program.missing(output) == missing


@pytest.mark.parametrize("package", packages(ROOT), ids=lambda package: package.name)
def test_every_package_has_a_program_in_its_readme(package: Package) -> None:
    assert readme_programs(package.folder / "README.md")


@pytest.mark.parametrize("package", packages(ROOT), ids=lambda package: package.name)
def test_programs_print_and_readers_see_how_they_are_run(package: Package) -> None:
    readme = package.folder / "README.md"
    assert "<!--" not in readme.read_text(encoding="utf-8")
    for program in readme_programs(readme):
        # pytest prints for the one program that is a test.
        assert program.said or "pytest" in (program.command or ""), program.line
        if "NpuDevice(0)" in program.text and "FakeDevice" not in program.text:
            assert program.command == "cann-sim run -- python example.py", program.line
