// Sorting tokens by expert and back, as training frameworks ask for it, with the gradients. Sums in float32, rounded once.

#include <ATen/ops/arange.h>
#include <ATen/ops/argsort.h>
#include <ATen/ops/index_select.h>
#include <ATen/ops/masked_select.h>
#include <ATen/ops/mul.h>
#include <ATen/ops/nonzero.h>
#include <ATen/ops/sort.h>
#include <ATen/ops/zeros.h>

#include <algorithm>

#include "../interface/operator.h"

namespace cann_sim::operators {

namespace {

using c10::ScalarType;

// Rows `places` of `rows`; those after the last row are zeros.
at::Tensor RowsOrZeros(const at::Tensor& rows, const at::Tensor& places) {
  if (rows.size(0) == 0) {
    return at::zeros({places.size(0), rows.size(1)}, rows.options());
  }
  const at::Tensor missing = places.ge(rows.size(0)).logical_or(places.lt(0));
  return at::index_select(rows, 0, places.masked_fill(missing, 0)).masked_fill(missing.unsqueeze(-1), 0.0);
}

void RequireUnpadded(const Bool& padded) {
  if (padded) {
    RefuseArgument(padded.name(), "false", "true");
  }
}

// How many experts a token of this call has.
int64_t ChoicesOf(const OptionalTensor& probs) { return probs && probs->rank() == 2 ? probs->size(1) : 1; }

// The positions of the true elements of a map [tokens, experts], expert by expert.
struct MapOrder {
  at::Tensor experts, tokens;
};

MapOrder OrderOf(const at::Tensor& map) {
  const at::Tensor places = at::nonzero(map.to(at::kBool).transpose(0, 1));
  return {places.select(1, 0), places.select(1, 1)};
}

// The first `capacity` tokens of each expert, [experts, capacity]: those routed to it in order, then the others.
at::Tensor PaddedTokens(const at::Tensor& map, int64_t capacity) {
  const at::Tensor keys = map.to(at::kBool).transpose(0, 1).to(at::kChar);
  return std::get<1>(at::sort(keys, /*stable=*/true, /*dim=*/-1, /*descending=*/true)).narrow(1, 0, capacity);
}

void RequireMap(const Tensor& map) {
  RequireDtype(map, kBool | DtypeSet{ScalarType::Char});
  RequireRank(map, 2, 2);
}

}  // namespace

// permutedTokens = the token of each choice, sorted by expert; sortedIndices[c] = where choice c went.
CANN_SIM_OPERATOR(aclnnMoeTokenPermute, (Tensor, tokens), (Tensor, indices), (Int, numOutTokens), (Bool, paddedMode),
                  (Tensor, permuteTokensOut), (Tensor, sortedIndicesOut)) {
  RequireUnpadded(paddedMode);
  RequireDtype(tokens, kFloats);
  RequireRank(tokens, 2, 2);
  RequireDtype(indices, kIndices);
  RequireRank(indices, 1, 2);
  const int64_t choices = indices.rank() == 2 ? indices.size(1) : 1;
  if (indices.size(0) != tokens.size(0) || choices > 512) {
    RefuseArgument(indices.name(), std::to_string(tokens.size(0)) + " rows of at most 512 experts", Describe(indices.sizes()));
  }
  RequireSameDtype(permuteTokensOut, tokens);
  RequireShape(permuteTokensOut, {std::min<int64_t>(numOutTokens, indices.numel()), tokens.size(1)});
  RequireDtype(sortedIndicesOut, {ScalarType::Int});
  RequireShape(sortedIndicesOut, {indices.numel()});
  return [=] {
    const at::Tensor order = at::argsort(at::Tensor(indices).reshape({-1}), /*stable=*/true, 0, false);
    const at::Tensor kept = order.narrow(0, 0, permuteTokensOut.size(0));
    permuteTokensOut.Store(at::index_select(at::Tensor(tokens), 0, kept.div(choices, "floor")));
    at::Tensor(sortedIndicesOut).index_copy_(0, order, at::arange(order.size(0), at::kInt));
  };
}

// input_grad[t] = sum over the choices of token t of the gradient of their rows.
CANN_SIM_OPERATOR(aclnnMoeTokenPermuteGrad, (Tensor, permutedOutputGrad), (Tensor, sortedIndices), (Int, numTopk),
                  (Bool, paddedMode), (Tensor, out)) {
  RequireUnpadded(paddedMode);
  RequireDtype(permutedOutputGrad, kFloats);
  RequireRank(permutedOutputGrad, 2, 2);
  RequireDtype(sortedIndices, {ScalarType::Int});
  RequireRank(sortedIndices, 1, 1);
  RequireSameDtype(out, permutedOutputGrad);
  RequireShape(out, {sortedIndices.size(0) / std::max<int64_t>(numTopk, 1), permutedOutputGrad.size(1)});
  return [=] {
    const at::Tensor rows = RowsOrZeros(permutedOutputGrad.Widened(), at::Tensor(sortedIndices).to(at::kLong));
    out.Store(rows.view({out.size(0), -1, out.size(1)}).sum({1}));
  };
}

// out[t] = sum over k of probs[t, k] * permutedTokens[sortedIndices[t, k]].
CANN_SIM_OPERATOR(aclnnMoeTokenUnpermute, (Tensor, permutedTokens), (Tensor, sortedIndices), (OptionalTensor, probs),
                  (Bool, paddedMode), (OptionalIntArray, restoreShape), (Tensor, out)) {
  RequireUnpadded(paddedMode);
  RequireDtype(permutedTokens, kFloats);
  RequireRank(permutedTokens, 2, 2);
  RequireDtype(sortedIndices, {ScalarType::Int});
  RequireRank(sortedIndices, 1, 1);
  const int64_t choices = ChoicesOf(probs);
  if (probs) {
    RequireDtype(*probs, kFloats);
    RequireRank(*probs, 2, 2);
    if (probs->numel() != sortedIndices.size(0) || choices > 512) {
      RefuseArgument(probs.name(), std::to_string(sortedIndices.size(0)) + " elements, at most 512 in a row",
                     Describe(probs->sizes()));
    }
  }
  RequireSameDtype(out, permutedTokens);
  RequireShape(out, {sortedIndices.size(0) / std::max<int64_t>(choices, 1), permutedTokens.size(1)});
  return [=] {
    at::Tensor rows = RowsOrZeros(permutedTokens.Widened(), at::Tensor(sortedIndices).to(at::kLong))
                          .view({out.size(0), choices, out.size(1)});
    if (probs) {
      rows = at::mul(rows, probs->Widened().unsqueeze(-1));
    }
    out.Store(rows.sum({1}));
  };
}

// The gradients of TokenUnpermute: of the rows, and of probs where there are any.
CANN_SIM_OPERATOR(aclnnMoeTokenUnpermuteGrad, (OptionalTensor, permutedTokens), (Tensor, unpermutedTokensGrad),
                  (Tensor, sortedIndices), (OptionalTensor, probs), (Bool, paddedMode), (OptionalIntArray, restoreShape),
                  (Tensor, permutedTokensGradOut), (OptionalTensor, probsGradOut)) {
  RequireUnpadded(paddedMode);
  RequireDtype(unpermutedTokensGrad, kFloats);
  RequireDtype(sortedIndices, {ScalarType::Int});
  const int64_t choices = ChoicesOf(probs);
  if (probs && !permutedTokens) {
    RefuseArgument(permutedTokens.name(), "a tensor beside probs", "none");
  }
  return [=] {
    const at::Tensor grad = unpermutedTokensGrad.Widened();
    const at::Tensor places = at::Tensor(sortedIndices).to(at::kLong);
    at::Tensor spread = grad.unsqueeze(1).expand({grad.size(0), choices, grad.size(1)});
    if (probs) {
      const at::Tensor rows = RowsOrZeros(permutedTokens->Widened(), places).view(spread.sizes());
      probsGradOut->Store(at::mul(rows, spread).sum({-1}));
      spread = at::mul(spread, probs->Widened().unsqueeze(-1));
    }
    const at::Tensor kept = at::nonzero(places.lt(permutedTokensGradOut.size(0))).squeeze(-1);
    const at::Tensor target = permutedTokensGradOut;
    target.index_copy_(0, places.index_select(0, kept),
                       spread.reshape({-1, grad.size(1)}).index_select(0, kept).to(target.scalar_type()));
  };
}

// As TokenPermute, with the experts of each token in a map [tokens, experts]. Without padding sortedIndices says where each of a
// token's rows went; with padding it holds the token of each row.
CANN_SIM_OPERATOR(aclnnMoeTokenPermuteWithRoutingMap, (Tensor, tokens), (Tensor, routingMap), (OptionalTensor, probs),
                  (Int, numOutTokens), (Bool, dropAndPad), (Tensor, permuteTokensOut), (OptionalTensor, permuteProbsOut),
                  (Tensor, sortedIndicesOut)) {
  RequireDtype(tokens, kFloats);
  RequireRank(tokens, 2, 2);
  RequireMap(routingMap);
  if (routingMap.size(0) != tokens.size(0)) {
    RefuseArgument(routingMap.name(), std::to_string(tokens.size(0)) + " rows", Describe(routingMap.sizes()));
  }
  if (probs) {
    RequireDtype(*probs, kFloats);
    RequireShape(*probs, routingMap.sizes());
  }
  RequireSameDtype(permuteTokensOut, tokens);
  RequireDtype(sortedIndicesOut, {ScalarType::Int});
  const int64_t rows = permuteTokensOut.size(0);
  RequireShape(sortedIndicesOut, {rows});
  return [=] {
    const at::Tensor map = routingMap;
    MapOrder order;
    if (dropAndPad) {
      const int64_t experts = map.size(1);
      order = {at::arange(experts, at::kLong).repeat_interleave(rows / experts),
               PaddedTokens(map, rows / experts).reshape({-1})};
    } else {
      order = OrderOf(map);
      if (order.tokens.size(0) != rows) {
        throw Refusal("argument 'numOutTokens': expected " + std::to_string(order.tokens.size(0)) +
                      ", the true elements of 'routingMap', found " + std::to_string(rows));
      }
    }
    permuteTokensOut.Store(at::index_select(at::Tensor(tokens), 0, order.tokens));
    if (probs && permuteProbsOut) {
      permuteProbsOut->Store(at::Tensor(*probs).reshape({-1}).index_select(0, order.tokens.mul(map.size(1)).add(order.experts)));
    }
    sortedIndicesOut.Store(dropAndPad ? order.tokens : at::argsort(order.tokens, /*stable=*/true, 0, false));
  };
}

CANN_SIM_OPERATOR(aclnnMoeTokenPermuteWithRoutingMapGrad, (Tensor, permutedTokenOutGrad), (OptionalTensor, probsGrad),
                  (Tensor, sortedIndices), (Tensor, routingMap), (Int, numExperts), (Int, numTokens), (Bool, dropAndPad),
                  (Tensor, tokensGradOut), (OptionalTensor, probsGradOut)) {
  RequireDtype(permutedTokenOutGrad, kFloats);
  RequireMap(routingMap);
  RequireDtype(sortedIndices, {ScalarType::Int});
  return [=] {
    const at::Tensor map = routingMap;
    const int64_t rows = permutedTokenOutGrad.size(0);
    const MapOrder order = dropAndPad
                               ? MapOrder{at::arange(numExperts.value(), at::kLong).repeat_interleave(rows / numExperts),
                                          at::Tensor(sortedIndices).to(at::kLong)}
                               : OrderOf(map);
    tokensGradOut.Store(
        at::zeros(tokensGradOut.sizes(), at::kFloat).index_add_(0, order.tokens, permutedTokenOutGrad.Widened()));
    if (probsGrad && probsGradOut) {
      const at::Tensor grads = at::zeros({numTokens * numExperts}, at::kFloat);
      grads.index_copy_(0, order.tokens.mul(numExperts.value()).add(order.experts), probsGrad->Widened());
      probsGradOut->Store(grads.view(probsGradOut->sizes()));
    }
  };
}

// Back from TokenPermuteWithRoutingMap; outIndex and permutedTokenId hold, for the gradient, the row of each of a token's
// choices and the token of each row.
CANN_SIM_OPERATOR(aclnnMoeTokenUnpermuteWithRoutingMap, (Tensor, permutedTokens), (Tensor, sortedIndices),
                  (OptionalTensor, routingMap), (OptionalTensor, probs), (Bool, paddedMode), (OptionalIntArray, restoreShape),
                  (Tensor, unpermutedTokens), (Tensor, outIndex), (Tensor, permutedTokenId),
                  (OptionalTensor, permuteProbs)) {
  RequireDtype(permutedTokens, kFloats);
  RequireRank(permutedTokens, 2, 2);
  RequireDtype(sortedIndices, {ScalarType::Int});
  RequireShape(sortedIndices, {permutedTokens.size(0)});
  RequireSameDtype(unpermutedTokens, permutedTokens);
  if (probs) {
    RequireDtype(*probs, kFloats);
    if (!routingMap) {
      RefuseArgument(routingMap.name(), "a map beside probs", "none");
    }
    RequireShape(*probs, routingMap->sizes());
  }
  return [=] {
    const at::Tensor places = at::Tensor(sortedIndices).to(at::kLong);
    const at::Tensor rows = permutedTokens.Widened();
    if (paddedMode) {
      const auto [tokens, order] = at::sort(places, /*stable=*/true, 0, false);
      at::Tensor weighted = rows;
      if (probs) {
        const int64_t experts = probs->size(1);
        const at::Tensor own = at::arange(experts, at::kLong).repeat_interleave(places.size(0) / experts);
        const at::Tensor weights = at::Tensor(*probs).reshape({-1}).index_select(0, places.mul(experts).add(own));
        weighted = at::mul(rows, weights.to(at::kFloat).unsqueeze(-1));
        if (permuteProbs) {
          permuteProbs->Store(weights);
        }
      }
      unpermutedTokens.Store(at::zeros(unpermutedTokens.sizes(), at::kFloat).index_add_(0, places, weighted));
      outIndex.Store(order);
      permutedTokenId.Store(tokens);
      return;
    }
    const int64_t tokens = unpermutedTokens.size(0);
    const int64_t choices = tokens == 0 ? 0 : places.size(0) / tokens;
    at::Tensor own = at::index_select(rows, 0, places).view({tokens, choices, -1});
    if (probs) {
      const at::Tensor weights = at::masked_select(probs->Widened(), at::Tensor(*routingMap).to(at::kBool));
      own = at::mul(own, weights.view({tokens, choices, 1}));
      if (permuteProbs) {
        at::Tensor(*permuteProbs).index_copy_(0, places, weights.to(permuteProbs->dtype()));
      }
    }
    unpermutedTokens.Store(own.sum({1}));
    outIndex.Store(places);
    at::Tensor(permutedTokenId).index_copy_(
        0, places, at::arange(places.size(0), at::kInt).div(std::max<int64_t>(choices, 1), "floor"));
  };
}

}  // namespace cann_sim::operators
