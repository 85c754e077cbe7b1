// Attention of native sparse attention: each query sees the blocks of keys that were selected for it.

#include <ATen/ops/arange.h>
#include <ATen/ops/matmul.h>
#include <ATen/ops/zeros.h>

#include <algorithm>
#include <limits>

#include "../interface/operator.h"

namespace cann_sim::operators {

namespace {

using c10::ScalarType;

constexpr int64_t kStatisticCopies = 8;
constexpr int64_t kCausalMode = 2;
constexpr int64_t kQueryDim = 192;
constexpr int64_t kValueDim = 128;
constexpr int64_t kMostBlockSize = 128;
constexpr int64_t kBlockSizeMultiple = 16;
constexpr int64_t kMostBlocks = 32;
// Number of queries whose gathered keys are in memory at once.
constexpr int64_t kQueriesAtOnce = 64;
constexpr double kInfinity = std::numeric_limits<double>::infinity();

void RequireTotals(const OptionalIntArray& totals, const Tensor& tensor) {
  const std::vector<int64_t>& values = totals.values();
  if (values.empty() || !std::is_sorted(values.begin(), values.end()) || values.front() < 0 ||
      values.back() > tensor.size(0)) {
    RefuseArgument(totals.name(), "running totals that never fall, at most the rows of '" + std::string(tensor.name()) + "' " +
                                      std::to_string(tensor.size(0)),
                   Describe(values));
  }
}

}  // namespace

CANN_SIM_OPERATOR(aclnnNsaSelectedAttention, (Tensor, query), (Tensor, key), (Tensor, value), (Tensor, topkIndices),
                  (OptionalTensor, attenMask), (OptionalIntArray, actualSeqQLen), (OptionalIntArray, actualSeqKvLen),
                  (Double, scaleValue), (Int, headNum), (Text, inputLayout), (Int, sparseMode), (Int, selectedBlockSize),
                  (Int, selectedBlockCount), (Tensor, softmaxMax), (Tensor, softmaxSum), (Tensor, attentionOut)) {
  RequireDtype(query, kHalves);
  if (inputLayout.value() != "TND") {
    RefuseArgument(inputLayout.name(), "TND", inputLayout.value());
  }
  for (const Tensor& tensor : {query, key, value}) {
    RequireSameDtype(tensor, query);
    RequireRank(tensor, 3, 3);
  }
  const int64_t heads = query.size(1);
  const int64_t key_heads = key.size(1);
  if (headNum != heads || key_heads <= 0 || heads % key_heads != 0 || value.size(1) != key_heads) {
    RefuseArgument(headNum.name(), "the heads of 'query', a multiple of those of 'key' and 'value'", std::to_string(headNum));
  }
  if (key.size(0) != value.size(0) || key.size(2) != query.size(2)) {
    RefuseArgument(key.name(), "the rows of 'value' and the head dimension of 'query'", Describe(key.sizes()));
  }
  if (query.size(2) != kQueryDim || value.size(2) != kValueDim) {
    RefuseArgument(query.name(), "heads of 192, and of 128 in 'value'",
                   std::to_string(query.size(2)) + " and " + std::to_string(value.size(2)));
  }
  if (selectedBlockSize <= 0 || selectedBlockSize > kMostBlockSize || selectedBlockSize % kBlockSizeMultiple != 0) {
    RefuseArgument(selectedBlockSize.name(), "a multiple of 16, at most 128", std::to_string(selectedBlockSize));
  }
  if (selectedBlockCount <= 0 || selectedBlockCount > kMostBlocks) {
    RefuseArgument(selectedBlockCount.name(), "between 1 and 32", std::to_string(selectedBlockCount));
  }
  if (sparseMode != 0 && sparseMode != kCausalMode) {
    RefuseArgument(sparseMode.name(), "0 or 2", std::to_string(sparseMode));
  }
  RequireDtype(topkIndices, {ScalarType::Int});
  RequireShape(topkIndices, {query.size(0), key_heads, selectedBlockCount});
  RequireTotals(actualSeqQLen, query);
  RequireTotals(actualSeqKvLen, key);
  if (actualSeqQLen.values().size() != actualSeqKvLen.values().size()) {
    RefuseArgument(actualSeqKvLen.name(), std::to_string(actualSeqQLen.values().size()) + " sequences",
                   std::to_string(actualSeqKvLen.values().size()));
  }
  int64_t key_start_before = 0;
  for (int64_t end : actualSeqKvLen.values()) {
    const int64_t length = end - key_start_before;
    if (length < selectedBlockSize * selectedBlockCount || length % selectedBlockSize != 0) {
      RefuseArgument(actualSeqKvLen.name(), "sequences of whole blocks, at least as many as are selected",
                     Describe(actualSeqKvLen.values()));
    }
    key_start_before = end;
  }
  if (attenMask) {
    RequireDtype(*attenMask, kBool | DtypeSet{ScalarType::Byte});
    RequireRank(*attenMask, 2, 2);
  }
  for (const Tensor& statistic : {softmaxMax, softmaxSum}) {
    RequireDtype(statistic, {ScalarType::Float});
    RequireShape(statistic, {query.size(0), heads, kStatisticCopies});
  }
  RequireSameDtype(attentionOut, query);
  RequireShape(attentionOut, {query.size(0), heads, value.size(2)});
  return [=] {
    const at::Tensor queries = query.Widened();
    const at::Tensor keys = key.Widened();
    const at::Tensor values = value.Widened();
    const at::Tensor blocks = at::Tensor(topkIndices).to(at::kLong);
    const at::Tensor outputs = at::zeros(attentionOut.sizes(), at::kFloat);
    const at::Tensor largest = at::zeros({query.size(0), heads}, at::kFloat);
    const at::Tensor totals = at::zeros({query.size(0), heads}, at::kFloat);
    const at::Tensor inside = at::arange(selectedBlockSize.value(), at::kLong);
    int64_t query_start = 0;
    int64_t key_start = 0;
    for (size_t index = 0; index < actualSeqQLen.values().size(); ++index) {
      const int64_t query_end = actualSeqQLen.values()[index];
      const int64_t key_end = actualSeqKvLen.values()[index];
      const int64_t key_count = key_end - key_start;
      for (int64_t begin = query_start; begin < query_end && key_count > 0; begin += kQueriesAtOnce) {
        const int64_t count = std::min(kQueriesAtOnce, query_end - begin);
        // Positions of the chosen keys in their sequence, [queries, key heads, keys].
        const at::Tensor positions =
            blocks.narrow(0, begin, count).unsqueeze(-1).mul(selectedBlockSize.value()).add(inside).flatten(2);
        at::Tensor hidden = positions.lt(0).logical_or(positions.ge(key_count));
        const at::Tensor present = positions.clamp(0, key_count - 1);
        const at::Tensor own = at::arange(begin - query_start, begin - query_start + count, at::kLong);
        // Without a mask the sparse mode has no effect.
        if (attenMask && sparseMode == kCausalMode) {
          hidden = hidden.logical_or(positions.gt(own.view({-1, 1, 1})));
        } else if (attenMask) {
          hidden = hidden.logical_or(at::Tensor(*attenMask).to(at::kBool).index({own.view({-1, 1, 1}), present}));
        }
        const auto gather = [&](const at::Tensor& whole) {  // [queries, key heads, keys, dim]
          const at::Tensor kv_head = at::arange(key_heads, at::kLong).view({1, -1, 1});
          return whole.index({present.add(key_start), kv_head});
        };
        const at::Tensor rows = queries.narrow(0, begin, count).unflatten(1, {key_heads, -1});
        const at::Tensor scores =
            at::matmul(rows, gather(keys).transpose(-1, -2)).mul_(scaleValue.value()).masked_fill_(hidden.unsqueeze(2), -kInfinity);
        const at::Tensor most = scores.amax({3}, true);
        const at::Tensor shift = most.masked_fill(most.eq(-kInfinity), 0.0);
        const at::Tensor weights = scores.sub_(shift).exp_();
        const at::Tensor total = weights.sum({3}, true);
        // The device rounds the normalised weights to the dtype of the values.
        const at::Tensor shares = weights.div_(total).masked_fill_(total.eq(0.0), 0.0).to(value.dtype()).to(at::kFloat);
        const at::Tensor output = at::matmul(shares, gather(values));
        outputs.narrow(0, begin, count).copy_(output.flatten(1, 2));
        largest.narrow(0, begin, count).copy_(shift.flatten(1));
        totals.narrow(0, begin, count).copy_(total.flatten(1));
      }
      query_start = query_end;
      key_start = key_end;
    }
    attentionOut.Store(outputs);
    softmaxMax.Store(largest.unsqueeze(-1).expand(softmaxMax.sizes()));
    softmaxSum.Store(totals.unsqueeze(-1).expand(softmaxSum.sizes()));
  };
}

}  // namespace cann_sim::operators
