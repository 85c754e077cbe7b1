"""Host cost of updating attention arguments in a captured graph: attn_update against its peers.

Run by `nox -s bench -- attn-update`. Options (as `--name=value`): `--layers=64`,
`--sequences=16,256`, `--task-queues=0,1`, `--turns=24`. Each task queue setting has a process of
its own, under `cann-sim run` with kernels that do nothing, so that only the host is measured.
Prints a table and writes rows `{case, layers, sequences, task_queue, subject,
microseconds_per_step_median, microseconds_per_step_minimum, ratio_to_floor}` to
build/bench/attn-update.json.

A step is the replay and the update of all layers with changed lengths. The floor is the bare aclnn
call of every layer from C++ (attn_update_floor.cpp), with tensors described in advance and without
begin, end, record and replay. The row "operator calls from Python" shows the cost that torch adds
to that.
"""

from __future__ import annotations

import argparse
import ctypes
import functools
import gc
import importlib
import json
import os
import random
import statistics
import subprocess
import sys
import tempfile
import time
from dataclasses import asdict, dataclass
from pathlib import Path
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any, Literal

from rich.console import Console
from rich.table import Table

if TYPE_CHECKING:
    from collections.abc import Callable

    import torch


# By name: it is a peer here, and banned elsewhere.
TORCH_NPU = "torch_npu"
HEADS, KV_HEADS, HEAD_DIM, BLOCK_SIZE, BLOCKS_PER_SEQUENCE = 32, 8, 128, 128, 4
# Of one subject before the next one's, the first ones not counted.
STEPS_PER_TURN, STEPS_TO_WARM_UP = 30, 10
FLOOR = "floor: aclnn calls from C++"


@dataclass(frozen=True, kw_only=True)
class Row:
    """One measurement."""

    case: str
    layers: int
    sequences: int
    task_queue: int
    subject: str
    microseconds_per_step_median: float
    microseconds_per_step_minimum: float
    ratio_to_floor: float


@dataclass(frozen=True, kw_only=True)
class Workload:
    """The work that all subjects capture: equal layers over one paged cache.

    Attributes:
        layers: number of layers with updated attention.
        sequences: number of sequences decoded at once.
        arguments: arguments of attention, without lengths.
        stream: the stream of the subjects.
        before_attention: called before the attention of each captured layer.
        first_length: number of keys at the first step.
    """

    layers: int
    sequences: int
    arguments: dict[str, Any]
    stream: Any
    before_attention: Callable[[], object] = lambda: None
    first_length: int = 1

    def lengths(self, step: int) -> dict[str, list[int]]:
        """Return the lengths of a step; no two in a row are equal."""
        ends = list(range(1, self.sequences + 1))
        return {
            "actual_seq_lengths": ends,
            "actual_seq_lengths_kv": [
                self.first_length + (step + row) % 500 for row in range(self.sequences)
            ],
        }


def make_workload(layers: int, sequences: int) -> Workload:
    """Allocate the tensors of a workload; their values do not matter."""
    import torch

    def empty(*shape: int, dtype: torch.dtype = torch.bfloat16) -> torch.Tensor:
        return torch.zeros(shape, dtype=dtype, device="npu")

    cache = empty(sequences * BLOCKS_PER_SEQUENCE, BLOCK_SIZE, KV_HEADS * HEAD_DIM)
    arguments = {
        "query": empty(sequences, HEADS, HEAD_DIM),
        "key": cache,
        "value": cache,
        "atten_mask": empty(2048, 2048, dtype=torch.int8),
        "block_table": empty(sequences, BLOCKS_PER_SEQUENCE, dtype=torch.int32),
        "input_layout": "TND",
        "block_size": BLOCK_SIZE,
        "num_heads": HEADS,
        "num_key_value_heads": KV_HEADS,
        "scale": HEAD_DIM**-0.5,
        "sparse_mode": 3,
    }
    stream = importlib.import_module(TORCH_NPU).npu.Stream()
    return Workload(layers=layers, sequences=sequences, arguments=arguments, stream=stream)


