// Batch and group normalisation and the gradients of normalisations: float32 inside, rounded once.

#include <ATen/ops/add.h>
#include <ATen/ops/mul.h>
#include <ATen/ops/native_batch_norm.h>
#include <ATen/ops/native_batch_norm_backward.h>
#include <ATen/ops/native_group_norm.h>
#include <ATen/ops/native_group_norm_backward.h>
#include <ATen/ops/native_layer_norm_backward.h>
#include <ATen/ops/rsqrt.h>
#include <ATen/ops/silu.h>
#include <ATen/ops/sub.h>
#include <ATen/ops/var_mean.h>

#include "../interface/operator.h"

namespace cann_sim::operators {

namespace {

void RequireChannels(const Tensor& input) {
  RequireSimulated(input, kFloats | kDouble);
  RequireRank(input, 2, kMaxRank);
}

void RequirePerChannel(const OptionalTensor& values, const Tensor& input) {
  if (values) {
    RequireShape(*values, {input.size(1)});
  }
}

// Every dimension but that of the channels.
std::vector<int64_t> AllButChannels(const Tensor& input) {
  std::vector<int64_t> dims;
  for (int dim = 0; dim < input.rank(); ++dim) {
    if (dim != 1) {
      dims.push_back(dim);
    }
  }
  return dims;
}

// A value for each channel, shaped so that it broadcasts over `input`.
at::Tensor OverChannels(const at::Tensor& values, const Tensor& input) {
  std::vector<int64_t> shape(static_cast<size_t>(input.rank()), 1);
  shape[1] = input.size(1);
  return values.reshape(shape);
}

void StoreWhereWanted(bool wanted, const OptionalTensor& target, const at::Tensor& values) {
  if (wanted && target) {
    (*target).Store(values.reshape(target->sizes()));
  }
}

std::array<bool, 3> ThreeOf(const std::vector<bool>& mask) {
  if (mask.size() != 3) {
    RefuseArgument("outputMask", "three booleans", std::to_string(mask.size()));
  }
  return {mask[0], mask[1], mask[2]};
}

}  // namespace

// In training `saveMean` and `saveInvstd` get the statistics of the batch, and the running ones move towards them.
CANN_SIM_OPERATOR(aclnnBatchNorm, (Tensor, input), (OptionalTensor, weight), (OptionalTensor, bias),
                  (OptionalTensor, runningMean), (OptionalTensor, runningVar), (Bool, training), (Double, momentum),
                  (Double, eps), (Tensor, output), (Tensor, saveMean), (Tensor, saveInvstd)) {
  RequireChannels(input);
  RequireShape(output, input.sizes());
  for (const OptionalTensor* values : {&weight, &bias, &runningMean, &runningVar}) {
    RequirePerChannel(*values, input);
  }
  return [=] {
    const std::optional<at::Tensor> mean = runningMean.Widened();
    const std::optional<at::Tensor> variance = runningVar.Widened();
    const auto [result, batch_mean, batch_invstd] = at::native_batch_norm(
        input.Widened(), weight.Widened(), bias.Widened(), mean, variance, training, momentum, eps);
    output.Store(result);
    if (training) {
      saveMean.Store(batch_mean);
      saveInvstd.Store(batch_invstd);
      if (runningMean && runningVar) {
        runningMean->Store(*mean);
        runningVar->Store(*variance);
      }
    }
  };
}

CANN_SIM_OPERATOR(aclnnBatchNormBackward, (Tensor, gradOut), (Tensor, input), (OptionalTensor, weight),
                  (OptionalTensor, runningMean), (OptionalTensor, runningVar), (OptionalTensor, saveMean),
                  (OptionalTensor, saveInvstd), (Bool, training), (Double, eps), (BoolArray, outputMask),
                  (OptionalTensor, gradInput), (OptionalTensor, gradWeight), (OptionalTensor, gradBias)) {
  RequireChannels(input);
  const std::array<bool, 3> wanted = ThreeOf(outputMask.values());
  return [=] {
    const auto [input_gradient, weight_gradient, bias_gradient] = at::native_batch_norm_backward(
        gradOut.Widened(), input.Widened(), weight.Widened(), runningMean.Widened(), runningVar.Widened(),
        saveMean.Widened(), saveInvstd.Widened(), training, eps, wanted);
    StoreWhereWanted(wanted[0], gradInput, input_gradient);
    StoreWhereWanted(wanted[1], gradWeight, weight_gradient);
    StoreWhereWanted(wanted[2], gradBias, bias_gradient);
  };
}

CANN_SIM_OPERATOR(aclnnBatchNormStats, (Tensor, input), (Double, eps), (Tensor, mean), (Tensor, invstd)) {
  RequireChannels(input);
  return [=] {
    const auto [variance, average] = at::var_mean(input.Widened(), AllButChannels(input), c10::Scalar(0), false);
    mean.Store(average);
    invstd.Store(at::rsqrt(variance.add(eps.value())));
  };
}

CANN_SIM_OPERATOR(aclnnBatchNormReduce, (Tensor, x), (Tensor, sum), (Tensor, squareSum)) {
  RequireChannels(x);
  return [=] {
    const at::Tensor wide = x.Widened();
    sum.Store(wide.sum(AllButChannels(x)));
    squareSum.Store(at::mul(wide, wide).sum(AllButChannels(x)));
  };
}

CANN_SIM_OPERATOR(aclnnBatchNormElemt, (Tensor, input), (OptionalTensor, weight), (OptionalTensor, bias), (Tensor, mean),
                  (Tensor, invstd), (Double, eps), (Tensor, output)) {
  RequireChannels(input);
  RequireShape(output, input.sizes());
  return [=] {
    at::Tensor result = at::mul(at::sub(input.Widened(), OverChannels(mean.Widened(), input)),
                                OverChannels(invstd.Widened(), input));
    if (weight) {
      result = at::mul(result, OverChannels(weight->Widened(), input));
    }
    if (bias) {
      result = at::add(result, OverChannels(bias->Widened(), input));
    }
    output.Store(result);
  };
}

// The statistics of all ranks from those of each, weighted by their counts; the running ones move towards them.
CANN_SIM_OPERATOR(aclnnBatchNormGatherStatsWithCounts, (Tensor, input), (Tensor, mean), (Tensor, invstd),
                  (OptionalTensor, runningMean), (OptionalTensor, runningVar), (Double, momentum), (Double, eps),
                  (Tensor, counts), (Tensor, meanAll), (Tensor, invstdAll)) {
  RequireChannels(input);
  RequireRank(mean, 2, 2);
  return [=] {
    const at::Tensor share = counts.Widened().reshape({-1, 1});
    const at::Tensor total = share.sum();
    const at::Tensor means = mean.Widened();
    const at::Tensor average = at::mul(means, share).sum(0).div(total);
    const at::Tensor variances = invstd.Widened().pow(-2).sub(eps.value());
    const at::Tensor deviation = at::sub(means, average);
    const at::Tensor squares = at::mul(at::add(variances, at::mul(deviation, deviation)), share).sum(0);
    meanAll.Store(average);
    invstdAll.Store(at::rsqrt(squares.div(total).add(eps.value())));
    if (runningMean) {
      runningMean->Store(runningMean->Widened().mul(1 - momentum).add(average.mul(momentum.value())));
    }
    if (runningVar) {
      const at::Tensor unbiased = squares.div(total.sub(1));
      runningVar->Store(runningVar->Widened().mul(1 - momentum).add(unbiased.mul(momentum.value())));
    }
  };
}

// Over sums and sums of squares of each rank.
CANN_SIM_OPERATOR(aclnnSyncBatchNormGatherStats, (Tensor, totalSum), (Tensor, totalSquareSum), (Tensor, sampleCount),
                  (Tensor, mean), (Tensor, variance), (Float, momentum), (Float, eps), (Tensor, batchMean),
                  (Tensor, batchInvstd)) {
  RequireSimulated(totalSum, kFloats);
  RequireRank(totalSum, 2, 2);
  return [=] {
    const at::Tensor total = sampleCount.Widened().sum();
    const at::Tensor average = totalSum.Widened().sum(0).div(total);
    const at::Tensor spread = at::sub(totalSquareSum.Widened().sum(0).div(total), at::mul(average, average));
    batchMean.Store(average);
    batchInvstd.Store(at::rsqrt(spread.add(eps.value())));
    mean.Store(mean.Widened().mul(1 - momentum).add(average.mul(momentum.value())));
    const at::Tensor unbiased = at::mul(spread, total.div(total.sub(1)));
    variance.Store(variance.Widened().mul(1 - momentum).add(unbiased.mul(momentum.value())));
  };
}

CANN_SIM_OPERATOR(aclnnBatchNormReduceBackward, (Tensor, gradOut), (Tensor, input), (Tensor, mean), (Tensor, invstd),
                  (OptionalTensor, weight), (Bool, inputG), (Bool, weightG), (Bool, biasG), (OptionalTensor, sumDy),
                  (OptionalTensor, sumDyXmu), (OptionalTensor, gradWeight), (OptionalTensor, gradBias)) {
  RequireChannels(input);
  return [=] {
    const at::Tensor grad = gradOut.Widened();
    const std::vector<int64_t> dims = AllButChannels(input);
    const at::Tensor centred = at::sub(input.Widened(), OverChannels(mean.Widened(), input));
    const at::Tensor sum = grad.sum(dims);
    const at::Tensor product = at::mul(grad, centred).sum(dims);
    StoreWhereWanted(inputG, sumDy, sum);
    StoreWhereWanted(inputG, sumDyXmu, product);
    StoreWhereWanted(weightG, gradWeight, at::mul(product, invstd.Widened()));
    StoreWhereWanted(biasG, gradBias, sum);
  };
}

CANN_SIM_OPERATOR(aclnnBatchNormElemtBackward, (Tensor, gradOut), (Tensor, input), (Tensor, mean), (Tensor, invstd),
                  (OptionalTensor, weight), (Tensor, sumDy), (Tensor, sumDyXmu), (Tensor, counter), (Tensor, gradInput)) {
  RequireChannels(input);
  RequireShape(gradInput, input.sizes());
  return [=] {
    const at::Tensor total = counter.Widened().sum();
    const at::Tensor scale = invstd.Widened();
    const at::Tensor centred = at::sub(input.Widened(), OverChannels(mean.Widened(), input));
    const at::Tensor slope = at::mul(at::mul(scale, scale), sumDyXmu.Widened().div(total));
    const at::Tensor shifted = at::sub(gradOut.Widened(), OverChannels(sumDy.Widened().div(total), input));
    const at::Tensor factor = weight ? at::mul(scale, weight->Widened()) : scale;
    gradInput.Store(at::mul(at::sub(shifted, at::mul(centred, OverChannels(slope, input))), OverChannels(factor, input)));
  };
}

namespace {

void RequireGroups(const Tensor& input, const Int& group) {
  RequireChannels(input);
  if (group <= 0 || input.size(1) % group != 0) {
    RefuseArgument(group.name(), "a divisor of the " + std::to_string(input.size(1)) + " channels",
                   std::to_string(group));
  }
}

// The kernels of the CPU for groups accept every layout.
std::optional<at::Tensor> Packed(const OptionalTensor& tensor) {
  return tensor ? std::optional(tensor->Widened().contiguous()) : std::nullopt;
}

Plan GroupNorm(const Tensor& input, const OptionalTensor& weight, const OptionalTensor& bias, const Int& group, double eps,
               bool silu, const Tensor& out, const Tensor& mean, const Tensor& rstd) {
  RequireGroups(input, group);
  RequireShape(out, input.sizes());
  RequirePerChannel(weight, input);
  RequirePerChannel(bias, input);
  return [=] {
    const int64_t batch = input.size(0);
    const int64_t channels = input.size(1);
    const int64_t positions = channels * batch == 0 ? 0 : input.numel() / (channels * batch);
    const auto [result, average, scale] = at::native_group_norm(
        input.Widened().contiguous(), Packed(weight), Packed(bias), batch, channels, positions, group.value(), eps);
    out.Store(silu ? at::silu(result) : result);
    mean.Store(average.reshape(mean.sizes()));
    rstd.Store(scale.reshape(rstd.sizes()));
  };
}

}  // namespace

CANN_SIM_OPERATOR(aclnnGroupNorm, (Tensor, self), (OptionalTensor, gamma), (OptionalTensor, beta), (Int, n), (Int, c),
                  (Int, hxw), (Int, group), (Double, eps), (Tensor, out), (Tensor, meanOut), (Tensor, rstdOut)) {
  return GroupNorm(self, gamma, beta, group, eps, false, out, meanOut, rstdOut);
}
CANN_SIM_OPERATOR(aclnnGroupNormSilu, (Tensor, self), (OptionalTensor, gamma), (OptionalTensor, beta), (Int, group),
                  (Double, eps), (Tensor, out), (Tensor, meanOut), (Tensor, rstdOut)) {
  return GroupNorm(self, gamma, beta, group, eps, true, out, meanOut, rstdOut);
}

CANN_SIM_OPERATOR(aclnnGroupNormBackward, (Tensor, gradOut), (Tensor, input), (Tensor, mean), (Tensor, rstd),
                  (OptionalTensor, gamma), (Int, n), (Int, c), (Int, hxw), (Int, group), (BoolArray, outputMask),
                  (OptionalTensor, gradInput), (OptionalTensor, gradGamma), (OptionalTensor, gradBeta)) {
  RequireGroups(input, group);
  const std::array<bool, 3> wanted = ThreeOf(outputMask.values());
  return [=] {
    const auto [input_gradient, weight_gradient, bias_gradient] = at::native_group_norm_backward(
        gradOut.Widened().contiguous(), input.Widened().contiguous(), mean.Widened().contiguous(),
        rstd.Widened().contiguous(), Packed(gamma), n.value(), c.value(), hxw.value(), group.value(), wanted);
    StoreWhereWanted(wanted[0], gradInput, input_gradient);
    StoreWhereWanted(wanted[1], gradGamma, weight_gradient);
    StoreWhereWanted(wanted[2], gradBeta, bias_gradient);
  };
}

CANN_SIM_OPERATOR(aclnnLayerNormBackward, (Tensor, gradOut), (Tensor, input), (IntArray, normalizedShape), (Tensor, mean),
                  (Tensor, rstd), (OptionalTensor, weight), (OptionalTensor, bias), (BoolArray, outputMask),
                  (OptionalTensor, gradInput), (OptionalTensor, gradWeight), (OptionalTensor, gradBias)) {
  RequireSimulated(input, kFloats);
  const std::array<bool, 3> wanted = ThreeOf(outputMask.values());
  return [=] {
    const auto [input_gradient, weight_gradient, bias_gradient] =
        at::native_layer_norm_backward(gradOut.Widened(), input.Widened(), normalizedShape, mean.Widened(), rstd.Widened(),
                                       weight.Widened(), bias.Widened(), wanted);
    StoreWhereWanted(wanted[0], gradInput, input_gradient);
    StoreWhereWanted(wanted[1], gradWeight, weight_gradient);
    StoreWhereWanted(wanted[2], gradBias, bias_gradient);
  };
}

}  // namespace cann_sim::operators
