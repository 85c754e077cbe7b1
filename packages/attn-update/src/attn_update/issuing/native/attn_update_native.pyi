# The extension that `launches.cpp` is compiled into, as Python sees it.
from collections.abc import Mapping

import torch

from attn_update.issuing.updater import Changes

class ReplayEvent:
    def wait(self, stream: int, /) -> None: ...

class ReplayEvents:
    def __init__(self, calls: Mapping[str, int], /) -> None: ...
    def record(self, stream: int, /) -> ReplayEvent: ...

class Launches:
    def __init__(self, calls: Mapping[str, int], kernels: Mapping[str, int], /) -> None: ...
    def add(
        self,
        name: str,
        overload: str,
        arguments: dict[str, object],
        group: int,
        event: int,
        slot: int,
        /,
    ) -> None: ...
    def add_lengths(
        self,
        group: str,
        argument: str,
        slot: int,
        count: int,
        cumulative: bool,
        total: int | None,
        maximum: int | None,
        /,
    ) -> None: ...
    def add_tensor(
        self,
        group: str,
        argument: str,
        slot: int,
        sizes: list[int],
        dtype: torch.dtype,
        device: torch.device,
        /,
    ) -> None: ...
    def take(self, groups: object, /) -> Changes | None: ...
    def num_dispatched(self) -> int: ...
    def run(self, stream: int, changes: Changes, /) -> tuple[int, bool, str] | None: ...