def make_protocol(
    workload: Workload, *, fused: bool, replay_first: bool = True, waits: bool = False
) -> Callable[[int], None]:
    """Capture with only torch_npu's calls and return the step of the engines' Python loop.

    Args:
        workload: The work to capture.
        fused: Whether torch_npu's single call per layer is used.
        replay_first: Whether the replay is launched before the updates.
        waits: Whether the updates wait on the device for the previous replay; if not, the caller
            waits.
    """
    import torch

    torch_npu = importlib.import_module(TORCH_NPU)
    npu = torch_npu.npu
    operator = torch_npu.npu_fused_infer_attention_score.out
    one_call = torch_npu._C._npu_fused_infer_attention_score_out_graph
    first = {**workload.arguments, **workload.lengths(0)}
    workspace = torch_npu._npu_fused_infer_attention_score_get_max_workspace(**first)
    graph = npu.NPUGraph()
    tasks = []
    with npu.graph(graph):
        stream = npu.current_stream()
        for _ in range(workload.layers):
            event = npu.ExternalEvent()
            out = [torch.empty_like(workload.arguments["query"]), torch.empty(1, device="npu")]
            workload.before_attention()
            event.wait(stream)
            event.reset(stream)
            npu.graph_task_group_begin(stream)
            operator(**first, workspace=workspace, out=out)
            tasks.append((npu.graph_task_group_end(stream), event, out))
    update_stream = npu.Stream()
    # As the engine keeps it: what does not change in a tuple for each layer, the lengths in
    # metadata by layer name, one object for all layers that are alike.
    params = [(*workload.arguments.values(), *out) for _, _, out in tasks]
    metadata = SimpleNamespace(seq_lens_list=[], actual_seq_lengths_q=[])
    metadata_by_layer = {f"layers.{layer}": metadata for layer in range(workload.layers)}

    def loop(step: int) -> None:
        if waits:
            update_stream.wait_stream(npu.current_stream())
        if replay_first:
            graph.replay()
        lengths = workload.lengths(step)
        metadata.actual_seq_lengths_q = lengths["actual_seq_lengths"]
        metadata.seq_lens_list = lengths["actual_seq_lengths_kv"]
        with npu.stream(update_stream):
            for layer, param, (handle, event, _) in zip(
                metadata_by_layer, params, tasks, strict=True
            ):
                (
                    query,
                    key,
                    value,
                    mask,
                    table,
                    layout,
                    block_size,
                    num_heads,
                    num_kv_heads,
                    scale,
                    sparse_mode,
                    output,
                    softmax_lse,
                ) = param
                of_layer = metadata_by_layer[layer]
                npu.graph_task_update_begin(update_stream, handle)
                torch_npu.npu_fused_infer_attention_score.out(
                    query=query,
                    key=key,
                    value=value,
                    atten_mask=mask,
                    block_table=table,
                    input_layout=layout,
                    block_size=block_size,
                    num_heads=num_heads,
                    num_key_value_heads=num_kv_heads,
                    scale=scale,
                    sparse_mode=sparse_mode,
                    actual_seq_lengths=of_layer.actual_seq_lengths_q,
                    actual_seq_lengths_kv=of_layer.seq_lens_list,
                    workspace=workspace,
                    out=[output, softmax_lse],
                )
                npu.graph_task_update_end(update_stream)
                event.record(update_stream)
        if not replay_first:
            graph.replay()

    def loop_of_one_call(step: int) -> None:
        graph.replay()
        lengths = workload.lengths(step)
        with npu.stream(update_stream):
            for handle, event, out in tasks:
                arguments = {**workload.arguments, **lengths, "workspace": workspace, "out": out}
                one_call(update_stream, handle, event, **arguments)

    return loop_of_one_call if fused else loop


def make_npu_graph_update(workload: Workload) -> Callable[[int], None]:
    """Capture with torch_npu's own recording and return a step of `NPUGraph.update`."""
    torch_npu = importlib.import_module(TORCH_NPU)
    npu = torch_npu.npu
    graph = npu.NPUGraph()
    first = {**workload.arguments, **workload.lengths(0)}
    with npu.graph(graph, auto_dispatch_capture=True):
        kept = []
        for _ in range(workload.layers):
            workload.before_attention()
            kept.append(torch_npu.npu_fused_infer_attention_score(**first))

    def step(number: int, _: object = kept) -> None:
        graph.replay()
        graph.update(cpu_update_input=[workload.lengths(number)])

    return step


