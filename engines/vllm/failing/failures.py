"""vLLM-Ascend on simulated CANN, when something fails: an error that says so, and never a hang.

Run as ``cann-sim run -- python -m engines.vllm.failing.failures``. Every case is a process forked
from one that has imported vLLM, with an engine of its own, and is given a time. What each ended
with goes to build/engines/vllm-failures.json.
"""

from __future__ import annotations

import argparse
import dataclasses
import json
import logging
import multiprocessing
import os
import sys
import tempfile
import traceback
from pathlib import Path
from typing import TYPE_CHECKING, Any

from engines.load.decode_load import compare_load
from engines.running.session_run import ROOT
from engines.vllm.session import Variant, generate, make_engine, runner_of
from engines.vllm.without_device import stand_ins
from rich.console import Console
from rich.markup import escape
from rich.table import Table

import cann_sim

if TYPE_CHECKING:
    from collections.abc import Callable

OUT = ROOT / "build" / "engines" / "vllm-failures.json"
MOST_SECONDS = 300
OURS = Variant(name="ours", dtype="bfloat16", num_layers=2, key=True)


@dataclasses.dataclass(frozen=True, kw_only=True)
class Case:
    """Something that fails in an engine, or that our package does not cover.

    Attributes:
        name: In the table.
        run: Called with the folder of a checkpoint; returns the text to report, or raises.
        expected: Must occur in the returned text or the error.
    """

    name: str
    run: Callable[[Path], str]
    expected: str


def fail_update(checkpoint: Path) -> str:
    """Make the third update of a launch fail while the engine decodes."""
    llm = make_engine(OURS, checkpoint)
    prompts, _ = compare_load(5)
    generate(llm, prompts, [4] * len(prompts))
    with cann_sim.injected_faults("task_update:3"):
        generate(llm, prompts, [8] * len(prompts))
    return "no error"


def fail_update_by_kernels(checkpoint: Path) -> str:
    """Do the same without the native updater."""
    variant = dataclasses.replace(OURS, key={"updater": "kernels"})
    llm = make_engine(variant, checkpoint)
    with cann_sim.injected_faults("task_update:3"):
        generate(llm, compare_load(5)[0], [8] * 5)
    return "no error"


def fail_capture(checkpoint: Path) -> str:
    """Make the end of the second capture fail while the engine starts."""
    with cann_sim.injected_faults("capture_end:2"):
        make_engine(OURS, checkpoint)
    return "no error"


def fail_capture_by_runtime(checkpoint: Path) -> str:
    """Do the same where npu-graph-runtime captures."""
    variant = dataclasses.replace(OURS, key={"graphs": True})
    with cann_sim.injected_faults("capture_end:2"):
        make_engine(variant, checkpoint)
    return "no error"


def fail_replay_by_runtime(checkpoint: Path) -> str:
    """Give a graph of npu-graph-runtime another buffer than it was captured with."""
    llm = make_engine(dataclasses.replace(OURS, key={"graphs": True}), checkpoint)
    runner = runner_of(llm)
    forward = runner._model_forward

    def elsewhere(num_tokens: int, input_ids: Any, *args: Any, **kwargs: Any) -> Any:
        return forward(num_tokens, input_ids.clone(), *args, **kwargs)

    runner._model_forward = elsewhere
    generate(llm, compare_load(5)[0], [4] * 5)
    return "no error"


def fail_kernel(checkpoint: Path, key: object = True) -> str:
    """Make an attention kernel fail in the third replay: the device stops, and nothing hangs."""
    llm = make_engine(dataclasses.replace(OURS, key=key), checkpoint)
    prompts, _ = compare_load(5)
    generate(llm, prompts, [4] * len(prompts))
    # One of two layers, and one of the prefill before the replays.
    with cann_sim.injected_faults("run(aclnnFusedInferAttentionScoreV3):8"):
        try:
            generate(llm, prompts, [8] * len(prompts))
        except RuntimeError as error:
            return f"the engine ends: {' '.join(str(error).split())}"
    return "no error"


def fail_kernel_by_runtime(checkpoint: Path) -> str:
    """Do the same in a graph of npu-graph-runtime."""
    return fail_kernel(checkpoint, {"graphs": True})


def find_other_version(checkpoint: Path) -> str:
    """Make the engine report another version."""
    with tempfile.TemporaryDirectory() as folder:
        metadata = Path(folder) / "vllm_ascend-0.99.0.dist-info" / "METADATA"
        metadata.parent.mkdir()
        metadata.write_text("Metadata-Version: 2.1\nName: vllm-ascend\nVersion: 0.99.0\n")
        sys.path.insert(0, folder)
        make_engine(OURS, checkpoint)
    return "no error"


def find_unknown_option(checkpoint: Path) -> str:
    """Set the key to an unknown value."""
    make_engine(dataclasses.replace(OURS, key={"updated": "native"}), checkpoint)
    return "no error"


