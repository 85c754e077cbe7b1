"""LSTM against torch in float64."""

from __future__ import annotations

from typing import Any

import pytest
import torch

import cann_sim

ATEN: Any = torch.ops.aten
STEPS, BATCH, SIZE, HIDDEN = 5, 3, 4, 6


def network(
    layers: int,
    two_way: bool,
    biased: bool,
    dtype: torch.dtype,
) -> tuple[list[torch.Tensor], list[torch.Tensor], torch.Tensor]:
    """Return the first states, the parameters and an input."""
    generator = torch.Generator().manual_seed(7)

    def drawn(*shape: int) -> torch.Tensor:
        return torch.rand(shape, generator=generator).sub(0.5).to(dtype)

    directions = 2 if two_way else 1
    states = [drawn(layers * directions, BATCH, HIDDEN) for _ in range(2)]
    parameters = []
    for layer in range(layers):
        size = SIZE if layer == 0 else HIDDEN * directions
        for _ in range(directions):
            parameters += [drawn(4 * HIDDEN, size), drawn(4 * HIDDEN, HIDDEN)]
            parameters += [drawn(4 * HIDDEN), drawn(4 * HIDDEN)] if biased else []
    return states, parameters, drawn(STEPS, BATCH, SIZE)


def on_device(
    x: torch.Tensor, states: list[torch.Tensor], parameters: list[torch.Tensor]
) -> tuple[torch.Tensor, list[torch.Tensor], list[torch.Tensor]]:
    """Return the first three arguments of an LSTM."""
    return x.to("npu"), [s.to("npu") for s in states], [p.to("npu") for p in parameters]


@pytest.mark.parametrize("dtype", [torch.float16, torch.float32])
@pytest.mark.parametrize("two_way", [False, True])
@pytest.mark.parametrize("biased", [False, True])
@pytest.mark.parametrize("batch_first", [False, True])
def test_lstm_and_its_gradients_equal_torch(
    conformance: Any,
    dtype: torch.dtype,
    two_way: bool,
    biased: bool,
    batch_first: bool,
) -> None:
    states, parameters, x = network(2, two_way, biased, dtype)
    x = x.transpose(0, 1).contiguous() if batch_first else x

    def run(*inputs: torch.Tensor) -> tuple[Any, tuple[torch.Tensor, ...]]:
        inputs = tuple(values.detach().requires_grad_() for values in inputs)
        options = (biased, 2, 0.0, True, two_way)
        # By its own name, since torch_npu leaves all but one layer of one direction to an operator
        # of the older road.
        lstm = torch.ops.npu._lstm_npu if (inputs[0].device.type == "npu") else ATEN.lstm.input
        results = lstm(inputs[0], inputs[1:3], inputs[3:], *options, batch_first=batch_first)[:3]
        total = results[0].sum() + results[1].pow(2).sum() - results[2].sum()
        return results, torch.autograd.grad(total, inputs)

    inputs = (x, *states, *parameters)
    results, gradients = run(*(values.to("npu") for values in inputs))
    expected, slopes = run(*(values.double() for values in inputs))
    magnitude = torch.tensor(8.0).double()
    for result, reference in zip(results, expected, strict=True):
        conformance.close(
            result.detach().cpu(), reference.detach(), ulps=64, magnitude=magnitude, roundings=2
        )
    for gradient, slope in zip(gradients, slopes, strict=True):
        # A gradient of half precision starts from rounded results.
        ulps = 64 if dtype == torch.float32 else 2**15
        conformance.close(gradient.cpu(), slope, ulps=ulps, magnitude=magnitude, roundings=2)


def test_lstm_keeps_gates_and_states_for_training() -> None:
    states, parameters, x = network(1, False, True, torch.float32)
    kept = torch.ops.npu._lstm_npu(*on_device(x, states, parameters), True, 1, 0.0, True, False)
    i, j, f, o, h, c, tanhc = (values.cpu()[0] for values in kept[3:])
    before = torch.cat([states[1], c[:-1]])
    torch.testing.assert_close(c, f * before + i * j)
    torch.testing.assert_close(tanhc, c.tanh())
    torch.testing.assert_close(h, o * tanhc)
    torch.testing.assert_close(h, kept[0].cpu())


