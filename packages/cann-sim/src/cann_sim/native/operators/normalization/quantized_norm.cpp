// RMSNorm with quantisation after it. In bfloat16 the normalised value goes to the quantisation as float32.

#include <ATen/ops/add.h>
#include <ATen/ops/div.h>
#include <ATen/ops/mul.h>
#include <ATen/ops/reciprocal.h>

#include "../interface/operator.h"
#include "../quantization/quantization.h"
#include "norm.h"

namespace cann_sim::operators {

namespace {

using c10::ScalarType;

void RequireLikeIfGiven(const OptionalTensor& tensor, const Tensor& reference) {
  if (tensor) {
    RequireSameDtype(*tensor, reference);
    RequireShape(*tensor, reference.sizes());
  }
}

// x * rstd * gamma: in float16 with a float16 product, otherwise in float32.
at::Tensor Normalize(const at::Tensor& x, const Tensor& gamma, c10::IntArrayRef dims, double epsilon) {
  const at::Tensor normalized = at::mul(x, ReciprocalRms(x, dims, epsilon));
  if (gamma.dtype() == ScalarType::Half) {
    return at::mul(normalized.to(at::kHalf), gamma).to(at::kFloat);
  }
  return at::mul(normalized, gamma.Widened());
}

at::Tensor ScaleAndShift(const at::Tensor& values, const Tensor& scales, const OptionalTensor& zero_points, bool divide) {
  const at::Tensor scaled = divide ? at::div(values, scales.Widened()) : at::mul(values, scales.Widened());
  return zero_points ? at::add(scaled, zero_points->Widened()) : scaled;
}

// Scales and zero points together with gamma: float32 and int32 in float16, bfloat16 and bfloat16 in bfloat16.
void RequireQuantParameter(const Tensor& tensor, const Tensor& x, ScalarType beside_float16, c10::IntArrayRef sizes) {
  RequireDtype(tensor, {x.dtype() == ScalarType::Half ? beside_float16 : ScalarType::BFloat16});
  RequireShape(tensor, sizes);
}

}  // namespace

// x = x1 + x2, y1 = round(norm(x) / scales1 + zeroPoints1), y2 in the same way if scales2 is given; divMode false multiplies.
CANN_SIM_OPERATOR(aclnnAddRmsNormQuantV2, (Tensor, x1), (Tensor, x2), (Tensor, gamma), (Tensor, scales1),
                  (OptionalTensor, scales2), (OptionalTensor, zeroPoints1), (OptionalTensor, zeroPoints2),
                  (OptionalTensor, beta), (Int, axis), (Double, epsilon), (Bool, divMode), (Tensor, y1Out),
                  (Tensor, y2Out), (Tensor, xOut), (OptionalTensor, rmsNormOut)) {
  RequireDtype(x1, kHalves);
  RequireSameDtype(x2, x1);
  RequireShape(x2, x1.sizes());
  RequireSameDtype(gamma, x1);
  RequireTrailingShape(gamma, x1);
  RequireLikeIfGiven(beta, gamma);
  // One scale for all: the device's kernel for it wants beta and zeroPoints1, and nothing second.
  const bool single_scale = scales1.rank() == 1 && scales1.size(0) == 1 && gamma.numel() != 1 && beta && zeroPoints1 &&
                            !scales2 && !zeroPoints2 && divMode &&
                            (gamma.rank() == 1 || (gamma.rank() == 2 && gamma.size(0) == 1));
  const c10::IntArrayRef parameter_sizes = single_scale ? scales1.sizes() : gamma.sizes();
  RequireQuantParameter(scales1, x1, ScalarType::Float, parameter_sizes);
  if (zeroPoints1) {
    RequireQuantParameter(*zeroPoints1, x1, ScalarType::Int, parameter_sizes);
  }
  if (scales2) {
    RequireQuantParameter(*scales2, x1, ScalarType::Float, parameter_sizes);
  }
  if (zeroPoints2) {
    if (!scales2) {
      RefuseArgument(zeroPoints2.name(), "scales2 beside it", "none");
    }
    RequireQuantParameter(*zeroPoints2, x1, ScalarType::Int, parameter_sizes);
  }
  if (axis != -1) {
    RefuseArgument(axis.name(), "-1", std::to_string(axis));
  }
  for (const Tensor& y : {y1Out, y2Out}) {
    RequireDtype(y, {ScalarType::Char});
    RequireShape(y, x1.sizes());
  }
  RequireSameDtype(xOut, x1);
  RequireShape(xOut, x1.sizes());
  RefuseIfPresent(rmsNormOut, "the normalised value beside xOut");
  const auto dims = TrailingDims(x1, gamma.rank());
  return [=] {
    at::Tensor sum = single_scale ? at::add(x1.Widened(), x2.Widened()) : ResidualSum(x1, x2);
    xOut.Store(sum);
    if (beta && !single_scale) {
      sum = xOut.Widened();
    }
    at::Tensor values = single_scale ? at::mul(at::mul(sum, ReciprocalRms(sum, dims, epsilon)), gamma.Widened())
                                     : Normalize(sum, gamma, dims, epsilon);
    if (beta) {
      values = at::add(values, beta->Widened());
    }
    if (scales2) {
      StoreQuantized(y2Out, ScaleAndShift(values, *scales2, zeroPoints2, divMode));
    }
    if (single_scale) {
      values = at::mul(values, at::reciprocal(scales1.Widened()));
      StoreQuantized(y1Out, at::add(values, zeroPoints1->Widened()));
    } else {
      StoreQuantized(y1Out, ScaleAndShift(values, scales1, zeroPoints1, divMode));
    }
  };
}

namespace {

// One of the two quantised outputs of AddRmsNormDynamicQuantV2.
struct DynamicOutput {
  bool wanted;
  OptionalTensor smooth_scale;
  Tensor y;
  Tensor scale;
};

void RequireDynamicOutput(const DynamicOutput& output, const Tensor& x, const Tensor& gamma) {
  RequireLikeIfGiven(output.smooth_scale, gamma);
  if (!output.wanted) {
    return;
  }
  RequireQuantized(output.y, x.sizes());
  RequireDtype(output.scale, {ScalarType::Float});
  RequireShape(output.scale, x.sizes().slice(0, static_cast<size_t>(x.rank()) - 1));
}

}  // namespace

// x = x1 + x2, y = round(v / scale), scale = max |row of v| / 127, v = norm(x) times the smoothing factors. Without a mask the
// second output is wanted where both factors are given. An output that is not wanted is left as it is.
CANN_SIM_OPERATOR(aclnnAddRmsNormDynamicQuantV2, (Tensor, x1), (Tensor, x2), (Tensor, gamma),
                  (OptionalTensor, smoothScale1), (OptionalTensor, smoothScale2), (OptionalTensor, beta),
                  (Double, epsilon), (OptionalBoolArray, outputMask), (Tensor, y1Out), (Tensor, y2Out), (Tensor, xOut),
                  (Tensor, scale1Out), (Tensor, scale2Out)) {
  RequireDtype(x1, kHalves);
  RequireRank(x1, 2, kMaxRank);
  RequireSameDtype(x2, x1);
  RequireShape(x2, x1.sizes());
  RequireSameDtype(gamma, x1);
  RequireShape(gamma, {x1.size(-1)});
  RequireLikeIfGiven(beta, gamma);
  RequireSameDtype(xOut, x1);
  RequireShape(xOut, x1.sizes());
  bool first = true;
  bool second = smoothScale1 && smoothScale2;
  if (outputMask) {
    const std::vector<bool>& mask = outputMask.values();
    if (mask.size() != 2 || !(mask[0] || mask[1])) {
      RefuseArgument(outputMask.name(), "two values, one of them true", std::to_string(mask.size()) + " values");
    }
    first = mask[0];
    second = mask[1];
    for (const auto& [smooth, wanted] : {std::pair(smoothScale1, first), std::pair(smoothScale2, second)}) {
      if (smooth && !wanted) {
        RefuseArgument(smooth.name(), "none where outputMask leaves its output out", "a tensor");
      }
    }
  } else if (smoothScale2 && !smoothScale1) {
    RefuseArgument(smoothScale2.name(), "smoothScale1 beside it", "none");
  }
  const std::vector<DynamicOutput> outputs{{first, smoothScale1, y1Out, scale1Out},
                                           {second, smoothScale2, y2Out, scale2Out}};
  for (const DynamicOutput& output : outputs) {
    RequireDynamicOutput(output, x1, gamma);
  }
  return [=] {
    // The sum is normalised as it is before rounding, in float16 too.
    const at::Tensor sum = at::add(x1.Widened(), x2.Widened());
    xOut.Store(sum);
    if (sum.numel() == 0) {
      return;
    }
    at::Tensor values = at::mul(at::mul(sum, ReciprocalRms(sum, {-1}, epsilon)), gamma.Widened());
    if (beta) {
      values = at::add(values, beta->Widened());
    }
    for (const DynamicOutput& output : outputs) {
      if (output.wanted) {
        const ScaledRows scaled =
            ScaleRows(output.smooth_scale ? at::mul(values, output.smooth_scale->Widened()) : values,
                      LargestQuantized(output.y));
        StoreQuantized(output.y, scaled.values);
        output.scale.Store(scaled.scale);
      }
    }
  };
}

// y = round((norm(x) + beta) / scale + offset) with one scale. The device multiplies with 1 / scale and rounds to float16
// before it rounds to integers.
CANN_SIM_OPERATOR(aclnnRmsNormQuant, (Tensor, x), (Tensor, gamma), (Tensor, beta), (Tensor, scale), (Tensor, offset),
                  (Double, epsilon), (Tensor, y)) {
  RequireDtype(x, kHalves);
  RequireRank(x, 1, kMaxRank);
  for (const Tensor& weight : {gamma, beta}) {
    RequireSameDtype(weight, x);
    RequireRank(weight, 1, 2);
    if (weight.rank() == 1) {
      RequireShape(weight, {x.size(-1)});
    } else {
      RequireShape(weight, {1, x.size(-1)});
    }
  }
  RequireSameDtype(scale, x);
  RequireShape(scale, {1});
  RequireDtype(offset, {ScalarType::Char});
  RequireShape(offset, {1});
  RequireQuantized(y, x.sizes());
  return [=] {
    const at::Tensor wide = x.Widened();
    const at::Tensor normalized = at::mul(at::mul(wide, ReciprocalRms(wide, {-1}, epsilon)), gamma.Widened().view(-1));
    const at::Tensor values = at::mul(at::add(normalized, beta.Widened().view(-1)), at::reciprocal(scale.Widened()));
    StoreQuantized(y, at::add(values, offset.Widened()).to(at::kHalf).to(at::kFloat));
  };
}

}  // namespace cann_sim::operators
