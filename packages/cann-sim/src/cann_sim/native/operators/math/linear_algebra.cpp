// Matrix functions beyond the product family, factorisations, and distances. Computed in float32 at least.

#include <ATen/ops/_cdist_backward.h>
#include <ATen/ops/_cdist_forward.h>
#include <ATen/ops/addbmm.h>
#include <ATen/ops/addmv.h>
#include <ATen/ops/addr.h>
#include <ATen/ops/linalg_cholesky.h>
#include <ATen/ops/linalg_inv.h>
#include <ATen/ops/linalg_qr.h>
#include <ATen/ops/linalg_slogdet.h>
#include <ATen/ops/linalg_solve_triangular.h>
#include <ATen/ops/linalg_svd.h>
#include <ATen/ops/linalg_svdvals.h>
#include <ATen/ops/pdist.h>
#include <ATen/ops/trace.h>
#include <ATen/ops/triangular_solve.h>

#include <cmath>

#include "../interface/operator.h"

namespace cann_sim::operators {

namespace {

void RequireMatrices(const Tensor& self, DtypeSet allowed) {
  RequireSimulated(self, allowed);
  RequireRank(self, 2, kMaxRank);
}

void RequireSquare(const Tensor& self, DtypeSet allowed) {
  RequireMatrices(self, allowed);
  if (self.size(-1) != self.size(-2)) {
    RefuseArgument(self.name(), "square matrices", "shape " + Describe(self.sizes()));
  }
}

Plan Addr(const Tensor& self, const Tensor& first, const Tensor& second, const Scalar& beta, const Scalar& alpha,
          const Tensor& out) {
  RequireSimulated(self, kReals);
  RequireRank(first, 1, 1);
  RequireRank(second, 1, 1);
  RequireShape(out, {first.size(0), second.size(0)});
  if (out.is_floating_point()) {
    return [=] { out.Store(at::addr(self.Widened(), first.Widened(), second.Widened(), beta, alpha)); };
  }
  return [=] { out.Store(at::addr(self, first, second, beta, alpha)); };
}

constexpr DtypeSet kSolvable{c10::ScalarType::Float, c10::ScalarType::Double};

}  // namespace

// The order of the last two scalars is op-plugin's: alpha precedes beta.
CANN_SIM_OPERATOR(aclnnAddmv, (Tensor, self), (Tensor, mat), (Tensor, vec), (Scalar, alpha), (Scalar, beta),
                  (Tensor, out), (Int8, cubeMathType)) {
  RequireSimulated(mat, kFloats | kIntegers | kBool);
  RequireRank(mat, 2, 2);
  RequireRank(vec, 1, 1);
  RequireShape(vec, {mat.size(1)});
  RequireShape(out, {mat.size(0)});
  if (out.is_floating_point()) {
    return [=] { out.Store(at::addmv(self.Widened(), mat.Widened(), vec.Widened(), beta, alpha)); };
  }
  return [=] {
    out.Store(at::addmv(at::Tensor(self).to(at::kLong), at::Tensor(mat).to(at::kLong), at::Tensor(vec).to(at::kLong),
                        beta, alpha));
  };
}

// beta * self + alpha * the sum of the products of the batch.
CANN_SIM_OPERATOR(aclnnAddbmm, (Tensor, self), (Tensor, batch1), (Tensor, batch2), (Scalar, beta), (Scalar, alpha),
                  (Tensor, out), (Int8, cubeMathType)) {
  RequireSimulated(batch1, kFloats);
  RequireSameDtype(batch2, batch1);
  RequireRank(batch1, 3, 3);
  RequireRank(batch2, 3, 3);
  RequireShape(out, {batch1.size(1), batch2.size(2)});
  return [=] { out.Store(at::addbmm(self.Widened(), batch1.Widened(), batch2.Widened(), beta, alpha)); };
}

CANN_SIM_OPERATOR(aclnnAddr, (Tensor, self), (Tensor, vec1), (Tensor, vec2), (Scalar, beta), (Scalar, alpha),
                  (Tensor, out)) {
  return Addr(self, vec1, vec2, beta, alpha, out);
}
CANN_SIM_OPERATOR(aclnnInplaceAddr, (Tensor, selfRef), (Tensor, vec1), (Tensor, vec2), (Scalar, beta), (Scalar, alpha)) {
  return Addr(selfRef, vec1, vec2, beta, alpha, selfRef);
}

CANN_SIM_OPERATOR(aclnnTrace, (Tensor, self), (Tensor, out)) {
  RequireSimulated(self, kReals);
  RequireRank(self, 2, 2);
  RequireShape(out, {});
  return [=] {
    out.Store(at::trace(self.is_floating_point() ? self.Widened() : at::Tensor(self).to(c10::ScalarType::Long)));
  };
}

CANN_SIM_OPERATOR(aclnnInverse, (Tensor, self), (Tensor, out)) {
  RequireSquare(self, kFloats | kDouble);
  RequireShape(out, self.sizes());
  return [=] { out.Store(at::linalg_inv(self.Widened())); };
}

CANN_SIM_OPERATOR(aclnnLinalgCholesky, (Tensor, self), (Bool, upper), (Tensor, out)) {
  RequireSquare(self, kSolvable);
  RequireShape(out, self.sizes());
  return [=] { out.Store(at::linalg_cholesky(self, upper)); };
}

CANN_SIM_OPERATOR(aclnnSlogdet, (Tensor, self), (Tensor, signOut), (Tensor, logOut)) {
  RequireSquare(self, kSolvable);
  return [=] {
    const auto [sign, logarithm] = at::linalg_slogdet(self);
    signOut.Store(sign);
    logOut.Store(logarithm);
  };
}

// mode: 0 reduced, 1 complete, 2 only R.
CANN_SIM_OPERATOR(aclnnLinalgQr, (Tensor, self), (Int, mode), (Tensor, q), (Tensor, r)) {
  RequireMatrices(self, kSolvable);
  if (mode < 0 || mode > 2) {
    RefuseArgument(mode.name(), "0 (reduced), 1 (complete) or 2 (r)", std::to_string(mode));
  }
  static constexpr const char* kModes[] = {"reduced", "complete", "r"};
  const char* form = kModes[mode];
  return [=] {
    const auto [orthogonal, triangular] = at::linalg_qr(self, form);
    if (orthogonal.numel() != 0) {
      q.Store(orthogonal);
    }
    r.Store(triangular);
  };
}

CANN_SIM_OPERATOR(aclnnSvd, (Tensor, input), (Bool, fullMatrices), (Bool, computeUV), (Tensor, sigma), (Tensor, u),
                  (Tensor, v)) {
  RequireMatrices(input, kSolvable);
  if (!computeUV) {
    return [=] { sigma.Store(at::linalg_svdvals(input)); };
  }
  return [=] {
    const auto [left, values, right] = at::linalg_svd(input, fullMatrices);
    sigma.Store(values);
    u.Store(left);
    v.Store(right.transpose(-2, -1));
  };
}

CANN_SIM_OPERATOR(aclnnTriangularSolve, (Tensor, self), (Tensor, a), (Bool, upper), (Bool, transpose),
                  (Bool, unitriangular), (Tensor, xOut), (Tensor, mOut)) {
  RequireMatrices(self, kSolvable);
  RequireSquare(a, kSolvable);
  RequireSameDtype(a, self);
  return [=] {
    const at::Tensor factor = a;
    xOut.Store(std::get<0>(at::triangular_solve(self, factor, upper, transpose, unitriangular)));
    mOut.Store(factor);
  };
}

// compute_mode says when distances come from a matrix product: 0 for more than 25 rows, 1 always, 2 never.
CANN_SIM_OPERATOR(aclnnCdist, (Tensor, x1), (Tensor, x2), (Float, p), (Int, computeMode), (Tensor, out)) {
  RequireSimulated(x1, kFloats);
  RequireSameDtype(x2, x1);
  RequireRank(x1, 2, kMaxRank);
  RequireRank(x2, 2, kMaxRank);
  if (!(p >= 0)) {
    RefuseArgument(p.name(), "a number of at least 0", std::to_string(p));
  }
  return [=] { out.Store(at::_cdist_forward(x1.Widened(), x2.Widened(), static_cast<double>(p), std::nullopt)); };
}

CANN_SIM_OPERATOR(aclnnCdistBackward, (Tensor, grad), (Tensor, x1), (Tensor, x2), (Tensor, cdist), (Float, p),
                  (Tensor, out)) {
  RequireDtype(grad, kFloats);
  for (const Tensor& other : {x1, x2, cdist}) {
    RequireSameDtype(other, grad);
  }
  RequireShape(cdist, grad.sizes());
  RequireShape(out, x1.sizes());
  return [=] {
    out.Store(at::_cdist_backward(grad.Widened(), x1.Widened(), x2.Widened(), static_cast<double>(p), cdist.Widened()));
  };
}

CANN_SIM_OPERATOR(aclnnPdist, (Tensor, self), (Float, p), (Tensor, out)) {
  RequireSimulated(self, kFloats);
  RequireRank(self, 2, 2);
  if (!(p >= 0)) {
    RefuseArgument(p.name(), "a number of at least 0", std::to_string(p));
  }
  return [=] { out.Store(at::pdist(self.Widened(), static_cast<double>(p))); };
}

}  // namespace cann_sim::operators
