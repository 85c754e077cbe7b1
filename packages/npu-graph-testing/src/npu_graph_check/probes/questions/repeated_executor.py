"""One executor of fused attention, launched again with tensors at other addresses.

If a device does that, one tiling serves all layers of one shape, and an update is one call.
"""

from __future__ import annotations

import ctypes
from typing import TYPE_CHECKING, Any

import torch

from npu_graph_check.cann.runtime import CannError, Handle

if TYPE_CHECKING:
    from collections.abc import Sequence

    from npu_graph_check.probe import Look

_KERNEL = "aclnnFusedInferAttentionScoreV3"
_HEADS, _DIM, _BLOCK, _BLOCKS, _LENGTH = 2, 128, 128, 4, 200
_HALF, _INT32, _ND = 1, 3, 2
_SETTERS = ("aclSetInputTensorAddr", "aclSetDynamicInputTensorAddr", "aclSetOutputTensorAddr")
_THE_SAME = "what the operator gives"


def repeated_executor(look: Look) -> None:
    """Launch an executor twice as it is, then with another query, cache and output."""
    device = look.opened
    npu: Any = vars(torch)["npu"]
    library, stream = ctypes.CDLL("libopapi.so"), npu.current_stream()
    layers = [_Layer(device.torch_device, seed) for seed in (1, 2)]
    expected = [layer.by_operator() for layer in layers]
    device.synchronize()
    first, second = layers
    call = _Call(library, first)
    look.answer("status of aclSetAclOpExecutorRepeatable", call.make_repeatable())
    handle = Handle(stream.npu_stream)
    for turn in ("first", "second"):
        look.doing(f"launching for the {turn} time")
        first.output.zero_()
        device.synchronize()
        call.launch(handle)
        device.synchronize()
        equal = torch.equal(first.output.cpu(), expected[0].cpu())
        look.answer(f"output of the {turn} launch", _THE_SAME if equal else "another")
    missing = [name for name in _SETTERS if not hasattr(library, name)]
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
        generator = torch.Generator().manual_seed(seed)

        def random(*shape: int) -> torch.Tensor:
            return torch.randn(shape, generator=generator).to(torch.float16).to(on)

        self.query, self.cache = random(1, _HEADS, _DIM), random(_BLOCKS, _BLOCK, _HEADS * _DIM)
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

    def __init__(self, library: ctypes.CDLL, layer: _Layer) -> None:
        self._library = library
        for name in ("aclCreateTensor", "aclCreateTensorList", "aclCreateIntArray"):
            getattr(library, name).restype = ctypes.c_void_p
        self._query, self._output = self._tensor(layer.query), self._tensor(layer.output)
        self._key, self._value = self._list_of(layer.cache), self._list_of(layer.cache)
        none, of_one, of_keys = Handle(), self._integers([1]), self._integers([_LENGTH])
        large, size = (1 << 31) - 1, ctypes.c_uint64()
        self._executor = Handle()
        # The parameters that CANN's page of the kernel lists, in its order.
        given: list[Any] = [self._query, self._key, self._value, none, none, of_one, of_keys]
        given += [*[none] * 7, self._tensor(layer.table), *[none] * 8, none, *[none] * 3]
        given += [_HEADS, ctypes.c_double(_DIM**-0.5), large, large, b"TND", _HEADS]
        given += [0, 0, _BLOCK, 0, False, 0, 0, self._output, self._tensor(layer.sums)]
        given += [ctypes.byref(size), ctypes.byref(self._executor)]
        self._check(f"{_KERNEL}GetWorkspaceSize", *given)
        self._workspace = torch.empty(
            max(size.value, 1), dtype=torch.int8, device=layer.query.device
        )
        self._size = size.value

    def make_repeatable(self) -> int:
        """Ask that launches do not free the executor, and return the status."""
        return self._status("aclSetAclOpExecutorRepeatable", self._executor)

    def launch(self, stream: Handle) -> None:
        """Launch the executor."""
        workspace = Handle(self._workspace.data_ptr())
        self._check(_KERNEL, workspace, self._size, self._executor, stream)

    def move_to(self, layer: _Layer) -> list[int]:
        """Set the addresses of another layer, and return the statuses."""
        inputs, lists, outputs = _SETTERS
        query, cache = Handle(layer.query.data_ptr()), Handle(layer.cache.data_ptr())
        output = Handle(layer.output.data_ptr())
        return [
            self._status(inputs, self._executor, 0, self._query, query),
            self._status(lists, self._executor, 1, 0, self._key, cache),
            self._status(lists, self._executor, 2, 0, self._value, cache),
            self._status(outputs, self._executor, 0, self._output, output),
        ]

    def _status(self, name: str, *arguments: Any) -> int:
        given = [ctypes.c_int64(x) if isinstance(x, int) else x for x in arguments]
        status: int = self._library[name](*given)
        return status

    def _check(self, name: str, *arguments: Any) -> None:
        status = self._status(name, *arguments)
        if status:
            raise CannError(name, status, "")

    def _tensor(self, tensor: torch.Tensor) -> Handle:
        kind = {torch.float16: _HALF, torch.int32: _INT32, torch.float32: 0}[tensor.dtype]
        sizes, strides = self._array(tensor.shape), self._array(tensor.stride())
        rank, address = ctypes.c_uint64(tensor.dim()), Handle(tensor.data_ptr())
        start = ctypes.c_int64(0)
        made = self._library.aclCreateTensor(
            sizes, rank, kind, strides, start, _ND, sizes, rank, address
        )
        return Handle(made)

    def _list_of(self, tensor: torch.Tensor) -> Handle:
        only = (Handle * 1)(self._tensor(tensor))
        return Handle(self._library.aclCreateTensorList(only, ctypes.c_uint64(1)))

    def _integers(self, numbers: Sequence[int]) -> Handle:
        array, length = self._array(numbers), ctypes.c_uint64(len(numbers))
        return Handle(self._library.aclCreateIntArray(array, length))

    @staticmethod
    def _array(numbers: Sequence[int]) -> ctypes.Array[ctypes.c_int64]:
        return (ctypes.c_int64 * len(numbers))(*numbers)