def make_ours(
    workload: Workload,
    *,
    fused: bool = True,
    updater: Literal["native", "kernels", "operators"] = "operators",
    worker: bool = False,
    keys: int = 1,
    changing: bool = True,
    tables: int = 0,
) -> Callable[[int], None]:
    """Capture with attn_update, under several keys, and return the step of the first key.

    Args:
        workload: What is captured.
        fused: Whether the device's fused call may be used.
        updater: Launches the updates.
        worker: Whether a thread of the lane launches them.
        keys: Captured keys.
        changing: Whether the lengths change from step to step.
        tables: Block tables that steps rebind in turn, each as a new view; 0 for the captured one,
            which stays.
    """
    from attn_update import (
        Recorder,
        StepParameters,
        UpdateLane,
        UpdatePlan,
    )
    from attn_update.kinds import FusedInferAttention
    from npu_graph_runtime import NpuDevice

    device = NpuDevice(0)
    recorder = Recorder(device)
    lane = UpdateLane(device, updater=updater, worker=worker)
    pool = device.create_memory_pool()
    kind = FusedInferAttention(rebind_block_table=bool(tables))
    captured: Any = workload.arguments["block_table"]
    others = [captured.clone() for _ in range(tables)]
    graphs = []
    for key in range(keys):
        graphs.append(device.create_graph())
        with recorder.recording(key), device.capture(graphs[-1], pool=pool):
            for layer in range(workload.layers):
                workload.before_attention()
                arguments = {**workload.arguments, **workload.lengths(0)}
                recorder.attention(f"layers.{layer}", kind, arguments)
    plan = UpdatePlan.compile(recorder, 0, fused=fused)

    def step(number: int) -> None:
        given: dict[str, Any] = workload.lengths(number if changing else 0)
        if tables:
            given["block_table"] = others[number % tables][:]
        parameters = StepParameters(key=0, groups={"default": given})
        lane.run(plan, parameters, graphs[0].replay)

    return step


def build_floor() -> ctypes.CDLL:
    """Compile the floor into a temporary folder and load it."""
    source = Path(__file__).with_name("attn_update_floor.cpp")
    with tempfile.TemporaryDirectory() as folder:
        target = Path(folder) / "floor.so"
        command = ["g++", "-O2", "-std=c++17", "-shared", "-fPIC", str(source), "-o", str(target)]
        subprocess.run([*command, "-ldl"], check=True, timeout=300)
        return ctypes.CDLL(str(target))


def make_floor(workload: Workload) -> Callable[[int], None]:
    """Return a step: one C++ function launches the aclnn calls of all layers on a stream."""
    import torch

    torch_npu = importlib.import_module(TORCH_NPU)
    library = build_floor()
    given = workload.arguments
    workspace = torch_npu._npu_fused_infer_attention_score_get_max_workspace(
        **given, **workload.lengths(0)
    )
    # aclDataType of acl/acl_base.h.
    types = {torch.float32: 0, torch.int8: 2, torch.int32: 3, torch.bfloat16: 27}
    create = library.floor_create
    create.restype = ctypes.c_void_p

    def make_layer() -> tuple[int, object]:
        out = [torch.empty_like(given["query"]), torch.empty(1, device="npu")]
        tensors = [given["query"], given["key"], given["atten_mask"], given["block_table"], *out]
        shapes = [(ctypes.c_int64 * tensor.dim())(*tensor.shape) for tensor in tensors]
        count = len(tensors)
        floor = create(
            (ctypes.c_void_p * count)(*(tensor.data_ptr() for tensor in tensors)),
            (ctypes.c_int * count)(*(types[tensor.dtype] for tensor in tensors)),
            (ctypes.c_void_p * count)(*(ctypes.addressof(shape) for shape in shapes)),
            (ctypes.c_uint64 * count)(*(tensor.dim() for tensor in tensors)),
            ctypes.c_void_p(workspace.data_ptr()),
            ctypes.c_uint64(workspace.numel() * workspace.element_size()),
        )
        if not floor:
            raise RuntimeError("the floor found no aclnn calls in the loaded libraries")
        return floor, out

    made = [make_layer() for _ in range(workload.layers)]
    floors = (ctypes.c_void_p * workload.layers)(*(floor for floor, _ in made))
    stream = torch_npu.npu.SyncLaunchStream(device=0)
    address = stream.npu_stream
    arrays = ctypes.c_int64 * workload.sequences

    def step(number: int, _: object = (made, workspace, stream)) -> None:
        lengths = workload.lengths(number)
        status = library.floor_step(
            floors,
            workload.layers,
            arrays(*lengths["actual_seq_lengths"]),
            arrays(*lengths["actual_seq_lengths_kv"]),
            ctypes.c_uint64(workload.sequences),
            ctypes.c_int64(HEADS),
            ctypes.c_int64(KV_HEADS),
            ctypes.c_double(HEAD_DIM**-0.5),
            ctypes.c_int64(BLOCK_SIZE),
            ctypes.c_void_p(address),
        )
        if status != 0:
            raise RuntimeError(f"the aclnn calls of the floor failed with status {status}")

    return step


