"""Operators of torch for the Triton kernels of drafts under vLLM 0.30.0's model runner v2.

A draft's kernels prepare its inputs, some of them inside its captured graphs; one more compares the
drafts with the likeliest tokens. As in stand_ins_v2.py, no operator makes the host wait.
"""

from __future__ import annotations

import importlib

import torch
from engines.vllm_next.without_device.stand_ins_v2 import RUNNER, Kernel, find_owners


def install() -> None:
    """Replace the kernels in the modules that use them; after `stand_ins_v2.install`."""
    module = importlib.import_module(f"{RUNNER}.spec_decode.autoregressive.speculator")
    for name, stand_in in (
        ("_prepare_prefill_inputs_kernel", prepare_first),
        ("_prepare_decode_inputs_kernel", prepare_further),
        ("_update_draft_inputs_kernel", update_further),
    ):
        setattr(module, name, Kernel(stand_in))
    flash = importlib.import_module("vllm_ascend.ops.triton.v2.spec_decode.prepare_dflash_inputs")
    flash._prepare_dflash_inputs_kernel = Kernel(prepare_parallel)  # type: ignore[attr-defined]
    # The launch asks Triton's driver how many cores there are, to choose its grid.
    flash.init_device_properties_triton = lambda: None  # type: ignore[attr-defined]
    flash.get_vectorcore_num = lambda: 1  # type: ignore[attr-defined]
    sampler = importlib.import_module(f"{RUNNER}.spec_decode.rejection_sampler")
    sampler.rejection_sample = accept_likeliest  # type: ignore[attr-defined]


def find_newest(
    sampled: torch.Tensor, last: torch.Tensor, following: torch.Tensor, rows: torch.Tensor
) -> torch.Tensor:
    """Return the newest token of each sequence: sampled, or the next one of its prompt."""
    return torch.where(sampled > 0, last.view(-1)[rows].long(), following.view(-1)[rows].long())


def prepare_first(
    grid: tuple[int],
    last_indices: torch.Tensor,
    step: torch.Tensor,
    input_ids: torch.Tensor,
    positions: torch.Tensor,
    starts: torch.Tensor,
    lengths: torch.Tensor,
    target_ids: torch.Tensor,
    target_positions: torch.Tensor,
    rows: torch.Tensor,
    last_sampled: torch.Tensor,
    next_tokens: torch.Tensor,
    sampled: torch.Tensor,
    rejected: torch.Tensor,
    target_starts: torch.Tensor,
    target_lengths: torch.Tensor,
    _most: int,
    **_constants: object,
) -> None:
    """Shift the tokens of each sequence by one, behind which its newest token comes."""
    count, rows = grid[0], rows.long()
    bounds = target_starts[: count + 1].long()
    number = bounds[1:] - bounds[:-1] - rejected
    newest = find_newest(sampled, last_sampled, next_tokens, rows)
    place, owner, is_behind = find_owners(len(target_ids), bounds[1:])
    column = place - bounds[owner]
    is_kept = ~is_behind & (column < number[owner])
    following = target_ids[(place + 1).clamp(max=len(target_ids) - 1)]
    tokens = torch.where(column == number[owner] - 1, newest[owner].to(following.dtype), following)
    size = len(target_ids)
    input_ids[:size] = torch.where(is_kept, tokens, input_ids[:size])
    positions[:size] = torch.where(is_kept, target_positions[:size], positions[:size])
    starts[:count] = bounds[:-1]
    starts[count:] = bounds[-1]
    lengths[:count] = target_lengths[:count]
    lengths[count:] = 0
    last_indices[:count] = bounds[:-1] + number - 1
    last_indices[count:] = 0
    step.zero_()


def prepare_further(
    grid: tuple[int],
    drafts: torch.Tensor,
    _drafts_stride: int,
    target_lengths: torch.Tensor,
    rejected: torch.Tensor,
    input_ids: torch.Tensor,
    positions: torch.Tensor,
    sample_positions: torch.Tensor,
    starts: torch.Tensor,
    lengths: torch.Tensor,
    longest: int,
    _most: int,
    **constants: object,
) -> None:
    """Prepare the inputs of the second draft: one token of each sequence."""
    if not constants["ADVANCE_DRAFT_POSITIONS"]:
        raise NotImplementedError("drafts at one position")
    count = grid[0] - 1
    input_ids[:count] = drafts
    sample_positions[:count] += 1
    positions[:count] = (positions[:count] + 1).clamp(max=longest - 1)
    starts.copy_(torch.arange(len(starts), device=starts.device).clamp(max=count))
    lengths[:count] = (target_lengths[:count] - rejected[:count] + 1).clamp(max=longest)
    lengths[count:] = 0


def update_further(
    grid: tuple[int],
    made: torch.Tensor,
    _made_stride: int,
    next_states: torch.Tensor,
    _next_stride: int,
    input_ids: torch.Tensor,
    positions: torch.Tensor,
    sample_positions: torch.Tensor,
    lengths: torch.Tensor,
    drafts: torch.Tensor,
    step: torch.Tensor,
    states: torch.Tensor,
    _stride: int,
    _size: int,
    longest: int,
    steps: int,
    **constants: object,
) -> None:
    """Store the draft of a step, and prepare the inputs of the next step if there is one."""
    if not constants["ADVANCE_DRAFT_POSITIONS"]:
        raise NotImplementedError("drafts at one position")
    count, has_next = grid[0], step < steps - 1
    columns = torch.arange(made.shape[1], device=made.device)
    made[:count] = torch.where(columns == step, drafts[:count, None], made[:count])
    for buffer, value in (
        (input_ids, drafts[:count].to(input_ids.dtype)),
        (next_states, states[:count]),
        (sample_positions, sample_positions[:count] + 1),
        (positions, (positions[:count] + 1).clamp(max=longest - 1)),
        (lengths, (lengths[:count] + 1).clamp(max=longest)),
    ):
        buffer[:count] = torch.where(has_next, value, buffer[:count])


