// PagedAttention: decode, and speculative decode or chunked prefill, over a paged cache. Lengths are CPU tensors: they are read
// when the launch is made and become part of it, so a captured graph must have them rewritten by a task update.

#include "../operators/cost/attention_work.h"
#include "operations.h"
#include "packed_sequences.h"

namespace cann_sim::atb_library {

namespace {

using atb::infer::PagedAttentionParam;
using operators::Describe;
using operators::OptionalTensor;
using operators::RefuseArgument;
using operators::Tensor;

constexpr int64_t kMostHeadDims = 576;
void RequirePlainPaged(const PagedAttentionParam& parameters) {
  const auto refuse = [](const char* what, int value) {
    RefuseArgument(what, "0 (other values are not simulated)", std::to_string(value));
  };
  if (parameters.quantType != 0) {
    refuse("quantType", parameters.quantType);
  }
  if (parameters.compressType != 0) {
    refuse("compressType", parameters.compressType);
  }
  if (parameters.scaleType != 0) {
    refuse("scaleType", parameters.scaleType);
  }
  if (parameters.inputLayout != 0) {
    refuse("inputLayout", parameters.inputLayout);
  }
  const bool several = parameters.calcType == 1;
  const bool known = several ? parameters.maskType == PagedAttentionParam::kSpec
                             : parameters.maskType <= PagedAttentionParam::kAlibi;
  if (!known) {
    RefuseArgument("mask_type", several ? "3, the mask of several queries a sequence (5 is for Atlas inference chips)"
                                        : "0, 1 or 2 with one query a sequence",
                   std::to_string(parameters.maskType));
  }
}

// The mask as it is added to the scores of one sequence: [heads or 1, query_length, key_length].
at::Tensor Bias(const OptionalTensor& mask, int64_t mask_type, const PackedSequence& sequence, size_t index) {
  at::Tensor bias;
  if (!mask) {
    return bias;
  }
  const at::Tensor whole = at::Tensor(*mask).to(at::kFloat);
  if (mask_type == PagedAttentionParam::kSpec) {  // [tokens, keys]
    bias = whole.narrow(0, sequence.query_start, sequence.query_length).unsqueeze(0);
  } else if (mask_type == PagedAttentionParam::kAlibi && whole.dim() == 3) {  // [heads, 1, keys]
    bias = whole;
  } else {  // [batch, 1, keys], [batch, heads, 1, keys]
    bias = whole.select(0, static_cast<int64_t>(index));
    bias = bias.dim() == 2 ? bias.unsqueeze(0) : bias;
  }
  return bias.narrow(-1, 0, sequence.key_length);
}

void RequireMask(const OptionalTensor& mask, const PagedAttentionParam& parameters, const Tensor& query,
                 const std::vector<PackedSequence>& sequences) {
  if (!mask) {
    RefuseArgument("mask", "a mask for mask_type " + std::to_string(parameters.maskType), "none");
  }
  operators::RequireSameDtype(*mask, query);
  const auto batch = static_cast<int64_t>(sequences.size());
  const c10::IntArrayRef sizes = mask->sizes();
  bool fits = false;
  std::string expected;
  if (parameters.maskType == PagedAttentionParam::kSpec) {
    expected = "[tokens, keys]";
    fits = sizes.size() == 2 && sizes[0] >= query.size(0);
  } else if (parameters.maskType == PagedAttentionParam::kNorm) {
    expected = "[batch, 1, keys]";
    fits = sizes.size() == 3 && sizes[0] == batch && sizes[1] == 1;
  } else {
    expected = "[batch, heads, 1, keys] or [heads, 1, keys]";
    fits = (sizes.size() == 4 && sizes[0] == batch && sizes[1] == parameters.headNum && sizes[2] == 1) ||
           (sizes.size() == 3 && sizes[0] == parameters.headNum && sizes[1] == 1);
  }
  if (!fits) {
    RefuseArgument(mask.name(), expected, Describe(sizes));
  }
}

}  // namespace

operators::Plan MakePlan(const PagedAttentionParam& parameters, const Arguments& tensors) {
  RequirePlainPaged(parameters);
  const bool merged = parameters.mlaVHeadSize > 0;
  const bool several = parameters.calcType == 1;
  const bool masked = parameters.maskType != PagedAttentionParam::kNoMask;
  const size_t caches = merged ? 1 : 2;
  const size_t mask_index = caches + 3;
  tensors.RequireCounts(mask_index + (masked ? 1 : 0) + (several ? 1 : 0), 1);
  const Tensor query = tensors.Input(0, "query");
  const Tensor key_cache = tensors.Input(1, "key_cache");
  const Tensor value_cache = merged ? key_cache : tensors.Input(2, "value_cache");
  const Tensor block_table = tensors.Input(caches + 1, "block_table");
  const std::vector<int64_t> key_lengths = tensors.HostInput(caches + 2, "context_lens");
  const OptionalTensor mask = masked ? tensors.OptionalInput(mask_index, "mask") : OptionalTensor(nullptr, "mask");
  const Tensor out = tensors.Output(0, "out");

  const int64_t heads = parameters.headNum;
  const int64_t kv_heads = parameters.kvHeadNum == 0 ? heads : parameters.kvHeadNum;
  RequireHeads(heads, kv_heads);
  RequirePackedRows(query, heads);
  RequireCache(key_cache, query, kv_heads);
  RequireCache(value_cache, query, kv_heads);
  const int64_t dims = HeadDim(query, heads);
  const int64_t value_dims = merged ? parameters.mlaVHeadSize : CacheDim(value_cache, kv_heads);
  if (CacheDim(key_cache, kv_heads) != dims) {
    RefuseArgument(key_cache.name(), "heads of " + std::to_string(dims) + " as 'query'",
                   std::to_string(CacheDim(key_cache, kv_heads)));
  }
  if (dims > kMostHeadDims || value_dims > (merged ? dims : kMostHeadDims)) {
    RefuseArgument(query.name(), "heads of at most 576, and values within the keys where they are merged",
                   std::to_string(dims) + " and " + std::to_string(value_dims));
  }
  const std::vector<PackedSequence> sequences =
      several ? PackSequences(tensors.HostInput(mask_index + 1, "seq_len"), key_lengths, query.size(0), "seq_len",
                              "context_lens")
              : SingleQueries(key_lengths, query.size(0), "context_lens");
  RequireBlockTable(block_table, sequences.size());
  if (masked) {
    RequireMask(mask, parameters, query, sequences);
  }
  operators::RequireSameDtype(out, query);
  if (out.numel() != query.size(0) * heads * value_dims || out.size(0) != query.size(0)) {
    RefuseArgument(out.name(), "[" + std::to_string(query.size(0)) + ", " + std::to_string(heads) + ", " +
                                   std::to_string(value_dims) + "]",
                   Describe(out.sizes()));
  }
  operators::Plan plan([=] {
    const at::Tensor rows = at::Tensor(out).view({out.size(0), heads, value_dims});
    const auto cached = [&](const Tensor& cache, size_t index) {
      return CachedRows(cache, block_table, kv_heads, index, sequences[index].key_length);
    };
    AttendSequences(
        sequences, parameters.qkScale,
        [&](size_t index) {
          return PackedRows(query, heads, sequences[index].query_start, sequences[index].query_length);
        },
        [&](size_t index) { return cached(key_cache, index); },
        [&](size_t index) { return cached(value_cache, index).narrow(2, 0, value_dims); },
        [&](size_t index) {
          return SequenceMask{{}, Bias(mask, parameters.maskType, sequences[index], index)};
        },
        [&](size_t index, const operators::AttentionResult& result) {
          rows.narrow(0, sequences[index].query_start, sequences[index].query_length).copy_(result.output);
        });
  });
  plan.workspace_size = DecodeWorkspace(out, sequences);
  if (KernelsAreTimed()) {
    const auto item = [](const Tensor& tensor) { return static_cast<double>(c10::elementSize(tensor.dtype())); };
    plan.duration = KernelTime(operators::WorkOfAttention(
        {.heads = heads,
         .kv_heads = kv_heads,
         .query_dims = dims,
         .value_dims = value_dims,
         .query_item = item(query),
         .cached_bytes = static_cast<double>(dims) * item(key_cache) +
                         (merged ? 0 : static_cast<double>(value_dims) * item(value_cache))},
        sequences));
  }
  return plan;
}

}  // namespace cann_sim::atb_library
