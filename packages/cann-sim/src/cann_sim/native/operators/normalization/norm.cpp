// Normalisations over the trailing dimensions. Statistics and scaling in float32, rounded where the device rounds.

#include "norm.h"

#include <ATen/ops/add.h>
#include <ATen/ops/mean.h>
#include <ATen/ops/mul.h>
#include <ATen/ops/rsqrt.h>
#include <ATen/ops/sub.h>

#include "../interface/operator.h"

namespace cann_sim::operators {

std::vector<int64_t> TrailingDims(const Tensor& x, size_t count) {
  std::vector<int64_t> dims;
  for (size_t dim = x.rank() - count; dim < static_cast<size_t>(x.rank()); ++dim) {
    dims.push_back(static_cast<int64_t>(dim));
  }
  return dims;
}

void RequireTrailingShape(const Tensor& gamma, const Tensor& x) {
  if (gamma.rank() < 1 || gamma.rank() > x.rank() || gamma.sizes() != x.sizes().slice(x.rank() - gamma.rank())) {
    RefuseArgument(gamma.name(), "the trailing shape of '" + std::string(x.name()) + "' " + Describe(x.sizes()),
                   Describe(gamma.sizes()));
  }
}

void RequireStatisticsShape(const Tensor& statistic, const Tensor& x, size_t normalized) {
  RequireShape(statistic, ReducedShape(x.sizes(), TrailingDims(x, normalized), true));
}

at::Tensor ReciprocalRms(const at::Tensor& x, c10::IntArrayRef dims, double epsilon) {
  return at::rsqrt(at::mean(at::mul(x, x), dims, true).add_(epsilon));
}

at::Tensor ResidualSum(const Tensor& x1, const Tensor& x2) {
  const at::Tensor sum = at::add(x1.Widened(), x2.Widened());
  return x1.dtype() == c10::ScalarType::Half ? sum.to(c10::ScalarType::Half).to(c10::ScalarType::Float) : sum;
}

namespace {

void RequireRmsNorm(const Tensor& x, const Tensor& gamma, const Tensor& y, const Tensor& rstd) {
  RequireDtype(x, kFloats);
  RequireDtype(gamma, kFloats);
  if (gamma.dtype() != c10::ScalarType::Float) {
    RequireSameDtype(gamma, x);
  }
  RequireTrailingShape(gamma, x);
  RequireSameDtype(y, x);
  RequireShape(y, x.sizes());
  RequireDtype(rstd, {c10::ScalarType::Float});
  RequireStatisticsShape(rstd, x, gamma.rank());
}

// y = normalized * gamma. The kernels of AddRmsNorm round the normalised value to the dtype of x before they multiply, except
// where gamma is float32 next to a half precision x; those of RmsNorm never do.
void StoreScaled(const at::Tensor& normalized, const Tensor& gamma, const Tensor& y) {
  const bool rounds_twice = gamma.dtype() == y.dtype() && kHalves.contains(y.dtype());
  const at::Tensor factor = rounds_twice ? normalized.to(y.dtype()).to(c10::ScalarType::Float) : normalized;
  y.Store(at::mul(factor, gamma.Widened()));
}

// x = round(x1 + x2), y = the normalised sum times gamma. The device normalises the sum as it is before rounding in
// bfloat16, and after rounding in float16, where its addition is a float16 one.
Plan AddRmsNorm(const Tensor& x1, const Tensor& x2, const Tensor& gamma, double epsilon, const Tensor& y,
                const Tensor& rstd_out, const Tensor& x) {
  RequireSameDtype(x2, x1);
  RequireShape(x2, x1.sizes());
  const auto dims = TrailingDims(x1, gamma.rank());
  return [=] {
    const at::Tensor sum = ResidualSum(x1, x2);
    const at::Tensor rstd = ReciprocalRms(sum, dims, epsilon);
    StoreScaled(at::mul(sum, rstd), gamma, y);
    rstd_out.Store(rstd);
    x.Store(sum);
  };
}

}  // namespace

CANN_SIM_OPERATOR(aclnnRmsNorm, (Tensor, x), (Tensor, gamma), (Double, epsilon), (Tensor, yOut), (Tensor, rstdOut)) {
  RequireRmsNorm(x, gamma, yOut, rstdOut);
  const auto dims = TrailingDims(x, gamma.rank());
  return [=] {
    const at::Tensor wide = x.Widened();
    const at::Tensor rstd = ReciprocalRms(wide, dims, epsilon);
    rstdOut.Store(rstd);
    yOut.Store(at::mul(at::mul(wide, rstd), gamma.Widened()));
  };
}

CANN_SIM_OPERATOR(aclnnAddRmsNorm, (Tensor, x1), (Tensor, x2), (Tensor, gamma), (Double, epsilon), (Tensor, yOut),
                  (Tensor, rstdOut), (Tensor, xOut)) {
  RequireRmsNorm(x1, gamma, yOut, rstdOut);
  RequireSameDtype(xOut, x1);
  RequireShape(xOut, x1.sizes());
  return AddRmsNorm(x1, x2, gamma, epsilon, yOut, rstdOut, xOut);
}

// In place: x1 becomes y, x2 becomes x1 + x2.
CANN_SIM_OPERATOR(aclnnInplaceAddRmsNorm, (Tensor, x1), (Tensor, x2), (Tensor, gamma), (Double, epsilon),
                  (Tensor, rstdOut)) {
  RequireRmsNorm(x1, gamma, x1, rstdOut);
  return AddRmsNorm(x1, x2, gamma, epsilon, x1, rstdOut, x2);
}

// As AddRmsNorm, with the result in float32 too: y1 = float(y2). In bfloat16 y2 is rounded once, in float16 as there.
CANN_SIM_OPERATOR(aclnnAddRmsNormCast, (Tensor, x1), (Tensor, x2), (Tensor, gamma), (Double, epsilon), (Tensor, y1Out),
                  (Tensor, y2Out), (Tensor, rstdOut), (Tensor, xOut)) {
  RequireDtype(x1, kHalves);
  RequireSameDtype(gamma, x1);
  RequireRmsNorm(x1, gamma, y2Out, rstdOut);
  RequireSameDtype(x2, x1);
  RequireShape(x2, x1.sizes());
  RequireDtype(y1Out, {c10::ScalarType::Float});
  RequireShape(y1Out, x1.sizes());
  RequireSameDtype(xOut, x1);
  RequireShape(xOut, x1.sizes());
  const auto dims = TrailingDims(x1, gamma.rank());
  return [=] {
    const at::Tensor sum = ResidualSum(x1, x2);
    const at::Tensor rstd = ReciprocalRms(sum, dims, epsilon);
    const at::Tensor normalized = at::mul(sum, rstd);
    if (x1.dtype() == c10::ScalarType::Half) {
      StoreScaled(normalized, gamma, y2Out);
    } else {
      y2Out.Store(at::mul(normalized, gamma.Widened()));
    }
    y1Out.Store(y2Out);
    rstdOut.Store(rstd);
    xOut.Store(sum);
  };
}

// y = normalised x times (1 + gamma), rounded once.
CANN_SIM_OPERATOR(aclnnGemmaRmsNorm, (Tensor, x), (Tensor, gamma), (Double, epsilon), (Tensor, yOut),
                  (Tensor, rstdOut)) {
  RequireRmsNorm(x, gamma, yOut, rstdOut);
  RequireSameDtype(gamma, x);
  const auto dims = TrailingDims(x, gamma.rank());
  return [=] {
    const at::Tensor wide = x.Widened();
    const at::Tensor rstd = ReciprocalRms(wide, dims, epsilon);
    rstdOut.Store(rstd);
    yOut.Store(at::mul(at::mul(wide, rstd), at::add(gamma.Widened(), 1.0)));
  };
}

CANN_SIM_OPERATOR(aclnnLayerNorm, (Tensor, input), (IntArray, normalizedShape), (OptionalTensor, weight),
                  (OptionalTensor, bias), (Double, eps), (Tensor, out), (OptionalTensor, meanOut),
                  (OptionalTensor, rstdOut)) {
  RequireDtype(input, kFloats);
  RequireSameDtype(out, input);
  RequireShape(out, input.sizes());
  const size_t normalized = normalizedShape.values().size();
  if (normalized == 0 || normalized > static_cast<size_t>(input.rank()) ||
      input.sizes().slice(input.rank() - normalized) != c10::IntArrayRef(normalizedShape)) {
    RefuseArgument(normalizedShape.name(), "the trailing shape of 'input' " + Describe(input.sizes()),
                   Describe(normalizedShape));
  }
  if (weight) {
    RequireShape(*weight, normalizedShape);
  }
  if (bias) {
    RequireShape(*bias, normalizedShape);
  }
  const auto dims = TrailingDims(input, normalized);
  return [=] {
    const at::Tensor wide = input.Widened();
    const at::Tensor mean = at::mean(wide, dims, true);
    const at::Tensor centred = at::sub(wide, mean);
    const at::Tensor rstd = at::rsqrt(at::mean(at::mul(centred, centred), dims, true).add_(eps.value()));
    at::Tensor result = at::mul(centred, rstd);
    if (weight) {
      result.mul_(weight->Widened());
    }
    if (bias) {
      result.add_(bias->Widened());
    }
    out.Store(result);
    if (meanOut) {
      meanOut->Store(mean.view_as(at::Tensor(*meanOut)));
    }
    if (rstdOut) {
      rstdOut->Store(rstd.view_as(at::Tensor(*rstdOut)));
    }
  };
}

}  // namespace cann_sim::operators
