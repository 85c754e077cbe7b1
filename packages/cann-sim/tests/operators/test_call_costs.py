"""Duration of kernels on the virtual clock: bytes and operations, depending on the arguments."""

from __future__ import annotations

import json
from typing import Any

import pytest

PROGRAM = """
import json, cann_sim
cann_sim.activate()
import torch, torch_npu
npu = torch.npu
npu.set_compile_mode(jit_compile=False)
npu.config.allow_internal_format = False
found = {"constants": {name: row.value for name, row in cann_sim.clock_constants().items()}}

def empty(*shape, dtype=torch.bfloat16):
    return torch.empty(shape, dtype=dtype, device="npu")

def time(name, call):
    begin, end = (npu.Event(enable_timing=True) for _ in range(2))
    npu.synchronize()
    begin.record()
    call()
    end.record()
    npu.synchronize()
    found[name] = begin.elapsed_time(end) * 1000

x, weight, out = empty(16, 5120), empty(5120, 17408), empty(16, 17408)
time("product", lambda: torch.mm(x, weight, out=out))
time("product with operations", lambda: torch.mm(empty(4096, 4096), empty(4096, 4096),
                                                  out=empty(4096, 4096)))
time("product in float32", lambda: torch.mm(empty(4096, 4096, dtype=torch.float32),
    empty(4096, 4096, dtype=torch.float32), out=empty(4096, 4096, dtype=torch.float32)))
time("product of a batch", lambda: torch.bmm(empty(8, 64, 128), empty(8, 128, 256),
                                              out=empty(8, 64, 256)))
int8 = lambda *shape: empty(*shape, dtype=torch.int8)
scale = empty(4096, dtype=torch.float32)
time("product in int8", lambda: torch_npu.npu_quant_matmul(
    int8(4096, 4096), int8(4096, 4096), scale, pertoken_scale=scale, output_dtype=torch.bfloat16))
tokens, groups = empty(8, 2048), torch.full((64,), 8, device="npu", dtype=torch.int64)
time("product of experts", lambda: torch_npu.npu_grouped_matmul(
    [tokens], [empty(64, 2048, 1024)], group_list=groups, split_item=3, group_type=0,
    group_list_type=1))

def attention(lengths, queries, sparse_mode):
    ends = [sum(queries[:row + 1]) for row in range(len(queries))]
    blocks = sum(lengths) // 128 + len(lengths)
    cache = empty(blocks, 128, 8 * 128)
    table = torch.zeros(len(lengths), blocks, dtype=torch.int32, device="npu")
    mask = torch.ones(2048, 2048, dtype=torch.int8, device="npu")
    values = empty(blocks, 128, 8 * 128)
    return lambda: torch_npu.npu_fused_infer_attention_score(
        empty(sum(queries), 40, 128), cache, values, atten_mask=mask, block_table=table,
        actual_seq_lengths=ends, actual_seq_lengths_kv=lengths, input_layout="TND", num_heads=40,
        num_key_value_heads=8, block_size=128, sparse_mode=sparse_mode, scale=0.1)

time("decode", attention([4096] * 16, [1] * 16, 3))
time("decode of other lengths", attention([1024] * 8 + [3072] * 8, [1] * 16, 3))
time("prefill", attention([4096], [4096], 3))

large, half = empty(2**25), empty(2**24)
time("addition", lambda: torch.add(half, half, out=empty(2**24)))
time("addition in place", lambda: half.add_(half))
time("addition of more than the cache", lambda: torch.add(empty(2**26), empty(2**26),
                                                          out=empty(2**26)))
time("copy", lambda: large.copy_(empty(2**25)))
rows = empty(16, dtype=torch.int64)
time("rows of a table", lambda: torch.nn.functional.embedding(rows, empty(151936, 5120)))
time("rows into a cache", lambda: torch_npu.npu_scatter_nd_update_(
    empty(10000, 1024), rows.view(16, 1), empty(16, 1024)))
pinned = torch.empty(2**22, dtype=torch.uint8).pin_memory()
time("copy to the device", lambda: empty(2**22, dtype=torch.uint8).copy_(pinned, non_blocking=True))
print(json.dumps(found))
"""

BF16 = 2


@pytest.fixture(name="found", scope="module")
def _found(run_forked: Any) -> dict[str, Any]:
    environment = {
        "CANN_SIM_CLOCK": "given:0",
        "CANN_SIM_KERNELS": "null",
        "CANN_SIM_MEMORY_GB": "64",
        "TASK_QUEUE_ENABLE": "0",
    }
    done = run_forked(PROGRAM, environment=environment)
    assert done.status == 0, done.errors
    found: dict[str, Any] = json.loads(done.output)
    return found


