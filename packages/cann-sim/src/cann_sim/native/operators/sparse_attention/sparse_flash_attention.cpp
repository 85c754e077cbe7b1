// SparseFlashAttention (SFA): latent attention over the keys that a selection names, such as that of the lightning indexer.
// Lengths are device memory, read when the kernel runs, so that a captured graph follows them without a task update.

#include <ATen/ops/cat.h>
#include <ATen/ops/index_select.h>

#include <limits>
#include <memory>
#include <string>
#include <vector>

#include "../attention/attention.h"
#include "../attention/ragged_rows.h"
#include "../interface/operator.h"
#include "key_selection.h"

namespace cann_sim::operators {

namespace {

constexpr int64_t kLatentDim = 512;
constexpr int64_t kRopeDim = 64;
constexpr int64_t kLargestSelection = 128;
constexpr int64_t kMostHeads = 128;
constexpr int64_t kAbsorbed = 2;
constexpr int64_t kRightDownCausal = 3;
constexpr int64_t kFarthest = std::numeric_limits<int64_t>::max();

// What the workspace phase made of the arguments; owned by the kernel.
struct SparseFlashAttention {
  Tensor query, key, value, selection, query_rope, key_rope;
  QueriesAndKeys rows;
  double scale;
  int64_t selection_size;
  bool causal;
  Tensor output;
  // The largest score and the sum of exponentials, [1, T, heads] or [B, 1, S, heads]; where they are wanted.
  OptionalTensor largest, total;

  void Require() const;
  void Run() const;

