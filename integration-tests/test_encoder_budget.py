"""An encoder by budget: images of any number of patches, packed into graphs of so many tokens."""

from __future__ import annotations

import itertools
import warnings
from random import Random
from typing import TYPE_CHECKING, Any

import torch
from torch import nn
from torch.nn import functional as F  # noqa: N812

import cann_sim
import npu_compile
from attn_update import ParameterGroup, Recorder, UpdateLane
from npu_compile import CompileConfig, CompileMode, DecodeRunner, InputSpec, pack_sequences
from npu_graph_runtime import GraphContext, runs_eagerly

if TYPE_CHECKING:
    from collections.abc import Mapping

    from npu_graph_runtime import NpuDevice

LENGTHS = "actual_seq_lengths"
HEADS, HEAD_DIM, PATCH = 2, 32, 24
HIDDEN = HEADS * HEAD_DIM
BUDGETS = (16, 48)
MAX_IMAGES = 4
NUMBERS = itertools.count()


class Encoder(nn.Module):
    """Two layers of attention over whole images; attention takes where they end from the host.

    In graphs attention runs over all rows, those of padding as images of their own. Run eagerly it
    takes the rows that the lengths name and leaves the others as they are.
    """

    def __init__(self, recorder: Recorder, context: GraphContext, device: NpuDevice) -> None:
        super().__init__()
        generator = torch.Generator().manual_seed(0)

        def weight(*shape: int) -> nn.Parameter:
            values = torch.randn(shape, generator=generator) * shape[-1] ** -0.5
            values = values.to(device.torch_device, torch.float16)
            return nn.Parameter(values, requires_grad=False)

        self.embedding = weight(HIDDEN, PATCH)
        self.layers = nn.ParameterList(weight(3 * HIDDEN, HIDDEN) for _ in range(2))
        self.recorder = recorder
        self.ends: list[int] = []
        name = f"encoder_{next(NUMBERS)}"
        self.library = torch.library.Library("integration_tests", "FRAGMENT")  # type: ignore[no-untyped-call]
        self.library.define(  # type: ignore[no-untyped-call]
            f"{name}(Tensor q, Tensor k, Tensor v, Tensor(a!) out, str layer) -> ()"
        )
        launch = runs_eagerly(context)(self._attend)
        self.library.impl(name, launch, "PrivateUse1")  # type: ignore[no-untyped-call]
        self.operator = f"integration_tests::{name}"
        torch.library.register_fake(self.operator, lambda *_: None, lib=self.library)
        self._call = getattr(torch.ops.integration_tests, name).default

    def _attend(
        self, q: torch.Tensor, k: torch.Tensor, v: torch.Tensor, out: torch.Tensor, layer: str
    ) -> None:
        own = self.ends[-1] if self.ends else 0
        if own == 0:
            return
        arguments = {
            "query": q[:own],
            "key": k[:own],
            "value": v[:own],
            "input_layout": "TND",
            "num_heads": HEADS,
            "num_key_value_heads": HEADS,
            "scale": HEAD_DIM**-0.5,
            LENGTHS: self.ends,
            "actual_seq_lengths_kv": self.ends,
            "out": [out[:own], torch.empty(1, dtype=torch.float32, device=out.device)],
        }
        self.recorder.attention(layer, "encoder_attention", arguments)

    def forward(self, patches: torch.Tensor) -> torch.Tensor:
        """Return ``[T, HIDDEN]`` for patches ``[T, PATCH]`` of all images, concatenated."""
        hidden = F.linear(patches, self.embedding)
        for number, weight in enumerate(self.layers):
            q, k, v = F.linear(hidden, weight).view(-1, 3, HEADS, HEAD_DIM).unbind(1)
            out = torch.empty_like(q, memory_format=torch.contiguous_format)
            self._call(q.contiguous(), k.contiguous(), v.contiguous(), out, f"layers.{number}")
            hidden = hidden + out.reshape(-1, HIDDEN)
        return hidden


