// The lightning indexer: for each query the keys that sparse attention is to look at, those with the largest
//   sum over heads of weight * relu(query @ key)
// Scores are float32. Lengths are device memory, read when the kernel runs.

#include <ATen/ops/matmul.h>
#include <ATen/ops/mul.h>
#include <ATen/ops/relu.h>

#include <algorithm>
#include <limits>
#include <memory>
#include <string>
#include <vector>

#include "../attention/ragged_rows.h"
#include "../interface/operator.h"
#include "key_selection.h"

namespace cann_sim::operators {

namespace {

using c10::ScalarType;

constexpr int64_t kHeadDim = 128;
constexpr int64_t kMostIndexHeads = 64;
// Number of scores in memory at a time.
constexpr int64_t kMostScores = int64_t{1} << 24;

// What the workspace phase made of the arguments; owned by the kernel.
struct LightningIndexer {
  Tensor query, key, weights;
  OptionalTensor query_scale, key_scale;
  QueriesAndKeys rows;
  SparseMask mask;
  int64_t count;
  Tensor indices;
  OptionalTensor values;

  void Require() const;
  void Run() const;

 private:
  at::Tensor KeyRows(const Tensor& tensor, size_t index, const RowSpan& span) const;
  void RunSequence(size_t index, const RowSpan& own, const RowSpan& seen) const;
};

at::Tensor LightningIndexer::KeyRows(const Tensor& tensor, size_t index, const RowSpan& span) const {
  return rows.KeysOf(tensor, index, span).squeeze(1).to(at::kFloat);
}

void LightningIndexer::RunSequence(size_t index, const RowSpan& own, const RowSpan& seen) const {
  if (own.length == 0 || seen.length == 0) {
    return;
  }
  const at::Tensor keys = KeyRows(key, index, seen).t();
  const at::Tensor row_scales = key_scale ? KeyRows(*key_scale, index, seen) : at::Tensor();
  const int64_t step = std::max<int64_t>(1, kMostScores / (query.size(-2) * seen.length));
  for (int64_t first = 0; first < own.length; first += step) {
    const RowSpan part{own.start + first, std::min(step, own.length - first)};
    const auto own_rows = [&](const Tensor& tensor) { return rows.queries.Of(tensor, index, part).to(at::kFloat); };
    at::Tensor products = at::matmul(own_rows(query), keys);  // [rows, heads, keys]
    if (query_scale) {
      products = products.mul(own_rows(*query_scale).unsqueeze(-1)).mul(row_scales);
    }
    const at::Tensor scores = at::mul(at::relu(products), own_rows(weights).unsqueeze(-1)).sum(1);
    const at::Tensor chosen = rows.queries.Of(indices, index, part);
    const at::Tensor chosen_scores = values ? rows.queries.Of(*values, index, part) : at::Tensor();
    for (int64_t row = 0; row < part.length; ++row) {
      const int64_t visible = mask.Seen(first + row, own, seen);
      if (visible <= 0) {
        continue;
      }
      const auto [sorted, order] = scores[row].narrow(0, 0, visible).sort(true, 0, true);
      const int64_t found = std::min(visible, count);
      chosen[row][0].narrow(0, 0, found).copy_(order.narrow(0, 0, found));
      if (values) {
        chosen_scores[row][0].narrow(0, 0, found).copy_(sorted.narrow(0, 0, found));
      }
    }
  }
}

void LightningIndexer::Run() const {
  at::Tensor(indices).fill_(-1);
  if (values) {
    at::Tensor(*values).fill_(-std::numeric_limits<double>::infinity());
  }
  rows.ForEachSequence(
      [&](size_t index, const RowSpan& own, const RowSpan& seen) { RunSequence(index, own, seen); });
}

void LightningIndexer::Require() const {
  for (const Tensor* tensor : {&query, &key, &weights}) {
    RequireContiguous(*tensor);
  }
  if (query.size(-2) < 1 || query.size(-2) > kMostIndexHeads || query.size(-1) != kHeadDim) {
    RefuseArgument(query.name(), "1 to 64 heads of 128 dimensions", Describe(query.sizes()));
  }
  RequireSameDtype(key, query);
  std::vector<int64_t> shape = key.sizes().vec();
  shape[shape.size() - 2] = 1;
  shape.back() = kHeadDim;
  RequireShape(key, shape);
  shape.pop_back();
  if (key_scale) {
    RequireShape(*key_scale, shape);
    RequireContiguous(*key_scale);
  }
  shape = query.sizes().vec();
  shape.pop_back();
  RequireShape(weights, shape);
  if (query_scale) {
    RequireShape(*query_scale, shape);
    RequireContiguous(*query_scale);
  }
  rows.RequireBlock(key, 1);
  shape.back() = 1;
  shape.push_back(count);
  RequireDtype(indices, {ScalarType::Int});
  RequireShape(indices, shape);
  if (values) {
    RequireSameDtype(*values, query);
    RequireShape(*values, shape);
  }
}

struct IndexerArguments {
  const Tensor &query, &key, &weights;
  const OptionalTensor &query_scale, &key_scale, &query_lengths, &key_lengths, &block_table;
  const Text &query_layout, &key_layout;
  int64_t count, most;
  const Int &sparse_mode, &pre_tokens, &next_tokens;
  const Tensor& indices;
  const OptionalTensor& values;
};

Plan PlanIndexer(const IndexerArguments& given) {
  const bool allowed = given.count <= 2048 || given.count % 1024 == 0;
  if (given.count < 1 || given.count > given.most || !allowed) {
    RefuseArgument("sparseCount",
                   given.most > 2048 ? "1 to 2048, or a multiple of 1024 up to " + std::to_string(given.most) : "1 to 2048",
                   std::to_string(given.count));
  }
  auto call = std::make_shared<LightningIndexer>(LightningIndexer{
      given.query, given.key, given.weights, given.query_scale, given.key_scale,
      {given.query_layout, given.key_layout, given.query, given.key, given.query_lengths, given.key_lengths, given.block_table},
      {given.sparse_mode, given.pre_tokens, given.next_tokens}, given.count, given.indices, given.values});
  call->Require();
  return Plan([call] { call->Run(); });
}

}  // namespace

CANN_SIM_OPERATOR(aclnnLightningIndexer, (Tensor, query), (Tensor, key), (Tensor, weights),
                  (OptionalTensor, actualSeqLengthsQuery), (OptionalTensor, actualSeqLengthsKey), (OptionalTensor, blockTable),
                  (Text, layoutQuery), (Text, layoutKey), (Int, sparseCount), (Int, sparseMode), (Int, preTokens),
                  (Int, nextTokens), (Bool, returnValue), (Tensor, sparseIndices), (Tensor, sparseValues)) {
  RequireDtype(query, kHalves);
  if (weights.dtype() != ScalarType::Float) {
    RequireSameDtype(weights, query);
  }
  if (returnValue && layoutKey.value() == "PA_BSND") {
    RefuseArgument("returnValue", "false, since the keys are paged", "true");
  }
  const OptionalTensor none;
  return PlanIndexer({query, key, weights, none, none, actualSeqLengthsQuery, actualSeqLengthsKey, blockTable, layoutQuery,
                   layoutKey, sparseCount, 8192, sparseMode, preTokens, nextTokens, sparseIndices,
                   returnValue ? OptionalTensor(sparseValues) : none});
}

// Queries and keys of int8, with a scale for each token and head.
CANN_SIM_OPERATOR(aclnnQuantLightningIndexer, (Tensor, query), (Tensor, key), (Tensor, weights), (Tensor, queryDequantScale),
                  (Tensor, keyDequantScale), (OptionalTensor, actualSeqLengthsQuery), (OptionalTensor, actualSeqLengthsKey),
                  (OptionalTensor, blockTable), (Int, queryQuantMode), (Int, keyQuantMode), (Text, layoutQuery),
                  (Text, layoutKey), (Int, sparseCount), (Int, sparseMode), (Int, preTokens), (Int, nextTokens),
                  (Tensor, sparseIndices)) {
  RequireDtype(query, {ScalarType::Char});
  for (const Tensor* tensor : {&weights, &queryDequantScale, &keyDequantScale}) {
    RequireDtype(*tensor, {ScalarType::Half});
  }
  for (const Int& mode : {queryQuantMode, keyQuantMode}) {
    if (mode != 0) {
      RefuseArgument(mode.name(), "0 (a scale for each token and head)", std::to_string(mode));
    }
  }
  return PlanIndexer({query, key, weights, queryDequantScale, keyDequantScale, actualSeqLengthsQuery, actualSeqLengthsKey,
                   blockTable, layoutQuery, layoutKey, sparseCount, 2048, sparseMode, preTokens, nextTokens, sparseIndices,
                   OptionalTensor()});
}

}  // namespace cann_sim::operators
