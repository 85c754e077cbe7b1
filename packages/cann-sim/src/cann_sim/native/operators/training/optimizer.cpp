// Steps of optimisers and of gradient scaling, on float32 copies of the state.

#include <ATen/ops/maximum.h>

#include <cmath>

#include "../interface/operator.h"

namespace cann_sim::operators {

// AdamW (Loshchilov and Hutter, 2019); `step` counts from 0. Writes the variable, both moments and the largest second moment.
CANN_SIM_OPERATOR(aclnnApplyAdamWV2, (Tensor, varRef), (Tensor, expAvgRef), (Tensor, expAvgSqRef),
                  (OptionalTensor, maxGradNormOptionalRef), (Tensor, grad), (Tensor, step), (Float, lr), (Float, beta1),
                  (Float, beta2), (Float, weightDecay), (Float, eps), (Bool, amsgrad), (Bool, maximize)) {
  RequireSimulated(varRef, kFloats);
  for (const Tensor* tensor : {&expAvgRef, &expAvgSqRef, &grad}) {
    RequireShape(*tensor, varRef.sizes());
  }
  if (amsgrad && !maxGradNormOptionalRef) {
    RefuseArgument("maxGradNormOptionalRef", "a tensor where 'amsgrad' is set", "none");
  }
  return [=] {
    const double count = at::Tensor(step).to(at::kDouble).item<double>() + 1;
    const at::Tensor gradient = maximize ? grad.Widened().neg() : grad.Widened();
    const at::Tensor average = expAvgRef.Widened().mul(beta1.value()).add(gradient, 1.0 - beta1);
    const at::Tensor squares = expAvgSqRef.Widened().mul(beta2.value()).addcmul(gradient, gradient, 1.0 - beta2);
    at::Tensor largest = squares;
    if (amsgrad) {
      largest = at::maximum(maxGradNormOptionalRef->Widened(), squares);
      maxGradNormOptionalRef->Store(largest);
    }
    const at::Tensor divisor = largest.sqrt().div(std::sqrt(1 - std::pow(beta2.value(), count))).add(eps.value());
    const at::Tensor decayed = varRef.Widened().mul(1.0 - lr * weightDecay);
    varRef.Store(decayed.addcdiv(average, divisor, -lr / (1 - std::pow(beta1.value(), count))));
    expAvgRef.Store(average);
    expAvgSqRef.Store(squares);
  };
}

// The scale shrinks after a gradient that is not finite, and grows after `growthInterval` steps without.
CANN_SIM_OPERATOR(aclnnAmpUpdateScale, (Tensor, currentScale), (Tensor, growthTracker), (Tensor, foundInf),
                  (Double, growthFactor), (Double, backoffFactor), (Int, growthInterval), (Tensor, updatedScale),
                  (Tensor, updatedGrowthTracker)) {
  RequireSimulated(currentScale, {c10::ScalarType::Float});
  RequireSimulated(growthTracker, {c10::ScalarType::Int});
  return [=] {
    float scale = at::Tensor(currentScale).item<float>();
    int tracker = at::Tensor(growthTracker).item<int>();
    if (at::Tensor(foundInf).item<float>() != 0.0F) {
      scale = static_cast<float>(scale * backoffFactor);
      tracker = 0;
    } else if (++tracker == growthInterval) {
      const auto grown = static_cast<float>(scale * growthFactor);
      scale = std::isfinite(grown) ? grown : scale;
      tracker = 0;
    }
    at::Tensor(updatedScale).fill_(scale);
    at::Tensor(updatedGrowthTracker).fill_(tracker);
  };
}

}  // namespace cann_sim::operators