def make_operator_calls(workload: Workload) -> Callable[[int], None]:
    """Return only the operator calls, with as many arguments bound in advance as possible."""
    import torch

    torch_npu = importlib.import_module(TORCH_NPU)
    operator = torch.ops.npu.npu_fused_infer_attention_score.out
    workspace = torch_npu._npu_fused_infer_attention_score_get_max_workspace(
        **workload.arguments, **workload.lengths(0)
    )
    out = [torch.empty_like(workload.arguments["query"]), torch.empty(1, device="npu")]
    bound = {**workload.arguments, "workspace": workspace, "out": out}

    def step(number: int) -> None:
        bound.update(workload.lengths(number))
        for _ in range(workload.layers):
            operator(**bound)

    return step


SUBJECTS: dict[tuple[str, str], Callable[[Workload], Callable[[int], None]]] = {
    ("update", FLOOR): make_floor,
    ("update", "operator calls from Python"): make_operator_calls,
    ("update", "Python loop (as vLLM-Ascend)"): functools.partial(make_protocol, fused=False),
    ("update", "NPUGraph.update"): make_npu_graph_update,
    ("update", "fused C call in a Python loop"): functools.partial(make_protocol, fused=True),
    ("update", "attn_update, operator calls"): functools.partial(make_ours, fused=False),
    ("update", "attn_update, fused C call"): functools.partial(make_ours),
    ("update", "attn_update, kernels from Python"): functools.partial(make_ours, updater="kernels"),
    ("update", "attn_update, native"): functools.partial(make_ours, updater="native"),
    ("update, what the caller waits for", "attn_update, kernels from Python, worker thread"): (
        functools.partial(make_ours, updater="kernels", worker=True)
    ),
    ("update, what the caller waits for", "attn_update, native, worker thread"): functools.partial(
        make_ours, updater="native", worker=True
    ),
    ("update, 8 keys captured", "attn_update, fused C call"): functools.partial(make_ours, keys=8),
    ("update, 8 keys captured", "attn_update, kernels from Python"): functools.partial(
        make_ours, updater="kernels", keys=8
    ),
    ("update, 8 keys captured", "attn_update, native"): functools.partial(
        make_ours, updater="native", keys=8
    ),
    ("update, block table rebound", "attn_update, native, new view of one"): functools.partial(
        make_ours, updater="native", tables=1
    ),
    ("update, block table rebound", "attn_update, native, two in turn"): functools.partial(
        make_ours, updater="native", tables=2
    ),
    ("update, block table rebound", "attn_update, kernels from Python, two in turn"): (
        functools.partial(make_ours, updater="kernels", tables=2)
    ),
    ("lengths unchanged", "attn_update, fused C call"): functools.partial(
        make_ours, changing=False
    ),
    ("lengths unchanged", "attn_update, native"): functools.partial(
        make_ours, updater="native", changing=False
    ),
}


