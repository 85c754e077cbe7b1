// Attention that sees only chosen blocks of the keys, one choice for each head and block of queries, and its gradient.

#include <ATen/ops/bmm.h>
#include <ATen/ops/zeros.h>

#include <memory>
#include <optional>

#include "../attention/attention.h"
#include "../interface/operator.h"

namespace cann_sim::operators {

namespace {

using c10::ScalarType;

constexpr int64_t kKeyBlockMultiple = 128;

struct BlockSparse {
  Tensor query, key, value, blocks;
  int64_t query_block, key_block;
  bool packed;                                  // [T, N, D], or [B, N, S, D]
  std::vector<int64_t> queries, keys;           // lengths of each sequence
  double scale;

  int64_t heads() const { return query.size(1); }
  int64_t key_heads() const { return key.size(1); }
};

struct Sequence {
  int64_t index, query_start, queries, key_start, keys;
};

std::vector<Sequence> SequencesOf(const BlockSparse& call) {
  std::vector<Sequence> sequences;
  int64_t query_start = 0;
  int64_t key_start = 0;
  for (size_t index = 0; index < call.queries.size(); ++index) {
    sequences.push_back({static_cast<int64_t>(index), query_start, call.queries[index], key_start, call.keys[index]});
    if (call.packed) {
      query_start += call.queries[index];
      key_start += call.keys[index];
    }
  }
  return sequences;
}

// The rows of one sequence, [S, N, D]; a view.
at::Tensor Part(const BlockSparse& call, const at::Tensor& whole, int64_t index, int64_t start, int64_t length) {
  return call.packed ? whole.narrow(0, start, length) : whole.select(0, index).transpose(0, 1).narrow(0, 0, length);
}

// True where a key is not chosen, [N, queries, keys].
at::Tensor Hidden(const BlockSparse& call, const Sequence& sequence) {
  const at::Tensor chosen = at::Tensor(call.blocks).select(0, sequence.index).ne(0);
  return chosen.repeat_interleave(call.query_block, 1)
      .repeat_interleave(call.key_block, 2)
      .narrow(1, 0, sequence.queries)
      .narrow(2, 0, sequence.keys)
      .logical_not();
}

std::vector<int64_t> LengthsOf(const OptionalIntArray& lengths, const Tensor& tensor, bool packed) {
  std::vector<int64_t> values = lengths.values();
  if (!packed && values.empty()) {
    return std::vector<int64_t>(static_cast<size_t>(tensor.size(0)), tensor.size(2));
  }
  int64_t total = 0;
  for (int64_t length : values) {
    if (length < 0 || (!packed && length > tensor.size(2))) {
      RefuseArgument(lengths.name(), "lengths of sequences in '" + std::string(tensor.name()) + "'", Describe(values));
    }
    total += length;
  }
  if (values.empty() || (packed ? total > tensor.size(0) : static_cast<int64_t>(values.size()) != tensor.size(0))) {
    RefuseArgument(lengths.name(), "the length of each sequence in '" + std::string(tensor.name()) + "' " +
                                       Describe(tensor.sizes()),
                   Describe(values));
  }
  return values;
}

BlockSparse Required(const Tensor& query, const Tensor& key, const Tensor& value, const Tensor& blocks,
                     const OptionalTensor& mask, const IntArray& block_shape, const OptionalIntArray& query_lengths,
                     const OptionalIntArray& key_lengths, const Text& query_layout, const Text& key_layout,
                     const Int& key_heads, const Int& mask_type, double scale) {
  if (query_layout.value() != "TND" && query_layout.value() != "BNSD") {
    RefuseArgument(query_layout.name(), "TND or BNSD", query_layout.value());
  }
  if (key_layout.value() != query_layout.value()) {
    RefuseArgument(key_layout.name(), query_layout.value() + " as of the queries", key_layout.value());
  }
  RefuseIfPresent(mask, "a mask of single keys");
  if (mask_type != 0) {
    RefuseArgument(mask_type.name(), "0", std::to_string(mask_type));
  }
  const bool packed = query_layout.value() == "TND";
  RequireDtype(query, kHalves);
  for (const Tensor& tensor : {query, key, value}) {
    RequireSameDtype(tensor, query);
    RequireRank(tensor, packed ? 3 : 4, packed ? 3 : 4);
  }
  RequireShape(value, key.sizes());
  if (key.size(1) != key_heads || key_heads <= 0 || query.size(1) % key_heads != 0) {
    RefuseArgument(key_heads.name(), "the heads of 'key', a divisor of those of 'query'", std::to_string(key_heads));
  }
  if (key.size(-1) != query.size(-1) || (query.size(-1) != 64 && query.size(-1) != 128)) {
    RefuseArgument(query.name(), "heads of 64 or 128, as those of 'key'", Describe(query.sizes()));
  }
  const std::vector<int64_t>& shape = block_shape.values();
  if (shape.size() < 2 || shape[0] <= 0 || shape[1] <= 0 || shape[1] % kKeyBlockMultiple != 0) {
    RefuseArgument(block_shape.name(), "a positive number of queries and a multiple of 128 keys", Describe(shape));
  }
  if (query_lengths.values().empty() != key_lengths.values().empty()) {
    RefuseArgument(key_lengths.name(), "lengths of both queries and keys, or of neither", "one of them");
  }
  BlockSparse call{query, key, value, blocks, shape[0], shape[1], packed, LengthsOf(query_lengths, query, packed),
                   LengthsOf(key_lengths, key, packed), scale};
  if (call.queries.size() != call.keys.size()) {
    RefuseArgument(key_lengths.name(), std::to_string(call.queries.size()) + " sequences", Describe(call.keys));
  }
  RequireDtype(blocks, {ScalarType::Char});
  RequireRank(blocks, 4, 4);
  for (const Sequence& sequence : SequencesOf(call)) {
    if (blocks.size(0) <= sequence.index || blocks.size(1) != call.heads() ||
        blocks.size(2) * call.query_block < sequence.queries || blocks.size(3) * call.key_block < sequence.keys) {
      RefuseArgument(blocks.name(), "[batch, heads, blocks of queries, blocks of keys] that cover sequence " +
                                        std::to_string(sequence.index),
                     Describe(blocks.sizes()));
    }
  }
  return call;
}

void RequireLike(const Tensor& tensor, const Tensor& like) {
  RequireSameDtype(tensor, like);
  RequireShape(tensor, like.sizes());
}

std::vector<int64_t> StatisticShape(const Tensor& query) {
  std::vector<int64_t> shape = query.sizes().vec();
  shape.back() = 1;
  return shape;
}

}  // namespace

CANN_SIM_OPERATOR(aclnnBlockSparseAttention, (Tensor, query), (Tensor, key), (Tensor, value), (Tensor, blockSparseMask),
                  (OptionalTensor, attenMask), (IntArray, blockShape), (OptionalIntArray, actualSeqLengths),
                  (OptionalIntArray, actualSeqLengthsKv), (OptionalTensor, blockTable), (Text, qInputLayout),
                  (Text, kvInputLayout), (Int, numKeyValueHeads), (Int, maskType), (Double, scaleValue),
                  (Int, innerPrecise), (Int, blockSize), (Int, preTokens), (Int, nextTokens), (Int, softmaxLseFlag),
                  (Tensor, attentionOut), (OptionalTensor, softmaxLse)) {
  RefuseIfPresent(blockTable, "a paged cache");
  const BlockSparse call =
      Required(query, key, value, blockSparseMask, attenMask, blockShape, actualSeqLengths, actualSeqLengthsKv,
               qInputLayout, kvInputLayout, numKeyValueHeads, maskType, scaleValue);
  if (innerPrecise != 0 && (innerPrecise != 1 || query.dtype() == ScalarType::BFloat16)) {
    RefuseArgument(innerPrecise.name(), "0, or 1 for float16", std::to_string(innerPrecise));
  }
  RequireLike(attentionOut, query);
  const bool wants_lse = softmaxLseFlag == 1 && softmaxLse;
  if (wants_lse) {
    RequireDtype(*softmaxLse, {ScalarType::Float});
    RequireShape(*softmaxLse, StatisticShape(query));
  }
  auto owned = std::make_shared<BlockSparse>(call);
  return [=] {
    const at::Tensor queries = owned->query.Widened();
    const at::Tensor keys = owned->key.Widened();
    const at::Tensor values = owned->value.Widened();
    const at::Tensor outputs = at::zeros(queries.sizes(), at::kFloat);
    const at::Tensor statistics = at::zeros(StatisticShape(owned->query), at::kFloat);
    for (const Sequence& sequence : SequencesOf(*owned)) {
      const auto of_queries = [&](const at::Tensor& whole) {
        return Part(*owned, whole, sequence.index, sequence.query_start, sequence.queries);
      };
      const auto of_keys = [&](const at::Tensor& whole) {
        return Part(*owned, whole, sequence.index, sequence.key_start, sequence.keys);
      };
      const AttentionResult result = Attend(of_queries(queries).contiguous(), of_keys(keys), of_keys(values),
                                            owned->scale, Hidden(*owned, sequence), at::Tensor());
      of_queries(outputs).copy_(result.output);
      of_queries(statistics).copy_(result.log_sum_exp.unsqueeze(-1));
    }
    attentionOut.Store(outputs);
    if (wants_lse) {
      softmaxLse->Store(statistics);
    }
  };
}

CANN_SIM_OPERATOR(aclnnBlockSparseAttentionGrad, (Tensor, dout), (Tensor, query), (Tensor, key), (Tensor, value),
                  (Tensor, attentionOut), (Tensor, softmaxLse), (Tensor, blockSparseMask), (OptionalTensor, attenMask),
                  (IntArray, blockShape), (OptionalIntArray, actualSeqLengths), (OptionalIntArray, actualSeqLengthsKv),
                  (Text, qInputLayout), (Text, kvInputLayout), (Int, numKeyValueHeads), (Int, maskType),
                  (Double, scaleValue), (Int, preTokens), (Int, nextTokens), (Tensor, dq), (Tensor, dk), (Tensor, dv)) {
  const BlockSparse call =
      Required(query, key, value, blockSparseMask, attenMask, blockShape, actualSeqLengths, actualSeqLengthsKv,
               qInputLayout, kvInputLayout, numKeyValueHeads, maskType, scaleValue);
  for (const Tensor& tensor : {dout, attentionOut, dq}) {
    RequireLike(tensor, query);
  }
  RequireLike(dk, key);
  RequireLike(dv, value);
  RequireDtype(softmaxLse, {ScalarType::Float});
  RequireShape(softmaxLse, StatisticShape(query));
  auto owned = std::make_shared<BlockSparse>(call);
  return [=] {
    const int64_t group = owned->heads() / owned->key_heads();
    const at::Tensor queries = owned->query.Widened();
    const at::Tensor keys = owned->key.Widened();
    const at::Tensor values = owned->value.Widened();
    const at::Tensor gradients = dout.Widened();
    const at::Tensor outputs = attentionOut.Widened();
    const at::Tensor statistics = softmaxLse.Widened();
    const at::Tensor query_gradients = at::zeros(queries.sizes(), at::kFloat);
    const at::Tensor key_gradients = at::zeros(keys.sizes(), at::kFloat);
    const at::Tensor value_gradients = at::zeros(values.sizes(), at::kFloat);
    for (const Sequence& sequence : SequencesOf(*owned)) {
      if (sequence.queries == 0 || sequence.keys == 0) {
        continue;
      }
      const auto rows_of_keys = [&](const at::Tensor& whole) {
        return Part(*owned, whole, sequence.index, sequence.key_start, sequence.keys);
      };
      const auto rows_of_queries = [&](const at::Tensor& whole) {
        return Part(*owned, whole, sequence.index, sequence.query_start, sequence.queries);
      };
      // [N, S, D] and, for every head of the queries, [N, K, D].
      const auto of_queries = [&](const at::Tensor& whole) { return rows_of_queries(whole).transpose(0, 1); };
      const auto of_keys = [&](const at::Tensor& whole) {
        return rows_of_keys(whole).repeat_interleave(group, 1).transpose(0, 1);
      };
      const at::Tensor scores = at::bmm(of_queries(queries), of_keys(keys).transpose(1, 2)).mul_(owned->scale);
      const at::Tensor weights =
          scores.sub_(of_queries(statistics)).exp_().masked_fill_(Hidden(*owned, sequence), 0.0);
      const at::Tensor gradient = of_queries(gradients);
      const at::Tensor mean = gradient.mul(of_queries(outputs)).sum({2}, true);
      const at::Tensor score_gradient = at::bmm(gradient, of_keys(values).transpose(1, 2)).sub_(mean).mul_(weights);
      const auto fold = [&](const at::Tensor& every) {
        return every.unflatten(0, {owned->key_heads(), group}).sum(1).transpose(0, 1);
      };
      rows_of_queries(query_gradients)
          .copy_(at::bmm(score_gradient, of_keys(keys)).mul_(owned->scale).transpose(0, 1));
      rows_of_keys(key_gradients)
          .copy_(fold(at::bmm(score_gradient.transpose(1, 2), of_queries(queries)).mul_(owned->scale)));
      rows_of_keys(value_gradients).copy_(fold(at::bmm(weights.transpose(1, 2), gradient)));
    }
    dq.Store(query_gradients);
    dk.Store(key_gradients);
    dv.Store(value_gradients);
  };
}

}  // namespace cann_sim::operators
