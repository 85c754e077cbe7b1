"""One buffer serves all launches of a stream, and grows only when it must."""

from __future__ import annotations

import weakref
from typing import TYPE_CHECKING, cast

import torch

from attn_update.recording.workspace import Workspace, WorkspaceNeeds

if TYPE_CHECKING:
    from collections.abc import Mapping

    from attn_update.kinds.kind import AttentionKind

CPU = torch.device("cpu")


def test_workspace_take_of_a_smaller_need_gives_the_same_buffer() -> None:
    workspace = Workspace()
    first = workspace.take(100, stream_index=0, device=CPU)

    second = workspace.take(40, stream_index=0, device=CPU)

    assert second is first
    assert workspace.num_buffers == 1


def test_workspace_take_after_measuring_is_as_large_as_the_largest_need() -> None:
    workspace = Workspace()
    workspace.measure(300)

    assert workspace.take(100, stream_index=0, device=CPU).numel() == 300
    assert workspace.allocated_bytes == 300


def test_workspace_take_of_a_larger_need_keeps_the_old_buffer_alive() -> None:
    workspace = Workspace()
    workspace.take(100, stream_index=0, device=CPU)

    larger = workspace.take(200, stream_index=0, device=CPU)

    assert larger.numel() == 200
    assert workspace.num_buffers == 2


def test_workspace_take_on_another_stream_gives_another_buffer() -> None:
    workspace = Workspace()
    first = workspace.take(100, stream_index=0, device=CPU)

    assert workspace.take(100, stream_index=1, device=CPU) is not first


def test_workspace_take_of_nothing_still_has_an_address() -> None:
    assert Workspace().take(0, stream_index=0, device=CPU).numel() == 1


def test_workspace_sizes_are_queried_once_and_keep_no_tensor() -> None:
    asked: list[object] = []

    class Kind:
        def workspace_bytes(self, arguments: Mapping[str, object]) -> int:
            asked.append(arguments["block_size"])
            return 100

    needs, kind = WorkspaceNeeds(), cast("AttentionKind", Kind())

    def ask() -> weakref.ref[torch.Tensor]:
        out = (torch.empty(4, 2, device="meta"), torch.empty(1, device="meta"))
        assert needs.of(kind, {"out": out, "block_size": 16}) == 100
        return weakref.ref(out[0])

    references = [ask(), ask()]

    assert asked == [16]
    assert [reference() for reference in references] == [None, None]
