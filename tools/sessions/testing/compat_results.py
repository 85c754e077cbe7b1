"""What the packages' tests gave on each release of torch: kept as rows, shown as a table."""

from __future__ import annotations

import json
import subprocess
from collections import Counter
from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING
from xml.etree import ElementTree as ET

from sessions.workspace import ROOT

if TYPE_CHECKING:
    from pathlib import Path

ROWS = ROOT / "docs" / "versions.json"
PAGE = ROOT / "docs" / "versions.md"
_BEGIN, _END = "<!-- rows -->\n", "<!-- end of rows -->\n"


@dataclass(frozen=True, kw_only=True, order=True)
class CompatResult:
    """The test result of one package in one environment.

    Attributes:
        package: The package.
        torch: Version of torch, and whether it is a CPU or a CUDA build.
        torch_npu: Version of torch_npu, or a dash where the package's tests have none.
        python: Version of Python.
        tests: What was run: ``all``, or names of files and folders of tests.
        passed: Number of tests.
        failed: Number of tests, errors in fixtures included.
        skipped: Number of tests.
        reasons: Why tests failed or were skipped, each with its number.
    """

    package: str
    torch: str
    torch_npu: str
    python: str
    tests: str
    passed: int
    failed: int
    skipped: int
    reasons: tuple[str, ...]


_DESCRIBE = """
import importlib.metadata as m, importlib.util as u, json, platform, torch
print(json.dumps({
    "torch": f"{torch.__version__.split('+')[0]} {'CUDA' if torch.version.cuda else 'CPU'}",
    "torch_npu": m.version("torch_npu") if u.find_spec("torch_npu") else "-",
    "python": platform.python_version(),
}))
"""


def read_result(report: Path, *, package: str, python: str, tests: str) -> CompatResult:
    """Read pytest's report and the versions of the environment.

    Args:
        report: pytest's report in JUnit format.
        package: The package.
        python: The environment's interpreter.
        tests: What was run.
    """
    described = subprocess.run(
        [python, "-c", _DESCRIBE], check=True, capture_output=True, text=True,
        env={"TORCH_DEVICE_BACKEND_AUTOLOAD": "0", "PATH": ""},
    )  # fmt: skip
    counts: Counter[str] = Counter()
    reasons: Counter[str] = Counter()
    root = ET.parse(report).getroot()  # noqa: S314 - our pytest wrote it
    for case in root.iter("testcase"):
        kinds = {child.tag: child for child in case if child.tag in {"failure", "error", "skipped"}}
        kind = next((tag for tag in ("failure", "error", "skipped") if tag in kinds), "passed")
        counts["failed" if kind in {"failure", "error"} else kind] += 1
        if kind != "passed":
            text = kinds[kind].get("message", "").strip().splitlines()
            reasons[f"{kind}: {text[0][:160] if text else 'no message'}"] += 1
    return CompatResult(
        package=package,
        tests=tests,
        passed=counts["passed"],
        failed=counts["failed"],
        skipped=counts["skipped"],
        reasons=tuple(f"{number} {reason}" for reason, number in sorted(reasons.items())),
        **json.loads(described.stdout),
    )


def keep_result(result: CompatResult, *, rows: Path = ROWS, page: Path = PAGE) -> None:
    """Replace the older result of the same environment, and update the table.

    Args:
        result: The new result.
        rows: The file of all rows.
        page: The page that shows the rows as a table.
    """
    kept = [
        CompatResult(**{**row, "reasons": tuple(row["reasons"])})
        for row in json.loads(rows.read_text(encoding="utf-8"))
    ]
    kept = sorted([*(row for row in kept if _environment(row) != _environment(result)), result])
    texts = [json.dumps(asdict(row)) for row in kept]
    rows.write_text("[\n" + ",\n".join(texts) + "\n]\n", encoding="utf-8")
    before, _, rest = page.read_text(encoding="utf-8").partition(_BEGIN)
    page.write_text(
        before + _BEGIN + _table(kept) + _END + rest.partition(_END)[2], encoding="utf-8"
    )


def _environment(row: CompatResult) -> tuple[str, ...]:
    return (row.package, row.torch, row.torch_npu, row.python)


def _table(rows: list[CompatResult]) -> str:
    lines = [
        "| package | torch | torch_npu | Python | tests | passed | failed | skipped | why |",
        "|---|---|---|---|---|---|---|---|---|",
    ]
    lines += [
        f"| {row.package} | {row.torch} | {row.torch_npu} | {row.python} | {row.tests} "
        f"| {row.passed} | {row.failed} | {row.skipped} "
        f"| {'; '.join(row.reasons).replace('|', '/')} |"
        for row in rows
    ]
    return "\n".join(lines) + "\n"