def find_uncovered_attention(checkpoint: Path) -> str:
    """Give one layer an attention that is not covered: the engine updates it itself."""
    # In the engine's own order: its modules import each other.
    from vllm_ascend.worker.worker import NPUWorker  # noqa: F401  # isort: skip
    from vllm_ascend.attention.attention_v1 import AscendAttentionBackendImpl

    from vllm_npu_graph.v0_23.model_runner import NpuGraphModelRunner

    told: list[str] = []
    handler = logging.Handler()
    handler.emit = lambda record: told.append(record.getMessage())  # type: ignore[method-assign]
    logging.getLogger("vllm.npu_graph").addHandler(handler)

    class Other(AscendAttentionBackendImpl):  # type: ignore[misc]
        """An implementation that our package does not know."""

    load = NpuGraphModelRunner.__mro__[1].load_model

    def load_model(self: Any, *args: Any, **kwargs: Any) -> None:
        load(self, *args, **kwargs)
        layers = self.compilation_config.static_forward_context.values()
        impl = [layer.impl for layer in layers if hasattr(layer, "impl")][-1]
        impl.__class__ = Other

    NpuGraphModelRunner.__mro__[1].load_model = load_model
    llm = make_engine(OURS, checkpoint)
    tokens = generate(llm, compare_load(5)[0], [4] * 5)
    assert runner_of(llm).attention_update is None
    left = [text for text in told if "leaves attention update to the engine" in text]
    return f"{len(left)} warning, {sum(map(len, tokens))} tokens: {left[0]}"


CASES = (
    Case(name="update fails, native", run=fail_update, expected="attn_update.errors.UpdateError"),
    Case(
        name="update fails, kernels",
        run=fail_update_by_kernels,
        expected="attn_update.errors.UpdateError",
    ),
    Case(name="capture fails", run=fail_capture, expected="injected fault"),
    Case(
        name="capture fails, graphs",
        run=fail_capture_by_runtime,
        expected="npu_graph_runtime.errors.",
    ),
    Case(name="kernel fails", run=fail_kernel, expected="the engine ends: "),
    Case(name="kernel fails, graphs", run=fail_kernel_by_runtime, expected="the engine ends: "),
    Case(
        name="input elsewhere, graphs",
        run=fail_replay_by_runtime,
        expected="npu_graph_runtime.errors.InputAddressError: ",
    ),
    Case(
        name="other version",
        run=find_other_version,
        expected="EngineVersionError: loading vllm-npu-graph: tried with vllm-ascend 0.23.0 "
        "and vllm 0.23.0, ",
    ),
    Case(
        name="unknown option",
        run=find_unknown_option,
        expected="OptionsError: reading 'npu_graph' of additional_config",
    ),
    Case(
        name="uncovered attention",
        run=find_uncovered_attention,
        expected="1 warning, 20 tokens: vllm-npu-graph leaves attention update to the engine",
    ),
)


def run_case(case: Case, checkpoint: Path, log: Path, out: Any) -> None:
    """Run a case in this process, which is its own, and send how it ended."""
    with log.open("w") as stream:
        os.dup2(stream.fileno(), 1)
        os.dup2(stream.fileno(), 2)
    try:
        told = case.run(checkpoint)
    except BaseException:
        told = traceback.format_exc()
        print(told)
    out.send(told)
    sys.stdout.flush()
    os._exit(0)


def run_apart(case: Case, number: int, checkpoint: Path) -> dict[str, Any]:
    """Run a case in a process forked from this one; return its row."""
    context = multiprocessing.get_context("fork")
    receive, send = context.Pipe(duplex=False)
    log = OUT.with_name(f"{OUT.stem}-{number}.log")
    process = context.Process(target=run_case, args=(case, checkpoint, log, send))
    process.start()
    send.close()
    told = f"a hang: nothing after {MOST_SECONDS} s; see {log}"
    if receive.poll(MOST_SECONDS):
        try:
            told = receive.recv()
        except EOFError:
            told = f"the process ended without a word; see {log}"
    else:
        process.kill()
    process.join()
    lines = [line for line in told.splitlines() if case.expected in line]
    shown = (lines or told.strip().splitlines()[-1:])[-1]
    return {"case": case.name, "right": bool(lines), "told": shown}


def main() -> int:
    """Run all cases; return 1 if one did not end as it should."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--only", nargs="*", help="names of cases")
    only = parser.parse_args().only
    stand_ins.set_environment()
    kept = stand_ins.prepare()
    import torch
    import vllm.v1.engine.llm_engine  # noqa: F401 - finds the platform, before a case hides it
    from engines.models.tiny_qwen3 import write_checkpoint

    OUT.parent.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory() as folder:
        checkpoint = Path(folder) / "checkpoint"
        write_checkpoint(checkpoint, num_layers=OURS.num_layers, dtype=torch.bfloat16)
        chosen = [case for case in CASES if not only or case.name in only]
        rows = [run_apart(case, number, checkpoint) for number, case in enumerate(chosen)]
    del kept
    OUT.write_text(json.dumps(rows, indent=1))
    table = Table("case", "right", "told", title="vLLM with vllm-npu-graph, when something fails")
    for row in rows:
        table.add_row(row["case"], "yes" if row["right"] else "NO", escape(row["told"][:200]))
    Console(width=160).print(table)
    return 0 if all(row["right"] for row in rows) else 1


if __name__ == "__main__":
    sys.exit(main())
