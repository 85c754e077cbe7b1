"""vLLM-Ascend on simulated CANN under faults that seeds decide: named errors, and never a hang.

Run as ``cann-sim run -- python -m engines.vllm.failing.seeded_failures``. An engine decodes a load,
then the same load while something fails, then again without a fault. The second time it ends with
the error that names what failed, or gives the tokens of the first; the third time it always gives
those. It goes on with the next seed: an engine meets as many faults as it survives, which should be
all. One that says nothing for some time hangs, and is ended. Each way to update and to capture has
engines of its own. Rows go to build/engines/vllm-seeded-failures.json.
"""

from __future__ import annotations

import argparse
import contextlib
import dataclasses
import json
import multiprocessing
import os
import signal
import sys
import tempfile
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any

from engines.faults.fault_rows import conclude_faults
from engines.faults.seeded_faults import Fault, draw_fault
from engines.running.session_run import ROOT
from engines.vllm.failing.worker_faults import begin_failing, end_failing
from engines.vllm.session import Variant, generate, make_engine
from engines.vllm.without_device import stand_ins

if TYPE_CHECKING:
    from collections.abc import Callable

# A load takes a second, and the engine's start less than a minute; others use the machine too.
MOST_SECONDS, MOST_SECONDS_OF_START = 180, 900
RANKS = 2
VARIANT = Variant(name="ours", dtype="bfloat16", num_layers=2)
ENGINES = {
    "native": dataclasses.replace(VARIANT, key={"updater": "native"}),
    "kernels": dataclasses.replace(VARIANT, key={"updater": "kernels"}),
    "graphs": dataclasses.replace(VARIANT, key={"graphs": True}),
    "graphs, kernels": dataclasses.replace(VARIANT, key={"graphs": True, "updater": "kernels"}),
    "two ranks": dataclasses.replace(VARIANT, key=True, ranks=RANKS),
    "two ranks, graphs": dataclasses.replace(VARIANT, key={"graphs": True}, ranks=RANKS),
}
# What may fail, and what an error of it has to name.
KINDS: dict[str, tuple[str, ...]] = {
    "update": ("UpdateError", "updating npu::"),
    "lengths": ("StepParameterError", "checking 'actual_seq_lengths"),
    "no metadata": ("StepParameterError", "reading the lengths of a step"),
    "replay": ("injected replay",),
    "capture": ("endCaptureErr", "capturing 'model' under key"),
    "death": (),
}
# With several ranks, a single one fails, or its process dies. The error that the engine gets is
# that a process ended.
KINDS_OF_BOTH = ("update", "lengths", "no metadata", "replay")
KINDS_OF_ONE = (*KINDS_OF_BOTH, "capture")
KINDS_OF_RANKS = (*KINDS_OF_BOTH, "death")
ENDED = ("EngineDeadError", "Executor failed", "cancelled", "died")


@dataclasses.dataclass(frozen=True, kw_only=True)
class FaultSession:
    """Engines of one release, and how something fails in them.

    Attributes:
        name: Name of the file of rows.
        engines: Variants by name.
        kinds: Kinds of faults by name of the engine.
        make: Creates the engine of a variant and a checkpoint.
        begin: Starts a fault in a worker.
        end: Ends it.
        prepare: Declares what importing the engine needs; its result is kept alive.
    """

    name: str
    engines: dict[str, Variant]
    kinds: Callable[[str], tuple[str, ...]]
    make: Callable[[Variant, Path], Any]
    begin: Callable[[Any, Fault], None]
    end: Callable[[Any], None] = end_failing
    prepare: Callable[[], object] = stand_ins.prepare

    @property
    def out(self) -> Path:
        """File of the rows."""
        return ROOT / "build" / "engines" / f"{self.name}.json"

    def draw(self, seed: int, engine: str) -> Fault:
        """Return the fault of a seed in an engine."""
        return draw_fault(seed, self.kinds(engine), self.engines[engine].ranks)


def kinds_of(engine: str) -> tuple[str, ...]:
    """Return the kinds of faults of an engine."""
    return KINDS_OF_RANKS if ENGINES[engine].ranks > 1 else KINDS_OF_ONE


def drop_sequences(llm: Any) -> None:
    """Drop the sequences that an engine was decoding when a step failed."""
    engine = llm.llm_engine
    engine.abort_request(list(engine.output_processor.request_states), internal=True)
    while engine.has_unfinished_requests():
        engine.step()


