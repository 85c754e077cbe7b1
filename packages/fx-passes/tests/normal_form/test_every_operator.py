"""The normal form of every operator with torch samples is bitwise identical to the original."""

from __future__ import annotations

from itertools import zip_longest
from typing import TYPE_CHECKING, Any

import pytest
import torch
from torch import Tensor
from torch._subclasses.fake_tensor import FakeTensorMode
from torch.testing._internal.common_methods_invocations import op_db
from torch.testing._internal.common_utils import set_rng_seed
from torch.utils._pytree import tree_leaves

from fx_passes import normalize_graph
from normal_form.spelt_calls import SpeltCall, spelt_calls

if TYPE_CHECKING:
    from collections.abc import Iterator

    from torch.fx import GraphModule
    from torch.testing._internal.opinfo.core import OpInfo, SampleInput

# What torch says of samples is not what is tested.
pytestmark = pytest.mark.filterwarnings("ignore")
DTYPES = (torch.float32, torch.int64, torch.bool)
SEED = 11
# LAPACK's least squares round depending on addresses: the same call twice gives other last bits.
ROUNDED_BY_ADDRESS = frozenset({"linalg.lstsq"})


def made(samples: Iterator[SampleInput]) -> Iterator[SampleInput]:
    """Yield samples, as far as torch makes them: some ask for a GPU on any device."""
    while True:
        try:
            sample = next(samples, None)
        except (AssertionError, RuntimeError) as error:
            pytest.skip(f"torch makes no sample of it here: {error}")
        if sample is None:
            return
        yield sample


def samples(info: OpInfo) -> Iterator[list[SpeltCall]]:
    """Return the spellings of each of torch's samples, the dtypes in turn."""
    supported: set[torch.dtype] = info.supported_dtypes("cpu")  # type: ignore[no-untyped-call]
    others = sorted(supported, key=str)[:1]
    set_rng_seed(SEED)  # type: ignore[no-untyped-call]
    # Not by `info.sample_inputs`, which looks through the whole stack for the test that asks.
    drawn = [
        made(iter(info.sample_inputs_func(info, "cpu", dtype, False)))
        for dtype in [dtype for dtype in DTYPES if dtype in supported] or others
    ]
    for each in zip_longest(*drawn):
        for sample in filter(None, each):
            yield list(spelt_calls(info, sample))


def results(module: GraphModule, tensors: list[Tensor]) -> list[Any]:
    """Run on copies; the module gives the tensors back, which it may have written."""
    # Not by `torch.manual_seed`, which keeps the stack for each device that is not in use.
    torch.default_generator.manual_seed(SEED)
    return tree_leaves(module(*(tensor.clone() for tensor in tensors)))


def comparable(tensor: Tensor) -> Tensor:
    dense = tensor if tensor.layout is torch.strided else tensor.to_dense()
    return dense.to(torch.complex64) if dense.dtype is torch.complex32 else dense


def assert_same(expected: list[Any], actual: list[Any], *, values: bool, tolerance: float) -> None:
    assert len(expected) == len(actual)
    for left, right in zip(expected, actual, strict=True):
        if not isinstance(left, Tensor):
            assert left == right or left != left  # noqa: PLR0124  # NaN
            continue
        assert (left.dtype, left.shape, left.layout) == (right.dtype, right.shape, right.layout)
        if left.layout is torch.strided:
            assert left.stride() == right.stride()
        if values:
            torch.testing.assert_close(
                comparable(right),
                comparable(left),
                rtol=tolerance,
                atol=tolerance,
                equal_nan=True,
            )


def means_what_it_did(info: OpInfo, call: SpeltCall) -> bool:
    """Compare a spelling with its normal form; return whether a graph can hold it so."""
    try:
        module, tensors = call.graph(FakeTensorMode().from_tensor)
        expected = results(module, tensors)
    except Exception:  # noqa: BLE001  # no graph holds it so, or torch refuses it
        return False
    if normalize_graph(module):
        module.recompile()
        # Memory that nobody has written holds anything.
        assert_same(
            expected,
            results(module, tensors),
            values="empty" not in info.name,
            tolerance=1e-4 if info.name in ROUNDED_BY_ADDRESS else 0,
        )
    return True


@pytest.mark.parametrize("info", op_db, ids=lambda info: info.full_name)
def test_every_spelling_means_what_it_did(info: OpInfo, num_samples: int) -> None:
    tried = 0
    for calls in samples(info):
        held = [means_what_it_did(info, call) for call in calls]
        tried += any(held)
        if tried == num_samples:
            return
    if not tried:
        pytest.skip("torch has no sample of it on the CPU that a graph can hold as one call")
