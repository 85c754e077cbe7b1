"""The Python packages of CANN itself."""

from __future__ import annotations

import os
import sys
from typing import Any

import pytest

COPY = """
import torch, acl
from acl.rt import memcpy
source, target = torch.arange(8, dtype=torch.int32).npu(), torch.zeros(8, dtype=torch.int32)
torch.npu.synchronize()
print(memcpy(target.data_ptr(), 32, source.data_ptr(), 32, 2), target.tolist())
print(acl.rt.memcpy(target.data_ptr(), 16, source.data_ptr(), 32, 2))
try:
    acl.rt.malloc
except AttributeError as error:
    print(error)
"""
DEVICE_INFO = """
import torch, acl
# From acl/acl_rt.h: ACL_DEV_ATTR_VECTOR_CORE_NUM; and a number that stands for nothing simulated.
value, status = acl.rt.get_device_info(0, 201)
print(value == torch.npu.get_device_properties(0).vector_core_num, status)
value, status = acl.rt.get_device_info(0, 601)
print(value, status != 0)
"""
ACTIVATE = "import cann_sim; cann_sim.activate()"
RUN = (sys.executable, "-m", "cann_sim", "run", "--", sys.executable, "-c")


@pytest.mark.parametrize("launched", [False, True])
def test_pyacl_copies_memory_and_names_what_it_has_not(run_python: Any, launched: bool) -> None:
    program = {"program": RUN} if launched else {}
    source = COPY if launched else ACTIVATE + COPY
    done = run_python(source, environment={"TORCH_DEVICE_BACKEND_AUTOLOAD": None}, **program)
    assert "0 [0, 1, 2, 3, 4, 5, 6, 7]\n107000\n" in done.output, done.errors
    assert "acl.rt.malloc of pyACL is not simulated" in done.output


def test_pyacl_reads_a_property_and_refuses_one_that_is_not_simulated(run_python: Any) -> None:
    environment = {"TORCH_DEVICE_BACKEND_AUTOLOAD": None}
    done = run_python(DEVICE_INFO, environment=environment, program=RUN)
    assert done.output.endswith("True 0\n0 True\n"), done.output + done.errors


def test_package_of_the_caller_precedes_the_simulated_one(run_python: Any, tmp_path: Any) -> None:
    (tmp_path / "acl.py").write_text("print('the caller')")
    path = os.pathsep.join([str(tmp_path), os.environ.get("PYTHONPATH", "")])
    done = run_python("import acl", program=RUN, environment={"PYTHONPATH": path})
    assert done.output == "the caller\n", done.errors
