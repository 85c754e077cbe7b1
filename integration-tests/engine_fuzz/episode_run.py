"""Runs an episode: events happen to engines, and steps follow that are looked at."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING, Any

import numpy as np
import torch

import cann_sim
from attn_update import AttnUpdateError, UpdateError
from engine_fuzz.engines.callable_engine import CallableEngine
from engine_fuzz.engines.fuzzed_model import ModelFailure
from engine_fuzz.engines.reference import Reference
from engine_fuzz.engines.runner_engine import RunnerEngine
from engine_fuzz.engines.sequences import padding_batch
from engine_fuzz.episode import Kind
from engine_fuzz.episode_counts import EpisodeCounts
from engine_fuzz.moved_tensors import (
    move_weight,
    rebind,
    replace_caches,
    sleep_and_wake,
)
from engine_fuzz.served_engine import ServedEngine
from npu_graph_runtime import CaptureSession, GraphRuntimeError
from npu_graph_runtime.errors import DeviceError, KernelError

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from engine_fuzz.episode import Episode, Shape
    from engine_fuzz.key_sender import KeySender
    from npu_graph_runtime import NpuDevice


class EpisodeRun:
    """Runs one episode.

    Args:
        episode: the episode to run.
        devices: devices; at least as many as the episode has engines.
        sender: the other process.
        make_engine: makes an engine from device, shape and seed; by default the engine that the
            shape selects.

    Attributes:
        counts: statistics.
    """

    def __init__(
        self,
        episode: Episode,
        devices: list[NpuDevice],
        sender: KeySender,
        make_engine: Callable[..., CallableEngine | RunnerEngine] | None = None,
    ) -> None:
        self._episode = episode
        self._devices = devices
        self._sender = sender
        self.counts = EpisodeCounts()
        self._make_engine = make_engine or _engine_of
        self._served: list[ServedEngine] = []
        self._does: Mapping[Kind, Callable[[ServedEngine, Mapping[str, Any]], None]] = {
            Kind.JOIN: self._join,
            Kind.LEAVE: self._leave,
            Kind.DECODE: self._decode,
            Kind.SLEEP: self._sleep,
            Kind.SLEEP_WITH_GRAPHS: self._sleep_with_graphs,
            Kind.REPLACE_CACHES: self._replace_caches,
            Kind.MOVE_WEIGHT: self._move_weight,
            Kind.REBIND: self._rebind,
            Kind.CHANGE_ARGUMENT: self._change_argument,
            Kind.MOVE_INPUT: self._move_input,
            Kind.CAPTURE_AGAIN: self._capture_again,
            Kind.RUN_OUT_OF_MEMORY: self._run_out_of_memory,
            Kind.RAISE_IN_MODEL: self._raise_in_model,
            Kind.SIGNAL_IN_STEP: self._signal_in_step,
            Kind.SIGNAL_IN_CAPTURE: self._signal_in_capture,
            Kind.FAIL_UPDATE: self._fail_update,
            Kind.FAIL_KERNEL: self._fail_kernel,
            Kind.WRONG_PLAN: self._use_wrong_plan,
            Kind.OTHER_DEVICE: self._use_other_device,
            Kind.OTHER_PROCESS: self._use_other_process,
        }

    @torch.no_grad()
    def run(self) -> None:
        """Run the episode.

        Raises:
            EpisodeFailure: something is not right.
        """
        episode = self._episode
        for number in range(episode.num_engines):
            device = self._devices[number]
            device.bind_thread()
            engine = self._make_engine(device, episode.shape, seed=episode.seed)
            reference = Reference(device.torch_device, seed=episode.seed, quirk=episode.shape.quirk)
            served = ServedEngine(engine, reference, self.counts)
            self._served.append(served)
            served.capture()
        for event in episode.events:
            self.counts.events[event.kind.value] += 1
            served = self._served[event.engine % len(self._served)]
            served.engine.device.bind_thread()
            self._does[event.kind](served, event.options)
        for served in self._served:
            served.compare_caches()
        self.close()
        self.counts.episodes += 1

    def close(self) -> None:
        """Give the engines up."""
        for served in self._served:
            served.engine.device.bind_thread()
            served.engine.close()
        self._served.clear()

    def _join(self, served: ServedEngine, options: Mapping[str, Any]) -> None:
        served.join(options["draw"], options["length"])

    def _leave(self, served: ServedEngine, options: Mapping[str, Any]) -> None:
        living = served.sequences.living
        if len(living) > 1:
            served.sequences.leave(living[options["draw"] % len(living)])

    def _decode(self, served: ServedEngine, options: Mapping[str, Any]) -> None:
        served.step(served.batches(options))

    def _sleep(self, served: ServedEngine, options: Mapping[str, Any]) -> None:
        served.release()
        sleep_and_wake(
            served.engine.model,
            served.engine.device,
            served.others,
            weights=options["weights"],
            caches=True,
        )
        served.capture()
        self._decode(served, options)

    def _sleep_with_graphs(self, served: ServedEngine, options: Mapping[str, Any]) -> None:
        sleep_and_wake(
            served.engine.model,
            served.engine.device,
            served.others,
            weights=options["weights"],
            caches=options["caches"],
        )
        # Of memory that moved under its storage a replay compares one tensor, in turn.
        served.moved("sleep with graphs", is_checked=options["weights"] == "resized")
        self._decode(served, options)

    def _replace_caches(self, served: ServedEngine, options: Mapping[str, Any]) -> None:
        replace_caches(served.engine.model, served.others, keeps_old=options["keeps_old"])
        served.moved("replaced caches", is_checked=options["keeps_old"])
        self._decode(served, options)

    def _move_weight(self, served: ServedEngine, options: Mapping[str, Any]) -> None:
        model, reference = served.engine.model, served.reference.model
        if move_weight(model, reference, served.others, options):
            # Of memory that moved under its storage a replay looks at one tensor, in turn.
            is_checked = options["keeps_old"] or options["how"] == "resized"
            served.moved("moved weight", is_checked=is_checked)
        self._decode(served, options)

    def _rebind(self, served: ServedEngine, options: Mapping[str, Any]) -> None:
        rebind(served.engine.model, served.reference.model, served.others, options)
        served.moved("rebound attribute", is_checked=options["keeps_old"])
        self._decode(served, options)

    def _change_argument(self, served: ServedEngine, options: Mapping[str, Any]) -> None:
        forms = _plain_values(options["value"])
        served.engine.factor = forms[options["form"] % len(forms)]
        served.reasons.append("changed argument")
        self._decode(served, options)

    def _move_input(self, served: ServedEngine, options: Mapping[str, Any]) -> None:
        assert isinstance(served.engine, CallableEngine)
        served.engine.move_inputs()
        served.reasons.append("moved input")
        self._decode(served, options)

    def _capture_again(self, served: ServedEngine, options: Mapping[str, Any]) -> None:
        served.release()
        served.capture()
        self._decode(served, options)

    def _run_out_of_memory(self, served: ServedEngine, options: Mapping[str, Any]) -> None:
        served.release()
        served.engine.device.empty_cache()
        # Torch frees what it keeps and tries again, so all allocations from one on fail.
        faults = cann_sim.injected_faults(f"allocation:{options['allocation']}+")
        with served.expecting("out of memory", DeviceError), faults:
            served.engine.capture()
        served.release()
        served.capture()
        self._decode(served, options)

    def _raise_in_model(self, served: ServedEngine, options: Mapping[str, Any]) -> None:
        attention = served.engine.attention
        if options["where"] == "capture":
            served.release()
            attention.raises_at = options["call"]
            with served.expecting("exception in capture", ModelFailure):
                served.engine.capture()
            attention.raises_at = 0
            served.release()
            served.capture()
        batches = served.batches(options)
        attention.raises_at = options["call"] * (options["where"] == "step")
        served.step(batches, "exception in step", ModelFailure)
        attention.raises_at = 0

    def _signal_in_step(self, served: ServedEngine, options: Mapping[str, Any]) -> None:
        batches = served.batches(options)
        served.step(batches, "signal in step", interrupt_after=options["seconds"])

    def _signal_in_capture(self, served: ServedEngine, options: Mapping[str, Any]) -> None:
        served.release()
        with served.expecting("signal in capture"):
            served.capture_interrupted(options["seconds"])
        served.settle()
        served.recapture()
        self._decode(served, options)

    def _fail_update(self, served: ServedEngine, options: Mapping[str, Any]) -> None:
        faults = partial(cann_sim.injected_faults, f"task_update:{options['update']}")
        served.step(served.batches(options), "failed update", UpdateError, around=faults)

    def _fail_kernel(self, served: ServedEngine, options: Mapping[str, Any]) -> None:
        faults = partial(cann_sim.injected_faults, f"run:{options['kernel']}")
        served.step(
            served.batches(options),
            "failed kernel",
            (KernelError, UpdateError),
            around=faults,
            is_recaptured=True,
        )

    def _use_wrong_plan(self, served: ServedEngine, options: Mapping[str, Any]) -> None:
        engine = served.engine
        assert isinstance(engine, CallableEngine)
        batches = served.batches(options)
        sizes = [size for is_decode, size in engine.keys if is_decode]
        own = sizes.index(batches[0].size)
        size = sizes[(own + 1) % len(sizes)]
        other = engine.keys[True, size]
        parameters = engine.parameters(padding_batch(size, is_decode=True), other)
        with served.expecting("wrong plan", AttnUpdateError, or_wrong="it was run"):
            engine.run(batches[0], parameters=parameters, plan_of=other)
            engine.drain()
            engine.device.synchronize()
        served.step(batches)

    def _use_other_device(self, served: ServedEngine, options: Mapping[str, Any]) -> None:
        engine = served.engine
        assert isinstance(engine, CallableEngine)
        (other,) = (each for each in self._served if each is not served)
        foreign = other.engine
        assert isinstance(foreign, CallableEngine)
        batches = served.batches(options)
        if options["what"] == "input" and engine.shape.address_check == "always":
            own, engine.inputs = engine.inputs, foreign.inputs
            with served.expecting("input of other device", GraphRuntimeError, or_wrong="taken"):
                engine.run(batches[0])
                engine.device.synchronize()
            engine.inputs = own
        elif options["what"] == "session":
            served.release()
            with (
                served.expecting("session of other device", GraphRuntimeError, or_wrong="taken"),
                CaptureSession(foreign.device, engine.context) as session,
            ):
                engine.capture_in(session)
            served.release()
            served.capture()
        else:
            served.step(batches, "other current device", current=foreign.device)
            return
        served.step(batches)

    def _use_other_process(self, served: ServedEngine, options: Mapping[str, Any]) -> None:
        engine = served.engine
        assert isinstance(engine, CallableEngine)
        batches = served.batches(options)
        key = engine.keys.get((True, batches[0].size))
        assert key is not None
        sent: dict[str, Any] = {}
        if options["what"] != "parameters":
            sent["key"] = self._sender.send(key)
        if options["what"] != "key":
            groups = engine.parameters(batches[0], key).groups
            sent["parameters"] = self._sender.send(key, groups)
        served.step(batches[:1], run=partial(engine.run, **sent))
        if batches[1:]:
            served.step(batches[1:])


def _engine_of(device: NpuDevice, shape: Shape, *, seed: int) -> CallableEngine | RunnerEngine:
    engine = RunnerEngine if shape.uses_runners else CallableEngine
    return engine(device, shape, seed=seed)


def _plain_values(value: int) -> list[Any]:
    """Return a number in all types in which engines have plain numbers."""
    return [
        value,
        float(value),
        str(value) * value,
        None if value == 1 else value == 2,
        [value, 1],
        (value, 1),
        {"first": value},
        np.int64(value),
        np.int32(value),
        np.float32(value),
        np.float64(value),
        np.bool_(value > 4),
        np.array(value),
        np.array([value, 1]),
        range(value),
        slice(0, value),
        frozenset(range(value)),
    ]
