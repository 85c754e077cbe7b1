"""The table of kernels that torch_npu's profiler writes."""

from __future__ import annotations

import csv

from npu_graph_check.probes.times.kernel_times import medians


def test_each_type_of_kernel_has_its_calls_and_median() -> None:
    table = (
        "Device_id,Name,Type,Accelerator Core,Start Time(us),Duration(us),Wait Time(us)\n"
        "0,aclnnAdd_1,Add,AI_VECTOR_CORE,1.0,5.5,0\n"
        "0,aclnnMatmul_1,MatMulV3,AI_CORE,8.0,20.25,1\n"
        "0,aclnnAdd_2,Add,AI_VECTOR_CORE,30.0,6.5,0\n"
        "0,aclnnAdd_3,Add,AI_VECTOR_CORE,40.0,100.0,0\n"
    )

    assert medians(csv.DictReader(table.splitlines())) == {
        "Add": (3, 6.5),
        "MatMulV3": (1, 20.25),
    }
