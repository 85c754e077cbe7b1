"""Where the inputs of a captured graph lay at capture, and whether they still do."""

from __future__ import annotations

import enum
from typing import TYPE_CHECKING

from torch import Tensor

from npu_graph_runtime.errors import InputAddressError
from npu_graph_runtime.tensor_leaves import tensor_leaves

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence


class AddressCheck(enum.Enum):
    """When the inputs of a replay are compared with those of the capture.

    A captured graph reads the addresses of its capture. If an input lies elsewhere the replay
    computes with old data, and nothing else would say so.
    """

    ALWAYS = "always"
    """Addresses at every replay (about 0.1 us a tensor); layouts too at the first one."""

    FIRST_REPLAY = "first_replay"
    """Addresses and layouts at the first replay of each graph only."""

    NEVER = "never"
    """Not at all: the caller vouches for its buffers."""


class InputLayout:
    """Addresses, shapes, strides and dtypes of all tensors in the arguments of a capture.

    Holds no tensor. Tensors inside lists, tuples, dicts and dataclasses count, positional and
    keyword ones alike; objects of other types are not looked into.

    Args:
        args: positional arguments of the capture.
        kwargs: keyword arguments of the capture.
        subject: what was captured, for messages.
    """

    __slots__ = ("_addresses", "_is_flat", "_keyword", "_layouts", "_positional", "_subject")

    def __init__(self, args: Sequence[object], kwargs: Mapping[str, object], subject: str) -> None:
        self._subject = subject
        leaves = _all_leaves(args, kwargs)
        self._addresses = {path: tensor.data_ptr() for path, tensor in leaves.items()}
        self._layouts = {path: _layout(tensor) for path, tensor in leaves.items()}
        self._positional = tuple(
            (index, value.data_ptr())
            for index, value in enumerate(args)
            if isinstance(value, Tensor)
        )
        self._keyword = tuple(
            (name, value.data_ptr()) for name, value in kwargs.items() if isinstance(value, Tensor)
        )
        self._is_flat = len(leaves) == len(self._positional) + len(self._keyword)

    def check_addresses(self, args: Sequence[object], kwargs: Mapping[str, object]) -> None:
        """Compare the addresses of a replay's arguments with those of the capture.

        Raises:
            InputAddressError: a tensor is missing, additional or lies elsewhere.
        """
        if not self._is_flat:
            self._compare(args, kwargs, with_layouts=False)
            return
        try:
            for index, address in self._positional:
                if args[index].data_ptr() != address:  # type: ignore[attr-defined]
                    break
            else:
                for name, address in self._keyword:
                    if kwargs[name].data_ptr() != address:  # type: ignore[attr-defined]
                        break
                else:
                    return
        except (AttributeError, IndexError, KeyError):
            pass  # a tensor is missing: the comparison below says which
        self._compare(args, kwargs, with_layouts=False)

    def check_layouts(self, args: Sequence[object], kwargs: Mapping[str, object]) -> None:
        """Compare addresses, shapes, strides and dtypes with those of the capture.

        Raises:
            InputAddressError: a tensor is missing, additional, lies elsewhere or is laid out
                differently.
        """
        self._compare(args, kwargs, with_layouts=True)

    def _compare(
        self, args: Sequence[object], kwargs: Mapping[str, object], *, with_layouts: bool
    ) -> None:
        leaves = _all_leaves(args, kwargs)
        differences = [f"{path} is a tensor now" for path in leaves if path not in self._addresses]
        for path, address in self._addresses.items():
            tensor = leaves.get(path)
            if tensor is None:
                differences.append(f"{path} is not a tensor now")
            elif tensor.data_ptr() != address:
                differences.append(
                    f"{path} of shape {tuple(tensor.shape)} is at {tensor.data_ptr():#x}, "
                    f"expected {address:#x}"
                )
            elif with_layouts and _layout(tensor) != self._layouts[path]:
                differences.append(f"{path} is {_layout(tensor)}, expected {self._layouts[path]}")
        if differences:
            raise InputAddressError(
                f"replaying {self._subject}: {len(differences)} of {len(self._addresses)} input "
                f"tensors differ from the capture: {'; '.join(differences)}; copy the new values "
                "into the buffers used at capture, or release the graph and capture it again"
            )


def _all_leaves(args: Sequence[object], kwargs: Mapping[str, object]) -> dict[str, Tensor]:
    leaves: dict[str, Tensor] = {}
    for index, value in enumerate(args):
        leaves.update(tensor_leaves(value, f"args[{index}]"))
    for name, value in kwargs.items():
        leaves.update(tensor_leaves(value, name))
    return leaves


def _layout(tensor: Tensor) -> str:
    shape, stride = tuple(tensor.shape), tensor.stride()
    return f"{tensor.dtype} of shape {shape} and stride {stride}"
