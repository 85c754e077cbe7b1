"""Mode measured: each size runs as was measured to be fastest, whatever that is."""

from __future__ import annotations

import functools
import itertools
from typing import TYPE_CHECKING, Any

import pytest
import torch

import npu_compile
from attn_update import Recorder, UpdateLane
from npu_compile import CompileConfig, ConfigError, DecodeRunner, InputSpec, PrefillRunner
from npu_compile.errors import RunnerStateError
from npu_compile.runners import capture_schedule
from npu_graph_runtime import FakeDevice, GraphContext, GraphKey, RunMode
from npu_graph_runtime.errors import OutOfDeviceMemoryError
from npu_graph_runtime.planning import RunModeChoice, RunModeChooser

if TYPE_CHECKING:
    from contextlib import AbstractContextManager

    from conftest import AttentionOperator, Decoder
    from npu_graph_runtime.device import DeviceGraph
    from npu_graph_runtime.observer import RuntimeEvent

SPECS = {
    "input_ids": InputSpec(dtype=torch.int64),
    "table": InputSpec(dtype=torch.float32, trailing_shape=(2,)),
}
EAGER, BREAKABLE, FULL = RunMode.EAGER, RunMode.BREAKABLE, RunMode.FULL
NUM_PIECES = 3


class PricedContext(GraphContext):
    """Adds the cost of a step of a size in a run mode to a clock."""

    def __init__(self, prices: dict[int, dict[RunMode, float]]) -> None:
        super().__init__()
        self.now = 0.0
        self.prices = prices

    def clock(self) -> float:
        return self.now

    def run(self, mode: RunMode, key: GraphKey | None = None) -> Any:
        if key is not None:
            self.now += self.prices[key.num_tokens].get(mode, 1000.0)
        span: AbstractContextManager[object] = super().run(mode, key)
        return span


class SmallDevice(FakeDevice):
    """Has no memory for some graphs, counted from the first."""

    def __init__(self, *refused: int) -> None:
        super().__init__()
        self.refused = set(refused)
        self.num_graphs = 0

    def create_graph(self) -> DeviceGraph:
        self.num_graphs += 1
        if self.num_graphs in self.refused:
            raise RuntimeError(f"graph {self.num_graphs}: NPU function error, error code is 207001")
        return super().create_graph()


class Setting:
    """A decoder compiled in mode measured, on a clock that its steps advance."""

    def __init__(
        self,
        decoder: Decoder,
        attention: AttentionOperator,
        prices: dict[int, dict[RunMode, float]],
        monkeypatch: pytest.MonkeyPatch,
        *,
        device: FakeDevice | None = None,
        **options: Any,
    ) -> None:
        self.decoder, self.attention = decoder, attention
        self.context = PricedContext(prices)
        self.device = device or FakeDevice()
        self.recorder = Recorder(self.device)
        self.events: list[RuntimeEvent] = []
        self.seen: list[tuple[int, RunMode]] = []
        config = CompileConfig.from_mapping(
            {
                "mode": "measured",
                "capture_sizes": tuple(prices),
                "prefill_capture_sizes": tuple(prices),
                "splitting_ops": [attention.name],
                **options,
            }
        )
        self.compiled = npu_compile.compile_model(
            decoder,
            config,
            device=self.device,
            dynamic_arg_dims=dict.fromkeys(SPECS, (0,)),
            context=self.context,
            observer=self,
        )
        monkeypatch.setattr(
            capture_schedule,
            "RunModeChooser",
            functools.partial(RunModeChooser, clock=self.context.clock),
        )
        self.runner = DecodeRunner(
            self.compiled,
            inputs=SPECS,
            recorder=self.recorder,
            lane=UpdateLane(self.device),
            set_lengths=self._set,
            observer=self,
        )

    def observe(self, event: RuntimeEvent, /) -> None:
        self.events.append(event)

    def observe_decode(self, step: npu_compile.DecodeStep, /) -> None:
        self.seen.append((step.padded_size, step.run_mode))

    def _set(self, lengths: Any) -> None:
        del lengths
        self.attention.lengths = [0] * self.size

    def prepare(self, size: int) -> None:
        self.attention.lengths = [0] * size

    def run(self, rows: int, seed: int = 0) -> torch.Tensor:
        self.size = self.runner.padded_size(rows)
        output: torch.Tensor = self.runner.run(inputs_of(rows, seed), {})
        self.device.synchronize()
        return output.clone()

    def expected(self, rows: int, seed: int = 0) -> torch.Tensor:
        size = self.runner.padded_size(rows)
        self.prepare(size)
        padded = {
            name: torch.cat([value, value.new_zeros(size - rows, *value.shape[1:])])
            for name, value in inputs_of(rows, seed).items()
        }
        output: torch.Tensor = self.decoder(**padded)[:rows]
        return output