def measure(steps: list[Callable[[int], None]], turns: int) -> list[list[float]]:
    """Measure the microseconds of each subject's steps; in every round all subjects take turns.

    A turn begins with steps that are not counted, so that no subject is affected by the cache
    contents
    of the previous one, as in a decode loop. Each step begins with an idle device. The order of a
    round
    is random, so that periodic noise of the machine does not always affect the same subject.
    """
    npu = importlib.import_module(TORCH_NPU).npu
    microseconds: list[list[float]] = [[] for _ in steps]
    subjects = list(zip(steps, microseconds, strict=True))
    order = random.Random(0)
    gc.collect()
    gc.disable()
    for turn in range(turns + 2):
        for step, times in order.sample(subjects, len(subjects)):
            for number in range(STEPS_PER_TURN):
                begin = time.perf_counter()
                step(turn * STEPS_PER_TURN + number)
                elapsed = (time.perf_counter() - begin) * 1e6
                npu.synchronize()
                if number >= STEPS_TO_WARM_UP and turn > 1:
                    times.append(elapsed)
    gc.enable()
    return microseconds


def measure_process(layers: int, sequences: list[int], turns: int) -> None:
    """Measure all subjects in this process and print the rows as JSON."""
    npu = importlib.import_module(TORCH_NPU).npu
    npu.config.allow_internal_format = False
    npu.set_compile_mode(jit_compile=False)
    task_queue = int(os.environ["TASK_QUEUE_ENABLE"])
    rows = []
    for count in sequences:
        workload = make_workload(layers, count)
        with npu.stream(workload.stream):
            steps = [make(workload) for make in SUBJECTS.values()]
            times = measure(steps, turns)
        medians = [statistics.median(each) for each in times]
        floor = medians[list(SUBJECTS).index(("update", FLOOR))]
        rows += [
            Row(
                case=case,
                layers=layers,
                sequences=count,
                task_queue=task_queue,
                subject=subject,
                microseconds_per_step_median=round(median, 1),
                microseconds_per_step_minimum=round(min(each), 1),
                ratio_to_floor=round(median / floor, 3),
            )
            for (case, subject), median, each in zip(SUBJECTS, medians, times, strict=True)
        ]
    print("ROWS", json.dumps([asdict(row) for row in rows]), flush=True)


def run_processes(options: argparse.Namespace) -> list[Row]:
    """Run one process for each task queue setting and return all rows."""
    rows = []
    for task_queue in options.task_queues.split(","):
        environment = {
            **os.environ,
            "CANN_SIM_KERNELS": "null",
            "TASK_QUEUE_ENABLE": task_queue,
        }
        script = [sys.executable, __file__, "--in-this-process"]
        script += [f"--layers={options.layers}", f"--sequences={options.sequences}"]
        script += [f"--turns={options.turns}"]
        launcher = str(Path(sys.executable).with_name("cann-sim"))
        result = subprocess.run(
            [launcher, "run", "--", *script],
            env=environment,
            stdout=subprocess.PIPE,
            text=True,
            check=True,
            timeout=1500,
        )
        line = next(line for line in result.stdout.splitlines() if line.startswith("ROWS "))
        rows += [Row(**row) for row in json.loads(line.removeprefix("ROWS "))]
    return rows


def print_table(rows: list[Row]) -> None:
    """Print the rows, one table for each setting."""
    for setting in dict.fromkeys((row.layers, row.sequences, row.task_queue) for row in rows):
        layers, sequences, task_queue = setting
        title = f"{layers} layers, {sequences} sequences, TASK_QUEUE_ENABLE={task_queue}"
        table = Table("case", "subject", "us a step", "least", "of floor", title=title)
        for row in rows:
            if (row.layers, row.sequences, row.task_queue) == setting:
                microseconds = f"{row.microseconds_per_step_median:,.0f}"
                least = f"{row.microseconds_per_step_minimum:,.0f}"
                ratio = f"{row.ratio_to_floor:.2f}"
                table.add_row(row.case, row.subject, microseconds, least, ratio)
        Console(width=100).print(table)


def main() -> None:
    """Run the benchmark, or one process of it."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--layers", type=int, default=64)
    parser.add_argument("--sequences", default="16,256")
    parser.add_argument("--task-queues", default="0,1")
    parser.add_argument("--turns", type=int, default=24)
    parser.add_argument("--in-this-process", action="store_true")
    options = parser.parse_args()
    if options.in_this_process:
        counts = [int(count) for count in options.sequences.split(",")]
        measure_process(options.layers, counts, options.turns)
        return
    rows = run_processes(options)
    print_table(rows)
    path = Path(__file__).parent.parent / "build" / "bench" / "attn-update.json"
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(json.dumps([asdict(row) for row in rows], indent=1) + "\n")


if __name__ == "__main__":
    main()
