// RotateQuant: pieces of rows turned by one matrix, rounded as the device's kernel stores them, and rows quantised with a scale
// each, in float32.

#include <ATen/ops/floor.h>
#include <ATen/ops/matmul.h>
#include <ATen/ops/trunc.h>

#include "../interface/operator.h"
#include "quantization.h"

namespace cann_sim::operators {

namespace {

using c10::ScalarType;

constexpr int64_t kShortestRow = 128;
constexpr int64_t kLongestRow = 16000;
constexpr int64_t kSmallestRotation = 16;
constexpr int64_t kLargestRotation = 1024;

// Whole numbers by the mode: to nearest even, half away from zero, or downwards.
at::Tensor Whole(const at::Tensor& values, const std::string& mode) {
  if (mode == "floor") {
    return at::floor(values);
  }
  return mode == "round" ? at::trunc(values.add(values.sign().mul(0.5))) : values;
}

}  // namespace

CANN_SIM_OPERATOR(aclnnRotateQuant, (Tensor, x), (Tensor, rotation), (OptionalTensor, alpha), (Int, axis),
                  (OptionalText, roundMode), (Int, scaleAlg), (Double, dstTypeMax), (Bool, trans), (Tensor, yOut),
                  (Tensor, scaleOut)) {
  RequireDtype(x, kHalves);
  RequireRank(x, 2, 2);
  RequireSameDtype(rotation, x);
  RequireRank(rotation, 2, 2);
  const int64_t side = rotation.size(0);
  if (rotation.size(1) != side || side < kSmallestRotation || side > kLargestRotation) {
    RefuseArgument(rotation.name(), "a square of 16 to 1024", Describe(rotation.sizes()));
  }
  if (x.size(0) < 1 || x.size(1) < kShortestRow || x.size(1) > kLongestRow || x.size(1) % 8 != 0 || x.size(1) % side != 0) {
    RefuseArgument(x.name(), "rows of 128 to 16000, a multiple of 8 and of " + std::to_string(side), Describe(x.sizes()));
  }
  RefuseIfPresent(alpha, "a limit of values on this device");
  if (axis != -1 && axis != 1) {
    RefuseArgument(axis.name(), "-1 or 1", std::to_string(axis));
  }
  const std::string mode = roundMode.value().empty() ? "rint" : roundMode.value();
  if (mode != "rint" && mode != "round" && mode != "floor") {
    RefuseArgument(roundMode.name(), "rint, round or floor", mode);
  }
  if (scaleAlg != 0 || dstTypeMax != 0.0 || trans) {
    RefuseArgument("scaleAlg, dstTypeMax and trans", "0, 0 and false on this device", "others");
  }
  RequireDtype(yOut, kQuantized);
  RequireQuantized(yOut, x.sizes());
  RequireDtype(scaleOut, {ScalarType::Float});
  RequireShape(scaleOut, {x.size(0)});
  return [=] {
    const at::Tensor turned = at::matmul(x.Widened().reshape({-1, side}), rotation.Widened()).view(x.sizes());
    const ScaledRows scaled = ScaleRows(turned.to(x.dtype()).to(ScalarType::Float), LargestQuantized(yOut));
    StoreQuantized(yOut, Whole(scaled.values, mode));
    scaleOut.Store(scaled.scale);
  };
}

}  // namespace cann_sim::operators