def test_lstm_over_sequences_of_different_lengths_stops_at_their_ends() -> None:
    states, parameters, x = network(1, True, True, torch.float32)
    rows = torch.tensor([3, 3, 2, 1, 1])
    kept = torch.ops.npu._lstm_npu(
        *on_device(x.reshape(STEPS * BATCH, SIZE), states, parameters),
        True,
        1,
        0.0,
        False,
        True,
        batch_first=False,
        batch_sizes=rows.to("npu"),
    )
    there = torch.arange(BATCH) < rows.unsqueeze(1)
    output, hidden, cell = ATEN.lstm.data(
        x[there], rows, states, parameters, True, 1, 0.0, False, True
    )
    found = kept[0].cpu().view(STEPS, BATCH, 2 * HIDDEN)
    torch.testing.assert_close(found[there], output)
    assert not found[~there].any()
    torch.testing.assert_close(kept[1].cpu(), hidden)
    torch.testing.assert_close(kept[2].cpu(), cell)


def test_lstm_with_dropout_is_refused() -> None:
    states, parameters, x = network(2, False, True, torch.float32)
    with pytest.raises(RuntimeError, match="aclnnLSTM: argument 'dropout'"):
        torch.ops.npu._lstm_npu(
            *on_device(x, states, parameters),
            True,
            2,
            0.5,
            True,
            False,
        )


def test_lstm_of_torch_with_one_layer_takes_it(conformance: Any) -> None:
    states, parameters, x = network(1, False, True, torch.float32)
    options = (True, 1, 0.0, False, False, False)
    launched = cann_sim.counters()
    found = ATEN.lstm.input(*on_device(x, states, parameters), *options)
    expected = ATEN.lstm.input(
        x.double(), [s.double() for s in states], [p.double() for p in parameters], *options
    )
    for result, reference in zip(found, expected, strict=True):
        conformance.close(result.cpu(), reference, ulps=64, magnitude=torch.tensor(4.0).double())
    assert (cann_sim.counters() - launched).launches_by_operator["aclnnLSTM"] == 1


@pytest.mark.parametrize("dtype", [torch.float16, torch.float32])
@pytest.mark.parametrize("biased", [False, True])
def test_lstm_cell_and_its_gradients_equal_torch(
    conformance: Any,
    dtype: torch.dtype,
    biased: bool,
) -> None:
    states, parameters, x = network(1, False, biased, torch.float32)
    # The two products are exact, so that only the cell rounds.
    gates = [
        (x[0] @ parameters[0].t()).to(dtype),
        (states[0][0] @ parameters[1].t()).to(dtype),
        states[1][0].to(dtype),
        *(bias.to(dtype) for bias in parameters[2:]),
    ]

    def cell(*inputs: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        i, f, g, o = (inputs[0] + inputs[1] + sum(inputs[3:])).chunk(4, 1)
        c = f.sigmoid() * inputs[2] + i.sigmoid() * g.tanh()
        return o.sigmoid() * c.tanh(), c

    device = [values.to("npu").requires_grad_() for values in gates]
    wide = [values.double().requires_grad_() for values in gates]
    found = ATEN._thnn_fused_lstm_cell(*device)[:2]
    expected = cell(*wide)
    for result, reference in zip(found, expected, strict=True):
        conformance.close(result.detach().cpu(), reference.detach(), ulps=32)
    slopes = torch.autograd.grad(expected[0].sum() - expected[1].sum(), wide)
    gradients = torch.autograd.grad(found[0].sum() - found[1].sum(), device)
    magnitude = torch.tensor(4.0).double()
    for gradient, slope in zip(gradients, slopes, strict=True):
        # A gradient of half precision starts from rounded gates.
        ulps = 64 if dtype == torch.float32 else 2**14
        conformance.close(gradient.cpu(), slope, ulps=ulps, magnitude=magnitude)
