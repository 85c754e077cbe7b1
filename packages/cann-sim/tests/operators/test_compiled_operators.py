"""Operators of the older interface, which torch_npu uses if there is no aclnn operator."""

from __future__ import annotations

import math
from typing import Any

import pytest
import torch
import torch_npu

from operators.drawn_tensors import random

HALF_AND_SINGLE = [torch.float16, torch.float32]
FLOATS = [torch.bfloat16, *HALF_AND_SINGLE]


def boxes(count: int, seed: int, dtype: torch.dtype = torch.float32) -> torch.Tensor:
    """Return [count, 4]: corners of boxes within 30 of the origin, with both sides above 1."""
    generator = torch.Generator().manual_seed(seed)
    corner = torch.rand(count, 2, generator=generator) * 20
    return torch.cat([corner, corner + 1 + torch.rand(count, 2, generator=generator) * 9], 1).to(
        dtype
    )


@pytest.mark.parametrize("dtype", FLOATS)
@pytest.mark.parametrize("sizes", [((2, 3, 5), (2, 5, 4)), ((3, 4), (3, 4, 2)), ((40, 7), (7, 33))])
def test_batch_matmul_broadcasts_and_rounds_once(
    conformance: Any, dtype: torch.dtype, sizes: tuple[tuple[int, ...], tuple[int, ...]]
) -> None:
    a, b = (random(*size, seed=n, dtype=dtype) for n, size in enumerate(sizes))
    result = torch_npu.npu_bmmV2(a.to("npu"), b.to("npu"), []).cpu()
    magnitude = torch.tensor(32.0).double()
    conformance.close(result, a.double() @ b.double(), ulps=16, magnitude=magnitude)


def test_batch_matmul_of_a_transpose_reads_its_memory(conformance: Any) -> None:
    a, b = random(2, 5, 3).to("npu").transpose(1, 2), random(2, 5, 4, seed=1).to("npu")
    result = torch_npu.npu_bmmV2(a, b, []).cpu()
    magnitude = torch.tensor(32.0).double()
    expected = a.cpu().double() @ b.cpu().double()
    conformance.close(result, expected, ulps=16, magnitude=magnitude)


def test_matmul_with_the_operator_compiler_on_equals_a_product(run_forked: Any) -> None:
    code = """
import cann_sim
cann_sim.activate()
import torch, torch_npu
torch.npu.set_compile_mode(jit_compile=True)
a, b = torch.randn(3, 5), torch.randn(5, 4)
result = torch.mm(a.to("npu"), b.to("npu")).cpu()
print(torch.allclose(result, a @ b, atol=1e-6), cann_sim.counters().launches_by_operator)
"""
    done = run_forked(code, environment={"TASK_QUEUE_ENABLE": "0"})
    assert "True {'MatMul': 1}" in done.output, done.errors


@pytest.mark.parametrize("dtype", [torch.float16, torch.int32, torch.int64])
def test_rearrangements_move_every_value(dtype: torch.dtype) -> None:
    values = torch.arange(24).view(2, 3, 4).to(dtype)
    device = values.to("npu")
    moved = torch_npu.npu_transpose(device, (2, 0, 1)).cpu()
    assert torch.equal(moved, values.permute(2, 0, 1))
    assert torch.equal(
        torch_npu.npu_broadcast(device[:, :1].contiguous(), (2, 3, 4)).cpu(),
        values[:, :1].expand(2, 3, 4),
    )
    assert torch.equal(torch_npu.npu_slice(device, [1, 0, 1], [1, 2, 3]).cpu(), values[1:, :2, 1:4])
    expected = values.view(2, 12).view(4, 6).permute(1, 0)
    found = torch_npu.npu_confusion_transpose(device.view(2, 12), (1, 0), (4, 6), False)
    assert torch.equal(found.cpu(), expected)
    found = torch_npu.npu_confusion_transpose(device, (2, 0, 1), (4, 6), True)
    assert torch.equal(found.cpu(), values.permute(2, 0, 1).reshape(4, 6))


def test_padding_surrounds_with_zeros() -> None:
    values = random(2, 3, dtype=torch.float16)
    found = torch_npu.npu_pad(values.to("npu"), [1, 0, 2, 3]).cpu()
    assert torch.equal(found, torch.nn.functional.pad(values, (2, 3, 1, 0)))


