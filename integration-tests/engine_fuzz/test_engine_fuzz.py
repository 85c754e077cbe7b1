"""Engines live through random events: each step is bitwise eager or a named error, and none hangs.

`./nox -s engine_fuzz -- --episodes=5000 --seed=0` runs more of them; the gate takes a few.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from engine_fuzz.broken_engines import BROKEN
from engine_fuzz.episode import Kind, draw_episode
from engine_fuzz.supervisor import Supervisor

if TYPE_CHECKING:
    from engine_fuzz.supervisor import Failure

SHARE = 40


def test_steps_are_bitwise_eager_or_named_errors(pytestconfig: pytest.Config) -> None:
    episodes = pytestconfig.getoption("episodes") or SHARE
    first = pytestconfig.getoption("seed")

    def tell(failure: Failure) -> None:
        print(f"FAILURE {failure}\n", flush=True)  # noqa: T201

    supervisor = Supervisor(tell=tell)
    supervisor.run(range(first, first + episodes))
    path = Path(__file__).parents[2] / "build/engine_fuzz.json"
    path.parent.mkdir(parents=True, exist_ok=True)
    failures = [failure.text for failure in supervisor.failures]
    figures = {**supervisor.counts.as_values(), "failures": failures}
    path.write_text(json.dumps(figures, indent=1) + "\n")
    if supervisor.failures:
        shortest = supervisor.shortened(supervisor.failures[0])
        pytest.fail(f"{len(failures)} of {episodes} episodes failed; {shortest}", pytrace=False)
    assert supervisor.counts.episodes == episodes
    assert supervisor.counts.steps > 5 * episodes


def test_each_broken_part_is_found() -> None:
    found = Supervisor().run_broken()
    not_found = {
        name: failure
        for name, part in BROKEN.items()
        if (failure := found.get(name, "nothing")).partition(":")[0] not in part.sorts
    }
    assert not_found == {}
    kinds = {kind for part in BROKEN.values() for kind in part.kinds}
    assert kinds == set(Kind) - {Kind.CAPTURE_AGAIN}


def test_an_episode_is_the_same_each_time_it_is_drawn_or_read() -> None:
    for seed in range(50):
        episode = draw_episode(seed)
        assert episode == draw_episode(seed)
        assert type(episode).from_json(episode.to_json()) == episode


def test_a_failure_is_shortened_to_the_events_that_it_needs() -> None:
    part = "unwatched attributes"
    supervisor = Supervisor(broken=part)
    episode = BROKEN[part].draw(1)
    failure = supervisor.run_episode(episode)
    assert failure is not None
    shortest = supervisor.shortened(failure, seconds=15)
    assert len(shortest.episode.events) < len(episode.events)
    assert any(event.kind is Kind.REBIND for event in shortest.episode.events)