def inputs_of(rows: int, seed: int) -> dict[str, torch.Tensor]:
    generator = torch.Generator().manual_seed(seed)
    return {
        "input_ids": torch.randint(0, 16, (rows,), generator=generator),
        "table": torch.randn(rows, 2, generator=generator),
    }


MIXED = {
    1: {EAGER: 1.0, FULL: 2.0, BREAKABLE: 3.0},
    2: {EAGER: 3.0, FULL: 2.0, BREAKABLE: 1.0},
    4: {EAGER: 3.0, FULL: 1.0, BREAKABLE: 2.0},
}


def test_each_size_runs_in_the_mode_that_was_fastest_and_gives_the_rows_of_the_model(
    decoder: Decoder, attention: AttentionOperator, monkeypatch: pytest.MonkeyPatch
) -> None:
    setting = Setting(decoder, attention, MIXED, monkeypatch)
    captured: list[tuple[int, int, int]] = []
    assert setting.runner.run_mode_choices == {}
    setting.runner.capture(setting.prepare, on_captured=lambda *each: captured.append(each))

    for turn, rows in enumerate((4, 1, 3, 2, 4, 1, 2)):
        found = setting.run(rows, turn)
        torch.testing.assert_close(found, setting.expected(rows, turn), rtol=0, atol=0)

    assert set(setting.seen) == {(1, EAGER), (2, BREAKABLE), (4, FULL)}
    assert captured == [(4, 1, 2), (2, 2, 2)]
    # Nothing of what was measured and not chosen is left.
    assert setting.compiled.num_captured_graphs == 1 + NUM_PIECES
    keys = {key.num_tokens: key for key in setting.compiled.captured_keys}
    assert keys.keys() == {2, 4}
    assert set(setting.recorder.keys) == {keys[4]}
    # The figures are kept, and the observer received them.
    choices = setting.runner.run_mode_choices
    assert {size: dict(choice.seconds) for size, choice in choices.items()} == MIXED
    told = [event for event in setting.events if isinstance(event, RunModeChoice)]
    assert told == [choices[size] for size in (4, 2, 1)]
    assert "eager 3,000,000 us (3.00x)" in str(choices[4])


def test_a_batch_is_two_steps_only_where_those_take_less_time(
    decoder: Decoder, attention: AttentionOperator, monkeypatch: pytest.MonkeyPatch
) -> None:
    prices = {1: {EAGER: 1.0}, 2: {FULL: 2.0}, 4: {FULL: 3.0}, 8: {FULL: 9.0}}
    setting = Setting(decoder, attention, prices, monkeypatch)
    runner = setting.runner
    assert runner.split_rows(5) == (5,)
    runner.capture(setting.prepare)

    # 3 rows cost as much in two steps as in one; 8 cost 6 and not 9; for 9 no size was measured.
    split = {rows: runner.split_rows(rows) for rows in range(1, 10)}

    assert split == {
        1: (1,),
        2: (2,),
        3: (3,),
        4: (4,),
        5: (4, 1),
        6: (4, 2),
        7: (4, 3),
        8: (4, 4),
        9: (9,),
    }
    assert [setting.run(rows, rows).shape[0] for rows in split[7]] == [4, 3]


def test_steps_that_cost_the_same_run_as_the_first_allowed_mode(
    decoder: Decoder, attention: AttentionOperator, monkeypatch: pytest.MonkeyPatch
) -> None:
    same = {2: dict.fromkeys((EAGER, BREAKABLE, FULL), 1.0)}
    for names, first in (
        ((), EAGER),
        (("full_decode_and_piecewise", "eager"), FULL),
    ):
        setting = Setting(decoder, attention, same, monkeypatch, measured_modes=names)
        setting.runner.capture(setting.prepare)

        choice = setting.runner.run_mode_choices[2]

        assert choice.chosen is first
        allowed = {npu_compile.CompileMode(name).decode_run_mode for name in names}
        assert set(choice.seconds) == (allowed or {EAGER, FULL, BREAKABLE})
        setting.runner.release()


