"""Steps of optimisers and of gradient scaling."""

from __future__ import annotations

import torch

STATE = ("exp_avg", "exp_avg_sq")


def test_fused_adamw_follows_the_plain_one() -> None:
    start = torch.randn(4, 3, generator=torch.Generator().manual_seed(1))
    plain = torch.nn.Parameter(start.double())
    device = torch.nn.Parameter(start.to("npu"))
    reference = torch.optim.AdamW([plain], lr=0.01, weight_decay=0.1)
    averages, squares = torch.zeros_like(device), torch.zeros_like(device)
    step = torch.zeros((), device="npu")
    for number in range(5):
        gradient = torch.randn(4, 3, generator=torch.Generator().manual_seed(10 + number))
        plain.grad = gradient.double()
        reference.step()
        step += 1
        with torch.no_grad():
            torch._fused_adamw_(
                [device],
                [gradient.to("npu")],
                [averages],
                [squares],
                [],
                [step],
                lr=0.01,
                beta1=0.9,
                beta2=0.999,
                weight_decay=0.1,
                eps=1e-8,
                amsgrad=False,
                maximize=False,
            )
    assert torch.allclose(device.detach().cpu().double(), plain.detach(), rtol=1e-5, atol=1e-6)
    state = reference.state[plain]
    for name, values in zip(STATE, (averages, squares), strict=True):
        assert torch.allclose(values.cpu().double(), state[name], rtol=1e-5, atol=1e-7)


def test_scale_grows_after_an_interval_and_shrinks_after_an_overflow() -> None:
    scale = torch.tensor([4.0]).to("npu")
    tracker = torch.zeros(1, dtype=torch.int32).to("npu")
    seen = []
    for found in (0.0, 0.0, 1.0):
        overflow = torch.tensor([found]).to("npu")
        torch._amp_update_scale_(scale, tracker, overflow, 2.0, 0.5, 2)
        seen.append((scale.item(), tracker.item()))
    assert seen == [(4.0, 1), (8.0, 0), (4.0, 0)]


def test_unscaling_finds_what_is_not_finite() -> None:
    for bad in (1.0, float("inf"), float("nan")):
        gradients = [torch.tensor([2.0, bad]).to("npu"), torch.tensor([8.0]).half().to("npu")]
        found = torch.zeros(1).to("npu")
        for gradient in gradients:
            torch._amp_foreach_non_finite_check_and_unscale_(
                [gradient], found, torch.tensor([0.25]).to("npu")
            )
        assert found.item() == (0.0 if bad == 1.0 else 1.0)
        assert gradients[0][0].item() == 0.5
        assert gradients[1].item() == 2.0
