"""Tests of which the gate runs a share: the table of the sessions that run all of them."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import PurePath
from typing import TYPE_CHECKING

from sessions.package import packages
from sessions.project_environments import everything
from sessions.testing.test_runs import (
    ENVIRONMENT,
    EXAMPLES,
    MALLOC_SETTINGS,
    run_package_tests,
    run_shared_tests,
)
from sessions.workspace import ROOT

if TYPE_CHECKING:
    import nox


@dataclass(frozen=True, kw_only=True)
class LongTests:
    """A session that runs tests with larger numbers than the gate does.

    Attributes:
        name: Of the session.
        about: What it does, as `./nox --list` shows it.
        runs: Arguments of pytest, one run a line; tests first, relative to the root. What
            follows ``--`` on the command line is appended, and the last of two options counts.
        settings: Environment variables besides those of all sessions.
        keeps_malloc: Whether memory is measured, with the settings of malloc that users have.
    """

    name: str
    about: str
    runs: tuple[str, ...]
    settings: tuple[tuple[str, str], ...] = ()
    keeps_malloc: bool = False

    def run(self, session: nox.Session) -> None:
        """Run the tests in the environment that has all packages."""
        python = everything(session)
        for arguments in self.runs:
            self._run_once(session, python, *arguments.split(), *session.posargs)

    def _run_once(self, session: nox.Session, python: str, tests: str, *options: str) -> None:
        folder, *below = PurePath(tests).parts
        environment = {**(ENVIRONMENT if folder == "packages" else EXAMPLES), **dict(self.settings)}
        if self.keeps_malloc:
            environment = {k: v for k, v in environment.items() if k not in MALLOC_SETTINGS}
        if folder != "packages":
            run_shared_tests(session, python, tests, *options, settings=environment)
            return
        name, *parts = below
        (package,) = (each for each in packages(ROOT) if each.name == name)
        path = str(PurePath(*parts))
        run_package_tests(session, python, package, path, *options, settings=environment)


LONG_TESTS = (
    LongTests(
        name="modes",
        about="Run every mode on every kind of step; compare docs/modes.md (`--write-matrix`).",
        runs=(
            """integration-tests/mode_matrix integration-tests/test_prefill_modes.py --every-mode
            --matrix-steps=200 --matrix-share=0 --speculative-steps=1000""",
        ),
    ),
    LongTests(
        name="check_teeth",
        about="Put a fault under every probe of npu-graph-check: its verdict changes"
        " (`--write-teeth`).",
        runs=("integration-tests/check_teeth --every-fault",),
    ),
    LongTests(
        name="schedules",
        about="Run 10,000 fuzzed schedules of replay and update, 10,000 with producers, 10,000 with"
        " layer events too, and 100 steps of every kind.",
        runs=(
            "packages/attn-update/tests/test_every_kind.py --bursts=25",
            "packages/attn-update/tests/test_fuzzed_schedules.py --schedules=10000",
            "packages/attn-update/tests/producers/test_producer_schedules.py --schedules=10000",
            "integration-tests/mixed_schedules --schedules=10000",
            "packages/attn-update/tests/test_update_lane.py --schedules=2500",
            "packages/cann-sim/tests/runtime/test_update_protocol.py --schedules=10000",
        ),
        settings=(("CANN_SIM_MEMORY_CHECK", "on"),),
    ),
    LongTests(
        name="interrupts",
        about="Send 20,000 signals at random times of steps, captures and sessions.",
        runs=("packages/attn-update/tests/interrupts -s --signals=20000 --every-place",),
    ),
    LongTests(
        name="sanitizers",
        about="Run the simulated runtime under AddressSanitizer, UBSan and ThreadSanitizer.",
        runs=("packages/cann-sim/tests/native --sanitizers=address,thread",),
    ),
    LongTests(
        name="soak",
        about="Make 1,000 captures, 20,000 replays, 1,000 cycles of sleep: memory stays flat.",
        runs=(
            """packages/cann-sim/tests/test_soak.py
            --captures=1000 --replays=20000 --task-queues=0,1""",
            "packages/npu-graph-runtime/tests/test_sleep_and_wake.py --cycles=1000",
        ),
    ),
    LongTests(
        name="serving_soak",
        about="Serve for 30 minutes in every mode while the device fails.",
        runs=("integration-tests/serving_soak --soak-minutes=30",),
        keeps_malloc=True,
    ),
    LongTests(
        name="engine_fuzz",
        about="Let 5,000 random engines live through random events (`--episodes=100 --seed=7`).",
        runs=("integration-tests/engine_fuzz -s --episodes=5000",),
    ),
    LongTests(
        name="breakable_models",
        about="Capture 2,000 random models in segments.",
        runs=("packages/npu-graph-runtime/tests/breakable --models=2000",),
    ),
    LongTests(
        name="repeated_steps",
        about="Serve 500 random loads with several decode steps in one replay.",
        runs=("integration-tests/test_repeated_steps.py --repeated-runs=500",),
    ),
    LongTests(
        name="architectures",
        about="Raise all decoders of transformers; compare with docs/architectures.md (`--write`).",
        runs=(
            """packages/fx-passes/tests/raising/architectures/test_architectures.py
            --every-architecture""",
        ),
    ),
    LongTests(
        name="random_graphs",
        about="Rewrite 10,000 random graphs with random rules.",
        runs=("packages/fx-passes/tests/test_random_graphs.py --examples=10000",),
    ),
    LongTests(
        name="stale_cache",
        about="Try all ways for a kept compilation to be stale, each alone.",
        runs=("packages/npu-compile/tests/stale --each-alone",),
    ),
    LongTests(
        name="every_operator",
        about="Spell every operator of torch in every way, on all samples.",
        runs=("packages/fx-passes/tests/normal_form/test_every_operator.py --samples=1000",),
    ),
    LongTests(
        name="random_writes",
        about="Rewrite 20,000 random programs of writes and views, and 20,000 in six pipelines.",
        runs=(
            "packages/fx-passes/tests/memory/test_random_writes.py --programs=20000",
            "packages/fx-passes/tests/memory/test_random_objects.py --programs=20000",
        ),
    ),
)