def test_one_allowed_mode_is_not_measured(
    decoder: Decoder, attention: AttentionOperator, monkeypatch: pytest.MonkeyPatch
) -> None:
    setting = Setting(decoder, attention, {4: {EAGER: 0.0}}, monkeypatch, measured_modes=["full"])
    setting.runner.capture(setting.prepare)

    torch.testing.assert_close(setting.run(3), setting.expected(3), rtol=0, atol=0)

    assert setting.seen == [(4, FULL)]
    assert setting.runner.run_mode_choices == {}
    assert setting.compiled.num_captured_graphs == 1


def test_after_a_release_it_is_measured_again(
    decoder: Decoder, attention: AttentionOperator, monkeypatch: pytest.MonkeyPatch
) -> None:
    setting = Setting(decoder, attention, {2: {EAGER: 3.0, FULL: 1.0}}, monkeypatch)
    setting.runner.capture(setting.prepare)
    with pytest.raises(RunnerStateError, match="captured already"):
        setting.runner.capture(setting.prepare)

    setting.runner.release()
    with pytest.raises(RunnerStateError, match="not captured"):
        setting.run(2)
    setting.context.prices[2] = {EAGER: 1.0, FULL: 3.0}
    setting.runner.capture(setting.prepare)

    torch.testing.assert_close(setting.run(2), setting.expected(2), rtol=0, atol=0)
    assert setting.seen == [(2, EAGER)]
    assert setting.compiled.num_captured_graphs == 0


def test_prefill_is_measured_in_every_run_mode(
    decoder: Decoder, attention: AttentionOperator, monkeypatch: pytest.MonkeyPatch
) -> None:
    prices = {
        2: {EAGER: 1.0, FULL: 2.0, BREAKABLE: 2.0},
        4: {EAGER: 2.0, FULL: 3.0, BREAKABLE: 1.0},
        8: {EAGER: 2.0, FULL: 1.0, BREAKABLE: 2.0},
    }
    setting = Setting(decoder, attention, prices, monkeypatch)
    runner = PrefillRunner(
        setting.compiled,
        inputs=SPECS,
        max_sequences=4,
        set_lengths=lambda _: None,
        recorder=setting.recorder,
        lane=UpdateLane(setting.device),
        groups={},
    )
    runner.capture(setting.prepare)

    for rows in (1, 2, 3, 4, 7):
        size = runner.padded_size(rows)
        setting.prepare(size)
        found = runner.run(inputs_of(rows, rows), {}).clone()
        setting.device.synchronize()
        padded = {
            name: torch.cat([value, value.new_zeros(size - rows, *value.shape[1:])])
            for name, value in inputs_of(rows, rows).items()
        }
        torch.testing.assert_close(found, decoder(**padded)[:rows], rtol=0, atol=0)

    chosen = {size: choice.chosen for size, choice in runner.run_mode_choices.items()}
    assert chosen == {2: EAGER, 4: BREAKABLE, 8: FULL}
    assert setting.compiled.num_captured_graphs == NUM_PIECES + 1


def test_a_budget_holds_for_what_was_chosen(
    decoder: Decoder, attention: AttentionOperator, monkeypatch: pytest.MonkeyPatch
) -> None:
    setting = Setting(decoder, attention, MIXED, monkeypatch, capture_budget={})
    setting.runner.capture(setting.prepare)

    plan = setting.runner.capture_plan

    assert plan is not None
    assert plan.sizes == (2, 4)
    torch.testing.assert_close(setting.run(1), setting.expected(1), rtol=0, atol=0)


def test_a_mode_that_the_device_refuses_is_an_error_or_left_out(
    decoder: Decoder, attention: AttentionOperator, monkeypatch: pytest.MonkeyPatch
) -> None:
    prices = {4: {EAGER: 3.0, FULL: 1.0, BREAKABLE: 2.0}}
    setting = Setting(decoder, attention, prices, monkeypatch, device=SmallDevice(1))
    with pytest.raises(OutOfDeviceMemoryError):
        setting.runner.capture(setting.prepare)
    assert setting.compiled.num_captured_graphs == 0

    skipping = Setting(
        decoder,
        attention,
        prices,
        monkeypatch,
        device=SmallDevice(1),
        capture_failure="skip_size",
    )
    skipping.runner.capture(skipping.prepare)

    torch.testing.assert_close(skipping.run(3), skipping.expected(3), rtol=0, atol=0)
    choice = skipping.runner.run_mode_choices[4]
    assert choice.chosen is BREAKABLE
    assert isinstance(choice.refused[FULL], OutOfDeviceMemoryError)
    assert skipping.runner.skipped_sizes == {}
    assert skipping.compiled.num_captured_graphs == NUM_PIECES


