"""vLLM-Ascend's resolved configuration with this repository and without, field by field.

Run as ``cann-sim run -- python -m engines.vllm.configuration``. Our worker is chosen by name, with
``worker_cls``, or by our platform, with ``VLLM_PLUGINS``; the key is absent, off or on. Nothing may
differ from the engine without this repository but what the key names. Compared are the
configuration of the process that makes the engine, in several modes, and that of the workers of a
Qwen3-MoE with tensor, data and expert parallelism (two ranks each, four simulated devices), whose
tokens have to be those of stock. Rows go to build/engines/vllm-configuration.json.
"""

from __future__ import annotations

import argparse
import dataclasses
import functools
import json
import multiprocessing
import os
import sys
import tempfile
from importlib.metadata import version
from pathlib import Path
from typing import TYPE_CHECKING, Any

from engines.load.decode_load import compare_load
from engines.models.tiny_models import write_model
from engines.running.process_group import rows_of_variant, run_given
from engines.running.resolved_configuration import differences, flatten
from engines.running.session_run import ROOT
from engines.vllm.graphs import PLUGINS
from engines.vllm.models import ModelVariant
from engines.vllm.session import WORKER, generate, make_engine
from engines.vllm.without_device import stand_ins

if TYPE_CHECKING:
    from collections.abc import Callable

RANKS = 2
SEQUENCES = 8
MOST_SECONDS = 600
NAME = "vllm_config"
# Arguments of engines whose configuration is compared where it is made.
MODES: dict[str, dict[str, Any]] = {
    "eager": {"enforce_eager": True},
    "default": {},
    **{
        mode: {"compilation_config": {"cudagraph_mode": mode}}
        for mode in ("PIECEWISE", "FULL_DECODE_ONLY", "FULL_AND_PIECEWISE")
    },
    "ranks": {"tensor_parallel_size": RANKS},
    "sequence parallel": {
        "tensor_parallel_size": RANKS,
        "compilation_config": {"pass_config": {"enable_sp": True}},
    },
    "xlite": {"additional_config": {"xlite_graph_config": {"enabled": True}}},
}
FUSIONS = {"fusions": True, "graphs": True}
KEYS: dict[str, object] = {"absent": None, "off": False, "on": True, "fusions": FUSIONS}
# What the key may change, by the side that it is chosen by.
OWN_WORKER = f"{NAME}.parallel_config.worker_cls"
OWN_KEY = f"{NAME}.additional_config.npu_graph"
OWN_PASS = f"{NAME}.compilation_config.inductor_compile_config.graph_fusion_manager"
# A worker that is named resolves this by itself: nothing reads it before.
LATE = f"{NAME}.parallel_config.all2all_backend"


@dataclasses.dataclass(frozen=True, kw_only=True)
class Release:
    """What a release of the engine is compared with.

    Attributes:
        module: Name of the module that runs as a program.
        out: Name of the file of rows.
        sides: That are compared.
        prepare: Declares what importing the engine needs; its result is kept alive.
        make: Makes the engine of a side.
        late: Fields that a named worker resolves by itself, before which nothing reads them.
        takes_key: Whether the key is in `additional_config`; otherwise `make` sets a variable.
    """

    module: str
    out: str
    sides: list[Side]
    prepare: Callable[[], object]
    make: Callable[..., Any]
    late: frozenset[str] = frozenset()
    takes_key: bool = True


@dataclasses.dataclass(frozen=True, kw_only=True)
class Side(ModelVariant):
    """An engine whose configuration is compared.

    Attributes:
        plugins: Whether the platform is ours.
        data_ranks: Engines that share experts.
    """

    plugins: bool = False
    data_ranks: int = 2

    def environment(self) -> dict[str, str]:
        """Return the environment of the engine's processes."""
        given = {**os.environ, **stand_ins.SETTINGS}
        given["CANN_SIM_DEVICES"] = str(RANKS * self.data_ranks)
        if self.plugins:
            given["VLLM_PLUGINS"] = ",".join(PLUGINS)
        return given


def make_sides(doors: tuple[str, ...], keys: dict[str, object]) -> list[Side]:
    """Return stock, twice, and ours enabled in each way with each value of the key."""
    described: dict[str, Any] = {
        "dtype": "bfloat16",
        "num_layers": 2,
        "model": "Qwen3-MoE",
        "ranks": RANKS,
    }
    made = [Side(name=name, worker=False, **described) for name in ("stock", "stock again")]
    for door in doors:
        plugins = door == "platform"
        for name, key in keys.items():
            given = {"key": key, "plugins": plugins, "worker": not plugins}
            made.append(Side(name=f"{door}, {name}", **given, **described))
    return made


def configurations(release: Release, side: Side, checkpoint: Path) -> dict[str, dict[str, str]]:
    """Return the configuration of each mode that an engine is created with, or its error."""
    from vllm.engine.arg_utils import EngineArgs

    found = {}
    for mode, of_mode in MODES.items():
        given = {"max_model_len": 512, "dtype": side.dtype, **of_mode}
        additional = dict(given.pop("additional_config", {}))
        if side.key is not None and release.takes_key:
            additional["npu_graph"] = side.key
        if side.worker:
            given["worker_cls"] = WORKER
        arguments = EngineArgs(
            model=str(checkpoint),
            skip_tokenizer_init=True,
            additional_config=additional,
            **given,
        )
        try:
            found[mode] = flatten(arguments.create_engine_config(), NAME)
        except AttributeError as error:
            # vLLM 0.30 built without kernels has no sequence parallelism, with us or without.
            found[mode] = {"error": str(error)}
    return found


