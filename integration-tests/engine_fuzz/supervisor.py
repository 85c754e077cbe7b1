"""Runs episodes in worker processes, ends those that hang, and makes failures small.

A worker runs episode after episode, even after one that fails, as long as the device works;
otherwise the next seed gets a new process. A worker that says nothing for too long hangs; its
stacks are read, and it is killed with its process group.
"""

from __future__ import annotations

import contextlib
import dataclasses
import json
import os
import selectors
import signal
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any

from engine_fuzz.episode import Episode, draw_episode
from engine_fuzz.episode_counts import EpisodeCounts

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

    from engine_fuzz.episode import Event

# The first start compiles the simulator's operators.
_SECONDS_OF_START = 300
_SECONDS_OF_EPISODE = 60


@dataclasses.dataclass(frozen=True, kw_only=True)
class Failure:
    """A failed episode.

    Attributes:
        sort: as in `EpisodeFailure`; also ``hang`` for a process that stopped reporting, and
            ``died`` for one that ended by itself.
        text: description of the failure.
        episode: the episode.
        traceback: where it happened.
    """

    sort: str
    text: str
    episode: Episode
    traceback: str

    def __str__(self) -> str:
        """Return the failure with all that is needed to see it again."""
        return f"{self.text}\n{self.episode}\n{self.traceback}"


class Supervisor:
    """Runs seeds.

    Args:
        broken: the part of the engines that is broken, a name in `broken_engines.BROKEN`.
        tell: callback for each failure.

    Attributes:
        counts: statistics of the episodes that were run.
        failures: all failures.
    """

    def __init__(
        self, broken: str | None = None, tell: Callable[[Failure], None] = lambda failure: None
    ) -> None:
        self.counts = EpisodeCounts()
        self.failures: list[Failure] = []
        self._broken = broken
        self._tell = tell

    def run(self, seeds: Sequence[int], *, most_failures: int = 20) -> None:
        """Run the episodes of seeds that follow each other, until too many have failed."""
        next_seed, end = seeds[0], seeds[-1] + 1
        while next_seed < end and len(self.failures) < most_failures:
            arguments = [f"--first={next_seed}", f"--count={end - next_seed}"]
            for ended in self._worker(arguments, ""):
                if "counts" in ended:
                    self.counts.add(ended["counts"])
                next_seed = ended["ends"] + 1
                if "failure" in ended:
                    self._note(ended, draw_episode(ended["ends"]))

    def run_broken(self, *, most_episodes: int = 12) -> dict[str, str]:
        """Return the failures found for each part that is broken on purpose."""
        self._broken = "all"
        arguments = [f"--count={most_episodes}"]
        ended = list(self._worker(arguments, ""))
        return {each["broken"]: each["failure"] for each in ended if "failure" in each}

    def run_episode(self, episode: Episode) -> Failure | None:
        """Run one episode in a process of its own and return its failure."""
        for ended in self._worker(["--stdin"], episode.to_json()):
            if "failure" in ended:
                return _failure_of(ended, episode)
        return None

    def shortened(self, failure: Failure, *, seconds: float = 300) -> Failure:
        """Leave out the events that an episode does not need to fail.

        Args:
            failure: of the episode.
            seconds: after which the shortest found so far is returned.
        """
        best, end = failure, time.monotonic() + seconds
        size = max(1, len(best.episode.events) // 2)
        while size:
            for start in range(0, len(best.episode.events), size):
                if time.monotonic() > end:
                    return best
                events = best.episode.events
                fewer: tuple[Event, ...] = events[:start] + events[start + size :]
                again = self.run_episode(best.episode.with_events(fewer))
                if again is not None and again.sort == failure.sort:
                    best = again
                    break
            else:
                size //= 2
        return best

    def _note(self, ended: dict[str, Any], episode: Episode) -> None:
        failure = _failure_of(ended, episode)
        self.failures.append(failure)
        self._tell(failure)

    def _worker(self, arguments: list[str], given: str) -> Iterator[dict[str, Any]]:
        """Yield a worker's report of each episode; if it does not report, make one."""
        with (
            tempfile.TemporaryFile("w+") as errors,
            subprocess.Popen(
                [
                    *(sys.executable, "-m", "engine_fuzz.worker", *arguments),
                    f"--seconds={_SECONDS_OF_EPISODE - 5}",
                    *([] if self._broken is None else [f"--broken={self._broken}"]),
                ],
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=errors,
                env={**os.environ, **_VARIABLES},
                cwd=Path(__file__).parents[1],
                start_new_session=True,
            ) as process,
        ):
            assert process.stdin is not None
            process.stdin.write(given.encode())
            process.stdin.close()
            running: int | None = None
            try:
                for line in _lines(process):
                    said = json.loads(line)
                    running = said.get("begins")
                    if "ends" in said:
                        yield said
                is_over = process.poll() is not None
            finally:
                _kill(process)
            if running is not None or (is_over and process.returncode):
                errors.seek(0)
                stacks = errors.read()[-6000:]
                sort = "died" if is_over else "hang"
                text = f"{sort}: the process ended with code {process.returncode}"
                if not is_over:
                    text = f"hang: no answer for {_SECONDS_OF_EPISODE} seconds"
                yield {
                    "ends": running,
                    "broken": self._broken,
                    "sort": sort,
                    "failure": text,
                    "traceback": stacks,
                }


_VARIABLES = {
    "CANN_SIM_DEVICES": "2",
    "CANN_SIM_MEMORY_CHECK": "on",
    "OMP_NUM_THREADS": "1",
    "TORCH_DEVICE_BACKEND_AUTOLOAD": "0",
}


def _failure_of(ended: dict[str, Any], episode: Episode) -> Failure:
    return Failure(
        sort=ended["sort"],
        text=ended["failure"],
        episode=episode,
        traceback=ended["traceback"],
    )


def _lines(process: subprocess.Popen[bytes]) -> Iterator[bytes]:
    """Yield the lines that a process writes, until it ends or says nothing for too long."""
    assert process.stdout is not None
    descriptor = process.stdout.fileno()
    seconds, buffer = _SECONDS_OF_START, b""
    with selectors.DefaultSelector() as selector:
        selector.register(descriptor, selectors.EVENT_READ)
        while selector.select(seconds):
            read = os.read(descriptor, 1 << 16)
            if not read:
                process.wait()
                return
            *lines, buffer = (buffer + read).split(b"\n")
            yield from lines
            seconds = _SECONDS_OF_EPISODE


def _kill(process: subprocess.Popen[bytes]) -> None:
    """End a process with all that it has started."""
    with contextlib.suppress(ProcessLookupError):
        os.killpg(process.pid, signal.SIGKILL)
    process.wait()