def test_strided_sum_takes_blocks_of_channels() -> None:
    x, y = random(1, 40, 2, 1, 1), random(1, 33, 2, 1, 1, seed=1)
    found = torch_npu.npu_stride_add(x.to("npu"), y.to("npu"), 1, 2, 1).cpu()
    expected = torch.zeros(1, 16, 2, 1, 1)
    expected += x[:, 16:32]
    expected[:, :1] += y[:, 32:]
    assert torch.equal(found, expected)


def test_filled_ranges_are_of_a_row_on_the_last_axis() -> None:
    values = torch.zeros(2, 3, 6)
    start, end = torch.tensor([[0, 2]]).int(), torch.tensor([[3, 4]]).int()
    found = torch_npu.npu_masked_fill_range(
        values.to("npu"), start.to("npu"), end.to("npu"), torch.tensor([7.0]).to("npu"), 2
    ).cpu()
    values[0, :, 0:3] = values[1, :, 2:4] = 7
    assert torch.equal(found, values)


@pytest.mark.parametrize("dtype", HALF_AND_SINGLE)
def test_signs_are_packed_and_unpacked(dtype: torch.dtype) -> None:
    values = random(29, dtype=dtype)
    packed = torch_npu.npu_sign_bits_pack(values.to("npu"), 2).cpu()
    signs = torch.cat([values >= 0, torch.zeros(3, dtype=torch.bool)]).view(4, 8)
    expected = (signs.int() << torch.arange(8)).sum(1).view(2, 2)
    assert torch.equal(packed.int(), expected.int())
    unpacked = torch_npu.npu_sign_bits_unpack(packed.view(-1).to("npu"), 2, dtype).cpu()
    assert torch.equal(unpacked, signs.view(2, 16).to(dtype) * 2 - 1)


@pytest.mark.parametrize("dtype", FLOATS)
def test_activations_and_their_gradients_round_once(conformance: Any, dtype: torch.dtype) -> None:
    values, grad = random(5, 7, dtype=dtype), random(5, 7, seed=1, dtype=dtype)
    for name, reference in (
        ("npu_mish", torch.nn.functional.mish),
        ("npu_silu", torch.nn.functional.silu),
    ):
        device = values.to("npu").requires_grad_()
        result = getattr(torch_npu, name)(device)
        found = torch.autograd.grad(result, device, grad.to("npu"))[0].cpu()
        wide = values.double().requires_grad_()
        expected = reference(wide)
        magnitude = torch.tensor(4.0).double()
        conformance.close(result.detach().cpu(), expected.detach(), magnitude=magnitude)
        gradient = torch.autograd.grad(expected, wide, grad.double())[0]
        conformance.close(found, gradient, magnitude=magnitude)


@pytest.mark.parametrize("dtype", FLOATS)
def test_cross_entropy_with_distributions_and_its_gradient(
    conformance: Any, dtype: torch.dtype
) -> None:
    logits, labels = random(4, 6, dtype=dtype), random(4, 6, seed=1).softmax(-1).to(dtype)
    device = logits.to("npu").requires_grad_()
    loss = torch_npu.npu_softmax_cross_entropy_with_logits(device, labels.to("npu"))
    gradient = torch.autograd.grad(loss.sum(), device)[0].cpu()
    wide, weights = logits.double(), labels.double()
    magnitude = torch.tensor(8.0).double()
    expected = -(weights * wide.log_softmax(-1)).sum(-1)
    conformance.close(loss.detach().cpu(), expected, magnitude=magnitude)
    # The gradient of the loss is multiplied by that of the sum, a second operator.
    expected = wide.softmax(-1) - weights
    conformance.close(gradient, expected, roundings=2, magnitude=magnitude)


@pytest.mark.parametrize("kind", [0, 1])
def test_batch_normalised_by_the_values_of_each_sequence(conformance: Any, kind: int) -> None:
    values, lengths = random(3, 4, 9), torch.tensor([9, 5, 3]).int()
    found = torch_npu.npu_normalize_batch(values.to("npu"), lengths.to("npu"), kind).cpu()
    wide = values.double()
    expected = torch.empty_like(wide)
    for entry, length in enumerate(lengths):
        used = wide[entry, :, :length]
        dims = (1,) if kind == 0 else (0, 1)
        mean, deviation = used.mean(dims, keepdim=True), used.std(dims, keepdim=True)
        expected[entry] = (wide[entry] - mean) / (deviation + 1e-5)
    conformance.close(found, expected, ulps=64, magnitude=torch.tensor(8.0).double())


