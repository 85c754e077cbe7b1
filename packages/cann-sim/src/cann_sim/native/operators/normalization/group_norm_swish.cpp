// Group normalisation with the Swish function after it, and its gradient: float32 inside, rounded once.

#include <ATen/ops/mul.h>
#include <ATen/ops/rsqrt.h>
#include <ATen/ops/sigmoid.h>
#include <ATen/ops/var_mean.h>

#include <array>
#include <tuple>

#include "../interface/operator.h"

namespace cann_sim::operators {

namespace {

void RequireGroupNorm(const Tensor& x, const Tensor& gamma, const Tensor& beta, const Int& groups, const Tensor& mean,
                      const Tensor& rstd) {
  RequireDtype(x, kFloats);
  RequireRank(x, 2, 8);
  if (groups <= 0 || x.size(1) % groups != 0) {
    RefuseArgument(groups.name(), "a divisor of the " + std::to_string(x.size(1)) + " channels", std::to_string(groups));
  }
  RequireDtype(gamma, DtypeSet{c10::ScalarType::Float} | DtypeSet{x.dtype()});
  RequireShape(gamma, {x.size(1)});
  RequireSameDtype(beta, gamma);
  RequireShape(beta, gamma.sizes());
  for (const Tensor& statistic : {mean, rstd}) {
    RequireSameDtype(statistic, gamma);
    RequireShape(statistic, {x.size(0), groups});
  }
}

// [batch, groups, channels of a group, positions]
at::Tensor Grouped(const at::Tensor& values, int64_t groups) {
  return values.reshape({values.size(0), groups, values.size(1) / groups, -1});
}

// One value a channel, to broadcast over what Grouped gives.
at::Tensor OverGroups(const Tensor& parameter, int64_t groups) { return parameter.Widened().view({1, groups, -1, 1}); }

// Dimensions of what Grouped gives.
constexpr std::array<int64_t, 2> kWithinGroup = {2, 3};
constexpr std::array<int64_t, 2> kOfOneChannel = {0, 3};

at::Tensor Statistic(const Tensor& statistic) { return statistic.Widened().unsqueeze(2).unsqueeze(3); }

}  // namespace

CANN_SIM_OPERATOR(aclnnGroupNormSwish, (Tensor, x), (Tensor, gamma), (Tensor, beta), (Int, numGroups),
                  (OptionalText, dataFormat), (Double, eps), (Bool, activateSwish), (Double, swishScale), (Tensor, yOut),
                  (Tensor, meanOut), (Tensor, rstdOut)) {
  RequireGroupNorm(x, gamma, beta, numGroups, meanOut, rstdOut);
  RequireSameDtype(yOut, x);
  RequireShape(yOut, x.sizes());
  return [=] {
    const at::Tensor values = Grouped(x.Widened(), numGroups);
    const auto [variance, mean] = at::var_mean(values, kWithinGroup, false, true);
    const at::Tensor rstd = at::rsqrt(variance.add(eps.value()));
    const at::Tensor result =
        values.sub(mean).mul_(rstd).mul_(OverGroups(gamma, numGroups)).add_(OverGroups(beta, numGroups));
    yOut.Store((activateSwish ? result.mul(at::sigmoid(result.mul(swishScale.value()))) : result).view(x.sizes()));
    meanOut.Store(mean.view(meanOut.sizes()));
    rstdOut.Store(rstd.view(rstdOut.sizes()));
  };
}

CANN_SIM_OPERATOR(aclnnGroupNormSwishGrad, (Tensor, dy), (Tensor, mean), (Tensor, rstd), (Tensor, x), (Tensor, gamma),
                  (Tensor, beta), (Int, numGroups), (OptionalText, dataFormat), (Double, swishScale),
                  (Bool, dgammaIsRequire), (Bool, dbetaIsRequire), (Tensor, dxOut), (OptionalTensor, dgammaOut),
                  (OptionalTensor, dbetaOut)) {
  RequireGroupNorm(x, gamma, beta, numGroups, mean, rstd);
  for (const Tensor& tensor : {dy, dxOut}) {
    RequireSameDtype(tensor, x);
    RequireShape(tensor, x.sizes());
  }
  return [=] {
    const at::Tensor scale = Statistic(rstd);
    const at::Tensor weight = OverGroups(gamma, numGroups);
    const at::Tensor normalized = Grouped(x.Widened(), numGroups).sub(Statistic(mean)).mul_(scale);
    const at::Tensor activated = normalized.mul(weight).add_(OverGroups(beta, numGroups)).mul_(swishScale.value());
    const at::Tensor gate = at::sigmoid(activated);
    // d(u * sigmoid(s u)) / du = sigmoid(s u) * (1 + s u * (1 - sigmoid(s u)))
    const at::Tensor slope = activated.sub(activated.mul(gate)).add_(1.0).mul_(gate);
    const at::Tensor gradient = Grouped(dy.Widened(), numGroups).mul(slope);
    const at::Tensor scaled = gradient.mul(weight);
    const auto average = [](const at::Tensor& values) { return values.mean(kWithinGroup, true); };
    const at::Tensor input = scaled.sub(average(scaled)).sub_(normalized.mul(average(scaled.mul(normalized)))).mul_(scale);
    dxOut.Store(input.view(x.sizes()));
    if (dgammaIsRequire && dgammaOut) {
      dgammaOut->Store(gradient.mul(normalized).sum(kOfOneChannel).flatten());
    }
    if (dbetaIsRequire && dbetaOut) {
      dbetaOut->Store(gradient.sum(kOfOneChannel).flatten());
    }
  };
}

}  // namespace cann_sim::operators
