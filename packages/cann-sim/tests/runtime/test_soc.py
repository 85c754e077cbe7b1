"""The simulated device as another system on a chip (CANN_SIM_SOC)."""

from __future__ import annotations

from typing import Any, Final

import pytest

from cann_sim.settings import SOCS

ACTIVE: Final = """
import cann_sim; cann_sim.activate()
import torch, torch_npu
torch_npu.npu.set_compile_mode(jit_compile=False)
torch_npu.npu.config.allow_internal_format = False
def tried(call):
    try:
        result = call()
        torch_npu.npu.synchronize()
        return result
    except RuntimeError as error:
        return "refused: " + str(error)
"""
CAPTURE: Final = """
graph, static = torch.npu.NPUGraph(), torch.ones(2, device="npu")
def capture():
    with torch.npu.graph(graph):
        static.add_(1)
    graph.replay()
    return static.sum().item()
print("capture", tried(capture))
"""
ROTATE: Final = """
x, cos = torch.ones(1, 2, 1, 64).half().npu(), torch.ones(1, 2, 1, 64).half().npu()
print("rotation", tried(lambda: torch_npu.npu_rotary_mul(x, cos, cos).shape))
"""
SUM: Final = 'print("sum", tried(lambda: torch.ones(4, dtype=torch.{dtype}).npu().sum().item()))\n'
ATTEND: Final = """
x = torch.ones(1, 1, 1, 64).half().npu()
attend = torch_npu.npu_fused_infer_attention_score
print("attention", tried(lambda: attend(x, x, x, num_heads=1, input_layout="BNSD")[0].shape))
"""
LAST_ERROR: Final = """
import ctypes
runtime = ctypes.CDLL("libascendcl.so")
runtime.aclGetRecentErrMsg.restype = ctypes.c_char_p
stream = torch.npu.Stream()
print("status", runtime.aclmdlRICaptureBegin(ctypes.c_void_p(stream.npu_stream), 0))
print(runtime.aclGetRecentErrMsg().decode())
"""
FEATURES: Final = ACTIVE + SUM.format(dtype="float16") + SUM.format(dtype="bfloat16") + CAPTURE

CORES: Final = {"Ascend910B1": 24, "Ascend910B3": 20, "Ascend910_9391": 24, "Ascend310P3": 8}


@pytest.mark.parametrize("soc", SOCS)
def test_device_has_the_name_and_the_cores_of_its_soc(run_forked: Any, soc: str) -> None:
    source = "print(torch_npu.npu.get_device_name(0))\n"
    source += "print(torch_npu.npu.get_device_properties(0).cube_core_num)\n"
    done = run_forked(ACTIVE + source, environment={"CANN_SIM_SOC": soc})
    assert done.output.split() == [soc, str(CORES[soc])], done.errors


@pytest.mark.parametrize("soc", ["Ascend910B3", "Ascend910_9391"])
def test_soc_of_the_same_generation_has_the_same_features(run_forked: Any, soc: str) -> None:
    done = run_forked(FEATURES + ROTATE + ATTEND, environment={"CANN_SIM_SOC": soc})
    assert done.output.splitlines() == [
        "sum 4.0", "sum 4.0", "capture 4.0", "rotation torch.Size([1, 2, 1, 64])",
        "attention torch.Size([1, 1, 1, 64])",
    ], done.errors  # fmt: skip


def test_inference_product_refuses_what_its_documents_leave_out(run_forked: Any) -> None:
    environment = {"CANN_SIM_SOC": "Ascend310P3", "TASK_QUEUE_ENABLE": "0"}
    done = run_forked(FEATURES + ATTEND + LAST_ERROR, environment=environment)
    text = done.output
    assert text.startswith("sum 4.0\nsum refused: "), done.errors
    for said in (
        "expected dtypes that the simulated Ascend310P3 has, found bfloat16; use float16",
        "capture refused: ",  # torch_npu takes the status for a hint, and then misses the capture
        "status 207000\naclmdlRICaptureBegin: the simulated Ascend310P3 captures nothing; CANN",
        "aclnnFusedInferAttentionScoreV3: the simulated Ascend310P3 does not have this operator",
    ):
        assert said in text, text


def test_unknown_soc_is_refused_with_the_names_that_are_known(run_forked: Any) -> None:
    done = run_forked(ACTIVE, environment={"CANN_SIM_SOC": "Ascend910B9"})
    assert "CANN_SIM_SOC: expected " + " or ".join(SOCS) in done.errors
    assert "found 'Ascend910B9'" in done.errors
