// Gradients of what is written with ATen's functions, for backward operators that ATen has no function for.
#pragma once

#include <ATen/core/grad_mode.h>
#include <c10/core/InferenceMode.h>
#include <ATen/DeviceAccelerator.h>
#include <torch/csrc/autograd/autograd.h>

#include <vector>

namespace cann_sim::operators {

// The gradients of `function` at `inputs`, float tensors that it takes as a list, for these gradients of the list that it
// returns; undefined ones mean zeros. An input that takes no part has the gradient zero.
template <class Function>
std::vector<at::Tensor> Gradients(Function function, const std::vector<at::Tensor>& inputs,
                                  const std::vector<at::Tensor>& of_results) {
  // Kernels run in inference mode, in which nothing can be differentiated.
  const c10::InferenceMode normal(false);
  const at::AutoGradMode on(true);
  std::vector<at::Tensor> leaves;
  for (const at::Tensor& input : inputs) {
    leaves.push_back(input.clone().set_requires_grad(true));
  }
  std::vector<at::Tensor> results, given;
  const std::vector<at::Tensor> all = function(leaves);
  for (size_t index = 0; index < all.size(); ++index) {
    if (of_results[index].defined()) {
      results.push_back(all[index]);
      given.push_back(of_results[index].clone().view(all[index].sizes()));
    }
  }
  std::vector<at::Tensor> gradients =
      torch::autograd::grad(results, leaves, given, /*retain_graph=*/false, /*create_graph=*/false, /*allow_unused=*/true);
  for (size_t index = 0; index < gradients.size(); ++index) {
    if (!gradients[index].defined()) {
      gradients[index] = leaves[index].detach().mul(0);
    }
  }
  return gradients;
}

}  // namespace cann_sim::operators
