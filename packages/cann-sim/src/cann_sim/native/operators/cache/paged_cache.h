// Reading and writing a cache of keys or values that is kept in pages.
#pragma once

#include <ATen/core/Tensor.h>

#include "../interface/argument.h"

#pragma GCC visibility push(default)
namespace cann_sim::operators {

// The first `length` rows of one sequence, [length, ...], out of `cache` [blocks, block_size, ...]. `row` holds the numbers of
// its blocks. Fails where the row is too short, or names a block that does not exist; `index` is the sequence, for messages.
at::Tensor PagedRows(const at::Tensor& cache, const at::Tensor& row, int64_t length, const char* table_name, size_t index);

// Writes row i of `rows` [tokens, heads, dim] to slot slots[i] (int64) of `cache`, a view [blocks, block_size, heads, dim].
// A negative slot is a padded token and is left out.
void WriteSlots(const at::Tensor& rows, const at::Tensor& slots, const at::Tensor& cache);

// As WriteSlots, for a cache in the NZ order [blocks, heads * dim / last, block_size, last], in any dimensions over that memory.
void WriteNzSlots(const at::Tensor& rows, const at::Tensor& slots, const at::Tensor& cache, int64_t block_size, int64_t last);

}  // namespace cann_sim::operators
#pragma GCC visibility pop
