// SparseFlashAttention (SFA): latent attention over the keys that a selection names, such as that of the lightning indexer.
// Lengths are device memory, read when the kernel runs, so that a captured graph follows them without a task update.

#include <ATen/ops/cat.h>

#include <vector>

#include "../attention/ragged_rows.h"
#include "../interface/operator.h"
#include "selected_attention.h"

namespace cann_sim::operators {

namespace {

constexpr int64_t kLargestGroup = 128;

// Queries and keys with their rotary parts in tensors of their own, all of one dtype.
struct LatentInputs {
  Tensor query, key, value, query_rope, key_rope;

  void Require() const;
  SequenceOperands Read(const QueriesAndKeys& rows, size_t index, const RowSpan& own, const RowSpan& seen) const;
};

void LatentInputs::Require() const {
  std::vector<int64_t> shape = query.sizes().vec();
  shape.back() = kRopeDim;
  RequireSameDtype(query_rope, query);
  RequireShape(query_rope, shape);
  shape = key.sizes().vec();
  shape[shape.size() - 2] = 1;
  for (const Tensor* cache : {&key, &value, &key_rope}) {
    shape.back() = cache == &key_rope ? kRopeDim : kLatentDim;
    RequireSameDtype(*cache, query);
    RequireContiguous(*cache);
    RequireShape(*cache, shape);
  }
}

SequenceOperands LatentInputs::Read(const QueriesAndKeys& rows, size_t index, const RowSpan& own, const RowSpan& seen) const {
  const auto keys_of = [&](const Tensor& cache) { return rows.KeysOf(cache, index, seen).to(at::kFloat); };
  const auto rows_of = [&](const Tensor& tensor) { return rows.queries.Of(tensor, index, own); };
  return {at::cat({rows_of(query), rows_of(query_rope)}, -1).to(at::kFloat), at::cat({keys_of(key), keys_of(key_rope)}, -1),
          keys_of(value)};
}

const Tensor& Present(const OptionalTensor& tensor) {
  if (!tensor) {
    RefuseArgument(tensor.name(), "a tensor, since the attention is latent", "none");
  }
  return *tensor;
}

struct SparseArguments {
  const Tensor &query, &key, &value, &selection;
  const OptionalTensor &block_table, &query_lengths, &key_lengths, &query_rope, &key_rope;
  double scale;
  const Int& group_size;
  const Text &query_layout, &key_layout;
  const Int &sparse_mode, &pre_tokens, &next_tokens, &attention_mode;
  bool wants_sums;
  const Tensor &output, &largest, &total;
};

Plan PlanSparse(const SparseArguments& given) {
  const SparseMask mask(given.sparse_mode, given.pre_tokens, given.next_tokens);
  RequireAbsorbed(given.attention_mode);
  RequireGroupSize(given.group_size, kLargestGroup);
  const QueriesAndKeys rows(given.query_layout, given.key_layout, given.query, given.key, given.query_lengths,
                            given.key_lengths, given.block_table);
  if (given.wants_sums && rows.paged()) {
    RefuseArgument("returnSoftmaxLse", "false, since the keys are paged", "true");
  }
  const LatentInputs inputs{given.query, given.key, given.value, Present(given.query_rope), Present(given.key_rope)};
  SelectedAttention call{given.selection, rows, mask, given.scale, given.group_size, given.output};
  if (given.wants_sums) {
    call.largest = given.largest;
    call.total = given.total;
  }
  call.Require(given.query, kLatentDim);
  inputs.Require();
  rows.RequireBlock(given.key, given.group_size);
  return Plan([=] {
    call.Run([&](size_t index, const RowSpan& own, const RowSpan& seen) { return inputs.Read(call.rows, index, own, seen); });
  });
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
  return PlanSparse({query, key, value, sparseIndices, blockTable, actualSeqLengthsQuery, actualSeqLengthsKv, queryRope,   \
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
