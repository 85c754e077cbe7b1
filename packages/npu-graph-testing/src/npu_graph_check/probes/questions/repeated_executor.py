"""One executor of fused attention, launched again with tensors at other addresses.

If a device does that, one tiling serves all layers of one shape, and an update is one call.
"""

from __future__ import annotations

import ctypes
from types import MappingProxyType
from typing import TYPE_CHECKING, Any

import torch

from npu_graph_check.cann.runtime import Cann, Handle
from npu_graph_check.probes.operators.agreement import drawn

if TYPE_CHECKING:
    from npu_graph_check.probe import Look

_KERNEL = "aclnnFusedInferAttentionScoreV3"
_HEADS, _DIM, _BLOCK, _BLOCKS, _LENGTH = 2, 128, 128, 4, 200
_DTYPES = MappingProxyType({torch.float32: 0, torch.float16: 1, torch.int32: 3})
_SETTERS = ("aclSetInputTensorAddr", "aclSetDynamicInputTensorAddr", "aclSetOutputTensorAddr")
_THE_SAME = "what the operator gives"


def repeated_executor(look: Look) -> None:
    """Launch an executor twice as it is, then with another query, cache and output."""
    device = look.opened
    npu: Any = vars(torch)["npu"]
    layers = [_Layer(device.torch_device, seed) for seed in (1, 2)]
    expected = [layer.by_operator() for layer in layers]
    device.synchronize()
    first, second = layers
    call = _Call(first)
    look.answer("status of aclSetAclOpExecutorRepeatable", call.make_repeatable())
    handle = Handle(npu.current_stream().npu_stream)
    for turn in ("first", "second"):
        look.doing(f"launching for the {turn} time")
        first.output.zero_()
        device.synchronize()
        call.launch(handle)
        device.synchronize()
        equal = torch.equal(first.output.cpu(), expected[0].cpu())
        look.answer(f"output of the {turn} launch", _THE_SAME if equal else "another")
    missing = [name for name in _SETTERS if not hasattr(call.cann.operators, name)]
    if missing:
        look.answer("other addresses", f"not tried: CANN has no {missing[0]}")
        return
    look.doing("launching with other addresses")
    statuses = call.move_to(second)
    look.answer("statuses of setting query, key, value and output", statuses)
    if not any(statuses):
        call.launch(handle)
        device.synchronize()
        equal = torch.equal(second.output.cpu(), expected[1].cpu())
        look.answer("output at other addresses", _THE_SAME if equal else "another")


class _Layer:
    """A query, a cache and an output in memory of their own."""

    def __init__(self, on: torch.device, seed: int) -> None:
        self.query = drawn(1, _HEADS, _DIM, seed=seed).half().to(on)
        self.cache = drawn(_BLOCKS, _BLOCK, _HEADS * _DIM, seed=10 + seed).half().to(on)
        self.table = torch.arange(_BLOCKS, dtype=torch.int32).view(1, -1).to(on)
        self.output, self.sums = torch.empty_like(self.query), torch.empty(1, device=on)

    def by_operator(self) -> torch.Tensor:
        """Return what the operator of torch gives."""
        output: torch.Tensor = torch.ops.npu.npu_fused_infer_attention_score(
            self.query,
            self.cache,
            self.cache,
            block_table=self.table,
            actual_seq_lengths=[1],
            actual_seq_lengths_kv=[_LENGTH],
            num_heads=_HEADS,
            num_key_value_heads=_HEADS,
            scale=_DIM**-0.5,
            input_layout="TND",
            block_size=_BLOCK,
        )[0]
        return output


class _Call:
    """A first phase of the kernel, and launches of its executor."""

    def __init__(self, layer: _Layer) -> None:
        self.cann = Cann()
        for name in ("aclCreateTensorList", "aclCreateIntArray"):
            getattr(self.cann.operators, name).restype = ctypes.c_void_p
        self._query, self._output = self._tensor(layer.query), self._tensor(layer.output)
        self._key, self._value = self._list_of(layer.cache), self._list_of(layer.cache)
        none, of_one, of_keys = Handle(), self._integer(1), self._integer(_LENGTH)
        large, size = (1 << 31) - 1, ctypes.c_uint64()
        self._executor = Handle()
        # The parameters that CANN's page of the kernel lists, in its order.
        given: list[Any] = [self._query, self._key, self._value, none, none, of_one, of_keys]
        given += [*[none] * 7, self._tensor(layer.table), *[none] * 8, none, *[none] * 3]
        given += [_HEADS, ctypes.c_double(_DIM**-0.5), large, large, b"TND", _HEADS]
        given += [0, 0, _BLOCK, 0, False, 0, 0, self._output, self._tensor(layer.sums)]
        given += [ctypes.byref(size), ctypes.byref(self._executor)]
        first_phase = f"{_KERNEL}GetWorkspaceSize"
        self.cann.require(first_phase, self.cann.operator(first_phase, *given))
        self._workspace = torch.empty(
            max(size.value, 1), dtype=torch.int8, device=layer.query.device
        )
        self._size = size.value

    def make_repeatable(self) -> int:
        """Ask that launches do not free the executor, and return the status."""
        return self.cann.operator("aclSetAclOpExecutorRepeatable", self._executor)

    def launch(self, stream: Handle) -> None:
        """Launch the executor."""
        workspace = Handle(self._workspace.data_ptr())
        given = (workspace, self._size, self._executor, stream)
        self.cann.require(_KERNEL, self.cann.operator(_KERNEL, *given))

    def move_to(self, layer: _Layer) -> list[int]:
        """Set the addresses of another layer, and return the statuses."""
        inputs, lists, outputs = _SETTERS
        query, cache = Handle(layer.query.data_ptr()), Handle(layer.cache.data_ptr())
        output = Handle(layer.output.data_ptr())
        return [
            self.cann.operator(setter, self._executor, *given)
            for setter, *given in (
                (inputs, 0, self._query, query),
                (lists, 1, 0, self._key, cache),
                (lists, 2, 0, self._value, cache),
                (outputs, 0, self._output, output),
            )
        ]

    def _tensor(self, tensor: torch.Tensor) -> Handle:
        address, dtype = Handle(tensor.data_ptr()), _DTYPES[tensor.dtype]
        return self.cann.create_tensor(address, tensor.shape, tensor.stride(), dtype)

    def _list_of(self, tensor: torch.Tensor) -> Handle:
        only = (Handle * 1)(self._tensor(tensor))
        return Handle(self.cann.operators.aclCreateTensorList(only, ctypes.c_uint64(1)))

    def _integer(self, number: int) -> Handle:
        only = (ctypes.c_int64 * 1)(number)
        return Handle(self.cann.operators.aclCreateIntArray(only, ctypes.c_uint64(1)))