def prepare_parallel(
    grid: tuple[int, int],
    input_ids: torch.Tensor,
    positions: torch.Tensor,
    starts: torch.Tensor,
    lengths: torch.Tensor,
    slots: torch.Tensor,
    context_positions: torch.Tensor,
    context_slots: torch.Tensor,
    drafted_indices: torch.Tensor,
    drafted_positions: torch.Tensor,
    drafted_rows: torch.Tensor,
    temperature: torch.Tensor,
    seeds: torch.Tensor,
    target_positions: torch.Tensor,
    target_starts: torch.Tensor,
    rows: torch.Tensor,
    last_sampled: torch.Tensor,
    next_tokens: torch.Tensor,
    sampled: torch.Tensor,
    rejected: torch.Tensor,
    given_temperature: torch.Tensor,
    given_seeds: torch.Tensor,
    table: torch.Tensor,
    _table_stride: int,
    mask: int,
    block_size: int,
    queries: int,
    steps: int,
    _most: int,
    _most_tokens: int,
    longest: int,
    _rank: int,
    **constants: int,
) -> None:
    """Prepare DFlash's inputs: the tokens whose keys it stores, and the newest with its drafts."""
    if constants["CP_SIZE"] != 1 or constants["SAMPLE_FROM_ANCHOR"]:
        raise NotImplementedError("context parallelism, or a draft in place of the newest token")
    count, size, pad = grid[0], len(target_positions), constants["PAD_SLOT_ID"]
    rows, table = rows[:count].long(), table[:count]

    def find_slots(owner: torch.Tensor, position: torch.Tensor) -> torch.Tensor:
        block = torch.div(position, block_size, rounding_mode="floor").clamp(0, table.shape[1] - 1)
        number = table[owner, block].long()
        return (number * block_size + position % block_size).masked_fill(number == 0, pad)

    bounds = target_starts[: count + 1].long()
    number = bounds[1:] - bounds[:-1] - rejected[:count]
    place, owner, is_behind = find_owners(size, bounds[1:])
    is_kept = ~is_behind & (place - bounds[owner] < number[owner])
    position = target_positions.long().masked_fill(~is_kept, 0)
    found = find_slots(owner, position).masked_fill(~is_kept, pad).to(context_slots.dtype)
    context_positions[:size] = torch.where(is_behind, context_positions[:size], position)
    context_slots[:size] = torch.where(is_behind, context_slots[:size], found)

    # If all tokens were rejected, the first one's position is taken again.
    last = target_positions[bounds[:-1] + (number - 1).clamp(min=0)].long()
    first = last + (number > 0)
    columns = torch.arange(queries, device=first.device)
    query = first[:, None] + columns
    newest = find_newest(sampled[:count], last_sampled, next_tokens, rows)
    tokens = torch.where(columns == 0, newest[:, None], mask)
    end, drafts = count * queries, count * steps
    input_ids[:end] = tokens.view(-1).to(input_ids.dtype)
    positions[:end] = query.view(-1).clamp(max=longest - 1)
    owner = torch.arange(count, device=first.device)[:, None].expand(count, queries)
    slots[:end] = find_slots(owner, query).view(-1).to(slots.dtype)
    slots[end:] = pad
    starts.copy_(torch.arange(len(starts), device=starts.device).clamp(max=count) * queries)
    lengths[:count] = (first + queries).clamp(max=longest)
    lengths[count:] = 0
    drafted = owner * queries + columns
    drafted_indices[:drafts] = drafted[:, 1:].reshape(-1)
    drafted_positions[:drafts] = query[:, 1:].reshape(-1)
    drafted_rows[:drafts] = rows[:, None].expand(count, steps).reshape(-1)
    for buffer, padding in ((drafted_indices, 0), (drafted_positions, 0), (drafted_rows, -1)):
        buffer[drafts:] = padding
    temperature[rows] = given_temperature[rows]
    seeds[rows] = given_seeds[rows]


def accept_likeliest(
    target_logits: torch.Tensor,
    draft_logits: torch.Tensor | None,
    draft_sampled: torch.Tensor,
    cu_num_logits: torch.Tensor,
    _pos: torch.Tensor,
    _rows: torch.Tensor,
    _expanded_rows: torch.Tensor,
    _expanded_columns: torch.Tensor,
    _temperature: torch.Tensor,
    _seed: torch.Tensor,
    steps: int,
    *_rates: object,
    **_options: object,
) -> tuple[torch.Tensor, torch.Tensor]:
    """Return the likeliest tokens of each sequence, and how many come before a rejected draft.

    The temperature of a request is not read: all sessions decode greedily.
    """
    if draft_logits is not None:
        raise NotImplementedError("drafts that are drawn")
    starts, number = cu_num_logits[:-1].long(), (cu_num_logits[1:] - cu_num_logits[:-1]).long()
    columns = torch.arange(steps + 1, device=starts.device)
    place = (starts[:, None] + columns).clamp(max=len(target_logits) - 1)
    tokens = target_logits.argmax(-1)[place]
    following = draft_sampled[(place + 1).clamp(max=len(draft_sampled) - 1)]
    is_accepted = (columns < number[:, None] - 1) & (tokens == following)
    accepted = is_accepted.long().cumprod(1).sum(1)
    return tokens, (accepted + 1).to(torch.int32)
