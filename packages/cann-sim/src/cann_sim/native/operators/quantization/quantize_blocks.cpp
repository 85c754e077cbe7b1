// Quantisation with a scale for each piece of a row. Computed in float32.

#include <ATen/ops/constant_pad_nd.h>
#include <ATen/ops/div.h>

#include <string>
#include <vector>

#include "../interface/operator.h"
#include "quantization.h"

namespace cann_sim::operators {

namespace {

using c10::ScalarType;

constexpr int64_t kInt8 = 2;  // aclDataType
constexpr double kLargestInt8 = 127.0;

// What both versions take; the device has int8, and pieces of 1 or 128 in a row.
Plan BlockQuant(const Tensor& x, double min_scale, const OptionalText& round_mode, int64_t dtype, int64_t rows, int64_t columns,
                const Tensor& out, const Tensor& scale) {
  RequireDtype(x, kHalves);
  RequireRank(x, 2, 3);
  if (x.numel() == 0) {
    RefuseArgument(x.name(), "elements", Describe(x.sizes()));
  }
  if (min_scale < 0.0) {
    RefuseArgument("minScale", "a number of at least 0", std::to_string(min_scale));
  }
  if (!round_mode.value().empty() && round_mode.value() != "rint") {
    RefuseArgument(round_mode.name(), "rint", round_mode.value());
  }
  if (dtype != kInt8) {
    RefuseArgument("dstType", "2 (int8) on this device", std::to_string(dtype));
  }
  if (rows != 1 || (columns != 1 && columns != 128)) {
    RefuseArgument("rowBlockSize and colBlockSize", "1, and 1 or 128, on this device",
                   std::to_string(rows) + " and " + std::to_string(columns));
  }
  std::vector<int64_t> shape = x.sizes().vec();
  RequireDtype(out, {ScalarType::Char});
  RequireShape(out, shape);
  const int64_t width = shape.back();
  shape.back() = (width + columns - 1) / columns;
  RequireDtype(scale, {ScalarType::Float});
  RequireShape(scale, shape);
  return [=] {
    const at::Tensor padded = at::constant_pad_nd(x.Widened(), {0, (columns - width % columns) % columns}, 0.0);
    const at::Tensor pieces = padded.unflatten(-1, {-1, columns});
    at::Tensor sizes = at::div(pieces.abs().amax(-1), kLargestInt8);
    if (min_scale > 0.0) {
      sizes = sizes.clamp_max(1.0 / min_scale);
    }
    const at::Tensor values = at::div(pieces, sizes.unsqueeze(-1)).flatten(-2).narrow(-1, 0, width);
    StoreRounded(out, values);
    scale.Store(sizes);
  };
}

}  // namespace

CANN_SIM_OPERATOR(aclnnDynamicBlockQuant, (Tensor, x), (Double, minScale), (OptionalText, roundMode), (Int, dstType),
                  (Int, rowBlockSize), (Int, colBlockSize), (Tensor, yOut), (Tensor, scaleOut)) {
  return BlockQuant(x, minScale, roundMode, dstType, rowBlockSize, colBlockSize, yOut, scaleOut);
}

CANN_SIM_OPERATOR(aclnnDynamicBlockQuantV2, (Tensor, x), (Double, minScale), (OptionalText, roundMode), (Int, dstType),
                  (Int, rowBlockSize), (Int, colBlockSize), (Double, dstTypeMax), (Tensor, yOut), (Tensor, scaleOut)) {
  if (dstTypeMax != 0.0) {
    RefuseArgument(dstTypeMax.name(), "0 beside int8", std::to_string(dstTypeMax));
  }
  return BlockQuant(x, minScale, roundMode, dstType, rowBlockSize, colBlockSize, yOut, scaleOut);
}

}  // namespace cann_sim::operators
