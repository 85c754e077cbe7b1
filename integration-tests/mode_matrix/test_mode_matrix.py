"""Every mode on every kind of step: bitwise identical to eager, within tolerance of transformers.

`./nox -s modes` runs all of it, at least 200 steps each, and compares with docs/modes.md. The gate
runs a share selected by a seed.
"""

from __future__ import annotations

import warnings
from random import Random
from typing import TYPE_CHECKING

import pytest
import torch

from attn_update import UpdateLane
from mode_matrix.matrix_row import (
    FEWEST_STEPS,
    PAGE,
    MatrixRow,
    keep_row,
    read_rows,
    table,
)
from mode_matrix.served_model import Drafter, ModelSettings, TargetModel
from mode_matrix.workloads import StepKind, Workload, WorkloadResult
from npu_compile import CompileMode
from npu_graph_runtime import RunMode
from qwen3_engine import ReferenceModel
from qwen3_engine.demonstration.comparison import logit_tolerance
from qwen3_engine.tiny_checkpoint import TinyShape, write_tiny_checkpoint

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from npu_graph_runtime import NpuDevice

DTYPES = ("bfloat16", "float16")
CELLS = [(mode, dtype) for mode in CompileMode for dtype in DTYPES]
# Why a mode does not run a kind of step at all; a cell without steps that has no reason here fails.
NOT_RUN: dict[tuple[CompileMode, StepKind], str] = {}
TOO_LARGE = "the others are larger than every capture size"
# A mode that chooses how each size runs by what it measures; the enum may not have it.
CHOOSING = "measured"

Results = dict[StepKind, WorkloadResult]


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    if "cell" not in metafunc.fixturenames:
        return
    cells = CELLS
    if share := metafunc.config.getoption("matrix_share"):
        drawn = [cell for cell in CELLS if cell[0] is not CompileMode.EAGER]
        cells = Random(metafunc.config.getoption("matrix_seed")).sample(drawn, share)
    ids = [f"{mode.value}-{dtype}" for mode, dtype in cells]
    metafunc.parametrize("cell", cells, ids=ids)


@pytest.fixture(scope="module")
def shape(pytestconfig: pytest.Config) -> TinyShape:
    return TinyShape(num_layers=1 if pytestconfig.getoption("matrix_share") else 2)


@pytest.fixture(scope="module")
def folder_of(tmp_path_factory: pytest.TempPathFactory, shape: TinyShape) -> Callable[[str], Path]:
    folders: dict[str, Path] = {}

    def folder(dtype: str) -> Path:
        if dtype not in folders:
            target = tmp_path_factory.mktemp(dtype)
            folders[dtype] = write_tiny_checkpoint(target, shape=shape, dtype=getattr(torch, dtype))
        return folders[dtype]

    return folder


@pytest.fixture(scope="module")
def run(
    folder_of: Callable[[str], Path], device: NpuDevice, pytestconfig: pytest.Config
) -> Callable[[CompileMode, str], Results]:
    num_steps = pytestconfig.getoption("matrix_steps")
    kept: dict[str, Results] = {}

    def run(mode: CompileMode, dtype: str) -> Results:
        is_eager = mode is CompileMode.EAGER
        if is_eager and dtype in kept:
            return kept[dtype]
        # Compiling takes longer than a share's steps, and other tests of the gate have fusions.
        fuse = not pytestconfig.getoption("matrix_share")
        settings = ModelSettings(folder=folder_of(dtype), options={"fuse": fuse})
        lane = UpdateLane(device)
        target = TargetModel(settings, mode.value, device=device, lane=lane)
        drafter = Drafter(settings, mode.value, device=device, lane=lane)
        with warnings.catch_warnings():
            # Of steps that are larger than every capture size, which are here on purpose.
            warnings.filterwarnings("ignore", r"running a \w+ batch", RuntimeWarning)
            target.capture()
            drafter.capture()
            results = {
                kind: Workload(kind, target, drafter, settings=settings, seed=number).run(num_steps)
                for number, kind in enumerate(StepKind)
                if (mode, kind) not in NOT_RUN
            }
        drafter.close()
        target.close()
        lane.close()
        if is_eager:
            kept[dtype] = results
        return results

    return run


