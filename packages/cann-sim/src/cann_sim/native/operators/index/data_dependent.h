// Results whose size the data decides.
#pragma once

#include <memory>
#include <vector>

#include "../interface/operator.h"

namespace cann_sim::operators {

// Puts the tensor that `compute` returns at the front of `out`, and reports its shape when the launch has finished.
template <class Compute>
Plan DataDependent(const ResizableTensor& out, Compute compute) {
  RequireContiguous(out);
  auto shape = std::make_shared<std::vector<int64_t>>(static_cast<size_t>(out.rank()), 0);
  return Plan(
      [=] {
        const at::Tensor result = compute();
        *shape = result.sizes().vec();
        at::Tensor(out).view({-1}).narrow(0, 0, result.numel()).copy_(result.reshape({-1}));
      },
      [=] { out.SetViewShape(*shape); });
}

}  // namespace cann_sim::operators
