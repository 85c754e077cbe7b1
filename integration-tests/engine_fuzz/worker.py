"""Runs episodes in one process, and writes a line when each begins and when each ends."""

from __future__ import annotations

import argparse
import faulthandler
import gc
import json
import sys
import traceback
from typing import TYPE_CHECKING

import cann_sim

cann_sim.activate()

import torch  # noqa: E402

from engine_fuzz.broken_engines import BROKEN  # noqa: E402
from engine_fuzz.episode import Episode, draw_episode  # noqa: E402
from engine_fuzz.episode_run import EpisodeRun  # noqa: E402
from engine_fuzz.key_sender import KeySender  # noqa: E402
from engine_fuzz.served_engine import EpisodeFailure  # noqa: E402
from npu_graph_runtime import NpuDevice  # noqa: E402

if TYPE_CHECKING:
    from collections.abc import Iterable

NUM_DEVICES = 2


class Worker:
    """Runs episodes on devices of its own.

    Args:
        seconds: after which the stacks of an episode are written.
    """

    def __init__(self, seconds: float) -> None:
        self._seconds = seconds
        self._devices = [NpuDevice(index) for index in range(NUM_DEVICES)]
        for device in self._devices:
            # torch_npu knows the streams of a device when something has run on it.
            torch.zeros(1, device=device.torch_device)
        self._sender = KeySender()
        _leave_imports_to_no_collector()

    def run_all(self, episodes: Iterable[Episode]) -> None:
        """Run episodes until one leaves devices that no other can use."""
        for episode in episodes:
            is_right, works = self._run(episode, None)
            if not is_right and not works:
                break
        self._sender.close()

    def run_broken(self, names: Iterable[str], first: int, count: int) -> None:
        """Run engines with something broken, each until it is found.

        Args:
            names: of the parts of `BROKEN`.
            first: seed of the first episode of each.
            count: of the most episodes.
        """
        works = True
        for name in names:
            for seed in range(first, first + count):
                is_right, works = self._run(BROKEN[name].draw(seed), name)
                if not is_right:
                    break
            if not works:
                break
        self._sender.close()

    def run_one(self, episode: Episode, broken: str | None) -> None:
        """Run one episode."""
        self._run(episode, broken)
        self._sender.close()

    def _run(self, episode: Episode, broken: str | None) -> tuple[bool, bool]:
        """Run an episode; return whether all was right, and whether the devices still work."""
        print(json.dumps({"begins": episode.seed}), flush=True)  # noqa: T201
        faulthandler.dump_traceback_later(self._seconds)
        make_engine = None if broken is None else BROKEN[broken].engine
        run = EpisodeRun(episode, self._devices, self._sender, make_engine)
        ended: dict[str, object] = {"ends": episode.seed, "broken": broken}
        try:
            run.run()
        except EpisodeFailure as error:
            ended |= _failed(error.sort, str(error))
        except Exception as error:  # noqa: BLE001 - whatever it is, it is a finding
            ended |= _failed("crash", f"crash: {type(error).__name__}: {error}")
        faulthandler.cancel_dump_traceback_later()
        ended["counts"] = run.counts.as_values()
        print(json.dumps(ended), flush=True)  # noqa: T201
        is_right = "failure" not in ended
        return is_right, is_right or _have_recovered(run, self._devices)


def _failed(sort: str, text: str) -> dict[str, str]:
    return {"sort": sort, "failure": text, "traceback": traceback.format_exc()}


def _leave_imports_to_no_collector() -> None:
    """Exclude imports from garbage collection, so that capture sessions only collect from episodes.

    This makes an episode ten times faster.
    """
    gc.collect()
    gc.freeze()
    # It counts all that is frozen, one by one; sessions ask it whether there is any.
    gc.get_freeze_count = lambda: 1


def _have_recovered(run: EpisodeRun, devices: list[NpuDevice]) -> bool:
    """Return whether devices work again, without the memory that an episode gave up."""
    try:
        cann_sim.restart_devices()
        run.close()
        for device in devices:
            device.synchronize()
    except Exception:  # noqa: BLE001 - it is of no use any more
        return False
    return True


def main() -> None:
    """Read the episodes to run from the command line."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--first", type=int, default=0, help="seed of the first episode")
    parser.add_argument("--count", type=int, default=1, help="how many seeds")
    parser.add_argument("--broken", help="what is broken on purpose: a name, or all")
    parser.add_argument("--seconds", type=float, default=60, help="until stacks are written")
    parser.add_argument("--stdin", action="store_true", help="read one episode as JSON")
    arguments = parser.parse_args()
    faulthandler.enable()
    worker = Worker(arguments.seconds)
    first, count = arguments.first, arguments.count
    if arguments.stdin:
        worker.run_one(Episode.from_json(sys.stdin.read()), arguments.broken)
    elif arguments.broken is not None:
        names = list(BROKEN) if arguments.broken == "all" else [arguments.broken]
        worker.run_broken(names, first, count)
    else:
        worker.run_all(draw_episode(seed) for seed in range(first, first + count))


if __name__ == "__main__":
    main()