def run_fault(session: FaultSession, llm: Any, name: str, fault: Fault) -> dict[str, Any]:
    """Run a fault in an engine; return its row."""
    before = generate(llm, fault.prompts, fault.lengths)
    told, is_one, begin = "", session.engines[name].ranks == 1, time.monotonic()
    try:
        llm.collective_rpc(session.begin, args=(fault,))
        during = generate(llm, fault.prompts, fault.lengths)
    except Exception as error:
        told = f"{type(error).__name__}: {' '.join(str(error).split())}"
        during = before
    took = time.monotonic() - begin
    wrong = [] if during == before else ["other tokens while it failed"]
    if told and not any(text in told for text in KINDS[fault.kind] + ENDED * (not is_one)):
        wrong.append("another error")
    if is_one or not told:
        llm.collective_rpc(session.end)
    if told and is_one:
        drop_sequences(llm)
    if (is_one or not told) and generate(llm, fault.prompts, fault.lengths) != before:
        wrong.append("other tokens behind it")
    return {
        "engine": name,
        **{each: getattr(fault, each) for each in ("seed", "kind", "first", "rank")},
        "tokens": sum(map(len, before)),
        "seconds": took,
        "told": told[:300],
        "wrong": wrong,
    }


def run_engine(
    session: FaultSession, name: str, seeds: list[int], checkpoint: Path, log: Path, out: Any
) -> None:
    """Run the faults of seeds in an engine in this process, which is its own; send the rows."""
    os.setsid()
    with log.open("a") as stream:
        os.dup2(stream.fileno(), 1)
        os.dup2(stream.fileno(), 2)
    llm = session.make(session.engines[name], checkpoint)
    out.send({})
    for seed in seeds:
        row = run_fault(session, llm, name, session.draw(seed, name))
        out.send(row)
        if row["told"] and session.engines[name].ranks > 1:
            # The others of its ranks wait for it, or have ended.
            break
    out.send(None)
    sys.stdout.flush()
    os._exit(0)


def run_seeds(
    session: FaultSession, name: str, seeds: list[int], checkpoint: Path
) -> list[dict[str, Any]]:
    """Run seeds in as few engines as possible, with a new one after each failure; return rows."""
    context, rows = multiprocessing.get_context("fork"), []
    out = session.out
    log = out.with_name(f"{out.stem}-{name.replace(', ', '-').replace(' ', '-')}.log")
    while len(rows) < len(seeds):
        receive, send = context.Pipe(duplex=False)
        given = (session, name, seeds[len(rows) :], checkpoint, log, send)
        process = context.Process(target=run_engine, args=given)
        process.start()
        send.close()
        wrong, limit = None, MOST_SECONDS_OF_START
        while True:
            try:
                if not receive.poll(limit):
                    wrong = f"hangs: nothing for {limit} s; see {log}"
                    break
                row = receive.recv()
            except EOFError:
                wrong = f"the engine ended; see {log}"
                break
            limit = MOST_SECONDS
            if row is None:
                break
            # The first says that the engine has started.
            rows += [row] * bool(row)
        if wrong is not None and len(rows) < len(seeds):
            fault = session.draw(seeds[len(rows)], name)
            drawn = {"seed": fault.seed, "kind": fault.kind, "first": fault.first}
            rows.append({"engine": name, **drawn, "told": "", "wrong": [wrong]})
        with contextlib.suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGKILL)
        process.join()
    return rows


def run_session(session: FaultSession, description: str | None) -> int:
    """Run all seeds; return 1 if one did not end as it should."""
    parser = argparse.ArgumentParser(description=description)
    parser.add_argument("--seeds", type=int, default=500, help="how many, over all engines")
    parser.add_argument("--first-seed", type=int, default=0)
    alone = [name for name, variant in session.engines.items() if variant.ranks == 1]
    parser.add_argument("--engines", nargs="*", default=alone, choices=session.engines)
    options = parser.parse_args()
    stand_ins.set_environment()
    os.environ |= {
        "CANN_SIM_DEVICES": str(RANKS),
        # How long the engine waits for a worker's answer.
        "VLLM_EXECUTE_MODEL_TIMEOUT_SECONDS": "60",
    }
    kept = session.prepare()
    import torch
    import vllm_ascend.platform  # noqa: F401
    from engines.models.tiny_qwen3 import write_checkpoint

    session.out.parent.mkdir(parents=True, exist_ok=True)
    rows: list[dict[str, Any]] = []
    seeds = range(options.first_seed, options.first_seed + options.seeds)
    with tempfile.TemporaryDirectory() as folder:
        checkpoint = Path(folder) / "checkpoint"
        write_checkpoint(checkpoint, num_layers=2, dtype=torch.bfloat16)
        for number, name in enumerate(options.engines):
            begin = time.monotonic()
            own = list(seeds[number :: len(options.engines)])
            rows += run_seeds(session, name, own, checkpoint)
            print(f"{name}: {time.monotonic() - begin:.0f} s", flush=True)
            session.out.write_text(json.dumps(rows, indent=1))
    del kept
    return conclude_faults(rows, "vLLM with vllm-npu-graph, faults that seeds decide")


def main() -> int:
    """Run all seeds; return 1 if one did not end as it should."""
    session = FaultSession(
        name="vllm-seeded-failures",
        engines=ENGINES,
        kinds=kinds_of,
        make=make_engine,
        begin=begin_failing,
    )
    return run_session(session, __doc__)


if __name__ == "__main__":
    sys.exit(main())
