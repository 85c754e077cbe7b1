// Quantisation to int8 with given scales: element by element, and after RMSNorm.

#include "../operators/quantization/quantization.h"

#include <ATen/ops/round.h>

#include "../operators/normalization/norm.h"
#include "operations.h"

namespace cann_sim::atb_library {

namespace {

using atb::infer::ElewiseParam;
using operators::RefuseArgument;
using operators::Tensor;

constexpr int32_t kInt8 = 2;
constexpr int32_t kPlainNorm = 1;
constexpr operators::DtypeSet kInt8Only{c10::ScalarType::Char};

// One value, or a shape that broadcasts with the last dimensions of `x`.
void RequireParameter(const Tensor& parameter, const Tensor& x) {
  const int missing = x.rank() - parameter.rank();
  bool fits = parameter.numel() == 1 || missing >= 0;
  for (int dim = 0; fits && parameter.numel() != 1 && dim < parameter.rank(); ++dim) {
    fits = parameter.size(dim) == 1 || parameter.size(dim) == x.size(dim + missing);
  }
  if (!fits) {
    RefuseArgument(parameter.name(), "one value, or a shape that fits the last dimensions of " + operators::Describe(x.sizes()),
                   operators::Describe(parameter.sizes()));
  }
}

// A parameter as it broadcasts with values in float32.
at::Tensor Broadcast(const Tensor& parameter) {
  const at::Tensor wide = parameter.Widened();
  return wide.numel() == 1 ? wide.reshape(c10::IntArrayRef()) : wide;
}

}  // namespace

operators::Plan MakePlan(const ElewiseParam& parameters, const Arguments& tensors) {
  if (parameters.elewiseType != ElewiseParam::kQuantPerChannel) {
    RefuseArgument("elewiseType", "17, quantisation by channel (others are not simulated)",
                   std::to_string(parameters.elewiseType));
  }
  tensors.RequireCounts(3, 1);
  const Tensor x = tensors.Input(0, "x");
  const Tensor scale = tensors.Input(1, "scale");
  const Tensor offset = tensors.Input(2, "zero_point");
  const Tensor y = tensors.Output(0, "y");
  operators::RequireDtype(x, operators::kHalves);
  operators::RequireSameDtype(scale, x);
  operators::RequireDtype(offset, kInt8Only);
  operators::RequireDtype(y, kInt8Only);
  operators::RequireShape(y, x.sizes());
  RequireParameter(scale, x);
  const bool shifts = offset.numel() != 0;
  if (shifts) {
    RequireParameter(offset, x);
  }
  return [=] {
    const at::Tensor rounded = at::round(x.Widened().div(Broadcast(scale)));
    operators::StoreRounded(y, shifts ? rounded.add(Broadcast(offset)) : rounded);
  };
}

operators::Plan MakePlan(const atb::infer::RmsNormParam& parameters, const Arguments& tensors) {
  const auto& norm = parameters.normParam;
  if (parameters.layerType != kPlainNorm || norm.quantType != kInt8 || norm.rstd || norm.dynamicQuantType != 0) {
    RefuseArgument("layerType", "RMSNorm with quantisation to int8 (others are not simulated)",
                   "layer type " + std::to_string(parameters.layerType) + ", quantisation " + std::to_string(norm.quantType));
  }
  tensors.RequireCounts(5, 1);
  const Tensor x = tensors.Input(0, "self");
  const Tensor gamma = tensors.Input(1, "gamma");
  const Tensor beta = tensors.Input(2, "beta");
  const Tensor scale = tensors.Input(3, "scale");
  const Tensor offset = tensors.Input(4, "offset");
  const Tensor output = tensors.Output(0, "output");
  operators::RequireDtype(x, operators::kHalves);
  for (const Tensor* parameter : {&gamma, &beta, &scale}) {
    operators::RequireSameDtype(*parameter, x);
    RequireParameter(*parameter, x);
  }
  operators::RequireDtype(offset, kInt8Only);
  RequireParameter(offset, x);
  operators::RequireDtype(output, kInt8Only);
  operators::RequireShape(output, x.sizes());
  const double epsilon = norm.epsilon;
  return [=] {
    const at::Tensor wide = x.Widened();
    const at::Tensor normalized =
        wide.mul(operators::ReciprocalRms(wide, {-1}, epsilon)).mul(gamma.Widened()).add(beta.Widened());
    operators::StoreRounded(output, normalized.div(Broadcast(scale)).add(Broadcast(offset)));
  };
}

}  // namespace cann_sim::atb_library
