// Rows of tensors that belong to sequences whose lengths are in device memory. The lengths are read when the kernel runs, so
// that a captured graph follows them without a task update.
#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <vector>

#include "../interface/argument.h"

namespace cann_sim::operators {

enum class RowLayout {
  kBatched,  // [B, S, ...]: the sequences begin at the first row of their batch entry; lengths [B], or none for whole entries
  kPacked,   // [T, ...]: the sequences follow each other; lengths [B] are their ends
  kPaged,    // [blocks, block size, ...]: lengths [B]
};

// The rows of one sequence. `start` counts from the first row of its batch entry or pages, where the layout has those.
struct RowSpan {
  int64_t start;
  int64_t length;
};

struct RaggedRows {
  RowLayout layout;
  int64_t batch;
  int64_t capacity;  // rows of a batch entry, of all packed sequences, or of the pages of one sequence
  OptionalTensor lengths;

  // Refuses lengths of another dtype or number, and their absence where the layout needs them.
  void Require(const char* lengths_name) const;
  // Fails where a length is negative or larger than the capacity.
  std::vector<RowSpan> Read() const;
  // The rows of sequence `index` of a batched or packed tensor.
  at::Tensor Of(const at::Tensor& tensor, size_t index, const RowSpan& span) const;
};

// Queries [B, S, heads, D] or [T, heads, D], and the keys that they look at: laid out as they are, or in pages.
struct QueriesAndKeys {
  RaggedRows queries, keys;
  OptionalTensor block_table;  // int32 [B, pages], where the keys are paged

  // Refuses unknown layouts, and lengths or a block table that do not fit them.
  QueriesAndKeys(const Text& query_layout, const Text& key_layout, const Tensor& query, const Tensor& key,
                 const OptionalTensor& query_lengths, const OptionalTensor& key_lengths, const OptionalTensor& block_table);

  bool paged() const { return keys.layout == RowLayout::kPaged; }
  // Refuses pages that are not of a multiple of 16 keys and of `group` keys, up to 1024.
  void RequireBlock(const Tensor& key, int64_t group) const;
  // The keys of sequence `index`, [length, heads, ...], out of a tensor laid out as the keys.
  at::Tensor KeysOf(const Tensor& cache, size_t index, const RowSpan& span) const;
  // Calls `run(index, rows of its queries, rows of its keys)` for every sequence, with the lengths that are in memory now.
  template <class Run>
  void ForEachSequence(const Run& run) const {
    const std::vector<RowSpan> own = queries.Read();
    const std::vector<RowSpan> seen = keys.Read();
    for (size_t index = 0; index < own.size(); ++index) {
      run(index, own[index], seen[index]);
    }
  }
};

// The integers that `tensor` holds now.
std::vector<int64_t> ReadIntegers(const Tensor& tensor);

}  // namespace cann_sim::operators