@pytest.mark.parametrize("name", ["npu_max", "npu_min"])
def test_extreme_and_its_first_place(name: str) -> None:
    values = torch.tensor([[1.0, 5.0, 5.0], [2.0, 2.0, 0.0]])
    found, place = getattr(torch_npu, name)(values.to("npu"), 1)
    expected, where = getattr(values, name.removeprefix("npu_"))(1)
    assert torch.equal(found.cpu(), expected)
    assert torch.equal(place.cpu().long(), where)


@pytest.mark.parametrize("descending", [False, True])
def test_values_are_sorted_along_any_axis(descending: bool) -> None:
    values = random(3, 5, 4, dtype=torch.float16)
    for axis in (-1, 0, 1):
        found = torch_npu.npu_sort_v2(values.to("npu"), axis, descending).cpu()
        assert torch.equal(found, values.sort(axis, descending).values)


@pytest.mark.parametrize("dtype", FLOATS)
@pytest.mark.parametrize("power", [0.0, 0.5, 1.0, 1.5, 2.0, math.inf])
def test_gradient_of_distances(conformance: Any, power: float, dtype: torch.dtype) -> None:
    x1, x2, grad = (
        random(2, *size, seed=n, dtype=dtype) for n, size in enumerate(((4, 3), (5, 3), (4, 5)))
    )
    distance = torch.cdist(x1.float(), x2.float(), power).to(dtype)
    inputs = (grad, x1, x2)
    found = torch.ops.aten._cdist_backward(
        *(i.to("npu") for i in inputs), power, distance.to("npu")
    )
    expected = torch.ops.aten._cdist_backward(
        *(i.double() for i in inputs), power, distance.double()
    )
    if power == math.inf:
        # In the precision that decides what equals the distance.
        difference = x1.unsqueeze(2).float() - x2.unsqueeze(1).float()
        reached = difference.sign() * (difference.abs() >= distance.unsqueeze(-1))
        expected = (reached * grad.double().unsqueeze(-1)).sum(2)
    magnitude = torch.tensor(64.0).double()
    conformance.close(found.cpu(), expected, ulps=128, magnitude=magnitude)


def optimizer_state(dtype: torch.dtype) -> list[torch.Tensor]:
    """Return a parameter, its moments and a gradient."""
    var, m, grad = (random(6, 5, seed=seed, dtype=dtype) for seed in range(3))
    return [var, m, random(6, 5, seed=3, dtype=dtype).abs(), grad]


def check_step(
    conformance: Any, found: Any, expected: tuple[torch.Tensor, torch.Tensor, torch.Tensor]
) -> None:
    magnitude = torch.tensor(16.0).double()
    for result, reference in zip(found, expected, strict=True):
        conformance.close(result.cpu(), reference, ulps=64, magnitude=magnitude)


def moments(state: list[torch.Tensor]) -> tuple[torch.Tensor, torch.Tensor]:
    """Return the moments after one more gradient, with the decays 0.75 and 0.5."""
    _, m, v, grad = (values.double() for values in state)
    return m * 0.75 + grad * 0.25, v * 0.5 + grad**2 * 0.5


@pytest.mark.parametrize("dtype", HALF_AND_SINGLE)
@pytest.mark.parametrize("nesterov", [False, True])
def test_adam_step_updates_the_parameter_and_its_moments(
    conformance: Any,
    dtype: torch.dtype,
    nesterov: bool,
) -> None:
    state = optimizer_state(dtype)
    out = tuple(values.to("npu") for values in state[:3])
    found = torch_npu.npu_apply_adam(
        0.75, 0.5, 0.125, 0.75, 0.5, 0.25, state[3].to("npu"), False, nesterov, out=out
    )
    m, v = moments(state)
    direction = m * 0.75 + state[3].double() * 0.25 if nesterov else m
    step = 0.125 * 0.5**0.5 / 0.25
    expected = state[0].double() - step * direction / (v.sqrt() + 0.25)
    check_step(conformance, found, (expected, m, v))


@pytest.mark.parametrize("dtype", HALF_AND_SINGLE)
@pytest.mark.parametrize("maximize", [False, True])
def test_adamw_step_decays_the_parameter(
    conformance: Any,
    dtype: torch.dtype,
    maximize: bool,
) -> None:
    state = optimizer_state(dtype)
    out = tuple(values.to("npu") for values in state[:3])
    found = torch_npu.npu_apply_adam_w(
        1.0, 1.0, 0.125, 0.5, 0.75, 0.5, 0.25, state[3].to("npu"), None, False, maximize, out=out
    )
    state[3] = -state[3] if maximize else state[3]
    m, v = moments(state)
    decayed = state[0].double() * (1 - 0.125 * 0.5)
    expected = decayed - 0.125 / 0.25 * m / ((v / 0.5).sqrt() + 0.25)
    check_step(conformance, found, (expected, m, v))


