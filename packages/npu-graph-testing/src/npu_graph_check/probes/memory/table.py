"""The probes of memory."""

from __future__ import annotations

from npu_graph_check.probe import Probe

_PACKAGE = "npu_graph_check.probes.memory"

MEMORY = tuple(
    Probe(
        id=f"memory.{function.replace('_', '-')}",
        title=title,
        run=f"{_PACKAGE}.{module}:{function}",
        rows=rows,
    )
    for module, function, rows, title in (
        (
            "allocations",
            "sizes",
            ("memory-1",),
            "Memory begins at multiples of 512 bytes; more than there is is 207001",
        ),
        (
            "allocations",
            "physical",
            ("memory-2", "memory-3"),
            "Physical memory counts, in pages of 2 MiB; reserved addresses do not",
        ),
        (
            "allocations",
            "pinned",
            ("memory-5", "memory-6"),
            "Pinned memory begins at a page; what is registered is the device's too",
        ),
        (
            "allocations",
            "waits_for_nothing",
            ("memory-13",),
            "Freeing, copying and setting memory from the host wait for no stream",
        ),
        (
            "copies",
            "refused",
            ("memory-4",),
            "A copy that is too large, or of a kind that does not fit, is 107000",
        ),
        (
            "copies",
            "batch",
            ("memory-7",),
            "A batch of copies stops at the first that is refused, and says which",
        ),
        (
            "copies",
            "pageable",
            ("memory-8",),
            "An asynchronous copy to pageable memory waits for its stream",
        ),
    )
)