 private:
  void RequireQueries() const;
  void RequireKeys() const;
  void RunSequence(size_t index, const RowSpan& own, const RowSpan& seen) const;
};

void SparseFlashAttention::RunSequence(size_t index, const RowSpan& own, const RowSpan& seen) const {
  const auto keys_of = [&](const Tensor& cache) { return rows.KeysOf(cache, index, seen).to(at::kFloat); };
  const auto rows_of = [&](const Tensor& tensor) { return rows.queries.Of(tensor, index, own); };
  // Statistics have their one head of keys before the rows.
  const auto statistics_of = [&](const OptionalTensor& tensor) {
    const bool packed = rows.queries.layout == RowLayout::kPacked;
    return tensor ? rows.queries.Of(at::Tensor(*tensor).squeeze(packed ? 0 : 1), index, own) : at::Tensor();
  };
  const at::Tensor values = keys_of(value);
  const at::Tensor latent = at::cat({keys_of(key), keys_of(key_rope)}, -1);
  const at::Tensor queries = at::cat({rows_of(query), rows_of(query_rope)}, -1).to(at::kFloat);
  const at::Tensor selected = rows_of(selection);
  const at::Tensor outputs = rows_of(output);
  const at::Tensor own_largest = statistics_of(largest);
  const at::Tensor own_total = statistics_of(total);
  for (int64_t position = 0; position < own.length; ++position) {
    const int64_t visible = causal ? seen.length - own.length + position + 1 : seen.length;
    const at::Tensor chosen =
        SelectedKeys({selection.name(), selection_size}, selected[position][0], seen.length, visible);
    const AttentionResult result =
        Attend(queries.narrow(0, position, 1), at::index_select(latent, 0, chosen), at::index_select(values, 0, chosen),
               scale, at::Tensor(), at::Tensor(), at::Tensor());
    outputs.narrow(0, position, 1).copy_(result.output);
    if (largest) {
      own_largest.narrow(0, position, 1).copy_(result.largest);
      own_total.narrow(0, position, 1).copy_(result.total);
    }
  }
}

void SparseFlashAttention::Run() const {
  at::Tensor(output).zero_();
  if (largest) {
    at::Tensor(*largest).zero_();
    at::Tensor(*total).zero_();
  }
  const std::vector<RowSpan> own = rows.queries.Read();
  const std::vector<RowSpan> seen = rows.keys.Read();
  for (size_t index = 0; index < own.size(); ++index) {
    RunSequence(index, own[index], seen[index]);
  }
}

void SparseFlashAttention::RequireKeys() const {
  for (const Tensor* cache : {&key, &value, &key_rope}) {
    RequireSameDtype(*cache, query);
    RequireContiguous(*cache);
    std::vector<int64_t> shape = key.sizes().vec();
    shape[shape.size() - 2] = 1;
    shape.back() = cache == &key_rope ? kRopeDim : kLatentDim;
    RequireShape(*cache, shape);
  }
  rows.RequireBlock(key, selection_size);
}

void SparseFlashAttention::RequireQueries() const {
  RequireDtype(query, kHalves);
  RequireContiguous(query);
  std::vector<int64_t> shape = query.sizes().vec();
  const int64_t heads = shape[shape.size() - 2];
  if (shape.back() != kLatentDim || heads < 1 || heads > kMostHeads || (heads & (heads - 1)) != 0) {
    RefuseArgument(query.name(), "a power of two of at most 128 heads of 512 dimensions", Describe(shape));
  }
  shape.back() = kRopeDim;
  RequireSameDtype(query_rope, query);
  RequireShape(query_rope, shape);
  shape[shape.size() - 2] = 1;
  shape.back() = selection.size(-1);
  RequireDtype(selection, {c10::ScalarType::Int});
  RequireShape(selection, shape);
  RequireShape(output, query.sizes());
  if (!largest) {
    return;
  }
  const bool packed = rows.queries.layout == RowLayout::kPacked;
  for (const Tensor* statistic : {&*largest, &*total}) {
    RequireDtype(*statistic, {c10::ScalarType::Float});
    RequireShape(*statistic, packed ? std::vector<int64_t>{1, query.size(0), heads}
                                    : std::vector<int64_t>{query.size(0), 1, query.size(1), heads});
  }
}

void SparseFlashAttention::Require() const {
  RequireQueries();
  RequireKeys();
}

const Tensor& Present(const OptionalTensor& tensor) {
  if (!tensor) {
    RefuseArgument(tensor.name(), "a tensor, since the attention is latent", "none");
  }
  return *tensor;
}

struct Arguments {
  const Tensor &query, &key, &value, &selection;
  const OptionalTensor &block_table, &query_lengths, &key_lengths, &query_rope, &key_rope;
  double scale;
  int64_t selection_size;
  const Text &query_layout, &key_layout;
  int64_t sparse_mode, pre_tokens, next_tokens, attention_mode;
  bool wants_sums;
  const Tensor &output, &largest, &total;
};

Plan MakePlan(const Arguments& given) {
  if (given.sparse_mode != 0 && given.sparse_mode != kRightDownCausal) {
    RefuseArgument("sparseMode", "0 (all) or 3 (right down causal)", std::to_string(given.sparse_mode));
  }
  for (const int64_t tokens : {given.pre_tokens, given.next_tokens}) {
    if (tokens != kFarthest) {
      RefuseArgument("preTokens and nextTokens", std::to_string(kFarthest), std::to_string(tokens));
    }
  }
  if (given.attention_mode != kAbsorbed) {
    RefuseArgument("attentionMode", "2 (absorbed latent attention)", std::to_string(given.attention_mode));
  }
  const int64_t selection_size = given.selection_size;
  if (selection_size < 1 || selection_size > kLargestSelection || (selection_size & (selection_size - 1)) != 0) {
    RefuseArgument("sparseBlockSize", "a power of two of at most 128", std::to_string(selection_size));
  }
  const QueriesAndKeys rows(given.query_layout, given.key_layout, given.query, given.key, given.query_lengths,
                            given.key_lengths, given.block_table);
  if (given.wants_sums && rows.paged()) {
    RefuseArgument("returnSoftmaxLse", "false, since the keys are paged", "true");
  }
  const OptionalTensor none;
  const auto call = std::make_shared<SparseFlashAttention>(SparseFlashAttention{
      given.query, given.key, given.value, given.selection, Present(given.query_rope), Present(given.key_rope), rows,
      given.scale, selection_size, given.sparse_mode == kRightDownCausal, given.output,
      given.wants_sums ? OptionalTensor(given.largest) : none, given.wants_sums ? OptionalTensor(given.total) : none});
  call->Require();
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

#define CANN_SIM_SFA_PLAN                                                                                                \
  return MakePlan({query, key, value, sparseIndices, blockTable, actualSeqLengthsQuery, actualSeqLengthsKv, queryRope,   \
                   keyRope, scaleValue, sparseBlockSize, layoutQuery, layoutKv, sparseMode, preTokens, nextTokens,       \
                   attentionMode, returnSoftmaxLse, attentionOut, softmaxMax, softmaxSum})

CANN_SIM_OPERATOR(aclnnSparseFlashAttention, CANN_SIM_SFA_TENSORS, CANN_SIM_SFA_ATTRIBUTES) { CANN_SIM_SFA_PLAN; }

CANN_SIM_OPERATOR(aclnnSparseFlashAttentionV2, CANN_SIM_SFA_TENSORS, (OptionalTensor, sinks), CANN_SIM_SFA_ATTRIBUTES) {
  if (sinks) {
    RefuseArgument(sinks.name(), "none on this device", "a tensor");
  }
  CANN_SIM_SFA_PLAN;
}

}  // namespace cann_sim::operators