@pytest.mark.parametrize("mode", [0, 1])
@pytest.mark.parametrize("norm", [0.5, 4.0])
def test_bert_adam_step_clips_only_in_its_plain_mode(
    conformance: Any, mode: int, norm: float
) -> None:
    state = optimizer_state(torch.float32)
    out = tuple(values.to("npu") for values in state[:3])
    found = torch_npu.npu_bert_apply_adam(
        0.125, 0.75, 0.5, 0.25, state[3].to("npu"), 2.0, norm, 0.5, 0.0625, mode, out=out
    )
    state[3] = state[3] * (0.5 if norm > 2 and mode == 0 else 1)
    m, v = moments(state)
    step = 0.0625 if mode else 0.125
    expected = state[0].double() * (1 - 0.125 * 0.5) - step * m / (v.sqrt() + 0.25)
    check_step(conformance, found, (expected, m, v))


@pytest.mark.parametrize("dtype", FLOATS)
def test_dropout_with_a_mask_of_bytes_keeps_its_share(dtype: torch.dtype) -> None:
    torch_npu.npu.manual_seed(3)
    values = torch.full((40, 500), 3.0, dtype=dtype).to("npu").requires_grad_()
    result = torch_npu.dropout_with_byte_mask(values, 0.25, True)
    gradient = torch.autograd.grad(result.sum(), values)[0].cpu()
    kept = result.detach().cpu().float()
    # Five standard deviations of the number of values kept.
    spread = 5 * (20_000 * 0.25 * 0.75) ** 0.5
    assert abs(int((kept != 0).sum()) - 15_000) < spread
    assert set(kept.unique().tolist()) == {0.0, 4.0}
    assert torch.equal(gradient != 0, kept != 0)


def test_dropout_after_softmax_and_its_gradient(conformance: Any) -> None:
    scores, bias = random(2, 3, 4, 16), random(2, 3, 4, 16, seed=1)
    device = bias.to("npu").requires_grad_()
    mask, weights, dropped = torch_npu.npu_dropout_with_add_softmax(
        device, scores.to("npu"), 0.5, 0.25, -1
    )
    above = random(2, 3, 4, 16, seed=2)
    found = torch.autograd.grad(dropped, device, above.to("npu"))[0].cpu()
    keep = mask.cpu().view(2, 3, 4, 16).double() / 0.75
    wide = bias.double().requires_grad_()
    expected = (scores.double() + wide * 0.5).softmax(-1)
    conformance.close(weights.detach().cpu(), expected.detach(), ulps=16)
    conformance.close(dropped.detach().cpu(), (expected * keep).detach(), ulps=16)
    gradient = torch.autograd.grad(expected * keep, wide, above.double())[0]
    conformance.close(found, gradient, ulps=32, magnitude=torch.tensor(4.0).double())


def test_flags_of_overflow_begin_as_zeros() -> None:
    assert not torch_npu.npu_alloc_float_status(torch.ones(2).to("npu")).cpu().any()


