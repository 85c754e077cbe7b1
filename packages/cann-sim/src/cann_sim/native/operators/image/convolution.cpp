// Convolutions: accumulated in float32, rounded once.

#include <ATen/ops/constant_pad_nd.h>
#include <ATen/ops/conv_tbc.h>
#include <ATen/ops/conv_tbc_backward.h>
#include <ATen/ops/convolution.h>
#include <ATen/ops/convolution_backward.h>

#include "../interface/operator.h"

namespace cann_sim::operators {

namespace {

void RequireConvolved(const Tensor& input, const Tensor& weight) {
  RequireSimulated(input, kFloats);
  RequireSameDtype(weight, input);
  RequireRank(input, 3, 5);
  RequireRank(weight, input.rank(), input.rank());
}

// An image with the rows and columns of zeros that four paddings ask for: above, below, left, right.
at::Tensor Padded(const at::Tensor& image, const std::vector<int64_t>& padding) {
  return at::constant_pad_nd(image, {padding[2], padding[3], padding[0], padding[1]}, 0);
}

}  // namespace

CANN_SIM_OPERATOR(aclnnConvolution, (Tensor, input), (Tensor, weight), (OptionalTensor, bias), (IntArray, stride),
                  (IntArray, padding), (IntArray, dilation), (Bool, transposed), (IntArray, outputPadding), (Int, groups),
                  (Tensor, output), (Int8, cubeMathType)) {
  RequireConvolved(input, weight);
  if (padding.values().size() == 4 && input.rank() == 4 && !transposed) {
    return [=] {
      output.Store(at::convolution(Padded(input.Widened(), padding.values()), weight.Widened(), bias.Widened(), stride,
                                   {0, 0}, dilation, false, {0, 0}, groups.value()));
    };
  }
  return [=] {
    output.Store(at::convolution(input.Widened(), weight.Widened(), bias.Widened(), stride, padding, dilation, transposed,
                                 outputPadding, groups.value()));
  };
}

CANN_SIM_OPERATOR(aclnnConvDepthwise2d, (Tensor, self), (Tensor, weight), (IntArray, kernelSize), (OptionalTensor, bias),
                  (IntArray, stride), (IntArray, padding), (IntArray, dilation), (Tensor, out), (Int8, cubeMathType)) {
  RequireConvolved(self, weight);
  return [=] {
    const at::Tensor values = self.Widened();
    out.Store(at::convolution(values, weight.Widened(), bias.Widened(), stride, padding, dilation, false, {0, 0},
                              values.size(1)));
  };
}

CANN_SIM_OPERATOR(aclnnConvolutionBackward, (Tensor, gradOutput), (Tensor, input), (Tensor, weight),
                  (OptionalIntArray, biasSizes), (IntArray, stride), (IntArray, padding), (IntArray, dilation),
                  (Bool, transposed), (IntArray, outputPadding), (Int, groups), (BoolArray, outputMask),
                  (Int8, cubeMathType), (OptionalTensor, gradInput), (OptionalTensor, gradWeight),
                  (OptionalTensor, gradBias)) {
  RequireConvolved(input, weight);
  const std::vector<bool>& mask = outputMask.values();
  if (mask.size() != 3) {
    RefuseArgument("outputMask", "three booleans", std::to_string(mask.size()));
  }
  const std::array<bool, 3> wanted{mask[0], mask[1], mask[2]};
  return [=] {
    const auto [input_gradient, weight_gradient, bias_gradient] = at::convolution_backward(
        gradOutput.Widened(), input.Widened(), weight.Widened(),
        biasSizes ? at::OptionalIntArrayRef(biasSizes.values()) : at::OptionalIntArrayRef(), stride, padding, dilation,
        transposed, outputPadding, groups.value(), wanted);
    const std::pair<const OptionalTensor*, const at::Tensor*> results[] = {
        {&gradInput, &input_gradient}, {&gradWeight, &weight_gradient}, {&gradBias, &bias_gradient}};
    for (size_t index = 0; index < 3; ++index) {
      if (wanted[index] && *results[index].first) {
        (**results[index].first).Store(*results[index].second);
      }
    }
  };
}

// Over (time, batch, channel).
CANN_SIM_OPERATOR(aclnnConvTbc, (Tensor, self), (Tensor, weight), (Tensor, bias), (Int, pad), (Tensor, output),
                  (Int8, cubeMathType)) {
  RequireSimulated(self, kFloats);
  RequireSameDtype(weight, self);
  RequireRank(self, 3, 3);
  RequireRank(weight, 3, 3);
  // The kernel of the CPU accepts both layouts.
  return [=] {
    output.Store(at::conv_tbc(self.Widened().contiguous(), weight.Widened().contiguous(), bias.Widened(), pad));
  };
}

CANN_SIM_OPERATOR(aclnnConvTbcBackward, (Tensor, self), (Tensor, input), (Tensor, weight), (Tensor, bias), (Int, pad),
                  (Int8, cubeMathType), (Tensor, gradInput), (Tensor, gradWeight), (Tensor, gradBias)) {
  RequireDtype(input, kFloats);
  for (const Tensor& other : {self, weight, bias}) {
    RequireSameDtype(other, input);
  }
  RequireShape(gradInput, input.sizes());
  RequireShape(gradWeight, weight.sizes());
  return [=] {
    const auto [of_input, of_weight, of_bias] =
        at::conv_tbc_backward(self.Widened().contiguous(), input.Widened().contiguous(), weight.Widened().contiguous(),
                              bias.Widened(), pad);
    gradInput.Store(of_input);
    gradWeight.Store(of_weight);
    gradBias.Store(of_bias.view(gradBias.sizes()));
  };
}

}  // namespace cann_sim::operators