@pytest.fixture(scope="module")
def assert_right(
    folder_of: Callable[[str], Path], shape: TinyShape
) -> Callable[[WorkloadResult, str], None]:
    """Compare the logits after every token that stays with those of transformers."""
    references: dict[str, ReferenceModel] = {}
    known: dict[tuple[str, tuple[int, ...]], torch.Tensor] = {}

    def assert_right(result: WorkloadResult, dtype: str) -> None:
        if dtype not in references:
            references[dtype] = ReferenceModel(folder_of(dtype))
        error = squares = 0.0
        num_values = 0
        for text in result.texts:
            if not text.logits:
                continue
            key = (dtype, tuple(text.tokens))
            if key not in known:
                known[key] = references[dtype].logits(text.tokens)
            positions = sorted(text.logits)
            expected = known[key][positions]
            found = torch.stack([text.logits[position] for position in positions]).float()
            error = max(error, float((found - expected).abs().max()))
            squares += float(expected.square().sum())
            num_values += expected.numel()
        tolerance = logit_tolerance(
            getattr(torch, dtype),
            num_layers=shape.num_layers,
            logits_rms=(squares / num_values) ** 0.5,
        )
        assert error <= tolerance, f"an error of {error}, expected at most {tolerance}"

    return assert_right


def _row(mode: CompileMode, dtype: str, kind: StepKind, result: WorkloadResult) -> MatrixRow:
    num_steps = len(result.steps)
    num_captured: int | None = sum(result.replayed)
    reason = "" if num_captured == num_steps else TOO_LARGE
    if mode.value == CHOOSING:
        num_captured, reason = None, "by graphs or eagerly, as it was measured"
    elif not num_captured:
        reason = f"mode `{mode.value}` captures none of these"
    return MatrixRow(
        mode=mode.value,
        dtype=dtype,
        kind=kind.value,
        num_steps=num_steps,
        num_captured=num_captured,
        reason=reason,
    )


def _captures(mode: CompileMode, kind: StepKind) -> bool:
    """Return whether steps of a kind that a capture size fits replay graphs in a mode."""
    is_prefill = kind in {StepKind.PREFILL, StepKind.MIXED}
    found = mode.prefill_run_mode if is_prefill else mode.decode_run_mode
    return found is not RunMode.EAGER


def test_mode_equals_eager_and_transformers_within_tolerance(
    cell: tuple[CompileMode, str],
    run: Callable[[CompileMode, str], Results],
    assert_right: Callable[[WorkloadResult, str], None],
    pytestconfig: pytest.Config,
) -> None:
    mode, dtype = cell
    eager = run(CompileMode.EAGER, dtype)
    results = run(mode, dtype)

    rows = []
    for kind in StepKind:
        if kind not in results:
            absent = MatrixRow(
                mode=mode.value,
                dtype=dtype,
                kind=kind.value,
                num_steps=0,
                num_captured=0,
                reason=NOT_RUN[mode, kind],
            )
            rows.append(absent)
            continue
        result = results[kind]
        assert result.differing_steps(eager[kind]) == [], kind
        assert len(set(result.num_sequences)) > 2, kind
        if mode.value != CHOOSING:
            assert any(result.replayed) == _captures(mode, kind), kind
        assert_right(result, dtype)
        rows.append(_row(mode, dtype, kind, result))
    # The model drafts for itself: but for rounding all drafts are right, up to a spoiled one.
    speculative = results.get(StepKind.SPECULATIVE, WorkloadResult())
    assert sum(speculative.num_accepted) >= 0.9 * sum(speculative.num_unspoiled)
    if pytestconfig.getoption("matrix_steps") >= FEWEST_STEPS:
        known = {} if pytestconfig.getoption("write_matrix") else read_rows()
        for row in rows:
            if pytestconfig.getoption("write_matrix"):
                keep_row(row)
            else:
                assert row == known.get(row.place), "docs/modes.md: ./nox -s modes -- --write"


def test_document_has_a_row_for_every_mode_dtype_and_kind() -> None:
    rows = read_rows()

    expected = {(mode.value, dtype, kind.value) for mode, dtype in CELLS for kind in StepKind}
    assert rows.keys() == expected, "docs/modes.md: ./nox -s modes -- --write"
    for row in rows.values():
        assert row.num_steps >= FEWEST_STEPS or row.reason
        assert row.num_captured == row.num_steps or row.reason
    assert table(sorted(rows.values())) in PAGE.read_text(encoding="utf-8")
