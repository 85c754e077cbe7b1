// SparseFlashAttention (SFA): latent attention over the keys that a selection names, such as that of the lightning indexer.
// Lengths are device memory, read when the kernel runs, so that a captured graph follows them without a task update.

#include <ATen/ops/cat.h>
#include <ATen/ops/index_select.h>

#include <algorithm>
#include <limits>
#include <memory>
#include <vector>

#include "attention.h"
#include "key_selection.h"
#include "operator.h"
#include "paged_cache.h"
#include "ragged_rows.h"

namespace cann_sim::operators {

namespace {

constexpr int64_t kLatentDim = 512;
constexpr int64_t kRopeDim = 64;
constexpr int64_t kLargestBlock = 1024;
constexpr int64_t kLargestSelection = 128;
constexpr int64_t kMostHeads = 128;
constexpr int64_t kAbsorbed = 2;
constexpr int64_t kRightDownCausal = 3;

// What the workspace phase made of the arguments; owned by the kernel.
struct SparseFlashAttention {
  Tensor query, key, value, selection;
  Tensor block_table, query_rope, key_rope;
  RaggedRows queries, keys;
  OptionalTensor sink;
  double scale;
  int64_t selection_size;
  bool causal;
  Tensor output;

  void Run() const;

 private:
  void RunSequence(size_t index, const RowSpan& span, int64_t key_length) const;
};

void SparseFlashAttention::RunSequence(size_t index, const RowSpan& span, int64_t key_length) const {
  const at::Tensor row = at::Tensor(block_table).select(0, static_cast<int64_t>(index));
  const auto pages = [&](const Tensor& cache) {
    return PagedRows(cache, row, key_length, block_table.name(), index).to(at::kFloat);
  };
  const at::Tensor values = pages(value);
  const at::Tensor latent = at::cat({pages(key), pages(key_rope)}, -1);
  const auto rows = [&](const Tensor& tensor) { return queries.Of(tensor, index, span); };
  const at::Tensor own = at::cat({rows(query), rows(query_rope)}, -1).to(at::kFloat);
  const at::Tensor selected = rows(selection);
  const at::Tensor outputs = rows(output);
  const at::Tensor sinks = sink ? at::Tensor(*sink).to(at::kFloat) : at::Tensor();
  for (int64_t position = 0; position < span.length; ++position) {
    const int64_t seen = causal ? key_length - span.length + position + 1 : std::numeric_limits<int64_t>::max();
    const at::Tensor chosen = SelectedKeys({selection.name(), selection_size}, selected[position][0], key_length, seen);
    const AttentionResult result =
        Attend(own.narrow(0, position, 1), at::index_select(latent, 0, chosen), at::index_select(values, 0, chosen),
               scale, at::Tensor(), sinks, at::Tensor());
    outputs.narrow(0, position, 1).copy_(result.output);
  }
}

void SparseFlashAttention::Run() const {
  at::Tensor(output).zero_();
  const std::vector<RowSpan> own_queries = queries.Read();
  const std::vector<RowSpan> own_keys = keys.Read();
  for (size_t index = 0; index < own_queries.size(); ++index) {
    RunSequence(index, own_queries[index], own_keys[index].length);
  }
}

const Tensor& Present(const OptionalTensor& tensor) {
  if (!tensor) {
    RefuseArgument(tensor.name(), "a tensor, since the cache is paged and latent", "none");
  }
  return *tensor;
}

void RequireCache(const SparseFlashAttention& call) {
  for (const Tensor* cache : {&call.key, &call.value, &call.key_rope}) {
    RequireSameDtype(*cache, call.query);
    RequireContiguous(*cache);
    RequireShape(*cache, {call.key.size(0), call.key.size(1), 1, cache == &call.key_rope ? kRopeDim : kLatentDim});
  }
  const int64_t block = call.key.size(1);
  if (block % 16 != 0 || block > kLargestBlock || block % call.selection_size != 0) {
    RefuseArgument(call.key.name(), "blocks of a multiple of 16 and of the selection's " +
                                        std::to_string(call.selection_size) + " keys, of at most " +
                                        std::to_string(kLargestBlock),
                   std::to_string(block));
  }
}

void RequireQueries(const SparseFlashAttention& call) {
  RequireDtype(call.query, kHalves);
  RequireContiguous(call.query);
  std::vector<int64_t> shape = call.query.sizes().vec();
  const int64_t heads = shape[shape.size() - 2];
  if (shape.back() != kLatentDim || heads > kMostHeads || (heads & (heads - 1)) != 0) {
    RefuseArgument(call.query.name(), "a power of two of at most 128 heads of 512 dimensions", Describe(shape));
  }
  shape.back() = kRopeDim;
  RequireSameDtype(call.query_rope, call.query);
  RequireShape(call.query_rope, shape);
  shape[shape.size() - 2] = 1;
  shape.back() = call.selection.size(-1);
  RequireDtype(call.selection, {c10::ScalarType::Int});
  RequireShape(call.selection, shape);
  RequireShape(call.output, call.query.sizes());
  if (call.sink) {
    RequireShape(*call.sink, {heads});
  }
}

struct Arguments {
  const Tensor &query, &key, &value, &selection;
  const OptionalTensor &block_table, &query_lengths, &key_lengths, &query_rope, &key_rope;
  const OptionalTensor& sink;
  double scale;
  int64_t selection_size;
  const Text &query_layout, &key_layout;
  int64_t sparse_mode, attention_mode;
  bool wants_sums;
  const Tensor& output;
};

Plan MakePlan(const Arguments& given) {
  if (given.query_layout.value() != "TND" && given.query_layout.value() != "BSND") {
    RefuseArgument(given.query_layout.name(), "TND or BSND", given.query_layout.value());
  }
  if (given.key_layout.value() != "PA_BSND") {
    RefuseArgument(given.key_layout.name(), "PA_BSND (others are not simulated)", given.key_layout.value());
  }
  if (given.sparse_mode != 0 && given.sparse_mode != kRightDownCausal) {
    RefuseArgument("sparseMode", "0 (all) or 3 (right down causal)", std::to_string(given.sparse_mode));
  }
  if (given.attention_mode != kAbsorbed) {
    RefuseArgument("attentionMode", "2 (absorbed latent attention)", std::to_string(given.attention_mode));
  }
  if (given.wants_sums) {
    RefuseArgument("returnSoftmaxLse", "false, since the cache is paged", "true");
  }
  const int64_t selection_size = given.selection_size;
  if (selection_size < 1 || selection_size > kLargestSelection || (selection_size & (selection_size - 1)) != 0) {
    RefuseArgument("sparseBlockSize", "a power of two of at most 128", std::to_string(selection_size));
  }
  const bool packed = given.query_layout.value() == "TND";
  RequireRank(given.query, packed ? 3 : 4, packed ? 3 : 4);
  RequireRank(given.key, 4, 4);
  auto call = std::make_shared<SparseFlashAttention>(SparseFlashAttention{
      given.query, given.key, given.value, given.selection, Present(given.block_table), Present(given.query_rope),
      Present(given.key_rope), {}, {}, given.sink, given.scale, selection_size, given.sparse_mode == kRightDownCausal,
      given.output});
  RequireQueries(*call);
  RequireCache(*call);
  RequireDtype(call->block_table, {c10::ScalarType::Int});
  RequireContiguous(call->block_table);
  RequireRank(call->block_table, 2, 2);
  const int64_t batch = packed ? Present(given.query_lengths).numel() : given.query.size(0);
  call->queries = {packed ? RowLayout::kPacked : RowLayout::kBatched, batch, given.query.size(packed ? 0 : 1),
                   Present(given.query_lengths)};
  call->keys = {RowLayout::kPaged, batch, call->block_table.size(1) * given.key.size(1), given.key_lengths};
  call->queries.Require(given.query_lengths.name());
  call->keys.Require(given.key_lengths.name());
  if (call->block_table.size(0) < batch) {
    RefuseArgument(call->block_table.name(), "at least " + std::to_string(batch) + " rows, one a sequence",
                   Describe(call->block_table.sizes()));
  }
  return Plan([call] { call->Run(); });
}

}  // namespace

#define CANN_SIM_SFA_TENSORS                                                                                     \
  (Tensor, query), (Tensor, key), (Tensor, value), (Tensor, sparseIndices), (OptionalTensor, blockTable),        \
      (OptionalTensor, actualSeqLengthsQuery), (OptionalTensor, actualSeqLengthsKv), (OptionalTensor, queryRope), \
      (OptionalTensor, keyRope)

#define CANN_SIM_SFA_ATTRIBUTES                                                                                    \
  (Double, scaleValue), (Int, sparseBlockSize), (Text, layoutQuery), (Text, layoutKv), (Int, sparseMode),          \
      (Int, preTokens), (Int, nextTokens), (Int, attentionMode), (Bool, returnSoftmaxLse), (Tensor, attentionOut), \
      (Tensor, softmaxMax), (Tensor, softmaxSum)

#define CANN_SIM_SFA_PLAN(SINK)                                                                                          \
  const OptionalTensor sinks_given = SINK;                                                                               \
  return MakePlan({query, key, value, sparseIndices, blockTable, actualSeqLengthsQuery, actualSeqLengthsKv, queryRope,   \
                   keyRope, sinks_given, scaleValue, sparseBlockSize, layoutQuery, layoutKv, sparseMode, attentionMode,  \
                   returnSoftmaxLse, attentionOut})

CANN_SIM_OPERATOR(aclnnSparseFlashAttention, CANN_SIM_SFA_TENSORS, CANN_SIM_SFA_ATTRIBUTES) {
  CANN_SIM_SFA_PLAN(OptionalTensor());
}

CANN_SIM_OPERATOR(aclnnSparseFlashAttentionV2, CANN_SIM_SFA_TENSORS, (OptionalTensor, sinks), CANN_SIM_SFA_ATTRIBUTES) {
  CANN_SIM_SFA_PLAN(sinks);
}

}  // namespace cann_sim::operators
