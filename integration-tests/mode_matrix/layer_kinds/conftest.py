"""The modes and the eager results that the tests of each model compare with."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from mode_matrix.layer_kinds.every_mode import assert_right, drawn_modes, run_every_kind
from npu_compile import CompileMode

if TYPE_CHECKING:
    from collections.abc import Callable

    from mode_matrix.layer_kinds.kept_model import KeptModel
    from mode_matrix.workloads import StepKind, WorkloadResult


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    if "mode" in metafunc.fixturenames:
        metafunc.parametrize("mode", drawn_modes(metafunc.config), ids=lambda mode: mode.value)


@pytest.fixture(scope="module")
def eager(
    make: Callable[[CompileMode], KeptModel], request: pytest.FixtureRequest
) -> dict[StepKind, WorkloadResult]:
    """Return the results of the module's model, which are right within its ``TOLERANCE``."""
    model = make(CompileMode.EAGER)
    results = run_every_kind(model, request.config.getoption("matrix_steps"))
    assert_right(model, results, tolerance=request.module.TOLERANCE)
    model.close()
    return results
