// The matrix product family. Every road ends in one function, so that the same product has the same bits whichever
// operator called it: float32 accumulation, rounded once.

#include <ATen/cpu/Utils.h>
#include <ATen/ops/add.h>
#include <ATen/ops/bmm.h>
#include <ATen/ops/matmul.h>
#include <ATen/ops/mul.h>

#include "../interface/operator.h"

namespace cann_sim::operators {

namespace {

// Product of operands of any matmul ranks; float32 unless the CPU's bfloat16 product already accumulates in float32.
at::Tensor Product(const Tensor& left, const Tensor& right) {
  if (left.dtype() == c10::ScalarType::BFloat16 && right.dtype() == c10::ScalarType::BFloat16 &&
      at::cpu::is_avx512_vnni_supported()) {
    return at::matmul(left, right);
  }
  return at::matmul(left.Widened(), right.Widened());
}

// `mixed`: whether float32 may be combined with a half, which is then widened.
void RequireFactors(const Tensor& left, const Tensor& right, bool mixed = false) {
  RequireSimulated(left, kFloats);
  const bool widens = mixed && (left.dtype() == c10::ScalarType::Float || right.dtype() == c10::ScalarType::Float);
  if (widens) {
    RequireSimulated(right, kFloats);
  } else {
    RequireSameDtype(right, left);
  }
  RequireRank(left, 1, kMaxRank);
  RequireRank(right, 1, kMaxRank);
  const int64_t inner = right.rank() == 1 ? right.size(0) : right.size(-2);
  if (left.size(-1) != inner) {
    RefuseArgument(right.name(), "an inner dimension of " + std::to_string(left.size(-1)) + " as '" + left.name() + "'",
                   "shape " + Describe(right.sizes()));
  }
}

Plan Matmul(const Tensor& self, const Tensor& mat2, const Tensor& out, bool mixed = false) {
  RequireFactors(self, mat2, mixed);
  return [=] { out.Store(Product(self, mat2)); };
}

// beta * self + alpha * (left @ right)
Plan Addmm(const Tensor& self, const Tensor& left, const Tensor& right, const c10::Scalar& beta,
           const c10::Scalar& alpha, const Tensor& out) {
  RequireFactors(left, right);
  RequireSimulated(self, kFloats);
  return [=] {
    at::Tensor product = at::matmul(left.Widened(), right.Widened());
    if (alpha.toDouble() != 1.0) {
      product.mul_(alpha);
    }
    if (beta.toDouble() != 0.0) {
      product = product.add(self.Widened(), beta);
    }
    out.Store(product);
  };
}

}  // namespace

CANN_SIM_OPERATOR(aclnnMatmul, (Tensor, self), (Tensor, mat2), (Tensor, out), (Int8, cubeMathType)) {
  return Matmul(self, mat2, out);
}
CANN_SIM_OPERATOR(aclnnMm, (Tensor, self), (Tensor, mat2), (Tensor, out), (Int8, cubeMathType)) {
  RequireRank(self, 2, 2);
  RequireRank(mat2, 2, 2);
  RequireShape(out, {self.size(0), mat2.size(1)});
  return Matmul(self, mat2, out);
}
CANN_SIM_OPERATOR(aclnnBatchMatMul, (Tensor, self), (Tensor, mat2), (Tensor, out), (Int8, cubeMathType)) {
  RequireRank(self, 3, 3);
  RequireRank(mat2, 3, 3);
  RequireShape(out, {std::max(self.size(0), mat2.size(0)), self.size(1), mat2.size(2)});
  return Matmul(self, mat2, out, /*mixed=*/true);
}
// The right matrix is in the NZ format, which reads as the plain one.
CANN_SIM_OPERATOR(aclnnMatmulWeightNz, (Tensor, self), (Tensor, mat2), (Tensor, out), (Int8, cubeMathType)) {
  RequireSimulated(self, kHalves);
  return Matmul(self, mat2, out);
}
CANN_SIM_OPERATOR(aclnnBatchMatMulWeightNz, (Tensor, self), (Tensor, mat2), (Tensor, out), (Int8, cubeMathType)) {
  RequireSimulated(self, kHalves);
  RequireRank(self, 3, 3);
  RequireRank(mat2, 3, 3);
  RequireShape(out, {std::max(self.size(0), mat2.size(0)), self.size(1), mat2.size(2)});
  return Matmul(self, mat2, out);
}
CANN_SIM_OPERATOR(aclnnMv, (Tensor, self), (Tensor, vec), (Tensor, out), (Int8, cubeMathType)) {
  RequireRank(self, 2, 2);
  RequireRank(vec, 1, 1);
  return Matmul(self, vec, out);
}
CANN_SIM_OPERATOR(aclnnDot, (Tensor, self), (Tensor, tensor), (Tensor, out)) {
  RequireRank(self, 1, 1);
  RequireShape(tensor, self.sizes());
  return Matmul(self, tensor, out);
}
CANN_SIM_OPERATOR(aclnnAddmm, (Tensor, self), (Tensor, mat1), (Tensor, mat2), (Scalar, beta), (Scalar, alpha),
                  (Tensor, out), (Int8, cubeMathType)) {
  RequireRank(mat1, 2, 2);
  RequireRank(mat2, 2, 2);
  RequireShape(out, {mat1.size(0), mat2.size(1)});
  return Addmm(self, mat1, mat2, beta, alpha, out);
}
CANN_SIM_OPERATOR(aclnnAddmmWeightNz, (Tensor, self), (Tensor, mat1), (Tensor, mat2), (Scalar, beta), (Scalar, alpha),
                  (Tensor, out), (Int8, cubeMathType)) {
  RequireDtype(mat1, kHalves);
  RequireRank(mat1, 2, 2);
  RequireRank(mat2, 2, 2);
  RequireShape(out, {mat1.size(0), mat2.size(1)});
  return Addmm(self, mat1, mat2, beta, alpha, out);
}
CANN_SIM_OPERATOR(aclnnInplaceAddmm, (Tensor, selfRef), (Tensor, mat1), (Tensor, mat2), (Scalar, beta), (Scalar, alpha),
                  (Int8, cubeMathType)) {
  RequireRank(mat1, 2, 2);
  RequireRank(mat2, 2, 2);
  RequireShape(selfRef, {mat1.size(0), mat2.size(1)});
  return Addmm(selfRef, mat1, mat2, beta, alpha, selfRef);
}
CANN_SIM_OPERATOR(aclnnBaddbmm, (Tensor, self), (Tensor, batch1), (Tensor, batch2), (Scalar, beta), (Scalar, alpha),
                  (Tensor, out), (Int8, cubeMathType)) {
  RequireRank(batch1, 3, 3);
  RequireRank(batch2, 3, 3);
  return Addmm(self, batch1, batch2, beta, alpha, out);
}

}  // namespace cann_sim::operators
