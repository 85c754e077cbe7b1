"""The result of one mode on one kind of step: stored as rows, shown as a table in the documents."""

from __future__ import annotations

import json
from dataclasses import asdict, dataclass
from pathlib import Path

from mode_matrix.workloads import StepKind
from npu_compile import CompileMode

DOCS = Path(__file__).parents[2] / "docs"
ROWS = DOCS / "modes.json"
PAGE = DOCS / "modes.md"
_BEGIN, _END = "<!-- rows -->\n", "<!-- end of rows -->\n"
# The least number of runs behind a row of the document.
FEWEST_STEPS = 200


@dataclass(frozen=True, kw_only=True, order=True)
class MatrixRow:
    """One cell of the table.

    Attributes:
        mode: the compile mode.
        dtype: of the models.
        kind: of the steps.
        num_steps: that were run, each bitwise equal to the eager one, its logits within tolerance
            of transformers.
        num_captured: of them replayed graphs; the others ran eagerly. ``None`` where that differs
            from run to run.
        reason: why some or all did not replay graphs; why there is no step.
    """

    mode: str
    dtype: str
    kind: str
    num_steps: int
    num_captured: int | None
    reason: str

    @property
    def place(self) -> tuple[str, str, str]:
        return (self.mode, self.dtype, self.kind)

    @property
    def cell(self) -> str:
        """The text of the table's cell."""
        if not self.num_steps:
            return f"- ({self.reason})"
        if self.num_captured is None:
            return f"{self.num_steps} ({self.reason})"
        if self.num_captured == self.num_steps:
            return f"{self.num_steps} by graphs"
        if self.num_captured:
            return f"{self.num_steps}, {self.num_captured} by graphs ({self.reason})"
        return f"{self.num_steps}, none by graphs ({self.reason})"


def read_rows(rows: Path = ROWS) -> dict[tuple[str, str, str], MatrixRow]:
    """Return the rows of the document by their places."""
    kept = [MatrixRow(**row) for row in json.loads(rows.read_text(encoding="utf-8"))]
    return {row.place: row for row in kept}


def keep_row(row: MatrixRow, *, rows: Path = ROWS, page: Path = PAGE) -> None:
    """Put a row in its place, and update the table."""
    kept = sorted({**read_rows(rows), row.place: row}.values())
    texts = [json.dumps(asdict(each)) for each in kept]
    rows.write_text("[\n" + ",\n".join(texts) + "\n]\n", encoding="utf-8")
    before, _, rest = page.read_text(encoding="utf-8").partition(_BEGIN)
    page.write_text(
        before + _BEGIN + table(kept) + _END + rest.partition(_END)[2], encoding="utf-8"
    )


def table(kept: list[MatrixRow]) -> str:
    """Return the table of rows: a line for each mode and dtype, a column for each kind."""
    cells = {row.place: row.cell for row in kept}
    kinds = [kind.value for kind in StepKind]
    lines = [
        f"| mode | dtype | {' | '.join(kinds)} |",
        "|---" * (2 + len(kinds)) + "|",
    ]
    for mode in CompileMode:
        for dtype in ("bfloat16", "float16"):
            found = [cells.get((mode.value, dtype, kind), "- (not run)") for kind in kinds]
            lines.append(f"| `{mode.value}` | {dtype} | {' | '.join(found)} |")
    return "\n".join(lines) + "\n"