class Encoding:
    """An encoder run by a runner in one mode."""

    def __init__(self, mode: CompileMode, device: NpuDevice, lane: UpdateLane) -> None:
        recorder, context = Recorder(device), GraphContext()
        self.model = Encoder(recorder, context, device)
        config = CompileConfig(
            mode=mode,
            capture_sizes=BUDGETS,
            splitting_ops=(self.model.operator,),
            fuse=mode.splits,  # nothing is to fuse, and without a compiler it is sooner there
        )
        compiled = npu_compile.compile_model(
            self.model,
            config,
            device=device,
            dynamic_arg_dims={"patches": (0,)},
            context=context,
        )
        self.runner = DecodeRunner(
            compiled,
            inputs={"patches": InputSpec(dtype=torch.float16, trailing_shape=(PATCH,))},
            recorder=recorder,
            lane=lane,
            groups={"default": ParameterGroup(arguments=frozenset({LENGTHS}), pad=True)},
            set_lengths=self._show,
            query_length=None,
            max_sequences=MAX_IMAGES,
        )
        self.runner.capture(self._prepare)

    def _show(self, lengths: Mapping[str, Mapping[str, Any]]) -> None:
        self.model.ends = list(lengths["default"][LENGTHS])

    def _prepare(self, size: int) -> None:
        count = self.runner.padded_sequences(size)
        self.model.ends = [size * (each + 1) // count for each in range(count)]

    def encode(self, images: list[torch.Tensor]) -> list[torch.Tensor]:
        """Return ``[patches, HIDDEN]`` of each image, on the CPU."""
        lengths = [len(image) for image in images]
        encoded: dict[int, torch.Tensor] = {}
        for step in pack_sequences(lengths, budget=BUDGETS[-1], max_sequences=MAX_IMAGES):
            ends = list(itertools.accumulate(lengths[each] for each in step))
            patches = torch.cat([images[each] for each in step])
            output = self.runner.run({"patches": patches}, {"default": {LENGTHS: ends}})
            parts = output.clone().split([lengths[each] for each in step])
            encoded.update(zip(step, parts, strict=True))
        return [encoded[each].cpu() for each in range(len(images))]


def _batches(random: Random, count: int) -> list[list[torch.Tensor]]:
    generator = torch.Generator().manual_seed(3)
    lengths = [[random.randint(1, 30) for _ in range(random.randint(1, 9))] for _ in range(count)]
    lengths.append([3, 60, 1])
    return [
        [torch.randn(each, PATCH, generator=generator).half() for each in batch]
        for batch in lengths
    ]


def test_every_mode_encodes_packed_images_as_eager_bitwise_and_close_to_single_images(
    device: NpuDevice,
) -> None:
    lane = UpdateLane(device)
    alone = Encoder(Recorder(device), GraphContext(), device)
    batches = _batches(Random(5), 6)
    expected: list[list[torch.Tensor]] = []
    for mode in CompileMode:
        encoding = Encoding(mode, device, lane)
        with warnings.catch_warnings(record=True) as said:
            warnings.simplefilter("always")
            found = [encoding.encode(images) for images in batches]
        # Once, of the image that no budget holds. torch_npu has warnings of its own.
        (text,) = (str(each.message) for each in said if "packed batch" in str(each.message))
        assert "60 rows: it is larger than every capture size (largest: 48)" in text
        if mode is CompileMode.EAGER:
            expected = found
        for images, encoded, right in zip(batches, found, expected, strict=True):
            assert all(torch.equal(a, b) for a, b in zip(encoded, right, strict=True)), mode
            if mode is not CompileMode.EAGER:
                continue
            for image, one in zip(images, encoded, strict=True):
                alone.ends = [len(image)]
                with torch.no_grad():
                    by_itself = alone(image.to(device.torch_device)).cpu()
                # Products over other numbers of rows round in another order.
                torch.testing.assert_close(one, by_itself, rtol=2e-2, atol=2e-2)
        if mode is CompileMode.FULL:
            assert encoding.runner.compiled.num_captured_graphs == len(BUDGETS)
            _assert_waits_for_nothing(encoding, device)
        encoding.runner.release()
    lane.close()


def _assert_waits_for_nothing(encoding: Encoding, device: NpuDevice) -> None:
    device.synchronize()
    before = cann_sim.counters()
    lengths = {"default": {LENGTHS: [5, 12]}}
    encoding.runner.run({"patches": torch.ones(12, PATCH).half()}, lengths)
    assert (cann_sim.counters() - before).synchronisations == 0
    device.synchronize()
