// FusedInferAttentionScore with queries, keys and values in int8: latent attention (MLA) over pages of five dimensions only.

#include "../interface/validation.h"
#include "fused_infer_plan.h"
#include "fused_infer_validation.h"

namespace cann_sim::operators {

namespace {

using c10::ScalarType;

constexpr int64_t kByTokenAndHead = 3;
constexpr int64_t kQuantizedBlock = 128;

void RequireAbsent(std::initializer_list<const OptionalTensor*> tensors) {
  for (const OptionalTensor* tensor : tensors) {
    if (*tensor) {
      RefuseArgument(tensor->name(), "none beside queries in int8", "a tensor");
    }
  }
}

Dequantization ByTensor(const Tensor& cache, const OptionalTensor& scale) {
  if (!scale) {
    RefuseArgument(scale.name(), "a scale, since queries, keys and values are int8", "none");
  }
  RequireDtype(*scale, {ScalarType::Float});
  RequireShape(*scale, {1});
  RequireDtype(cache, {ScalarType::Char});
  if (cache.rank() != 5) {
    RefuseArgument(cache.name(), "pages of five dimensions, [blocks, heads, dim / 32, block size, 32]", Describe(cache.sizes()));
  }
  return {at::Tensor(scale)};
}

}  // namespace

void DequantizeAll(const FusedInferArguments& arguments, FusedInferAttention& call) {
  RequireAbsent({&arguments.both_scale, &arguments.both_offset, &arguments.key_offset, &arguments.value_offset,
                 &arguments.output_scale, &arguments.output_offset, &arguments.position_shift, &arguments.key_prefix,
                 &arguments.value_prefix, &arguments.query_padding, &arguments.key_padding, &arguments.sink});
  if (!arguments.query_rope || !arguments.key_rope) {
    RefuseArgument("queryRope", "rotary parts beside queries in int8", "none");
  }
  if (!arguments.block_table || arguments.block_size != kQuantizedBlock) {
    RefuseArgument("blockSize", "pages of 128 keys beside queries in int8", std::to_string(arguments.block_size));
  }
  if (arguments.wants_log_sum_exp) {
    RefuseArgument("softmaxLseFlag", "false beside queries in int8", "true");
  }
  if (call.query_layout == QueryLayout::kBNSD || call.query_layout == QueryLayout::kNTD) {
    RefuseArgument("inputLayout", "BSH, BSND or TND beside queries in int8", arguments.layout->value());
  }
  if (arguments.query_mode != kByTokenAndHead || arguments.key_mode != 0 || arguments.value_mode != 0) {
    RefuseArgument("queryQuantMode, keyAntiquantMode and valueAntiquantMode", "3, 0 and 0 beside queries in int8",
                   std::to_string(arguments.query_mode) + ", " + std::to_string(arguments.key_mode) + " and " +
                       std::to_string(arguments.value_mode));
  }
  call.key_dequantization = ByTensor(call.key, arguments.key_scale);
  call.value_dequantization = ByTensor(call.value, arguments.value_scale);
  const Tensor& scale = *arguments.query_scale;
  std::vector<int64_t> shape = call.query.sizes().vec();
  if (call.query_layout == QueryLayout::kBSH) {
    shape.back() = call.heads;
  } else {
    shape.pop_back();
  }
  RequireDtype(scale, {ScalarType::Float});
  RequireShape(scale, shape);
  call.query_scale = arguments.query_scale;
}

}  // namespace cann_sim::operators
