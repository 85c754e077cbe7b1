#include "paged_cache.h"

#include <ATen/ops/index_put.h>
#include <ATen/ops/index_select.h>
#include <ATen/ops/nonzero.h>

#include "../interface/refusal.h"

namespace cann_sim::operators {

at::Tensor PagedRows(const at::Tensor& cache, const at::Tensor& row, int64_t length, const char* table_name, size_t index) {
  const int64_t block_size = cache.size(1);
  const int64_t count = (length + block_size - 1) / block_size;
  const std::string where = std::string("argument '") + table_name + "': row " + std::to_string(index);
  if (count > row.size(0)) {
    throw Refusal(where + " expected at least " + std::to_string(count) + " blocks for " + std::to_string(length) +
                  " keys, found " + std::to_string(row.size(0)));
  }
  const at::Tensor blocks = row.narrow(0, 0, count);
  if (count > 0) {
    const int64_t lowest = blocks.min().item<int64_t>();
    const int64_t highest = blocks.max().item<int64_t>();
    if (lowest < 0 || highest >= cache.size(0)) {
      throw Refusal(where + " expected block numbers in [0, " + std::to_string(cache.size(0)) + "), found " +
                    std::to_string(lowest < 0 ? lowest : highest));
    }
  }
  return at::index_select(cache, 0, blocks).flatten(0, 1).narrow(0, 0, length);
}

void WriteSlots(const at::Tensor& rows, const at::Tensor& slots, const at::Tensor& cache) {
  const int64_t block_size = cache.size(1);
  const at::Tensor kept = at::nonzero(slots.ge(0)).squeeze(-1);
  const at::Tensor own = at::index_select(slots, 0, kept);
  c10::List<std::optional<at::Tensor>> list;
  list.push_back(own.div(block_size, "floor"));
  list.push_back(own.remainder(block_size));
  at::index_put_(Out(at::Tensor(cache)), list, at::index_select(rows, 0, kept), false);
}

void WriteNzSlots(const at::Tensor& rows, const at::Tensor& slots, const at::Tensor& cache, int64_t block_size, int64_t last) {
  // [blocks, block_size, heads * dim / last, last], a view.
  const at::Tensor pieces = cache.view({cache.size(0), -1, block_size, last}).transpose(1, 2);
  WriteSlots(rows.reshape({rows.size(0), -1, last}), slots, pieces);
}

}  // namespace cann_sim::operators