@pytest.mark.parametrize("dtype", HALF_AND_SINGLE)
def test_boxes_are_encoded_in_half_precision_and_decoded(
    conformance: Any, dtype: torch.dtype
) -> None:
    anchors, truth = boxes(9, 0, dtype), boxes(9, 1, dtype)
    means, deviations = (0.0, 0.125, 0.0, 0.25), (1.0, 0.5, 2.0, 0.25)
    options = (*means, *deviations)
    found = torch_npu.npu_bounding_box_encode(anchors.to("npu"), truth.to("npu"), *options).cpu()

    def centred(wide: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        return (wide[:, :2] + wide[:, 2:]) / 2, wide[:, 2:] - wide[:, :2] + 1

    centre, size = centred(anchors.double())
    to_centre, to_size = centred(truth.double())
    plain = torch.cat([(to_centre - centre) / size, (to_size / size).log()], 1)
    expected = (plain - torch.tensor(means).double()) / torch.tensor(deviations).double()
    # A dozen roundings to float16 of values up to 32.
    assert (found.double() - expected).abs().max() < 12 * 32 * 2**-11
    deltas = random(9, 4, seed=2).mul(0.5).to(dtype)
    found = torch_npu.npu_bounding_box_decode(
        anchors.to("npu"), deltas.to("npu"), *options, (40, 30), 0.5
    ).cpu()
    moved = deltas.double() * torch.tensor(deviations) + torch.tensor(means)
    centre = centre + size * moved[:, :2]
    half = size * moved[:, 2:].clamp(-math.log(2), math.log(2)).exp() / 2
    ends = torch.cat([centre - half + 0.5, centre + half - 0.5], 1)
    limits = torch.tensor([29.0, 39.0, 29.0, 39.0]).double()
    magnitude = torch.tensor(64.0).double()
    conformance.close(found, ends.clamp_min(0).minimum(limits), ulps=16, magnitude=magnitude)


def test_anchors_of_cells_with_a_centre_are_flagged() -> None:
    truth = torch.tensor([[0.0, 0.0, 8.0, 8.0], [30.0, 10.0, 34.0, 14.0]])
    found = torch_npu.npu_anchor_response_flags(truth.to("npu"), [3, 5], [8, 8], 2).cpu()
    expected = torch.zeros(3, 5, 2, dtype=torch.uint8)
    expected[0, 0] = expected[1, 4] = 1
    assert torch.equal(found, expected.view(-1))


def overlap(kind: str, own: torch.Tensor, other: torch.Tensor) -> torch.Tensor:
    """Return the overlap of each pair of boxes, [4, n] each, in float64."""
    low, high = torch.maximum(own[:2], other[:2]), torch.minimum(own[2:], other[2:])
    inner = (high - low).clamp_min(0).prod(0)
    size, to_size = own[2:] - own[:2], other[2:] - other[:2]
    united = size.prod(0) + to_size.prod(0) - inner
    hull = torch.maximum(own[2:], other[2:]) - torch.minimum(own[:2], other[:2])
    share = inner / united
    if kind == "npu_giou":
        return share - (hull.prod(0) - united) / hull.prod(0)
    between = (own[:2] + own[2:] - other[:2] - other[2:]) / 2
    near = share - (between**2).sum(0) / (hull**2).sum(0)
    if kind == "npu_diou":
        return near
    turned = (to_size[0] / to_size[1]).atan() - (size[0] / size[1]).atan()
    shape = 4 / math.pi**2 * turned**2
    return near - shape * (shape / (1 - share + shape)).detach()


# torch_npu has no GIoU of corners.
@pytest.mark.parametrize(
    ("kind", "centred"),
    [
        ("npu_giou", True),
        ("npu_diou", True),
        ("npu_diou", False),
        ("npu_ciou", True),
        ("npu_ciou", False),
    ],
)
def test_overlap_of_pairs_and_its_gradient(
    conformance: Any,
    kind: str,
    centred: bool,
) -> None:
    pair = [boxes(12, seed).t().contiguous() for seed in (3, 4)]
    if centred:
        pair = [torch.cat([(b[:2] + b[2:]) / 2, b[2:] - b[:2]]) for b in pair]
    # torch_npu has no gradients of corners.
    own, other = (part.to("npu").requires_grad_(centred) for part in pair)
    options = (centred, False, 0, True) if kind == "npu_ciou" else (centred, False, 0)
    result = getattr(torch_npu, kind)(own, other, *options)
    wide = [part.double().requires_grad_() for part in pair]
    corners = [torch.cat([w[:2] - w[2:] / 2, w[:2] + w[2:] / 2]) if centred else w for w in wide]
    expected = overlap(kind, *corners)
    magnitude = torch.tensor(64.0).double()
    conformance.close(
        result.detach().cpu().view(-1), expected.detach(), ulps=16, magnitude=magnitude
    )
    if not centred:
        return
    above = random(12, seed=5)
    found = torch.autograd.grad(result, [own, other], above.to("npu").view(result.shape))
    gradients = torch.autograd.grad(expected, wide, above.double())
    for gradient, reference in zip(found, gradients, strict=True):
        conformance.close(gradient.cpu(), reference, ulps=64, magnitude=magnitude)


@pytest.mark.parametrize("number", [0.5, 1.0, 2.0])
def test_number_of_the_host_compares_with_values(number: float) -> None:
    values = torch.tensor([0.5, 1.0, 1.5])
    found = torch.ge(torch.tensor(number), values.to("npu")).cpu()
    assert torch.equal(found, torch.ge(torch.tensor(number), values))


def test_refused_call_names_the_argument(refusal_of: Any) -> None:
    tensors = "torch.ones(2, 5).npu(), torch.ones(2, 4).npu()"
    others = "0, 0, 0, 0, 1, 1, 1, 1, (10, 10), 0.1"
    expected = "BoundingBoxDecode: argument 'rois': expected shape [2, 4], found [2, 5]"
    assert expected in refusal_of(f"torch_npu.npu_bounding_box_decode({tensors}, {others})")
