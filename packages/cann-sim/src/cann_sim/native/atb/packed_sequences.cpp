#include "packed_sequences.h"

#include <algorithm>

#include "../operators/cache/paged_cache.h"
#include "../operators/interface/validation.h"

namespace cann_sim::atb_library {

namespace {

using operators::RefuseArgument;
using operators::Tensor;

// Of torch_npu's documentation of _npu_paged_attention_v2.
constexpr int64_t kBlockAlignment = 16;
constexpr int64_t kLargestBlock = 128;
constexpr int64_t kWholeHeadBlock = 256;

// The device splits the keys of a sequence between its cores, each with a partial result. vLLM-Ascend found the largest workspace
// at this length; the amounts are the simulator's own.
constexpr int64_t kMostSplitLength = 6144;
constexpr int64_t kSplit = 1024;
constexpr uint64_t kWorkspaceAlignment = 512;

void RequireLengths(const std::vector<int64_t>& lengths, const char* name) {
  for (const int64_t length : lengths) {
    if (length < 0) {
      RefuseArgument(name, "lengths of at least 0", std::to_string(length));
    }
  }
}

}  // namespace

void AttendSequences(const std::vector<PackedSequence>& sequences, double scale, const RowsOf& queries, const RowsOf& keys,
                     const RowsOf& values, const MaskOf& mask, const ResultOf& store) {
  for (size_t index = 0; index < sequences.size(); ++index) {
    const SequenceMask own = mask(index);
    store(index, operators::Attend(queries(index), keys(index), values(index), scale, own.hidden, {}, own.bias));
  }
}

std::vector<PackedSequence> PackSequences(const std::vector<int64_t>& query_lengths, const std::vector<int64_t>& key_lengths,
                                          int64_t rows, const char* query_name, const char* key_name) {
  RequireLengths(query_lengths, query_name);
  RequireLengths(key_lengths, key_name);
  if (query_lengths.size() != key_lengths.size()) {
    RefuseArgument(query_name, std::to_string(key_lengths.size()) + " lengths as '" + key_name + "'",
                   std::to_string(query_lengths.size()));
  }
  std::vector<PackedSequence> sequences;
  int64_t start = 0;
  for (size_t index = 0; index < query_lengths.size(); ++index) {
    sequences.push_back({start, query_lengths[index], key_lengths[index]});
    start += query_lengths[index];
  }
  if (start > rows) {
    RefuseArgument(query_name, "at most " + std::to_string(rows) + " in sum, the rows of 'query'", std::to_string(start));
  }
  return sequences;
}

std::vector<PackedSequence> SingleQueries(const std::vector<int64_t>& key_lengths, int64_t rows, const char* name) {
  const std::vector<int64_t> ones(key_lengths.size(), 1);
  if (static_cast<int64_t>(key_lengths.size()) != rows) {
    RefuseArgument(name, "one length for each of the " + std::to_string(rows) + " rows of 'query'",
                   std::to_string(key_lengths.size()));
  }
  return PackSequences(ones, key_lengths, rows, name, name);
}

at::Tensor PackedRows(const Tensor& tensor, int64_t heads, int64_t start, int64_t length) {
  return at::Tensor(tensor).narrow(0, start, length).to(at::kFloat).view({length, heads, HeadDim(tensor, heads)});
}

at::Tensor CachedRows(const Tensor& cache, const Tensor& block_table, int64_t heads, size_t index, int64_t length) {
  const at::Tensor row = at::Tensor(block_table).select(0, static_cast<int64_t>(index));
  return operators::PagedRows(cache, row, length, block_table.name(), index)
      .to(at::kFloat)
      .reshape({length, heads, CacheDim(cache, heads)});
}

int64_t HeadDim(const Tensor& rows, int64_t heads) { return rows.rank() == 3 ? rows.size(2) : rows.size(1) / heads; }

int64_t CacheDim(const Tensor& cache, int64_t heads) { return cache.rank() == 4 ? cache.size(3) : cache.size(2) / heads; }

void RequireHeads(int64_t heads, int64_t kv_heads) {
  if (heads < 1 || kv_heads < 1 || heads % kv_heads != 0) {
    RefuseArgument("num_kv_heads", "a divisor of the heads of 'query' (" + std::to_string(heads) + ")",
                   std::to_string(kv_heads));
  }
}

void RequirePackedRows(const Tensor& rows, int64_t heads) {
  operators::RequireDtype(rows, operators::kHalves);
  operators::RequireContiguous(rows);
  operators::RequireRank(rows, 2, 3);
  if (rows.rank() == 3 ? rows.size(1) != heads : rows.size(1) % heads != 0) {
    RefuseArgument(rows.name(), "[tokens, " + std::to_string(heads) + ", dim] or [tokens, " + std::to_string(heads) + " * dim]",
                   operators::Describe(rows.sizes()));
  }
}

void RequireCache(const Tensor& cache, const Tensor& query, int64_t heads) {
  operators::RequireSameDtype(cache, query);
  operators::RequireContiguous(cache);
  operators::RequireRank(cache, 3, 4);
  if (cache.rank() == 4 ? cache.size(2) != heads : cache.size(2) % heads != 0) {
    RefuseArgument(cache.name(), "[blocks, block size, " + std::to_string(heads) + ", dim]",
                   operators::Describe(cache.sizes()));
  }
  const int64_t block_size = cache.size(1);
  if (block_size % kBlockAlignment != 0 || (block_size > kLargestBlock && block_size != kWholeHeadBlock)) {
    RefuseArgument(cache.name(), "a block size that is a multiple of 16, at most 128 or 256", std::to_string(block_size));
  }
}

void RequireBlockTable(const Tensor& block_table, size_t sequences) {
  operators::RequireDtype(block_table, {c10::ScalarType::Int});
  operators::RequireRank(block_table, 2, 2);
  if (block_table.size(0) < static_cast<int64_t>(sequences)) {
    RefuseArgument(block_table.name(), "at least " + std::to_string(sequences) + " rows, one for each sequence",
                   operators::Describe(block_table.sizes()));
  }
}

uint64_t DecodeWorkspace(const Tensor& out, const std::vector<PackedSequence>& sequences) {
  int64_t longest = 1;
  for (const PackedSequence& sequence : sequences) {
    longest = std::max(longest, sequence.key_length);
  }
  const int64_t parts = longest > kMostSplitLength ? kMostSplitLength / kSplit / 2 : (longest + kSplit - 1) / kSplit;
  const uint64_t bytes = static_cast<uint64_t>(out.numel() * parts) * sizeof(float);
  return (bytes / kWorkspaceAlignment + 1) * kWorkspaceAlignment;
}

}  // namespace cann_sim::atb_library
