"""Replacements for what simulated CANN cannot run of vLLM 0.30.0's model runner v2.

The runner keeps its state on the device and changes it by Triton kernels; nothing here compiles
them. A replacement computes the same values by operators of torch, without a wait of the host.
Nothing of the engine is edited: call `install` before you create an engine.
"""

from __future__ import annotations

import functools
import importlib
from typing import TYPE_CHECKING, Any

import torch
from engines.vllm_next.without_device import stand_ins

if TYPE_CHECKING:
    from collections.abc import Callable

RUNNER = "vllm.v1.worker.gpu"


def install() -> None:
    """Replace, in the modules of the runner, what the simulator cannot run."""
    stand_ins.install()
    # The runner requires Triton, which means the kernels that are replaced below.
    config = importlib.import_module("vllm.config.vllm")
    config.HAS_TRITON = True
    # vllm-ascend gives vLLM's replacement for Triton this name, if there is one.
    triton = importlib.import_module("vllm.triton_utils").triton
    triton.next_power_of_2 = importlib.import_module("vllm.utils.math_utils").next_power_of_2
    # In the engine's own order: its modules import each other.
    importlib.import_module("vllm_ascend.worker.worker")
    for module, name, stand_in in (
        ("buffer_utils", "_apply_write_kernel", apply_write),
        ("input_batch", "_prepare_prefill_inputs_kernel", prepare_prefill_inputs),
        ("input_batch", "_prepare_pos_seq_lens_kernel", prepare_positions),
        ("input_batch", "_combine_sampled_and_draft_tokens_kernel", combine_sampled),
        ("input_batch", "_get_num_sampled_and_rejected_kernel", count_sampled),
        ("input_batch", "_post_update_kernel", post_update),
        ("input_batch", "_expand_idx_mapping_kernel", expand_rows),
        ("cp_utils", "_dcp_local_seq_lens_kernel", count_own_keys),
    ):
        setattr(importlib.import_module(f"{RUNNER}.{module}"), name, Kernel(stand_in))
    # Kernels that are handed addresses of tables, which operators of torch cannot read.
    tables = importlib.import_module("vllm_ascend.worker.v2.block_table").AscendBlockTables
    tables.gather_block_tables = gather_block_tables
    tables.compute_slot_mappings = compute_slot_mappings
    importlib.import_module(f"{RUNNER}.sample.sampler").gumbel_sample = gumbel_sample


class Kernel:
    """Replaces a kernel: its launch on a grid calls a function with grid and arguments."""

    def __init__(self, function: Callable[..., None]) -> None:
        self._function = function

    def __getitem__(self, grid: tuple[int, ...]) -> Callable[..., None]:
        """Return the launch."""
        return functools.partial(self._function, grid)


