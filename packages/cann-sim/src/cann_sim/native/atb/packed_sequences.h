// Attention over sequences whose queries are concatenated, which is the form of all attention operations of ATB.
#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <functional>
#include <vector>

#include "../operators/attention/attention.h"
#include "../operators/interface/argument.h"

namespace cann_sim::atb_library {

// One sequence: rows of the packed queries, and its number of keys.
struct PackedSequence {
  int64_t query_start;
  int64_t query_length;
  int64_t key_length;
};

// What the scores of one sequence are changed by; see operators/attention/attention.h.
struct SequenceMask {
  at::Tensor hidden;
  at::Tensor bias;
};

// What belongs to the sequence of a number: float32 [length, heads, dim] where it is rows.
using RowsOf = std::function<at::Tensor(size_t index)>;
using MaskOf = std::function<SequenceMask(size_t index)>;
using ResultOf = std::function<void(size_t index, const operators::AttentionResult& result)>;

// Runs attention sequence by sequence.
void AttendSequences(const std::vector<PackedSequence>& sequences, double scale, const RowsOf& queries, const RowsOf& keys,
                     const RowsOf& values, const MaskOf& mask, const ResultOf& store);

// Sequences of these lengths; refuses negative ones, and more queries than `rows`. `names` are those of the two lists.
std::vector<PackedSequence> PackSequences(const std::vector<int64_t>& query_lengths, const std::vector<int64_t>& key_lengths,
                                          int64_t rows, const char* query_name, const char* key_name);

// One query row for each number of keys.
std::vector<PackedSequence> SingleQueries(const std::vector<int64_t>& key_lengths, int64_t rows, const char* name);

// Rows `start` to `start + length` of packed rows [tokens, heads, dim] or [tokens, heads * dim], as float32.
at::Tensor PackedRows(const operators::Tensor& tensor, int64_t heads, int64_t start, int64_t length);

// Rows of one sequence out of a paged cache, as float32 [length, heads, dim].
at::Tensor CachedRows(const operators::Tensor& cache, const operators::Tensor& block_table, int64_t heads, size_t index,
                      int64_t length);

// Head dimension of packed rows or of a paged cache.
int64_t HeadDim(const operators::Tensor& rows, int64_t heads);
int64_t CacheDim(const operators::Tensor& cache, int64_t heads);

// `heads` must be a multiple of `kv_heads`, both above 0.
void RequireHeads(int64_t heads, int64_t kv_heads);
// [tokens, heads, dim] or [tokens, heads * dim], halves, contiguous.
void RequirePackedRows(const operators::Tensor& rows, int64_t heads);
// [blocks, block_size, heads, dim] or [blocks, block_size, heads * dim], of the dtype of `query`, contiguous, with pages of a size
// that the device has.
void RequireCache(const operators::Tensor& cache, const operators::Tensor& query, int64_t heads);
// int32 [sequences, blocks].
void RequireBlockTable(const operators::Tensor& block_table, size_t sequences);

// Bytes of workspace of a decode operation with this output: they depend on the lengths, and are largest in the middle.
uint64_t DecodeWorkspace(const operators::Tensor& out, const std::vector<PackedSequence>& sequences);

}  // namespace cann_sim::atb_library
