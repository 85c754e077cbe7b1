// Adding up the rows of the experts of each token. Sums in float32, rounded once.

#include <ATen/ops/add.h>
#include <ATen/ops/index_select.h>
#include <ATen/ops/mul.h>
#include <ATen/ops/zeros.h>

#include "../interface/operator.h"

namespace cann_sim::operators {

namespace {

using c10::ScalarType;

// out[i] = skip1[i] + skip2[i] + sum over k of scales[i, k] * (rows[place] + bias[expert]), where `place` is what `rows_of` says
// of choice (i, k); a choice without a row (-1) counts as a row of zeros.
struct FinalizeRouting {
  Tensor rows, rows_of;
  OptionalTensor skip1, skip2, bias, scales, experts;
  bool row_major;
  int64_t choices;
  Tensor out;

  void Require() const;
  void Run() const;
};

void FinalizeRouting::Require() const {
  RequireDtype(rows, kFloats);
  RequireRank(rows, 2, 3);
  RequireDtype(rows_of, {ScalarType::Int});
  RequireRank(rows_of, 1, 1);
  const int64_t width = rows.size(-1);
  if (choices <= 0 || rows_of.size(0) % choices != 0) {
    RefuseArgument(rows_of.name(), "a multiple of " + std::to_string(choices) + " elements", Describe(rows_of.sizes()));
  }
  const int64_t tokens = rows_of.size(0) / choices;
  RequireSameDtype(out, rows);
  RequireShape(out, {tokens, width});
  if (skip2 && !skip1) {
    RefuseArgument(skip2.name(), "skip1 beside it", "none");
  }
  for (const OptionalTensor& skip : {skip1, skip2}) {
    if (skip) {
      RequireSameDtype(*skip, rows);
      RequireShape(*skip, {tokens, width});
    }
  }
  if (scales) {
    RequireDtype(*scales, kFloats);
    RequireShape(*scales, {tokens, choices});
  }
  if (bias) {
    RequireSameDtype(*bias, rows);
    RequireRank(*bias, 2, 2);
    if (!experts || bias->size(1) != width) {
      RefuseArgument(bias.name(), "[experts, " + std::to_string(width) + "] and the expert of each choice",
                     Describe(bias->sizes()));
    }
  }
  if (experts) {
    RequireDtype(*experts, {ScalarType::Int});
    RequireShape(*experts, {tokens, choices});
  }
}

void FinalizeRouting::Run() const {
  const int64_t width = rows.size(-1);
  const int64_t tokens = out.size(0);
  const at::Tensor flat = at::Tensor(rows).reshape({-1, width});
  const at::Tensor places = at::Tensor(rows_of).to(at::kLong);
  const at::Tensor table = row_major ? places.view({tokens, choices}) : places.view({choices, tokens}).transpose(0, 1);
  at::Tensor sum = at::zeros({tokens, width}, at::kFloat);
  for (const OptionalTensor& skip : {skip1, skip2}) {
    sum = skip ? at::add(sum, skip->Widened()) : sum;
  }
  for (int64_t choice = 0; choice < choices; ++choice) {
    const at::Tensor place = table.select(1, choice);
    const at::Tensor missing = place.lt(0).unsqueeze(-1);
    at::Tensor term = flat.size(0) == 0
                          ? at::zeros({tokens, width}, at::kFloat)
                          : at::index_select(flat, 0, place.clamp_min(0)).to(at::kFloat).masked_fill(missing, 0.0);
    if (bias) {
      term = at::add(term, at::index_select(bias->Widened(), 0, at::Tensor(*experts).select(1, choice)));
    }
    if (scales) {
      term = at::mul(term, scales->Widened().select(1, choice).unsqueeze(-1));
    }
    sum = at::add(sum, term);
  }
  out.Store(sum);
}

Plan Finalize(const Tensor& rows, const Tensor& rows_of, const OptionalTensor& skip1, const OptionalTensor& skip2,
              const OptionalTensor& bias, const OptionalTensor& scales, const OptionalTensor& experts, const Int& mode,
              int64_t choices, const Tensor& out) {
  if (mode < 0 || mode > 3) {
    RefuseArgument(mode.name(), "0 to 3", std::to_string(mode));
  }
  const FinalizeRouting call{rows,    rows_of,   skip1, skip2, bias, scales, experts,
                             mode >= 2, scales && scales->rank() == 2 ? scales->size(1) : choices, out};
  call.Require();
  return [call] { call.Run(); };
}

}  // namespace

// dropPadMode: 0 and 1 number the choices column by column, 2 and 3 row by row; 1 and 3 have rows [experts, capacity, H].
CANN_SIM_OPERATOR(aclnnMoeFinalizeRoutingV2, (Tensor, expandedX), (Tensor, expandedRowIdx), (OptionalTensor, x1),
                  (OptionalTensor, x2), (OptionalTensor, bias), (OptionalTensor, scales), (OptionalTensor, expertIdx),
                  (Int, dropPadMode), (Tensor, out)) {
  return Finalize(expandedX, expandedRowIdx, x1, x2, bias, scales, expertIdx, dropPadMode, 1, out);
}

// The unnamed arguments are for copied and constant experts, which torch_npu never passes.
CANN_SIM_OPERATOR(aclnnMoeFinalizeRoutingV4, (Tensor, expandedX), (Tensor, expandedRowIdx), (OptionalTensor, x1),
                  (OptionalTensor, x2), (OptionalTensor, bias), (OptionalTensor, scales), (OptionalTensor, expertIdx),
                  (OptionalTensor, unpermutedX), (OptionalTensor, constExpertAlpha1), (OptionalTensor, constExpertAlpha2),
                  (OptionalTensor, constExpertV), (Int, dropPadMode), (OptionalIntArray, zeroExpertRange),
                  (OptionalIntArray, copyExpertRange), (OptionalIntArray, constExpertRange), (Int, k), (Tensor, out)) {
  for (const OptionalTensor& special : {unpermutedX, constExpertAlpha1, constExpertAlpha2, constExpertV}) {
    RefuseIfPresent(special, "a copied or constant expert");
  }
  return Finalize(expandedX, expandedRowIdx, x1, x2, bias, scales, expertIdx, dropPadMode, k, out);
}

}  // namespace cann_sim::operators