def find_owners(count: int, ends: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
    """Return positions below a count, the span of each, and which ones are after all spans."""
    place = torch.arange(count, device=ends.device, dtype=ends.dtype)
    owner = (place[:, None] >= ends[None, :]).sum(1)
    return place, owner.clamp(max=len(ends) - 1), owner >= len(ends)


def find_columns(count: int, bounds: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
    """Return the span of each position below a count, and its place in the span."""
    place, owner, _ = find_owners(count, bounds[1:])
    return owner, place - bounds[owner]


def apply_write(
    grid: tuple[int],
    output: torch.Tensor,
    stride: int,
    rows: torch.Tensor,
    starts: torch.Tensor,
    contents: torch.Tensor,
    ends: torch.Tensor,
    _groups: None,
    **_constants: object,
) -> None:
    """Write contents of several lengths, one after the other, into rows of a table."""
    ends, rows, starts = (each[: grid[0]].long() for each in (ends, rows, starts))
    place, owner, _ = find_owners(len(contents), ends)
    begins = torch.cat([ends.new_zeros(1), ends[:-1]])
    target = rows[owner] * stride + starts[owner] + place - begins[owner]
    output.view(-1)[target] = contents


def prepare_prefill_inputs(
    grid: tuple[int],
    input_ids: torch.Tensor,
    next_tokens: torch.Tensor,
    _next_stride: int,
    num_lookahead: int,
    rows: torch.Tensor,
    starts: torch.Tensor,
    tokens: torch.Tensor,
    _stride: int,
    prefill: torch.Tensor,
    computed: torch.Tensor,
    **_constants: object,
) -> None:
    """Copy the tokens of prompts that this step computes, and store the token after them."""
    if num_lookahead != 1:
        raise NotImplementedError("more than one token after the prompt, for drafts")
    next_tokens = next_tokens[0]
    rows, starts = rows.long(), starts[: grid[0] + 1].long()
    prefill, computed = prefill[rows].long(), computed[rows].long()
    place, owner, is_behind = find_owners(len(input_ids), starts[1:])
    position = computed[owner] + place - starts[owner]
    found = tokens[rows[owner], position.clamp(max=tokens.shape[1] - 1)]
    is_given = ~is_behind & (computed < prefill)[owner]
    input_ids.copy_(torch.where(is_given, found, input_ids))
    following = computed + starts[1:] - starts[:-1]
    token = tokens[rows, following.clamp(max=tokens.shape[1] - 1)]
    is_inside = following < prefill
    next_tokens[rows] = torch.where(is_inside, token, next_tokens[rows])


def prepare_positions(
    grid: tuple[int],
    positions: torch.Tensor,
    lengths: torch.Tensor,
    rows: torch.Tensor,
    starts: torch.Tensor,
    computed: torch.Tensor,
    _most: int,
    **_constants: object,
) -> None:
    """Write each token's position and each sequence's length; one more program for padding."""
    count = grid[0] - 1
    starts, computed = starts[: count + 1].long(), computed[rows.long()]
    lengths[:count] = computed + starts[1:] - starts[:-1]
    lengths[count:] = 0
    place, owner, is_behind = find_owners(len(positions), starts[1:])
    position = computed[owner] + place - starts[owner]
    positions.copy_(torch.where(is_behind, positions, position))


def combine_sampled(
    grid: tuple[int],
    input_ids: torch.Tensor,
    rows: torch.Tensor,
    sampled: torch.Tensor,
    starts: torch.Tensor,
    lengths: torch.Tensor,
    prefill: torch.Tensor,
    drafts: torch.Tensor,
    _drafts_stride: int,
    logits: torch.Tensor,
    logits_indices: torch.Tensor,
    **constants: int,
) -> None:
    """Append the last sampled token and its drafts to each sequence whose prompt is computed."""
    if constants["NUM_NEW_SAMPLED_TOKENS"] != 1:
        raise NotImplementedError("steps that sample no token of their own")
    count, rows = grid[0], rows.long()
    owner, column = find_columns(len(logits_indices), logits[: count + 1].long())
    number = (logits[1 : count + 1] - logits[:count]).long()
    target = starts[1 : count + 1].long()[owner] - number[owner] + column
    logits_indices.copy_(target)
    length, prompt = lengths[:count].long(), prefill[rows].long()
    # A sequence's first logit may still be that of a token of its prompt.
    is_written = torch.where(
        column == 0, (length - number >= prompt)[owner], (length > prompt)[owner]
    )
    tokens = torch.cat((sampled.view(-1, 1)[rows], drafts[rows]), 1)[owner, column]
    input_ids[target] = torch.where(is_written, tokens.to(input_ids.dtype), input_ids[target])


def expand_rows(
    grid: tuple[int],
    rows: torch.Tensor,
    expanded: torch.Tensor,
    columns: torch.Tensor,
    logits: torch.Tensor,
    **_constants: int,
) -> None:
    """Give each logit the row of its sequence, and its place among the logits of that."""
    owner, column = find_columns(len(expanded), logits[: grid[0] + 1].long())
    expanded.copy_(rows[owner])
    columns.copy_(column)


def count_sampled(
    grid: tuple[int],
    sampled: torch.Tensor,
    rejected: torch.Tensor,
    lengths: torch.Tensor,
    logits: torch.Tensor,
    rows: torch.Tensor,
    prefill: torch.Tensor,
) -> None:
    """Count the sampled tokens of each sequence, and its rejected drafts."""
    is_chunk = lengths[: grid[0]] < prefill[rows.long()]
    sampled.masked_fill_(is_chunk, 0)
    number = logits[1 : grid[0] + 1] - logits[: grid[0]]
    rejected.copy_((number - sampled).masked_fill(is_chunk, 0))


def count_without_kernels(
    _grid: tuple[int], sampled: torch.Tensor, rejected: torch.Tensor, *_given: torch.Tensor
) -> None:
    """Count one token per sequence, for kernels that do nothing: only copies have values."""
    sampled.copy_(torch.ones(sampled.shape, dtype=sampled.dtype))
    rejected.copy_(torch.zeros(rejected.shape, dtype=rejected.dtype))


def post_update(
    grid: tuple[int],
    rows: torch.Tensor,
    computed: torch.Tensor,
    last: torch.Tensor,
    counts: torch.Tensor | None,
    _counts_stride: int,
    tokens: torch.Tensor,
    _tokens_stride: int,
    sampled: torch.Tensor,
    rejected: torch.Tensor,
    starts: torch.Tensor,
    all_tokens: torch.Tensor,
    _all_tokens_stride: int,
    totals: torch.Tensor,
    **_constants: object,
) -> None:
    """Store the sampled tokens: the last, all, their number, and the number computed."""
    rows, total = rows.long(), totals[rows.long()].long()
    tokens, sampled = tokens.to(all_tokens.dtype), sampled.long()
    flat = last.view(-1)
    newest = tokens.gather(1, (sampled - 1).clamp(min=0)[:, None])[:, 0].to(flat.dtype)
    flat[rows] = torch.where(sampled > 0, newest, flat[rows])
    place = torch.arange(all_tokens.shape[1], device=total.device) - total[:, None]
    is_new = (place >= 0) & (place < sampled[:, None])
    found = tokens.gather(1, place.clamp(0, tokens.shape[1] - 1))
    all_tokens[rows] = torch.where(is_new, found, all_tokens[rows])
    totals[rows] = (total + sampled).to(totals.dtype)
    if counts is not None:
        for column in range(tokens.shape[1]):
            counts[rows, tokens[:, column].long()] += (column < sampled).to(counts.dtype)
    starts = starts[: grid[0] + 1]
    computed[rows] += starts[1:] - starts[:-1] - rejected


def gather_block_tables(
    self: Any,
    idx_mapping: torch.Tensor,
    num_reqs_padded: int,
    out: tuple[torch.Tensor, ...] | None = None,
    out_ptrs: torch.Tensor | None = None,
) -> tuple[torch.Tensor, ...]:
    """Copy the blocks of each sequence of a step; rows of padding are zero."""
    del out_ptrs
    tables = tuple(self.input_block_tables) if out is None else out
    rows, count = idx_mapping.long(), len(idx_mapping)
    for group, (table, source) in enumerate(zip(tables, self.block_tables, strict=True)):
        number = self.num_blocks.gpu[group][rows]
        place = torch.arange(table.shape[1], device=table.device)
        is_given = place[None, :] < number[:, None]
        table[:count] = torch.where(is_given, source.gpu[rows], table[:count])
        table[count:num_reqs_padded] = 0
    return tuple(table[:num_reqs_padded] for table in tables)


def compute_slot_mappings(
    self: Any,
    idx_mapping: torch.Tensor,
    query_start_loc: torch.Tensor,
    positions: torch.Tensor,
    num_tokens_padded: int,
    out: torch.Tensor | None = None,
) -> torch.Tensor:
    """Give each token the slot of its key and value; padding has none."""
    slots = self.slot_mappings if out is None else out
    rows = idx_mapping.long().clamp(min=0)  # -1 for padding of a draft's graph
    pad = importlib.import_module("vllm.v1.attention.backends.utils").PAD_SLOT_ID
    _, owner, is_behind = find_owners(len(positions), query_start_loc[1 : len(rows) + 1].long())
    slots.fill_(pad)
    for group, (table, size) in enumerate(
        zip(self.block_tables, self.kernel_block_sizes, strict=True)
    ):
        # Padding has positions that no step wrote.
        position, is_local = find_own_part(self, positions.masked_fill(is_behind, 0).long(), group)
        block = torch.div(position, size, rounding_mode="floor")
        number = table.gpu[rows[owner], block].to(slots.dtype)
        found = number * size + (position - block * size).to(slots.dtype)
        slots[group, : len(positions)] = found.masked_fill(is_behind | ~is_local, pad)
    return slots[:, :num_tokens_padded]


def find_own_part(
    tables: Any, position: torch.Tensor, group: int
) -> tuple[torch.Tensor, torch.Tensor]:
    """Return positions among the keys that this rank has of them, and which ones it has."""
    ranks, span = tables.cp_size, tables.cp_interleave
    block = tables.block_sizes[group]
    number = torch.div(position, block * ranks, rounding_mode="floor")
    offset = position - number * block * ranks
    place = torch.div(offset, span, rounding_mode="floor")
    is_local = place % ranks == tables.cp_rank
    rounds = torch.div(place, ranks, rounding_mode="floor")
    return number * block + rounds * span + offset % span, is_local


def count_own_keys(
    _grid: tuple[int],
    output: torch.Tensor,
    lengths: torch.Tensor,
    ranks: int,
    rank: int,
    span: int,
    count: int,
    *_sizes: int,
) -> None:
    """Count the keys of each sequence that a rank has under DCP."""
    given = lengths[:count]
    rounds = torch.div(given, ranks * span, rounding_mode="floor")
    rest = (given - rounds * ranks * span - rank * span).clamp(0, span)
    output.zero_()
    output[:count] = rounds * span + rest


def gumbel_sample(
    logits: torch.Tensor,
    expanded_idx_mapping: torch.Tensor,
    temperature: torch.Tensor,
    _seed: torch.Tensor,
    _pos: torch.Tensor,
    **_given: object,
) -> torch.Tensor:
    """Return the likeliest tokens; with a temperature, draw without the seed of the request."""
    uniform = torch.rand(logits.shape, device=logits.device).clamp(min=1e-20)
    noise = -torch.log(-torch.log(uniform))
    is_drawn = temperature[expanded_idx_mapping.long()] != 0
    return torch.where(is_drawn[:, None], logits.float() + noise, logits.float()).argmax(-1)
