"""The list of simulated operators."""

from __future__ import annotations

from importlib.util import find_spec
from pathlib import Path

import pytest

import cann_sim
from cann_sim.cli import main
from cann_sim.inventory.requested_operators import requested_operators
from cann_sim.inventory.simulated_operators import (
    simulated_atb_operations,
    simulated_compiled_operators,
    simulated_operators,
)


def libraries() -> tuple[Path, ...]:
    """Return the libraries that define the operators, and last that of ATB's operations."""
    return cann_sim.build().deferred_paths


def installed_library(name: str = "libtorch_npu.so") -> Path:
    spec = find_spec("torch_npu")
    assert spec is not None
    assert spec.origin is not None
    return Path(spec.origin).parent / "lib" / name


def test_simulated_operators_are_those_with_a_kernel() -> None:
    names = simulated_operators(libraries())
    assert {"aclnnAdd", "aclnnRmsNorm", "aclnnFusedInferAttentionScoreV3"} <= set(names)
    assert not {"aclnnFusedLinearOnlineMaxSum", "aclnnNsaCompressGrad"} & set(names)
    assert list(names) == sorted(set(names))


@pytest.mark.absent_in_torch_npu("2.10", reason="it asks for other operators")
def test_simulated_operators_are_all_looked_up_by_torch_npu() -> None:
    requested = requested_operators([installed_library()])
    assert set(simulated_operators(libraries())) <= set(requested)


def test_simulated_operators_of_another_file_are_an_error(tmp_path: Path) -> None:
    other = tmp_path / "libother.so"
    other.write_text("not a library")
    with pytest.raises(ValueError, match="expected a 64-bit little-endian ELF file"):
        simulated_operators([other])


def test_simulated_atb_operations_are_those_that_torch_npu_links_to() -> None:
    names = simulated_atb_operations(libraries()[-1])
    assert {"AtbMLA", "PagedAttentionOperation", "SelfAttentionOperation"} <= set(names)
    installed = installed_library("libop_plugin_atb.so").read_bytes()
    for name in names:
        asked = name.removesuffix("Operation") + ("Param" if name.endswith("Operation") else "")
        assert asked.encode() in installed, name


def test_simulated_compiled_operators_are_those_of_the_older_api() -> None:
    names = simulated_compiled_operators(libraries())
    assert {"StrideAdd", "BatchMatMul"} <= set(names)
    assert list(names) == sorted(set(names))
    assert not any(name.startswith("aclnn") for name in names)


def test_ops_command_lists_them(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["ops"]) == 0
    *operators, operations = libraries()
    expected = simulated_operators(operators) + simulated_compiled_operators(operators)
    expected += simulated_atb_operations(operations)
    assert tuple(capsys.readouterr().out.split()) == expected
