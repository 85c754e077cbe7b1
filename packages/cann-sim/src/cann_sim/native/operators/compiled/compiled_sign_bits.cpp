// Signs as bits, eight to a byte, the first in the lowest.

#include <ATen/ops/arange.h>
#include <ATen/ops/bitwise_and.h>
#include <ATen/ops/bitwise_left_shift.h>
#include <ATen/ops/bitwise_right_shift.h>
#include <ATen/ops/constant_pad_nd.h>
#include <ATen/ops/ge.h>
#include <ATen/ops/sum.h>

#include "compiled_operator.h"

namespace cann_sim::operators {

namespace {

constexpr int64_t kBits = 8;

at::Tensor Places() { return at::arange(kBits, at::TensorOptions().dtype(at::kByte)); }

}  // namespace

// 1 stands for zero and what is above; what fills the last byte stands for -1.
CANN_SIM_COMPILED_OPERATOR(SignBitsPack) {
  const Tensor x = call.Input(0, "x"), out = call.Output(0, "y");
  RequireDtype(x, {c10::ScalarType::Half, c10::ScalarType::Float});
  RequireRank(x, 1, 1);
  const int64_t bytes = (x.numel() + kBits - 1) / kBits;
  const auto rows = call.Attribute<int64_t>("size");
  RequireShape(out, {rows, bytes / rows});
  return [=] {
    const at::Tensor signs = at::constant_pad_nd(at::ge(at::Tensor(x), 0).to(at::kByte), {0, bytes * kBits - x.numel()}, 0);
    const at::Tensor bits = at::bitwise_left_shift(signs.view({-1, kBits}), Places());
    out.Store(at::sum(bits, 1).view(out.sizes()));
  };
}

// 1 or -1 for each bit.
CANN_SIM_COMPILED_OPERATOR(SignBitsUnpack) {
  const Tensor x = call.Input(0, "x"), out = call.Output(0, "y");
  RequireDtype(x, {c10::ScalarType::Byte});
  RequireDtype(out, {c10::ScalarType::Half, c10::ScalarType::Float});
  RequireShape(out, {call.Attribute<int64_t>("size"), x.numel() * kBits / call.Attribute<int64_t>("size")});
  return [=] {
    const at::Tensor bits = at::bitwise_and(at::bitwise_right_shift(at::Tensor(x).view({-1, 1}), Places()), 1);
    out.Store(bits.to(at::kFloat).mul(2).sub(1).view(out.sizes()));
  };
}

}  // namespace cann_sim::operators
