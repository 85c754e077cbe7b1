#include "quantization.h"

#include <ATen/ops/abs.h>
#include <ATen/ops/amax.h>
#include <ATen/ops/arange.h>
#include <ATen/ops/bitwise_left_shift.h>
#include <ATen/ops/bitwise_right_shift.h>
#include <ATen/ops/clamp.h>
#include <ATen/ops/div.h>
#include <ATen/ops/full.h>
#include <ATen/ops/mul.h>
#include <ATen/ops/nan_to_num.h>
#include <ATen/ops/reciprocal.h>
#include <ATen/ops/round.h>
#include <ATen/ops/scalar_tensor.h>

#include <algorithm>

namespace cann_sim::operators {

namespace {

// float64, so that the limits of int32 are exact.
at::Tensor Rounded(const at::Tensor& values, double least, double most) {
  return at::clamp(at::round(at::nan_to_num(values.to(at::kDouble), 0.0)), least, most);
}

}  // namespace

void RequireQuantized(const Tensor& y, c10::IntArrayRef sizes) {
  RequireDtype(y, kQuantized);
  std::vector<int64_t> expected = sizes.vec();
  if (y.dtype() == c10::ScalarType::Int) {
    if (expected.empty() || expected.back() % kInt4PerInt32 != 0) {
      RefuseArgument(y.name(), "int8 where the last dimension is not a multiple of 8", "int32 for " + Describe(sizes));
    }
    expected.back() /= kInt4PerInt32;
  }
  RequireShape(y, expected);
}

double LargestQuantized(const Tensor& y) { return y.dtype() == c10::ScalarType::Int ? 7 : 127; }

void StoreQuantized(const Tensor& y, const at::Tensor& values) {
  if (y.dtype() != c10::ScalarType::Int) {
    StoreRounded(y, values);
    return;
  }
  const at::Tensor four_bits = Rounded(values, -8, 7).to(at::kLong).bitwise_and(15).unflatten(-1, {-1, kInt4PerInt32});
  y.Store(at::bitwise_left_shift(four_bits, at::arange(0, 4 * kInt4PerInt32, 4, at::kLong)).sum(-1));
}

void StoreRounded(const Tensor& y, const at::Tensor& values) {
  switch (y.dtype()) {
    case c10::ScalarType::Byte: return y.Store(Rounded(values, 0, 255));
    case c10::ScalarType::Int: return y.Store(Rounded(values, -2147483648.0, 2147483647.0));
    default: return y.Store(Rounded(values, -128, 127));
  }
}

at::Tensor UnpackInt4(const at::Tensor& packed) {
  const at::Tensor shifts = at::arange(0, 4 * kInt4PerInt32, 4, at::kLong);
  const at::Tensor nibbles = at::bitwise_right_shift(packed.to(at::kLong).unsqueeze(-1), shifts).bitwise_and(15);
  return nibbles.add(8).bitwise_and(15).sub(8).flatten(-2).to(at::kFloat);
}

at::Tensor WidenScale(const Tensor& scale) {
  if (scale.dtype() != c10::ScalarType::Long && scale.dtype() != c10::ScalarType::UInt64) {
    return scale.Widened();
  }
  return at::Tensor(scale).contiguous().view(at::kLong).bitwise_and(0xFFFFFFFF).to(at::kInt).view(at::kFloat);
}

ScaledRows ScaleRows(const at::Tensor& values, double largest) {
  // The device divides once a row and multiplies the row.
  const at::Tensor factor = at::div(at::scalar_tensor(largest, at::kFloat), at::amax(at::abs(values), {-1}, true));
  return {at::mul(values, factor), at::reciprocal(factor).squeeze(-1)};
}

at::Tensor SpreadGroups(const at::Tensor& parameters, const at::Tensor& ends, int64_t rows, double behind) {
  at::Tensor spread = at::full({rows, parameters.size(1)}, behind, parameters.options());
  int64_t begin = 0;
  for (int64_t group = 0; group < ends.size(0); ++group) {
    const int64_t end = std::min(ends[group].item<int64_t>(), rows);
    if (end > begin) {
      spread.slice(0, begin, end).copy_(parameters[group]);
      begin = end;
    }
  }
  return spread;
}

}  // namespace cann_sim::operators
