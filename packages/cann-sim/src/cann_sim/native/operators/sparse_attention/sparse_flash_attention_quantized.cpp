// KvQuantSparseFlashAttention: latent attention over selected keys of int8. A row of 656 bytes holds the latent key (512 int8, which
// is the value too), its rotary part (64 of the dtype of the queries), and a float32 scale for each 128 values. The tensor of
// values is not read; its rows may have any size.

#include <ATen/ops/cat.h>

#include <vector>

#include "../attention/ragged_rows.h"
#include "../interface/operator.h"
#include "selected_attention.h"

namespace cann_sim::operators {

namespace {

constexpr int64_t kTile = 128;
constexpr int64_t kRopeBytes = 2 * kRopeDim;
constexpr int64_t kRow = kLatentDim + kRopeBytes + 4 * (kLatentDim / kTile);
constexpr int64_t kLargestBlock = 16;
constexpr int64_t kByTile = 2;

// Queries with their rotary part in the same row, keys in rows of bytes.
struct QuantizedInputs {
  Tensor query, key, value;

  void Require() const;
  SequenceOperands Read(const QueriesAndKeys& rows, size_t index, const RowSpan& own, const RowSpan& seen) const;
};

void QuantizedInputs::Require() const {
  std::vector<int64_t> shape = key.sizes().vec();
  shape[shape.size() - 2] = 1;
  shape.back() = kRow;
  RequireDtype(key, {c10::ScalarType::Char});
  RequireContiguous(key);
  RequireShape(key, shape);
  RequireSameDtype(value, key);
  RequireRank(value, key.rank(), key.rank());
  shape.back() = value.size(-1);
  RequireShape(value, shape);
}

// [K, 512] latent values, rounded to the dtype of the queries as the device's matrix unit takes them.
at::Tensor Latent(const at::Tensor& rows, at::ScalarType dtype) {
  const at::Tensor values = rows.narrow(-1, 0, kLatentDim).to(at::kFloat).unflatten(-1, {-1, kTile});
  const at::Tensor scales = rows.narrow(-1, kLatentDim + kRopeBytes, kRow - kLatentDim - kRopeBytes).contiguous().view(at::kFloat);
  return values.mul(scales.unsqueeze(-1)).flatten(-2).to(dtype).to(at::kFloat);
}

SequenceOperands QuantizedInputs::Read(const QueriesAndKeys& rows, size_t index, const RowSpan& own,
                                       const RowSpan& seen) const {
  const at::ScalarType dtype = query.dtype();
  const at::Tensor keys = rows.KeysOf(key, index, seen).squeeze(1);
  const at::Tensor latent = Latent(keys, dtype);
  const at::Tensor rope = keys.narrow(-1, kLatentDim, kRopeBytes).contiguous().view(dtype).to(at::kFloat);
  return {rows.queries.Of(query, index, own).to(at::kFloat), at::cat({latent, rope}, -1).unsqueeze(1), latent.unsqueeze(1)};
}

}  // namespace

CANN_SIM_OPERATOR(aclnnKvQuantSparseFlashAttention, (Tensor, query), (Tensor, key), (Tensor, value), (Tensor, sparseIndices),
                  (OptionalTensor, keyDequantScale), (OptionalTensor, valueDequantScale), (OptionalTensor, blockTable),
                  (OptionalTensor, actualSeqLengthsQuery), (OptionalTensor, actualSeqLengthsKv), (Double, scaleValue),
                  (Int, keyQuantMode), (Int, valueQuantMode), (Int, sparseBlockSize), (Text, layoutQuery), (Text, layoutKv),
                  (Int, sparseMode), (Int, preTokens), (Int, nextTokens), (Int, attentionMode), (Int, quantScaleRepoMode),
                  (Int, tileSize), (Int, ropeHeadDim), (Tensor, attentionOut)) {
  RefuseIfPresent(keyDequantScale, "a scale outside the rows");
  RefuseIfPresent(valueDequantScale, "a scale outside the rows");
  RequireValue(keyQuantMode, {kByTile});
  RequireValue(valueQuantMode, {kByTile});
  RequireValue(quantScaleRepoMode, {1});
  RequireValue(tileSize, {kTile});
  RequireValue(ropeHeadDim, {kRopeDim});
  RequireAbsorbed(attentionMode);
  RequireGroupSize(sparseBlockSize, kLargestBlock);
  const QuantizedInputs inputs{query, key, value};
  const SelectedAttention call{sparseIndices,
                               {layoutQuery, layoutKv, query, key, actualSeqLengthsQuery, actualSeqLengthsKv, blockTable},
                               {sparseMode, preTokens, nextTokens},
                               scaleValue,
                               sparseBlockSize,
                               attentionOut};
  call.Require(query, kLatentDim + kRopeDim);
  RequireContiguous(sparseIndices);
  inputs.Require();
  call.rows.RequireBlock(key, sparseBlockSize);
  return Plan([=] {
    call.Run([&](size_t index, const RowSpan& own, const RowSpan& seen) { return inputs.Read(call.rows, index, own, seen); });
  });
}

}  // namespace cann_sim::operators
