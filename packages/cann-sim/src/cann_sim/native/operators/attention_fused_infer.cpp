// FusedInferAttentionScore (FIA): attention over contiguous or paged keys and values for prefill and decode.
// Sequence lengths are host integers: they are read in the workspace phase and become part of the launch, which is why a
// captured graph must have them rewritten by a task update. Block tables are device memory, read when the kernel runs.

#include <ATen/ops/index_select.h>
#include <ATen/ops/zeros.h>

#include <memory>

#include "attention.h"
#include "operator.h"

namespace cann_sim::operators {

namespace {

enum class QueryLayout { kBSH, kBSND, kBNSD, kTND, kNTD };
enum class OutputLayout { kBSH, kBSND, kBNSD, kNBSD, kTND, kNTD };

struct LayoutPair {
  const char* name;
  QueryLayout query;
  OutputLayout output;
};

constexpr LayoutPair kLayouts[] = {
    {"BSH", QueryLayout::kBSH, OutputLayout::kBSH},          {"BSND", QueryLayout::kBSND, OutputLayout::kBSND},
    {"BNSD", QueryLayout::kBNSD, OutputLayout::kBNSD},       {"BNSD_BSND", QueryLayout::kBNSD, OutputLayout::kBSND},
    {"BSH_BNSD", QueryLayout::kBSH, OutputLayout::kBNSD},    {"BSND_BNSD", QueryLayout::kBSND, OutputLayout::kBNSD},
    {"BSH_NBSD", QueryLayout::kBSH, OutputLayout::kNBSD},    {"BSND_NBSD", QueryLayout::kBSND, OutputLayout::kNBSD},
    {"BNSD_NBSD", QueryLayout::kBNSD, OutputLayout::kNBSD},  {"TND", QueryLayout::kTND, OutputLayout::kTND},
    {"NTD", QueryLayout::kNTD, OutputLayout::kNTD},          {"TND_NTD", QueryLayout::kTND, OutputLayout::kNTD},
    {"NTD_TND", QueryLayout::kNTD, OutputLayout::kTND},
};

// The side of the square mask that stands for any causal mask in the sparse modes 2 to 4.
constexpr int64_t kCompressedMaskSize = 2048;
constexpr int64_t kLongestHead = 512;
constexpr int64_t kLargestBlock = 1024;
constexpr int64_t kWorkspaceAlignment = 512;

// One sequence of the batch: its query rows and its number of keys.
struct Sequence {
  int64_t query_start;   // first row; within the batch entry where the layout has a batch, within T where it has not
  int64_t query_length;
  int64_t key_start;     // first key; 0 where the layout has a batch or the keys are paged
  int64_t key_length;
};

// What the workspace phase made of the arguments; owned by the kernel.
struct FusedInferAttention {
  Tensor query, key, value, output, log_sum_exp;
  OptionalTensor mask, block_table, sink;
  QueryLayout query_layout;
  OutputLayout output_layout;
  int64_t heads, kv_heads, block_size, sparse_mode, pre_tokens, next_tokens;
  double scale;
  bool wants_log_sum_exp;
  std::vector<Sequence> sequences;

  bool packed() const { return query_layout == QueryLayout::kTND || query_layout == QueryLayout::kNTD; }
  int64_t query_span() const;
  void Run() const;