def describe_worker(worker: Any) -> dict[str, str]:
    """Return the configuration of a worker, that of vllm-ascend, and the model's layers."""
    from vllm_ascend.ascend_config import get_ascend_config

    own = dict(vars(get_ascend_config()))
    own.pop("vllm_config", None)
    found = flatten(worker.vllm_config, NAME) | flatten(own, "ascend_config")
    runner = worker.model_runner
    return found | {
        "layers": repr([f"{name} {layer}" for name, layer in runner.model.named_modules()]),
    }


def run_rank(
    rank: int, port: int, make: Callable[..., Any], side: Side, checkpoint: Path, out: Any
) -> None:
    """Run one of the engines that share experts in this process, and send its result."""
    os.environ |= {
        "VLLM_DP_RANK": str(rank),
        "VLLM_DP_SIZE": str(side.data_ranks),
        "VLLM_DP_MASTER_PORT": str(port),
    }
    llm = make(side, checkpoint, enforce_eager=True, enable_expert_parallel=True)
    prompts, lengths = compare_load(SEQUENCES)
    part = slice(rank, None, side.data_ranks)
    tokens = generate(llm, prompts[part], lengths[part])
    out.send((tokens, llm.collective_rpc(describe_worker)))


def run_side(release: Release, side: Side, checkpoint: Path, _count: int) -> list[dict[str, Any]]:
    """Return the row of a side."""
    kept = release.prepare()
    import vllm_ascend.platform  # noqa: F401
    from vllm.utils.network_utils import get_open_port

    context = multiprocessing.get_context("fork")
    port, found = get_open_port(), []
    for rank in range(side.data_ranks):
        receive, send = context.Pipe(duplex=False)
        given = (rank, port, release.make, side, checkpoint, send)
        context.Process(target=run_rank, args=given).start()
        send.close()
        found.append(receive)
    answers = [receive.recv() for receive in found]
    made = configurations(release, side, checkpoint)
    workers = [each for _, of_rank in answers for each in of_rank]
    made |= {f"worker {number}": each for number, each in enumerate(workers)}
    del kept
    return [{"name": side.name, "tokens": [tokens for tokens, _ in answers], "made": made}]


def find_wrong(rows: list[dict[str, Any]], release: Release) -> list[str]:
    """Return the failures; empty if all is right."""
    wrong = [f"{row['name']}: {row['error']}" for row in rows if "error" in row]
    by_name = {row["name"]: row for row in rows if "error" not in row}
    if not {"stock", "stock again"} <= by_name.keys():
        return [*wrong, "there is no stock engine to compare with"]
    stock, again = by_name.pop("stock"), by_name["stock again"]
    # Ports, and names that are drawn, differ between engines of stock too.
    drawn = {
        name
        for process, made in stock["made"].items()
        for name in differences(made, again["made"][process])
    }
    for name, row in by_name.items():
        (side,) = (each for each in release.sides if each.name == name)
        if row["tokens"] != stock["tokens"]:
            wrong.append(f"{name}: its tokens are not those of stock")
        for process, made in row["made"].items():
            found = differences(made, stock["made"][process])
            wrong += [
                f"{name}, {process}: {field} is {found[field][0]}, {found[field][1]} in stock"
                for field in sorted(found.keys() - drawn - allowed(release, side, process, found))
            ]
    return wrong


def allowed(release: Release, side: Side, process: str, found: Any) -> set[str]:
    """Return the fields in which a side may differ."""
    names = {name for name in found if name == OWN_KEY or name.startswith(f"{OWN_KEY}.")}
    if side.worker or (side.key and process != "xlite"):
        names.add(OWN_WORKER)
    if side.worker and process in MODES:
        names |= release.late
    if side.key == FUSIONS and process not in MODES:
        names.add(OWN_PASS)
    return names


def run_release(release: Release, text: str | None) -> int:
    """Compare the sides of a release; return 1 if something is wrong.

    Args:
        release: Of the engine.
        text: What the program does.
    """
    parser = argparse.ArgumentParser(description=text)
    parser.add_argument("--only", nargs="*", help="names of sides")
    out = ROOT / "build" / "engines" / release.out
    parser.add_argument("--out", type=Path, default=out)
    parser.add_argument("--run", help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.run:
        run_given(options.run, Side, functools.partial(run_side, release))
        return 0
    options.out.parent.mkdir(parents=True, exist_ok=True)
    kept = release.prepare()
    sides = [side for side in release.sides if not options.only or side.name in options.only]
    rows: list[dict[str, Any]] = []
    with tempfile.TemporaryDirectory() as folder:
        checkpoint = Path(folder) / "checkpoint"
        write_model(sides[0], checkpoint)
        for number, side in enumerate(sides):
            rows += rows_of_variant(
                release.module,
                side,
                checkpoint,
                SEQUENCES,
                environment=side.environment(),
                described={"name": side.name},
                log=options.out.with_name(f"{options.out.stem}-{number}.log"),
                out=Path(folder) / f"{number}.json",
                limit=MOST_SECONDS,
            )
            print(f"{side.name}: {'error' if 'error' in rows[-1] else 'done'}", flush=True)
    del kept
    options.out.write_text(json.dumps(rows, indent=1))
    wrong = find_wrong(rows, release)
    engine = " + ".join(f"{name} {version(name)}" for name in ("vllm", "vllm-ascend"))
    print("\n".join(wrong) or f"{engine}: the configuration and tokens of every side are stock's")
    return 1 if wrong else 0


def main() -> int:
    """Compare all sides; return 1 if something is wrong."""
    release = Release(
        module=__spec__.name,
        out="vllm-configuration.json",
        sides=make_sides(("worker_cls", "platform"), KEYS),
        prepare=stand_ins.prepare,
        make=make_engine,
        late=frozenset({LATE}),
    )
    return run_release(release, __doc__)


if __name__ == "__main__":
    sys.exit(main())
