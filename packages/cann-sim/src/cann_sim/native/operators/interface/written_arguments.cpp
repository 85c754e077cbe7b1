#include "written_arguments.h"

#include <algorithm>
#include <string_view>

namespace cann_sim::operators {

namespace {

using enum WrittenArgument;

// Arguments of the operators whose names have the text in them.
struct Named {
  std::string_view operator_part;
  std::string_view argument;
  WrittenArgument written;
};

// The first that fits counts. What the names say by themselves is left out.
constexpr Named kNamed[] = {
    {"", "gradOut", kNo},
    {"AttentionUpdate", "localOut", kNo},
    {"RingAttentionUpdate", "prevAttnOut", kNo},
    {"RingAttentionUpdate", "curAttnOut", kNo},
    {"Grad", "attentionOut", kNo},
    {"Grad", "softmaxLse", kNo},
    {"Grad", "softmaxMax", kNo},
    {"Grad", "softmaxSum", kNo},
    {"", "softmaxLse", kWhole},
    {"", "softmaxMax", kWhole},
    {"", "softmaxSum", kWhole},
    {"Grad", "dq", kWhole},
    {"Grad", "dk", kWhole},
    {"Grad", "dv", kWhole},
    {"Grad", "dqRope", kWhole},
    {"Grad", "dkRope", kWhole},
    {"Grad", "dpse", kWhole},
    {"Grad", "dsink", kWhole},
    {"SoftmaxBackward", "output", kNo},
    {"", "output", kWhole},
    {"", "outputScale", kWhole},
    {"", "outputOffset", kWhole},
    {"", "y", kWhole},
    {"", "gradInput", kWhole},
    {"", "gradWeight", kWhole},
    {"", "gradBias", kWhole},
    {"", "gradGamma", kWhole},
    {"", "gradBeta", kWhole},
    {"", "gradTarget", kWhole},
    {"", "gradIn", kWhole},
    {"", "inputGrad", kWhole},
    {"", "gridGrad", kWhole},
    {"", "outGelu", kWhole},
    {"", "dstTensor", kWhole},
    {"", "finalState", kWhole},
    {"QkvRmsNormRopeCache", "qOutBeforeQuant", kWhole},
    {"QkvRmsNormRopeCache", "kOutBeforeQuant", kWhole},
    {"QkvRmsNormRopeCache", "vOutBeforeQuant", kWhole},
    {"LogSigmoidForward", "buffer", kWhole},
    {"MaxPool2dWithMaskBackward", "indices", kNo},
    {"MaxPool2dWithIndicesBackward", "indices", kNo},
    {"MaxPool2dWith", "indices", kWhole},
    {"MaxPool3dWithArgmaxBackward", "indices", kNo},
    {"MaxPool3dWithArgmax", "indices", kWhole},
    {"AdaptiveMaxPool2dBackward", "indices", kNo},
    {"AdaptiveMaxPool3dBackward", "indices", kNo},
    {"AdaptiveMaxPool", "indices", kWhole},
    {"MaxDim", "indices", kWhole},
    {"MinDim", "indices", kWhole},
    {"Cummax", "values", kWhole},
    {"Cummax", "indices", kWhole},
    {"Cummin", "values", kWhole},
    {"Cummin", "indices", kWhole},
    {"LinalgQr", "q", kWhole},
    {"LinalgQr", "r", kWhole},
    {"Svd", "sigma", kWhole},
    {"Svd", "u", kWhole},
    {"Svd", "v", kWhole},
    {"CtcLossBackward", "negLogLikelihood", kNo},
    {"CtcLossBackward", "logAlpha", kNo},
    {"CtcLoss", "negLogLikelihood", kWhole},
    {"CtcLoss", "logAlpha", kWhole},
    {"MultilabelMarginLoss", "isTarget", kWhole},
    {"LSTM", "hy", kWhole},
    {"LSTM", "cy", kWhole},
    {"AmpUpdateScale", "updatedScale", kWhole},
    {"AmpUpdateScale", "updatedGrowthTracker", kWhole},
    {"BatchNormStats", "mean", kWhole},
    {"BatchNormStats", "invstd", kWhole},
    {"BatchNormReduceBackward", "sumDy", kWhole},
    {"BatchNormReduceBackward", "sumDyXmu", kWhole},
    {"BatchNormReduce", "sum", kWhole},
    {"BatchNormReduce", "squareSum", kWhole},
    {"BatchNormBackward", "saveMean", kNo},
    {"BatchNormBackward", "saveInvstd", kNo},
    {"BatchNormBackward", "runningMean", kNo},
    {"BatchNormBackward", "runningVar", kNo},
    {"BatchNorm", "saveMean", kWhole},
    {"BatchNorm", "saveInvstd", kWhole},
    {"BatchNorm", "runningMean", kInPlace},
    {"BatchNorm", "runningVar", kInPlace},
    {"SyncBatchNormGatherStats", "mean", kInPlace},
    {"SyncBatchNormGatherStats", "variance", kInPlace},
    {"BatchNorm", "meanAll", kWhole},
    {"BatchNorm", "invstdAll", kWhole},
    {"SyncBatchNormGatherStats", "batchMean", kWhole},
    {"SyncBatchNormGatherStats", "batchInvstd", kWhole},
    {"MoeDistributeCombine", "combinedX", kWhole},
    {"MoeTokenUnpermuteWithRoutingMap", "unpermutedTokens", kWhole},
    {"MoeTokenUnpermuteWithRoutingMap", "outIndex", kWhole},
    {"MoeTokenUnpermuteWithRoutingMap", "permutedTokenId", kWhole},
    {"MoeTokenUnpermuteWithRoutingMap", "permuteProbs", kWhole},
    {"MoeReRouting", "permuteTokens", kWhole},
    {"MoeReRouting", "permutePerTokenScales", kWhole},
    {"MoeReRouting", "permuteTokenIdx", kWhole},
    {"MoeReRouting", "expertTokenNum", kWhole},
    {"EmbeddingBag", "offset2bag", kWhole},
    {"EmbeddingBag", "bagSize", kWhole},
    {"EmbeddingBag", "maxIndices", kWhole},
    {"LightningIndexer", "sparseIndices", kWhole},
    {"LightningIndexer", "sparseValues", kWhole},
    {"TopKTopPSample", "logitsSelectIdx", kWhole},
    {"TopKTopPSample", "logitsTopKPSelect", kWhole},
    {"TopKTopPSample", "logitsIdx", kWhole},
    {"TopKTopPSample", "logitsSortMasked", kWhole},
    {"FlatQuant", "quantScale", kWhole},
    {"DynamicQuantV2", "scale", kWhole},
    {"DynamicQuantV2", "offset", kWhole},
    {"ForeachNonFiniteCheckAndUnscale", "scaledGrads", kInPlace},
    {"ForeachNonFiniteCheckAndUnscale", "foundInf", kInPlace},
    {"ForeachZeroInplace", "x", kWhole},
    {"InplaceScatterUpdate", "data", kPart},
    {"InplaceAddRmsNorm", "x1", kInPlace},
    {"InplaceAddRmsNorm", "x2", kInPlace},
    {"RReluWithNoise", "noise", kInPlace},
    {"InplaceZero", "selfRef", kWhole},
    {"InplaceOne", "selfRef", kWhole},
    {"InplaceFillScalar", "selfRef", kWhole},
    {"InplaceFillTensor", "selfRef", kWhole},
    {"InplaceCopy", "selfRef", kWhole},
    {"InplaceNormal", "selfRef", kWhole},
    {"InplaceUniform", "selfRef", kWhole},
    {"InplaceRandom", "selfRef", kWhole},
    {"InplaceBernoulli", "selfRef", kWhole},
    {"SimThreadExponential", "selfRef", kWhole},
    {"Inplace", "self", kInPlace},
    {"ReshapeAndCache", "key_cache", kPart},
    {"ReshapeAndCache", "value_cache", kPart},
    {"AtbPagedCacheLoad", "key", kWhole},
    {"AtbPagedCacheLoad", "value", kWhole},
    {"AtbFusedAddTopkDiv", "indices", kWhole},
    {"AtbMLA", "lse", kWhole},
    {"AtbRingMLA", "softmax_lse", kWhole},
    {"GroupTopkOperation", "self", kInPlace},
};

// Operators that write rows, slots or chosen elements of what they change in place.
constexpr std::string_view kWritersOfParts[] = {"Scatter",    "Index",  "Put",          "Cache",          "MlaProlog",
                                                "GatedDelta", "Masked", "FillDiagonal", "EmbeddingRenorm"};

bool EndsIn(std::string_view text, std::string_view end) {
  return text.size() >= end.size() && text.substr(text.size() - end.size()) == end;
}

bool Contains(std::string_view text, std::string_view part) { return text.find(part) != std::string_view::npos; }

}  // namespace

WrittenArgument HowWritten(const char* operator_name, const char* argument) {
  const std::string_view operation = operator_name;
  const std::string_view name = argument;
  const auto* named = std::find_if(std::begin(kNamed), std::end(kNamed), [&](const Named& row) {
    return row.argument == name && Contains(operation, row.operator_part);
  });
  if (named != std::end(kNamed)) {
    return named->written;
  }
  if (EndsIn(name, "Ref")) {
    const bool part = std::any_of(std::begin(kWritersOfParts), std::end(kWritersOfParts),
                                  [&](std::string_view writer) { return Contains(operation, writer); });
    return part ? kPart : kInPlace;
  }
  return name == "out" || EndsIn(name, "Out") ? kWhole : kNo;
}

}  // namespace cann_sim::operators
