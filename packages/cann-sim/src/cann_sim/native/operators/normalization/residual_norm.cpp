// Layer normalisation of a sum, and the gradients of normalisations: float32 inside, rounded once.

#include <ATen/ops/mean.h>
#include <ATen/ops/mul.h>
#include <ATen/ops/rsqrt.h>
#include <ATen/ops/sub.h>

#include "../interface/operator.h"
#include "norm.h"

namespace cann_sim::operators {

namespace {

using c10::ScalarType;

// [rows, columns]: the columns are what is normalised together, as `gamma` has them.
at::Tensor Rows(const at::Tensor& values, const Tensor& gamma) { return values.reshape({-1, gamma.numel()}); }

at::Tensor Columns(const Tensor& parameter) { return parameter.Widened().flatten(); }

void RequireLike(const Tensor& tensor, const Tensor& x) {
  RequireSameDtype(tensor, x);
  RequireShape(tensor, x.sizes());
}

// One value a row, in whatever shape.
void RequireOnePerRow(const Tensor& statistic, const Tensor& x, const Tensor& gamma) {
  RequireDtype(statistic, {ScalarType::Float});
  const int64_t rows = gamma.numel() == 0 ? 0 : x.numel() / gamma.numel();
  if (statistic.numel() != rows) {
    RefuseArgument(statistic.name(), std::to_string(rows) + " values, one a row of '" + x.name() + "'",
                   Describe(statistic.sizes()));
  }
}

// What every gradient demands. `like` have the shape and dtype of `dy`, `statistics` a value a row, `parameters` are the gradients
// of `gamma` and its like. Which dtype `gamma` has is the caller's.
void RequireGradient(const Tensor& dy, const Tensor& gamma, std::initializer_list<const Tensor*> like,
                     std::initializer_list<const Tensor*> statistics, std::initializer_list<const Tensor*> parameters) {
  RequireDtype(dy, kFloats);
  for (const Tensor* tensor : like) {
    RequireLike(*tensor, dy);
  }
  RequireTrailingShape(gamma, dy);
  for (const Tensor* statistic : statistics) {
    RequireOnePerRow(*statistic, dy, gamma);
  }
  for (const Tensor* parameter : parameters) {
    RequireDtype(*parameter, {ScalarType::Float});
    RequireShape(*parameter, gamma.sizes());
  }
}

struct LayerNormResults {
  Tensor y, mean, rstd;
};

void StoreLayerNorm(const at::Tensor& sum, const Tensor& gamma, const Tensor& beta, double epsilon,
                    const LayerNormResults& results) {
  const at::Tensor rows = Rows(sum, gamma);
  const at::Tensor mean = at::mean(rows, {1}, true);
  const at::Tensor centred = at::sub(rows, mean);
  const at::Tensor rstd = at::rsqrt(at::mean(at::mul(centred, centred), {1}, true).add_(epsilon));
  results.y.Store(at::mul(centred, rstd).mul_(Columns(gamma)).add_(Columns(beta)).view(results.y.sizes()));
  results.mean.Store(mean.view(results.mean.sizes()));
  results.rstd.Store(rstd.view(results.rstd.sizes()));
}

void RequireLayerNorm(const Tensor& x, const Tensor& gamma, const Tensor& beta, const LayerNormResults& results) {
  RequireDtype(x, kFloats);
  RequireDtype(gamma, kFloats);
  RequireTrailingShape(gamma, x);
  RequireLike(beta, gamma);
  RequireShape(results.y, x.sizes());
  RequireOnePerRow(results.mean, x, gamma);
  RequireOnePerRow(results.rstd, x, gamma);
}

struct NormGradient {
  at::Tensor input, gamma, beta;  // `input` [rows, columns]
};

// Through normalized * gamma + beta, where `normalized` [rows, columns] is what was normalised, less its mean where `centred`,
// times `scale` [rows, 1].
NormGradient GradientThrough(const Tensor& dy, const at::Tensor& normalized, const Tensor& gamma, const at::Tensor& scale,
                             bool centred) {
  const at::Tensor gradient = Rows(dy.Widened(), gamma);
  const at::Tensor scaled = gradient.mul(Columns(gamma));
  const at::Tensor along = at::mean(scaled.mul(normalized), {1}, true);
  const at::Tensor across = centred ? scaled.sub(at::mean(scaled, {1}, true)) : scaled;
  return {across.sub(normalized.mul(along)).mul_(scale), gradient.mul(normalized).sum(0), gradient.sum(0)};
}

at::Tensor OnePerRow(const Tensor& statistic) { return statistic.Widened().reshape({-1, 1}); }

// Of the sum that was normalised, by the statistics of its rows.
NormGradient GradientOfLayerNorm(const Tensor& dy, const at::Tensor& sum, const Tensor& gamma, const Tensor& mean,
                                 const Tensor& rstd) {
  const at::Tensor scale = OnePerRow(rstd);
  return GradientThrough(dy, Rows(sum, gamma).sub(OnePerRow(mean)).mul_(scale), gamma, scale, true);
}

}  // namespace

// x = x1 + x2 + bias; y = (x - mean) * rstd * gamma + beta.
CANN_SIM_OPERATOR(aclnnAddLayerNorm, (Tensor, x1), (Tensor, x2), (Tensor, gamma), (Tensor, beta), (OptionalTensor, bias),
                  (Double, epsilon), (Bool, additionalOutput), (Tensor, yOut), (Tensor, meanOut), (Tensor, rstdOut),
                  (OptionalTensor, xOut)) {
  RequireDtype(x2, kFloats);
  RequireShape(x2, x1.sizes());
  const LayerNormResults results{yOut, meanOut, rstdOut};
  RequireLayerNorm(x1, gamma, beta, results);
  RequireDtype(yOut, kFloats);
  if (bias && bias->sizes() != gamma.sizes()) {
    RequireShape(*bias, x1.sizes());
  }
  const bool wants_sum = additionalOutput && xOut;
  if (wants_sum) {
    RequireSameDtype(*xOut, yOut);
    RequireShape(*xOut, x1.sizes());
  }
  return [=] {
    at::Tensor sum = x1.Widened().add(x2.Widened());
    if (bias) {
      sum = sum.add(bias->Widened());
    }
    StoreLayerNorm(sum, gamma, beta, epsilon, results);
    if (wants_sum) {
      xOut->Store(sum);
    }
  };
}

CANN_SIM_OPERATOR(aclnnAddLayerNormGrad, (Tensor, dy), (Tensor, x1), (Tensor, x2), (Tensor, rstd), (Tensor, mean),
                  (Tensor, gamma), (OptionalTensor, dsum), (Tensor, dxOut), (Tensor, dgammaOut), (Tensor, dbetaOut)) {
  RequireGradient(dy, gamma, {&x1, &x2, &dxOut}, {&rstd, &mean}, {&dgammaOut, &dbetaOut});
  RequireSameDtype(gamma, dy);
  if (dsum) {
    RequireLike(*dsum, dy);
  }
  return [=] {
    const NormGradient gradient = GradientOfLayerNorm(dy, x1.Widened().add(x2.Widened()), gamma, mean, rstd);
    const at::Tensor input = gradient.input.view(dy.sizes());
    dxOut.Store(dsum ? input.add(dsum->Widened()) : input);
    dgammaOut.Store(gradient.gamma.view(gamma.sizes()));
    dbetaOut.Store(gradient.beta.view(gamma.sizes()));
  };
}

// Layer normalisation of alpha * x + gx.
CANN_SIM_OPERATOR(aclnnDeepNorm, (Tensor, x), (Tensor, gx), (Tensor, beta), (Tensor, gamma), (Double, alpha),
                  (Double, epsilon), (Tensor, meanOut), (Tensor, rstdOut), (Tensor, yOut)) {
  const LayerNormResults results{yOut, meanOut, rstdOut};
  RequireLayerNorm(x, gamma, beta, results);
  RequireLike(gx, x);
  RequireLike(yOut, x);
  RequireSameDtype(gamma, x);
  return [=] { StoreLayerNorm(x.Widened().mul(alpha.value()).add(gx.Widened()), gamma, beta, epsilon, results); };
}

CANN_SIM_OPERATOR(aclnnDeepNormGrad, (Tensor, dy), (Tensor, x), (Tensor, gx), (Tensor, gamma), (Tensor, mean),
                  (Tensor, rstd), (Double, alpha), (Tensor, dxOut), (Tensor, dgxOut), (Tensor, dbetaOut),
                  (Tensor, dgammaOut)) {
  RequireGradient(dy, gamma, {&x, &gx, &dxOut, &dgxOut}, {&mean, &rstd}, {&dgammaOut, &dbetaOut});
  RequireSameDtype(gamma, dy);
  return [=] {
    const at::Tensor sum = x.Widened().mul(alpha.value()).add(gx.Widened());
    const NormGradient gradient = GradientOfLayerNorm(dy, sum, gamma, mean, rstd);
    const at::Tensor input = gradient.input.view(dy.sizes());
    dxOut.Store(input.mul(alpha.value()));
    dgxOut.Store(input);
    dgammaOut.Store(gradient.gamma.view(gamma.sizes()));
    dbetaOut.Store(gradient.beta.view(gamma.sizes()));
  };
}

CANN_SIM_OPERATOR(aclnnRmsNormGrad, (Tensor, dy), (Tensor, x), (Tensor, rstd), (Tensor, gamma), (Tensor, dxOut),
                  (Tensor, dgammaOut)) {
  RequireGradient(dy, gamma, {&x, &dxOut}, {&rstd}, {&dgammaOut});
  RequireDtype(gamma, DtypeSet{ScalarType::Float} | DtypeSet{dy.dtype()});
  return [=] {
    const at::Tensor scale = OnePerRow(rstd);
    const NormGradient gradient = GradientThrough(dy, Rows(x.Widened(), gamma).mul(scale), gamma, scale, false);
    dxOut.Store(gradient.input.view(dy.sizes()));
    dgammaOut.Store(gradient.gamma.view(gamma.sizes()));
  };
}

}  // namespace cann_sim::operators
