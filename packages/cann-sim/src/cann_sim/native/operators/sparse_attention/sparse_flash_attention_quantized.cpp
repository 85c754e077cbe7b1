// KvQuantSparseFlashAttention: latent attention over selected keys of int8. A row of 656 bytes holds the latent key (512 int8, which
// is the value too), its rotary part (64 of the dtype of the queries), and a float32 scale for each 128 values.

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
constexpr int64_t kTile = 128;
constexpr int64_t kRopeBytes = 2 * kRopeDim;
constexpr int64_t kRow = kLatentDim + kRopeBytes + 4 * (kLatentDim / kTile);
constexpr int64_t kMostHeads = 128;
constexpr int64_t kLargestGroup = 16;
constexpr int64_t kRightDownCausal = 3;
constexpr int64_t kAbsorbed = 2;
constexpr int64_t kByTile = 2;
constexpr int64_t kFarthest = std::numeric_limits<int64_t>::max();

// What the workspace phase made of the arguments; owned by the kernel.
struct QuantizedSparseAttention {
  Tensor query, key, value, selection;
  QueriesAndKeys rows;
  double scale;
  int64_t group_size;
  bool causal;
  Tensor output;

  void Require() const;
  void Run() const;

 private:
  void RunSequence(size_t index, const RowSpan& own, const RowSpan& seen) const;
};

// [K, 512] latent values, rounded to the dtype of the queries as the device's matrix unit takes them.
at::Tensor Latent(const at::Tensor& rows, at::ScalarType dtype) {
  const at::Tensor values = rows.narrow(-1, 0, kLatentDim).to(at::kFloat).unflatten(-1, {-1, kTile});
  const at::Tensor scales = rows.narrow(-1, kLatentDim + kRopeBytes, kRow - kLatentDim - kRopeBytes).contiguous().view(at::kFloat);
  return values.mul(scales.unsqueeze(-1)).flatten(-2).to(dtype).to(at::kFloat);
}

void QuantizedSparseAttention::RunSequence(size_t index, const RowSpan& own, const RowSpan& seen) const {
  const at::ScalarType dtype = query.dtype();
  const auto keys_of = [&](const Tensor& cache) { return rows.KeysOf(cache, index, seen).squeeze(1); };
  const at::Tensor keys = keys_of(key);
  const at::Tensor rope = keys.narrow(-1, kLatentDim, kRopeBytes).contiguous().view(dtype).to(at::kFloat);
  const at::Tensor wide = at::cat({Latent(keys, dtype), rope}, -1).unsqueeze(1);
  const at::Tensor values = Latent(keys_of(value), dtype).unsqueeze(1);
  const at::Tensor own_queries = rows.queries.Of(query, index, own).to(at::kFloat);
  const at::Tensor selected = rows.queries.Of(selection, index, own);
  const at::Tensor outputs = rows.queries.Of(output, index, own);
  for (int64_t position = 0; position < own.length; ++position) {
    const int64_t visible = causal ? seen.length - own.length + position + 1 : seen.length;
    const at::Tensor chosen =
        SelectedKeys({selection.name(), group_size}, selected[position][0], seen.length, visible);
    const AttentionResult result =
        Attend(own_queries.narrow(0, position, 1), at::index_select(wide, 0, chosen), at::index_select(values, 0, chosen),
               scale, at::Tensor(), at::Tensor(), at::Tensor());
    outputs.narrow(0, position, 1).copy_(result.output);
  }
}

void QuantizedSparseAttention::Run() const {
  at::Tensor(output).zero_();
  const std::vector<RowSpan> own = rows.queries.Read();
  const std::vector<RowSpan> seen = rows.keys.Read();
  for (size_t index = 0; index < own.size(); ++index) {
    RunSequence(index, own[index], seen[index]);
  }
}

void QuantizedSparseAttention::Require() const {
  RequireDtype(query, kHalves);
  RequireContiguous(query);
  std::vector<int64_t> shape = query.sizes().vec();
  const int64_t heads = shape[shape.size() - 2];
  if (shape.back() != kLatentDim + kRopeDim || heads < 1 || heads > kMostHeads || (heads & (heads - 1)) != 0) {
    RefuseArgument(query.name(), "a power of two of at most 128 heads of 576 dimensions", Describe(shape));
  }
  shape.back() = kLatentDim;
  RequireSameDtype(output, query);
  RequireShape(output, shape);
  shape[shape.size() - 2] = 1;
  shape.back() = selection.size(-1);
  RequireDtype(selection, {c10::ScalarType::Int});
  RequireContiguous(selection);
  RequireShape(selection, shape);
  shape = key.sizes().vec();
  shape[shape.size() - 2] = 1;
  shape.back() = kRow;
  for (const Tensor* cache : {&key, &value}) {
    RequireDtype(*cache, {c10::ScalarType::Char});
    RequireContiguous(*cache);
    RequireShape(*cache, shape);
  }
  rows.RequireBlock(key, group_size);
}

void RequireValue(const Int& attribute, std::initializer_list<int64_t> allowed) {
  std::string text;
  for (const int64_t value : allowed) {
    if (attribute == value) {
      return;
    }
    text += (text.empty() ? "" : " or ") + std::to_string(value);
  }
  RefuseArgument(attribute.name(), text, std::to_string(attribute));
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
  RequireValue(sparseMode, {0, kRightDownCausal});
  RequireValue(preTokens, {kFarthest});
  RequireValue(nextTokens, {kFarthest});
  RequireValue(attentionMode, {kAbsorbed});
  RequireValue(quantScaleRepoMode, {1});
  RequireValue(tileSize, {kTile});
  RequireValue(ropeHeadDim, {kRopeDim});
  const int64_t group = sparseBlockSize;
  if (group < 1 || group > kLargestGroup || (group & (group - 1)) != 0) {
    RefuseArgument(sparseBlockSize.name(), "a power of two of at most 16", std::to_string(group));
  }
  auto call = std::make_shared<QuantizedSparseAttention>(QuantizedSparseAttention{
      query, key, value, sparseIndices,
      {layoutQuery, layoutKv, query, key, actualSeqLengthsQuery, actualSeqLengthsKv, blockTable}, scaleValue, group,
      sparseMode == kRightDownCausal, attentionOut});
  call->Require();
  return Plan([call] { call->Run(); });
}

}  // namespace cann_sim::operators