class Device:
    """The constants, in microseconds."""

    def __init__(self, constants: dict[str, float]) -> None:
        self.constants = constants
        # Of the record at the end.
        self.around = (constants["kernel_overhead"] + constants["control_task"]) / 1000

    def moving(self, memory: float = 0.0, *, cached: float = 0.0) -> float:
        return 1e6 * (
            memory / self.constants["hbm_bandwidth"] + cached / self.constants["l2_bandwidth"]
        )

    def products(self, operations: float) -> float:
        return 1e6 * operations / self.constants["cube_rate"]

    def elements(self, operations: float) -> float:
        return 1e6 * operations / self.constants["vector_rate"]


@pytest.fixture(name="device")
def _device(found: dict[str, Any]) -> Device:
    return Device(found["constants"])


def near(microseconds: float) -> Any:
    """Within the float32 of elapsed times, and the bytes of scales and lengths."""
    return pytest.approx(microseconds, rel=2e-3, abs=0.02)


def test_product_of_few_rows_reads_its_weight_from_memory(
    found: dict[str, Any], device: Device
) -> None:
    moving = device.moving(5120 * 17408 * BF16, cached=16 * (5120 + 17408) * BF16)
    assert found["product"] == near(device.around + moving)


def test_product_of_many_rows_computes(found: dict[str, Any], device: Device) -> None:
    computing = device.products(2 * 4096**3)
    assert found["product with operations"] == near(device.around + computing)
    # As float32 and bfloat16 were measured.
    assert found["product in float32"] == near(device.around + 3.73 * computing)


def test_product_in_int8_computes_twice_as_fast(found: dict[str, Any], device: Device) -> None:
    assert found["product in int8"] == near(device.around + device.products(2 * 4096**3) / 2)


def test_batch_is_taken_from_the_cache(found: dict[str, Any], device: Device) -> None:
    moving = device.moving(cached=8 * (64 * 128 + 128 * 256 + 64 * 256) * BF16)
    computing = device.products(2 * 8 * 64 * 128 * 256)
    assert found["product of a batch"] == near(device.around + max(moving, computing))


def test_as_many_experts_are_read_as_there_are_rows(found: dict[str, Any], device: Device) -> None:
    moving = device.moving(8 * 2048 * 1024 * BF16, cached=8 * (2048 + 1024) * BF16)
    assert found["product of experts"] == near(device.around + moving)


def test_decode_reads_keys_and_values_by_its_lengths(found: dict[str, Any], device: Device) -> None:
    cached = 2 * 16 * 40 * 128 * BF16
    for name, keys in (("decode", 16 * 4096), ("decode of other lengths", 8 * 1024 + 8 * 3072)):
        moving = device.moving(keys * 8 * 2 * 128 * BF16, cached=cached)
        assert found[name] == near(device.around + moving)


def test_prefill_computes_what_a_causal_mask_leaves(found: dict[str, Any], device: Device) -> None:
    scores = 40 * (4096 * 4096 - 4096 * 4095 / 2)
    computing = max(device.products(2 * scores * 256), device.elements(8 * scores))
    assert found["prefill"] == near(device.around + computing)


def test_other_kernels_move_their_tensors(found: dict[str, Any], device: Device) -> None:
    moved = 3 * 2**24 * BF16
    assert found["addition"] == near(device.around + device.moving(cached=moved))
    assert found["addition in place"] == near(device.around + device.moving(cached=moved))
    large = device.moving(3 * 2**26 * BF16)
    assert found["addition of more than the cache"] == near(device.around + large)
    copied = device.moving(cached=2 * 2**25 * BF16)
    assert found["copy"] == near(device.around + copied)


def test_of_tables_and_caches_the_rows_are_moved(found: dict[str, Any], device: Device) -> None:
    row_bytes = 16 * (5120 * BF16 + 8)
    assert found["rows of a table"] == near(device.around + device.moving(cached=2 * row_bytes))
    row_bytes = 16 * (1024 * BF16 + 8)
    assert found["rows into a cache"] == near(device.around + device.moving(cached=2 * row_bytes))


def test_copy_between_host_and_device_uses_the_link(found: dict[str, Any], device: Device) -> None:
    link = 2**22 / device.constants["host_link"] * 1e6
    assert found["copy to the device"] == near(device.around + link)