def test_a_size_of_which_every_mode_is_refused_is_skipped(
    decoder: Decoder, attention: AttentionOperator, monkeypatch: pytest.MonkeyPatch
) -> None:
    setting = Setting(
        decoder,
        attention,
        {2: {FULL: 1.0}, 4: {FULL: 1.0}},
        monkeypatch,
        device=SmallDevice(1, 2),
        capture_failure="skip_size",
        measured_modes=["full", "piecewise"],
    )
    with pytest.warns(RuntimeWarning, match="the size is left out"):
        setting.runner.capture(setting.prepare)

    assert list(setting.runner.skipped_sizes) == [4]
    assert {key.num_tokens for key in setting.compiled.captured_keys} == {2}
    torch.testing.assert_close(setting.run(1), setting.expected(1), rtol=0, atol=0)


def test_ranks_choose_alike(
    decoder: Decoder, attention: AttentionOperator, monkeypatch: pytest.MonkeyPatch
) -> None:
    setting = Setting(decoder, attention, {2: {EAGER: 3.0, FULL: 1.0}}, monkeypatch)
    rounds = itertools.count()

    def exchange(row: tuple[int, ...]) -> list[tuple[int, ...]]:
        # What is captured first, and then nanoseconds in eager, full and piecewise.
        other = (0, 0, 0) if next(rounds) == 0 else (4 * 10**9, 5 * 10**9, 9 * 10**9)
        return [row, other]

    setting.runner.capture(setting.prepare, exchange=exchange)

    assert setting.runner.run_mode_choices[2].chosen is EAGER


def test_runner_needs_what_every_allowed_mode_needs(
    decoder: Decoder, attention: AttentionOperator, device: FakeDevice
) -> None:
    config = CompileConfig.from_mapping(
        {"mode": "measured", "capture_sizes": [2], "splitting_ops": [attention.name]}
    )
    compiled = npu_compile.compile_model(decoder, config, device=device)
    with pytest.raises(ConfigError, match="a recorder and a lane"):
        DecodeRunner(compiled, inputs=SPECS, set_lengths=lambda _: None)
    with pytest.raises(ConfigError, match="set_lengths is needed"):
        DecodeRunner(compiled, inputs=SPECS, recorder=Recorder(device), lane=UpdateLane(device))


@pytest.mark.parametrize(
    ("options", "problem"),
    [
        ({"measured_modes": ["ful"]}, "measured_modes is 'ful'; did you mean 'full'"),
        ({"measured_modes": "full"}, "measured_modes must be a list"),
        ({"measured_modes": ["full", "torchair"]}, "'torchair', which is compiled in another way"),
        ({"measured_modes": ["measured"]}, "expected some of eager, full, piecewise"),
        (
            {"measured_modes": ["breakable", "piecewise"], "splitting_ops": ["a::b"]},
            "name one of the two",
        ),
        ({"measured_modes": ["full", "piecewise"]}, "mode 'piecewise' needs splitting_ops"),
    ],
)
def test_bad_choices_of_modes_are_refused(options: dict[str, Any], problem: str) -> None:
    with pytest.raises(ConfigError) as raised:
        CompileConfig.from_mapping({"mode": "measured", **options})

    assert problem in str(raised.value)


def test_modes_that_are_measured_by_default() -> None:
    plain = CompileConfig.from_mapping({"mode": "measured"})
    split = CompileConfig.from_mapping({"mode": "measured", "splitting_ops": ["a::b"]})

    assert [mode.value for mode in plain.modes] == ["eager", "full"]
    assert [mode.value for mode in split.modes] == ["eager", "full", "piecewise"]
    assert split.decode_run_modes == (EAGER, FULL, BREAKABLE)
    assert split.prefill_run_modes == (EAGER, FULL, BREAKABLE)
    assert CompileConfig.from_mapping(split.to_mapping()) == split