 private:
  at::Tensor QueryView() const;
  at::Tensor OutputView() const;
  at::Tensor KeyView(const Tensor& tensor) const;
  at::Tensor Paged(const Tensor& cache, const at::Tensor& table, size_t index) const;
  at::Tensor Hidden(size_t index) const;
};

int64_t DimOf(const Tensor& tensor, QueryLayout layout, int64_t heads) {
  return layout == QueryLayout::kBSH ? tensor.size(2) / heads : tensor.size(-1);
}

int64_t CacheDim(const FusedInferAttention& call, const Tensor& tensor) {
  if (call.block_table) {
    return tensor.rank() == 3 ? tensor.size(2) / call.kv_heads : tensor.size(3);
  }
  return DimOf(tensor, call.query_layout, call.kv_heads);
}

const LayoutPair& FindLayout(const Text& layout) {
  std::string known;
  for (const LayoutPair& pair : kLayouts) {
    if (layout.value() == pair.name) {
      return pair;
    }
    known += std::string(known.empty() ? "" : ", ") + pair.name;
  }
  RefuseArgument(layout.name(), "one of the layouts " + known, "\"" + layout.value() + "\"");
}

// [B, S, N, D] or [T, N, D], whichever layout holds the tensor.
at::Tensor Canonical(const at::Tensor& tensor, QueryLayout layout, int64_t heads) {
  switch (layout) {
    case QueryLayout::kBSH: return tensor.view({tensor.size(0), tensor.size(1), heads, -1});
    case QueryLayout::kBNSD: return tensor.transpose(1, 2);
    case QueryLayout::kNTD: return tensor.transpose(0, 1);
    default: return tensor;
  }
}

at::Tensor FusedInferAttention::QueryView() const { return Canonical(query, query_layout, heads); }

at::Tensor FusedInferAttention::KeyView(const Tensor& tensor) const { return Canonical(tensor, query_layout, kv_heads); }

at::Tensor FusedInferAttention::OutputView() const {
  const at::Tensor tensor = output;
  switch (output_layout) {
    case OutputLayout::kBSH: return tensor.view({tensor.size(0), tensor.size(1), heads, -1});
    case OutputLayout::kBNSD: return tensor.transpose(1, 2);
    case OutputLayout::kNBSD: return tensor.permute({1, 2, 0, 3});
    case OutputLayout::kNTD: return tensor.transpose(0, 1);
    default: return tensor;
  }
}

int64_t FusedInferAttention::query_span() const {
  switch (query_layout) {
    case QueryLayout::kBNSD: return query.size(2);
    case QueryLayout::kTND: return query.size(0);
    default: return query.size(1);
  }
}

// Keys of one sequence, [key_length, kv_heads, D], gathered from the blocks that its row of the table names.
at::Tensor FusedInferAttention::Paged(const Tensor& cache, const at::Tensor& table, size_t index) const {
  const int64_t length = sequences[index].key_length;
  const int64_t count = (length + block_size - 1) / block_size;
  const at::Tensor blocks = table.select(0, static_cast<int64_t>(index)).narrow(0, 0, count);
  const at::Tensor all = cache;
  if (count > 0) {
    const int64_t lowest = blocks.min().item<int64_t>();
    const int64_t highest = blocks.max().item<int64_t>();
    if (lowest < 0 || highest >= all.size(0)) {
      throw Refusal("argument 'blockTable': row " + std::to_string(index) + " expected block numbers in [0, " +
                    std::to_string(all.size(0)) + "), found " + std::to_string(lowest < 0 ? lowest : highest));
    }
  }
  at::Tensor gathered = at::index_select(all, 0, blocks);
  if (cache.rank() == 4) {  // [blocks, kv_heads, block_size, D]
    gathered = gathered.transpose(1, 2);
  }
  return gathered.reshape({count * block_size, kv_heads, CacheDim(*this, cache)}).narrow(0, 0, length);
}

at::Tensor FusedInferAttention::Hidden(size_t index) const {
  const Sequence& sequence = sequences[index];
  const int64_t shift = sequence.key_length - sequence.query_length;
  // With one query position a batch layout runs the decode kernel, which knows no sparse modes.
  const bool decodes = !packed() && query_span() == 1;
  const bool compressed = sparse_mode >= 2;
  at::Tensor hidden;
  if (compressed) {
    if (decodes) {
      return hidden;
    }
    Visibility visibility{sparse_mode == 2 ? 0 : shift, int64_t{0}, std::nullopt};
    if (sparse_mode == 4) {
      visibility.ahead = next_tokens;
      visibility.behind = pre_tokens;
    }
    // The mask is meant to be 1 above the diagonal; one that is 0 there hides nothing ahead.
    if (!at::Tensor(*mask).view({kCompressedMaskSize, kCompressedMaskSize})[0][1].item().toBool()) {
      visibility.ahead = std::nullopt;
    }
    return HiddenKeys(visibility, sequence.query_length, sequence.key_length);
  }
  if (!mask) {
    return hidden;
  }
  at::Tensor full = at::Tensor(*mask).to(at::kBool);
  if (full.dim() == 2 && decodes) {  // [B, KV_S]
    full = full.select(0, static_cast<int64_t>(index)).unsqueeze(0);
  } else {
    if (full.dim() > 2) {
      full = full.select(0, full.size(0) == 1 ? 0 : static_cast<int64_t>(index));
    }
    if (full.dim() > 2) {
      full = full.select(0, 0);
    }
    full = full.narrow(0, 0, sequence.query_length);
  }
  hidden = full.narrow(1, 0, sequence.key_length);
  if (sparse_mode == 0 && !decodes) {
    const at::Tensor band =
        HiddenKeys({0, next_tokens, pre_tokens}, sequence.query_length, sequence.key_length);
    hidden = band.defined() ? hidden.logical_or(band) : hidden;
  }
  return hidden;
}

void FusedInferAttention::Run() const {
  const at::Tensor queries = QueryView();
  const at::Tensor outputs = OutputView();
  const at::Tensor keys = block_table ? at::Tensor() : KeyView(key);
  const at::Tensor values = block_table ? at::Tensor() : KeyView(value);
  const at::Tensor table = block_table;
  const at::Tensor sinks = sink ? at::Tensor(*sink).to(at::kFloat) : at::Tensor();
  outputs.zero_();
  // [B, N, S, 1] or [T, N, 1], turned so that the rows of a sequence come first.
  at::Tensor logarithms;
  if (wants_log_sum_exp) {
    const at::Tensor flat = at::Tensor(log_sum_exp).squeeze(-1);
    logarithms = packed() ? flat : flat.transpose(1, 2);
  }
  for (size_t index = 0; index < sequences.size(); ++index) {
    const Sequence& sequence = sequences[index];
    const auto rows = [&](const at::Tensor& tensor, int64_t start, int64_t length) {
      const at::Tensor own = packed() ? tensor : tensor.select(0, static_cast<int64_t>(index));
      return own.narrow(0, start, length);
    };
    const at::Tensor own_keys =
        block_table ? Paged(key, table, index) : rows(keys, sequence.key_start, sequence.key_length);
    const at::Tensor own_values =
        block_table ? Paged(value, table, index) : rows(values, sequence.key_start, sequence.key_length);
    const AttentionResult result =
        Attend(rows(queries, sequence.query_start, sequence.query_length).to(at::kFloat), own_keys.to(at::kFloat),
               own_values.to(at::kFloat), scale, Hidden(index), sinks);
    rows(outputs, sequence.query_start, sequence.query_length).copy_(result.output);
    if (wants_log_sum_exp) {
      rows(logarithms, sequence.query_start, sequence.query_length).copy_(result.log_sum_exp);
    }
  }
}

// Length of batch entry `index`: one value may stand for all of them; without values all have `whole`.
int64_t LengthOf(const OptionalIntArray& lengths, size_t index, int64_t whole) {
  if (!lengths || lengths.values().empty()) {
    return whole;
  }
  return lengths.values().size() == 1 ? lengths.values()[0] : lengths.values()[index];
}

void RequireLength(const OptionalIntArray& lengths, size_t index, int64_t length, int64_t most) {
  if (length < 0 || length > most) {
    RefuseArgument(lengths.name(), "entry " + std::to_string(index) + " in [0, " + std::to_string(most) + "]",
                   std::to_string(length));
  }
}

void RequireCount(const OptionalIntArray& lengths, int64_t batch) {
  const auto count = static_cast<int64_t>(lengths.values().size());
  if (lengths && count != 0 && count != 1 && count < batch) {
    RefuseArgument(lengths.name(), "1 or at least " + std::to_string(batch) + " entries", std::to_string(count));
  }
}

// Differences of running totals that must not fall and must end within `rows`.
std::vector<int64_t> FromCumulative(const OptionalIntArray& totals, int64_t rows) {
  std::vector<int64_t> lengths;
  int64_t before = 0;
  for (int64_t total : totals.values()) {
    if (total < before || total > rows) {
      RefuseArgument(totals.name(),
                     "running totals that never fall and end at most at " + std::to_string(rows), Describe(totals.values()));
    }
    lengths.push_back(total - before);
    before = total;
  }
  return lengths;
}

std::vector<Sequence> PackedSequences(const FusedInferAttention& call, const OptionalIntArray& query_totals,
                                      const OptionalIntArray& key_lengths) {
  if (!query_totals || !key_lengths) {
    const OptionalIntArray& absent = query_totals ? key_lengths : query_totals;
    RefuseArgument(absent.name(), "a value, since the layout packs the sequences", "none");
  }
  const std::vector<int64_t> own_queries = FromCumulative(query_totals, call.query_span());
  const bool paged = static_cast<bool>(call.block_table);
  const int64_t key_rows = call.query_layout == QueryLayout::kTND ? call.key.size(0) : call.key.size(1);
  const std::vector<int64_t> own_keys = paged ? key_lengths.values() : FromCumulative(key_lengths, key_rows);
  if (own_keys.size() != own_queries.size()) {
    RefuseArgument(key_lengths.name(), std::to_string(own_queries.size()) + " entries as '" + query_totals.name() + "'",
                   std::to_string(own_keys.size()));
  }
  std::vector<Sequence> sequences;
  int64_t query_start = 0;
  int64_t key_start = 0;
  for (size_t index = 0; index < own_queries.size(); ++index) {
    if (paged) {
      RequireLength(key_lengths, index, own_keys[index], call.block_table->size(1) * call.block_size);
    }
    sequences.push_back({query_start, own_queries[index], paged ? 0 : key_start, own_keys[index]});
    query_start += own_queries[index];
    key_start += own_keys[index];
  }
  return sequences;
}

std::vector<Sequence> BatchSequences(const FusedInferAttention& call, const OptionalIntArray& query_lengths,
                                     const OptionalIntArray& key_lengths) {
  const int64_t batch = call.query.size(0);
  const bool paged = static_cast<bool>(call.block_table);
  const int64_t key_span = paged ? call.block_table->size(1) * call.block_size
                                 : call.key.size(call.query_layout == QueryLayout::kBNSD ? 2 : 1);
  if (paged && !key_lengths) {
    RefuseArgument(key_lengths.name(), "a value, since the keys are paged", "none");
  }
  RequireCount(query_lengths, batch);
  RequireCount(key_lengths, batch);
  std::vector<Sequence> sequences;
  for (size_t index = 0; index < static_cast<size_t>(batch); ++index) {
    // The decode kernel has one query position and does not read the query lengths.
    const int64_t query_length =
        call.query_span() == 1 ? 1 : LengthOf(query_lengths, index, call.query_span());
    const int64_t key_length = LengthOf(key_lengths, index, key_span);
    RequireLength(query_lengths, index, query_length, call.query_span());
    RequireLength(key_lengths, index, key_length, key_span);
    sequences.push_back({0, query_length, 0, key_length});
  }
  return sequences;
}

const Tensor& OnlyTensor(const TensorList& list) {
  if (list.size() != 1 || !list[0]) {
    RefuseArgument(list.name(), "one tensor (a list of tensors, one a sequence, is not simulated)",
                   std::to_string(list.size()) + " tensors");
  }
  return *list[0];
}

void RequirePages(const FusedInferAttention& call, int64_t batch) {
  const Tensor& table = *call.block_table;
  RequireDtype(table, {c10::ScalarType::Int});
  RequireRank(table, 2, 2);
  RequireContiguous(table);
  if (table.size(0) < batch) {
    RefuseArgument(table.name(), "at least " + std::to_string(batch) + " rows, one a sequence", Describe(table.sizes()));
  }
  if (call.block_size <= 0 || call.block_size % 16 != 0 || call.block_size > kLargestBlock) {
    RefuseArgument("blockSize", "a multiple of 16 in [16, " + std::to_string(kLargestBlock) + "]",
                   std::to_string(call.block_size));
  }
  for (const Tensor* cache : {&call.key, &call.value}) {
    RequireRank(*cache, 3, 5);
    if (cache->rank() == 5) {
      throw Refusal(std::string("argument '") + cache->name() +
                    "': the five-dimensional (NZ) layout of a paged cache is not simulated");
    }
    const bool fits = cache->rank() == 3
                          ? cache->size(1) == call.block_size && cache->size(2) % call.kv_heads == 0
                          : cache->size(1) == call.kv_heads && cache->size(2) == call.block_size;
    if (!fits) {
      RefuseArgument(cache->name(),
                     "[blocks, block size, heads * dim] or [blocks, heads, block size, dim] with block size " +
                         std::to_string(call.block_size) + " and " + std::to_string(call.kv_heads) + " heads",
                     Describe(cache->sizes()));
    }
  }
}

void RequireHeads(const FusedInferAttention& call) {
  if (call.heads <= 0 || call.kv_heads <= 0 || call.heads % call.kv_heads != 0) {
    RefuseArgument("numKeyValueHeads", "a divisor of the " + std::to_string(call.heads) + " query heads",
                   std::to_string(call.kv_heads));
  }
  const auto require_axis = [](const Tensor& tensor, QueryLayout layout, int64_t heads) {
    const bool fits = layout == QueryLayout::kBSH    ? tensor.size(2) % heads == 0
                      : layout == QueryLayout::kBSND ? tensor.size(2) == heads
                      : layout == QueryLayout::kNTD  ? tensor.size(0) == heads
                                                     : tensor.size(1) == heads;
    if (!fits) {
      RefuseArgument(tensor.name(), std::to_string(heads) + " heads", "shape " + Describe(tensor.sizes()));
    }
  };
  require_axis(call.query, call.query_layout, call.heads);
  if (!call.block_table) {
    require_axis(call.key, call.query_layout, call.kv_heads);
    require_axis(call.value, call.query_layout, call.kv_heads);
  }
  const int64_t dim = DimOf(call.query, call.query_layout, call.heads);
  if (dim <= 0 || dim > kLongestHead || dim % 8 != 0) {
    RefuseArgument(call.query.name(), "a head dimension of at most " + std::to_string(kLongestHead) +
                                          " in whole units of 16 bytes", std::to_string(dim));
  }
}

void RequireMask(const FusedInferAttention& call) {
  if (call.sparse_mode < 0 || call.sparse_mode > 4) {
    RefuseArgument("sparseMode", "0 (mask), 1 (whole mask), 2 (left up causal), 3 (right down causal) or 4 (band)",
                   std::to_string(call.sparse_mode));
  }
  const bool decodes = !call.packed() && call.query_span() == 1;
  if (!call.mask) {
    if (call.sparse_mode != 0 && !decodes) {
      RefuseArgument("attenMask", "a value for sparse mode " + std::to_string(call.sparse_mode), "none");
    }
    return;
  }
  const Tensor& mask = *call.mask;
  RequireDtype(mask, kBool | DtypeSet{c10::ScalarType::Char, c10::ScalarType::Byte});
  RequireContiguous(mask);
  RequireRank(mask, 2, 4);
  const std::string sides = std::to_string(kCompressedMaskSize);
  if (call.sparse_mode >= 2) {
    if (mask.size(-1) != kCompressedMaskSize || mask.size(-2) != kCompressedMaskSize ||
        mask.numel() != kCompressedMaskSize * kCompressedMaskSize) {
      RefuseArgument(mask.name(), "the compressed mask of sparse mode " + std::to_string(call.sparse_mode) + ", [" +
                                      sides + ", " + sides + "]", Describe(mask.sizes()));
    }
    return;
  }
  if (call.packed()) {
    RefuseArgument(mask.name(), "sparse mode 2, 3 or 4 with the compressed mask, since the layout packs the sequences",
                   "sparse mode " + std::to_string(call.sparse_mode));
  }
  for (const Sequence& sequence : call.sequences) {
    const bool rows_fit = mask.rank() == 2 && decodes ? mask.size(0) >= call.query.size(0)
                                                      : mask.size(-2) >= sequence.query_length;
    if (!rows_fit || mask.size(-1) < sequence.key_length) {
      RefuseArgument(mask.name(), "at least [" + std::to_string(sequence.query_length) + ", " +
                                      std::to_string(sequence.key_length) + "]", Describe(mask.sizes()));
    }
  }
}

void RequireOutputs(const FusedInferAttention& call) {
  const int64_t dim = CacheDim(call, call.value);
  const int64_t span = call.query_span();
  const int64_t batch = call.packed() ? 0 : call.query.size(0);
  switch (call.output_layout) {
    case OutputLayout::kBSH: RequireShape(call.output, {batch, span, call.heads * dim}); break;
    case OutputLayout::kBSND: RequireShape(call.output, {batch, span, call.heads, dim}); break;
    case OutputLayout::kBNSD: RequireShape(call.output, {batch, call.heads, span, dim}); break;
    case OutputLayout::kNBSD: RequireShape(call.output, {call.heads, batch, span, dim}); break;
    case OutputLayout::kTND: RequireShape(call.output, {span, call.heads, dim}); break;
    case OutputLayout::kNTD: RequireShape(call.output, {call.heads, span, dim}); break;
  }
  RequireSameDtype(call.output, call.query);
  if (call.wants_log_sum_exp) {
    RequireDtype(call.log_sum_exp, {c10::ScalarType::Float});
    if (call.packed()) {
      RequireShape(call.log_sum_exp, {span, call.heads, 1});
    } else {
      RequireShape(call.log_sum_exp, {batch, call.heads, span, 1});
    }
  }
}

// The arguments that every version of the operator has.
struct Arguments {
  Tensor query;
  const TensorList& key;
  const TensorList& value;
  OptionalTensor mask;
  const OptionalIntArray& query_lengths;
  const OptionalIntArray& key_lengths;
  OptionalTensor block_table;
  OptionalTensor sink;
  int64_t heads;
  double scale;
  int64_t pre_tokens, next_tokens;
  const Text& layout;
  int64_t kv_heads, sparse_mode, inner_precise, block_size;
  bool wants_log_sum_exp;
  Tensor output, log_sum_exp;
};

Plan MakePlan(const Arguments& arguments) {
  const LayoutPair& layout = FindLayout(arguments.layout);
  auto call = std::make_shared<FusedInferAttention>(FusedInferAttention{
      arguments.query, OnlyTensor(arguments.key), OnlyTensor(arguments.value), arguments.output, arguments.log_sum_exp,
      arguments.mask, arguments.block_table, arguments.sink, layout.query, layout.output, arguments.heads,
      arguments.kv_heads == 0 ? arguments.heads : arguments.kv_heads, arguments.block_size, arguments.sparse_mode,
      arguments.pre_tokens, arguments.next_tokens, arguments.scale, arguments.wants_log_sum_exp, {}});
  const int query_rank = layout.query == QueryLayout::kBSND || layout.query == QueryLayout::kBNSD ? 4 : 3;
  RequireDtype(call->query, kHalves);
  RequireRank(call->query, query_rank, query_rank);
  RequireContiguous(call->query);
  for (const Tensor* cache : {&call->key, &call->value}) {
    RequireSameDtype(*cache, call->query);
    RequireContiguous(*cache);
    if (!call->block_table) {
      RequireRank(*cache, query_rank, query_rank);
    }
  }
  if (arguments.inner_precise < 0 || arguments.inner_precise > 3) {
    RefuseArgument("innerPrecise", "0, 1, 2 or 3", std::to_string(arguments.inner_precise));
  }
  RequireHeads(*call);
  if (call->block_table) {
    const int64_t batch =
        call->packed() ? static_cast<int64_t>(arguments.query_lengths.values().size()) : call->query.size(0);
    RequirePages(*call, batch);
  }
  if (CacheDim(*call, call->key) != DimOf(call->query, layout.query, call->heads)) {
    RefuseArgument(call->key.name(),
                   "a head dimension of " + std::to_string(DimOf(call->query, layout.query, call->heads)) + " as 'query'",
                   std::to_string(CacheDim(*call, call->key)));
  }
  call->sequences = call->packed() ? PackedSequences(*call, arguments.query_lengths, arguments.key_lengths)
                                   : BatchSequences(*call, arguments.query_lengths, arguments.key_lengths);
  RequireMask(*call);
  RequireOutputs(*call);
  if (call->sink) {
    RequireShape(*call->sink, {call->heads});
  }
  Plan plan([call] { call->Run(); });
  // Depends on the query alone, so a workspace asked for once serves every length. The amount is the simulator's own.
  const int64_t bytes = call->query.numel() * static_cast<int64_t>(sizeof(float));
  plan.workspace_size = static_cast<uint64_t>((bytes / kWorkspaceAlignment + 1) * kWorkspaceAlignment);
  return plan;
}

void RefuseQuantisation(std::initializer_list<const OptionalTensor*> tensors) {
  for (const OptionalTensor* tensor : tensors) {
    RefuseIfPresent(*tensor, "quantisation");
  }
}

}  // namespace

#define CANN_SIM_FIA_TENSORS                                                                                      \
  (Tensor, query), (TensorList, key), (TensorList, value), (OptionalTensor, pseShift), (OptionalTensor, attenMask), \
      (OptionalIntArray, actualSeqLengths), (OptionalIntArray, actualSeqLengthsKv), (OptionalTensor, deqScale1),  \
      (OptionalTensor, quantScale1), (OptionalTensor, deqScale2), (OptionalTensor, quantScale2),                  \
      (OptionalTensor, quantOffset2), (OptionalTensor, antiquantScale), (OptionalTensor, antiquantOffset),        \
      (OptionalTensor, blockTable), (OptionalTensor, queryPaddingSize), (OptionalTensor, kvPaddingSize),          \
      (OptionalTensor, keyAntiquantScale), (OptionalTensor, keyAntiquantOffset),                                  \
      (OptionalTensor, valueAntiquantScale), (OptionalTensor, valueAntiquantOffset),                              \
      (OptionalTensor, keySharedPrefix), (OptionalTensor, valueSharedPrefix), (OptionalIntArray, actualSharedPrefixLen)

#define CANN_SIM_FIA_ATTRIBUTES                                                                                    \
  (Int, numHeads), (Double, scaleValue), (Int, preTokens), (Int, nextTokens), (Text, inputLayout),                 \
      (Int, numKeyValueHeads), (Int, sparseMode), (Int, innerPrecise), (Int, blockSize), (Int, antiquantMode),     \
      (Bool, softmaxLseFlag), (Int, keyAntiquantMode), (Int, valueAntiquantMode)

// Refuses what is not simulated and makes the plan of the rest; `SINK` is the learnable sink, where the version has one.
#define CANN_SIM_FIA_PLAN(SINK)                                                                                    \
  RefuseIfPresent(pseShift, "a position shift");                                                                   \
  RefuseQuantisation({&deqScale1, &quantScale1, &deqScale2, &quantScale2, &quantOffset2, &antiquantScale,          \
                      &antiquantOffset, &keyAntiquantScale, &keyAntiquantOffset, &valueAntiquantScale,             \
                      &valueAntiquantOffset});                                                                     \
  RefuseIfPresent(queryPaddingSize, "padding on the left");                                                        \
  RefuseIfPresent(kvPaddingSize, "padding on the left");                                                           \
  RefuseIfPresent(keySharedPrefix, "a shared prefix");                                                             \
  RefuseIfPresent(valueSharedPrefix, "a shared prefix");                                                           \
  return MakePlan({query, key, value, attenMask, actualSeqLengths, actualSeqLengthsKv, blockTable, SINK, numHeads, \
                   scaleValue, preTokens, nextTokens, inputLayout, numKeyValueHeads, sparseMode, innerPrecise,     \
                   blockSize, softmaxLseFlag, attentionOut, softmaxLse})

CANN_SIM_OPERATOR(aclnnFusedInferAttentionScoreV2, CANN_SIM_FIA_TENSORS, CANN_SIM_FIA_ATTRIBUTES,
                  (Tensor, attentionOut), (Tensor, softmaxLse)) {
  CANN_SIM_FIA_PLAN(OptionalTensor());
}

CANN_SIM_OPERATOR_WITH_MAX_WORKSPACE(aclnnFusedInferAttentionScoreV3, CANN_SIM_FIA_TENSORS, (OptionalTensor, queryRope),
                                     (OptionalTensor, keyRope), (OptionalTensor, keyRopeAntiquantScale),
                                     CANN_SIM_FIA_ATTRIBUTES, (Tensor, attentionOut), (Tensor, softmaxLse)) {
  RefuseIfPresent(queryRope, "a separate rotary part");
  RefuseIfPresent(keyRope, "a separate rotary part");
  RefuseIfPresent(keyRopeAntiquantScale, "quantisation");
  CANN_SIM_FIA_PLAN(OptionalTensor());
}

CANN_SIM_OPERATOR_WITH_MAX_WORKSPACE(aclnnFusedInferAttentionScoreV4, CANN_SIM_FIA_TENSORS, (OptionalTensor, queryRope),
                                     (OptionalTensor, keyRope), (OptionalTensor, keyRopeAntiquantScale),
                                     (OptionalTensor, dequantScaleQuery), (OptionalTensor, learnableSink),
                                     CANN_SIM_FIA_ATTRIBUTES, (Int, queryQuantMode), (Tensor, attentionOut),
                                     (Tensor, softmaxLse)) {
  RefuseIfPresent(queryRope, "a separate rotary part");
  RefuseIfPresent(keyRope, "a separate rotary part");
  RefuseIfPresent(keyRopeAntiquantScale, "quantisation");
  RefuseIfPresent(dequantScaleQuery, "quantisation");
  CANN_SIM_FIA_PLAN(learnableSink);
}

}  // namespace cann_sim::operators
