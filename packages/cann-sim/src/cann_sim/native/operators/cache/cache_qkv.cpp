// QkvRmsNormRopeCache: queries, keys and values of one projection; queries and keys are normalised and rotated, keys and values
// stored in paged caches in NZ order. Computed in float32, rounded once.

#include <ATen/ops/add.h>
#include <ATen/ops/div.h>
#include <ATen/ops/mul.h>

#include <memory>
#include <string>
#include <vector>

#include "../interface/operator.h"
#include "../normalization/norm.h"
#include "../rotary/rotary.h"
#include "paged_cache.h"

namespace cann_sim::operators {

namespace {

using c10::ScalarType;

// Where keys or values go to, and how they are quantised.
struct Destination {
  Tensor cache;
  OptionalTensor scale, offset;
  OptionalTensor plain;  // the rows before quantisation
  int64_t heads;
};

struct QkvRopeCache {
  Tensor qkv, query_gamma, key_gamma, cos, sin, index;
  Tensor query;
  OptionalTensor plain_query;
  int64_t batch, length, query_heads, dim;
  Destination key, value;
  double epsilon;

  void Require() const;
  void Run() const;

 private:
  int64_t rows() const { return batch * length; }
  void RequireDestination(const Destination& destination) const;
  void RequirePlain(const OptionalTensor& plain, int64_t heads) const;
  at::Tensor Angles(const Tensor& tensor) const;
  void Write(const Destination& destination, const at::Tensor& values) const;
};

void QkvRopeCache::RequirePlain(const OptionalTensor& plain, int64_t heads) const {
  if (plain) {
    RequireSameDtype(*plain, qkv);
    RequireShape(*plain, {rows(), heads * dim});
  }
}

void QkvRopeCache::RequireDestination(const Destination& destination) const {
  const Tensor& cache = destination.cache;
  RequireDtype(cache, {destination.scale ? ScalarType::Char : qkv.dtype()});
  RequireContiguous(cache);
  RequireRank(cache, 4, 4);
  const int64_t unit = destination.scale ? 32 : 16;
  RequireShape(cache, {cache.size(0), destination.heads * dim / unit, cache.size(2), unit});
  if (destination.offset && !destination.scale) {
    RefuseArgument(destination.offset.name(), "a scale beside it", "none");
  }
  for (const OptionalTensor* parameter : {&destination.scale, &destination.offset}) {
    if (*parameter) {
      RequireDtype(**parameter, {ScalarType::Float});
      RequireShape(**parameter, {destination.heads, dim});
    }
  }
  RequirePlain(destination.plain, destination.heads);
}

void QkvRopeCache::Require() const {
  RequireDtype(qkv, kHalves);
  if (query_heads < 1 || key.heads < 1 || value.heads < 1 || dim < 1 || dim % 32 != 0) {
    RefuseArgument("qkvSize and headNums", "heads of each kind, of a multiple of 32 dimensions", "others");
  }
  RequireShape(qkv, {rows(), (query_heads + key.heads + value.heads) * dim});
  for (const Tensor* gamma : {&query_gamma, &key_gamma}) {
    RequireSameDtype(*gamma, qkv);
    RequireShape(*gamma, {dim});
  }
  for (const Tensor* angles : {&cos, &sin}) {
    RequireSameDtype(*angles, qkv);
    RequireShape(*angles, {angles->size(0) == batch ? batch : rows(), dim});
  }
  RequireDtype(index, {ScalarType::Long});
  RequireShape(index, {rows()});
  RequireSameDtype(query, qkv);
  RequireContiguous(query);
  RequireShape(query, {rows(), query_heads * dim});
  RequirePlain(plain_query, query_heads);
  RequireDestination(key);
  RequireDestination(value);
}

// Those of each row, [rows, 1, dim].
at::Tensor QkvRopeCache::Angles(const Tensor& tensor) const {
  const at::Tensor wide = tensor.Widened().view({batch, -1, 1, dim});
  return wide.expand({batch, length, 1, dim}).reshape({rows(), 1, dim});
}

void QkvRopeCache::Write(const Destination& destination, const at::Tensor& values) const {
  if (destination.plain) {
    destination.plain->Store(values.reshape(destination.plain->sizes()));
  }
  at::Tensor stored = values;
  if (destination.scale) {
    stored = at::div(stored, destination.scale->Widened());
    stored = destination.offset ? at::add(stored, destination.offset->Widened()) : stored;
    stored = stored.nan_to_num(0.0).round().clamp(-128, 127);
  }
  const at::Tensor cache = destination.cache;
  WriteNzSlots(stored.to(cache.scalar_type()), at::Tensor(index), cache, cache.size(2), cache.size(3));
}

void QkvRopeCache::Run() const {
  const at::Tensor wide = qkv.Widened().view({rows(), -1, dim});
  const auto turned = [&](const at::Tensor& x, const Tensor& gamma) {
    const at::Tensor normalized = at::mul(at::mul(x, ReciprocalRms(x, {-1}, epsilon)), gamma.Widened());
    return Rotate(normalized, Angles(cos), Angles(sin), false);
  };
  const at::Tensor queries = turned(wide.narrow(1, 0, query_heads), query_gamma).reshape(query.sizes());
  query.Store(queries);
  if (plain_query) {
    plain_query->Store(queries);
  }
  Write(key, turned(wide.narrow(1, query_heads, key.heads), key_gamma));
  Write(value, wide.narrow(1, query_heads + key.heads, value.heads));
}

}  // namespace

CANN_SIM_OPERATOR(aclnnQkvRmsNormRopeCache, (Tensor, qkv), (Tensor, qGamma), (Tensor, kGamma), (Tensor, cos), (Tensor, sin),
                  (Tensor, index), (Tensor, qOutRef), (Tensor, kCacheRef), (Tensor, vCacheRef), (OptionalTensor, kScale),
                  (OptionalTensor, vScale), (OptionalTensor, kOffset), (OptionalTensor, vOffset), (IntArray, qkvSize),
                  (IntArray, headNums), (Double, epsilon), (OptionalText, cacheMode), (OptionalTensor, qOutBeforeQuant),
                  (OptionalTensor, kOutBeforeQuant), (OptionalTensor, vOutBeforeQuant)) {
  if (cacheMode.value() != "PA_NZ") {
    RefuseArgument(cacheMode.name(), "PA_NZ (others are not simulated)", cacheMode.value());
  }
  const std::vector<int64_t>& size = qkvSize.values();
  const std::vector<int64_t>& heads = headNums.values();
  if (size.size() != 4 || heads.size() != 3 || heads[0] + heads[1] + heads[2] != size[2]) {
    RefuseArgument(qkvSize.name(), "batch, length, heads of all kinds and dimensions, with three numbers of heads",
                   Describe(qkvSize) + " and " + Describe(headNums));
  }
  const auto call = std::make_shared<QkvRopeCache>(
      QkvRopeCache{qkv, qGamma, kGamma, cos, sin, index, qOutRef, qOutBeforeQuant, size[0], size[1], heads[0], size[3],
                   {kCacheRef, kScale, kOffset, kOutBeforeQuant, heads[1]}, {vCacheRef, vScale, vOffset, vOutBeforeQuant, heads[2]},
                   epsilon});
  call->Require();
  return Plan([call] { call->Run(); });
}

}  // namespace cann_sim::operators
