"""The probes of memory."""

from __future__ import annotations

from npu_graph_check.probes.probe_table import probes_of

MEMORY = probes_of(
    "memory",
    """
sizes              allocations:sizes              memory-1
    Memory begins at multiples of 512 bytes; more than there is is 207001
physical           allocations:physical           memory-2 memory-3
    Physical memory counts, in pages of 2 MiB; reserved addresses do not
pinned             allocations:pinned             memory-5 memory-6
    Pinned memory begins at a page; what is registered is the device's too
waits-for-nothing  allocations:waits_for_nothing  memory-13
    Freeing, copying and setting memory from the host wait for no stream
refused            copies:refused                 memory-4
    A copy that is too large, or of a kind that does not fit, is 107000
batch              copies:batch                   memory-7
    A batch of copies stops at the first that is refused, and says which
pageable           copies:pageable                memory-8
    An asynchronous copy to pageable memory waits for its stream
""",
)
