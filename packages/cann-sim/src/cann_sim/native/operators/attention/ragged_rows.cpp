#include "ragged_rows.h"

#include <string>

#include "../cache/paged_cache.h"
#include "../interface/validation.h"

namespace cann_sim::operators {

std::vector<int64_t> ReadIntegers(const Tensor& tensor) {
  const at::Tensor wide = at::Tensor(tensor).to(at::kLong).contiguous();
  return {wide.data_ptr<int64_t>(), wide.data_ptr<int64_t>() + wide.numel()};
}

void RaggedRows::Require(const char* lengths_name) const {
  if (!lengths) {
    if (layout != RowLayout::kBatched) {
      RefuseArgument(lengths_name, "a tensor, since the rows are packed or paged", "none");
    }
    return;
  }
  RequireDtype(*lengths, {c10::ScalarType::Int});
  RequireShape(*lengths, {batch});
}

std::vector<RowSpan> RaggedRows::Read() const {
  if (!lengths) {
    return std::vector<RowSpan>(static_cast<size_t>(batch), {0, capacity});
  }
  std::vector<RowSpan> spans;
  int64_t before = 0;
  for (const int64_t value : ReadIntegers(*lengths)) {
    const int64_t start = layout == RowLayout::kPacked ? before : 0;
    const int64_t length = value - start;
    if (length < 0 || length > capacity - start) {
      RefuseArgument(lengths.name(),
                     "entry " + std::to_string(spans.size()) + " in [" + std::to_string(start) + ", " +
                         std::to_string(capacity) + "]",
                     std::to_string(value));
    }
    spans.push_back({start, length});
    before = value;
  }
  return spans;
}

at::Tensor RaggedRows::Of(const at::Tensor& tensor, size_t index, const RowSpan& span) const {
  const at::Tensor entry = layout == RowLayout::kPacked ? tensor : tensor.select(0, static_cast<int64_t>(index));
  return entry.narrow(0, span.start, span.length);
}

namespace {

constexpr int64_t kLargestBlock = 1024;

RowLayout LayoutOf(const Text& name, const Text* queries) {
  const std::string& layout = name.value();
  if (queries != nullptr && layout == "PA_BSND") {
    return RowLayout::kPaged;
  }
  if (layout != "BSND" && layout != "TND") {
    RefuseArgument(name.name(), queries == nullptr ? "BSND or TND" : "PA_BSND, BSND or TND", layout);
  }
  if (queries != nullptr && layout != queries->value()) {
    RefuseArgument(name.name(), "PA_BSND, or that of the queries, " + queries->value(), layout);
  }
  return layout == "TND" ? RowLayout::kPacked : RowLayout::kBatched;
}

}  // namespace

QueriesAndKeys::QueriesAndKeys(const Text& query_layout, const Text& key_layout, const Tensor& query, const Tensor& key,
                               const OptionalTensor& query_lengths, const OptionalTensor& key_lengths,
                               const OptionalTensor& table)
    : block_table(table) {
  queries.layout = LayoutOf(query_layout, nullptr);
  keys.layout = LayoutOf(key_layout, &query_layout);
  const bool packed = queries.layout == RowLayout::kPacked;
  RequireRank(query, packed ? 3 : 4, packed ? 3 : 4);
  const int key_rank = keys.layout == RowLayout::kPacked ? 3 : 4;
  RequireRank(key, key_rank, key_rank);
  queries.lengths = query_lengths;
  queries.batch = packed && query_lengths ? query_lengths->numel() : query.size(0);
  queries.capacity = query.size(packed ? 0 : 1);
  keys.lengths = key_lengths;
  keys.batch = queries.batch;
  queries.Require(query_lengths.name());
  keys.Require(key_lengths.name());
  if (!paged()) {
    keys.capacity = key.size(keys.layout == RowLayout::kPacked ? 0 : 1);
    if (keys.layout == RowLayout::kBatched && key.size(0) != keys.batch) {
      RefuseArgument(key.name(), "a batch of " + std::to_string(keys.batch), Describe(key.sizes()));
    }
    if (block_table) {
      RefuseArgument(block_table.name(), "none, since the keys are not paged", "a tensor");
    }
    return;
  }
  if (!block_table) {
    RefuseArgument(block_table.name(), "a tensor, since the keys are paged", "none");
  }
  RequireDtype(*block_table, {c10::ScalarType::Int});
  RequireRank(*block_table, 2, 2);
  RequireContiguous(*block_table);
  RequireShape(*block_table, {keys.batch, block_table->size(1)});
  keys.capacity = block_table->size(1) * key.size(1);
}

void QueriesAndKeys::RequireBlock(const Tensor& key, int64_t group) const {
  const int64_t block = key.size(1);
  if (paged() && (block < 1 || block % 16 != 0 || block > kLargestBlock || block % group != 0)) {
    RefuseArgument(key.name(), "blocks of a multiple of 16 and of " + std::to_string(group) + " keys, of at most 1024",
                   std::to_string(block));
  }
}

at::Tensor QueriesAndKeys::KeysOf(const Tensor& cache, size_t index, const RowSpan& span) const {
  if (!paged()) {
    return keys.Of(cache, index, span);
  }
  const at::Tensor row = at::Tensor(*block_table).select(0, static_cast<int64_t>(index));
  return PagedRows(cache, row, span.length, block_table.name(), index);
}

}  // namespace cann_sim::operators
