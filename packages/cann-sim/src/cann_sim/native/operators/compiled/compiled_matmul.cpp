// Matrix products of the older road: npu_bmmV2, and mm and addmm where the operator compiler is switched on.

#include <ATen/ops/add.h>
#include <ATen/ops/matmul.h>

#include "compiled_operator.h"

namespace cann_sim::operators {

namespace {

at::Tensor Transposed(const at::Tensor& matrices, bool transpose) {
  return transpose ? matrices.transpose(-1, -2) : matrices;
}

// out = x1 @ x2 + bias; the batches broadcast.
Plan MatrixProduct(const CompiledArguments& call, bool transpose_first, bool transpose_second) {
  const Tensor x1 = call.Input(0, "x1"), x2 = call.Input(1, "x2"), out = call.Output(0, "y");
  const OptionalTensor bias = call.OptionalInput(2, "bias");
  RequireDtype(x1, kFloats);
  RequireSameDtype(x2, x1);
  RequireRank(x1, 2, kMaxRank);
  RequireRank(x2, 2, kMaxRank);
  const int64_t inner = x1.size(transpose_first ? -2 : -1);
  if (x2.size(transpose_second ? -1 : -2) != inner) {
    RefuseArgument(x2.name(), std::to_string(inner) + " rows", Describe(x2.sizes()));
  }
  return [=] {
    const at::Tensor product =
        at::matmul(Transposed(x1.Widened(), transpose_first), Transposed(x2.Widened(), transpose_second));
    out.Store(bias ? at::add(product, bias->Widened()) : product);
  };
}

}  // namespace

CANN_SIM_COMPILED_OPERATOR(BatchMatMul) {
  return MatrixProduct(call, call.Attribute<bool>("adj_x1", false), call.Attribute<bool>("adj_x2", false));
}

CANN_SIM_COMPILED_OPERATOR(MatMul) {
  return MatrixProduct(call, call.Attribute<bool>("transpose_x1", false), call.Attribute<bool>("transpose_x2", false));
}

}  // namespace cann_sim::operators
