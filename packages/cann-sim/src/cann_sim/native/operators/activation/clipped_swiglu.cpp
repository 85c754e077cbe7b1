// SwiGLU with clipped halves, and the GELU form of a gated activation.

#include <ATen/ops/add.h>
#include <ATen/ops/clamp.h>
#include <ATen/ops/clamp_max.h>
#include <ATen/ops/gelu.h>
#include <ATen/ops/mul.h>
#include <ATen/ops/sigmoid.h>

#include <algorithm>

#include "../interface/operator.h"

namespace cann_sim::operators {

namespace {

std::vector<int64_t> Halved(const Tensor& x, int64_t dim) {
  std::vector<int64_t> sizes = x.sizes().vec();
  int64_t& size = sizes[static_cast<size_t>(dim)];
  if (size % 2 != 0) {
    RefuseArgument(x.name(), "an even dimension " + std::to_string(dim), Describe(x.sizes()));
  }
  size /= 2;
  return sizes;
}

}  // namespace

// g * sigmoid(alpha * g) * (l + bias) with g = min(gate, limit) and l within +-limit; gate and l are neighbours, or halves. Rows
// after the last group are zeros.
CANN_SIM_OPERATOR(aclnnClippedSwiglu, (Tensor, x), (OptionalTensor, groupIndex), (Int, dim), (Double, alpha),
                  (Double, limit), (Double, bias), (Bool, interleaved), (Tensor, out)) {
  RequireSimulated(x, kFloats);
  RequireRank(x, 1, kMaxRank);
  const int64_t axis = WrapDim(dim, x.rank(), dim.name());
  RequireSameDtype(out, x);
  RequireShape(out, Halved(x, axis));
  if (groupIndex) {
    RequireSimulated(*groupIndex, {c10::ScalarType::Long});
    RequireRank(*groupIndex, 1, 1);
  }
  return [=] {
    int64_t rows = 1;
    for (int64_t index = 0; index < axis; ++index) {
      rows *= x.size(static_cast<int>(index));
    }
    if (x.numel() == 0) {
      return;
    }
    const at::Tensor flat = x.Widened().reshape({rows, -1});
    const int64_t half = flat.size(1) / 2;
    const at::Tensor gate = interleaved ? flat.slice(1, 0, std::nullopt, 2) : flat.narrow(1, 0, half);
    const at::Tensor linear = interleaved ? flat.slice(1, 1, std::nullopt, 2) : flat.narrow(1, half, half);
    const at::Tensor clipped = at::clamp_max(gate, limit.value());
    const at::Tensor result =
        at::mul(at::mul(clipped, at::sigmoid(at::mul(clipped, alpha.value()))),
                at::add(at::clamp(linear, -limit.value(), limit.value()), bias.value())).contiguous();
    if (groupIndex) {
      const int64_t used = std::clamp<int64_t>(at::Tensor(*groupIndex).sum().item<int64_t>(), 0, rows);
      result.narrow(0, used, rows - used).zero_();
    }
    out.Store(result.view(out.sizes()));
  };
}

// gelu of the first half of x times the second.
CANN_SIM_OPERATOR(aclnnGeluMul, (Tensor, input), (Text, approximate), (Tensor, out)) {
  RequireSimulated(input, kFloats);
  RequireRank(input, 2, kMaxRank);
  if (approximate.value() != "none" && approximate.value() != "tanh") {
    RefuseArgument(approximate.name(), "none or tanh", approximate.value());
  }
  RequireSameDtype(out, input);
  RequireShape(out, Halved(input, input.rank() - 1));
  return [=] {
    const at::Tensor wide = input.Widened();
    const int64_t half = out.size(-1);
    out.Store(at::mul(at::gelu(wide.narrow(-1, 0, half), approximate.value()), wide.narrow(-1, half, half)));
  };
}

}  // namespace cann_sim::operators
