// The graph engine (GE), which compiles whole graphs for the device, is not simulated. torchair links to it, also where it
// captures instead of compiling, so its functions are here and each throws with its name; torchair makes a RuntimeError of it.
// The declarations are left out on purpose: only the names of the symbols matter here.

#include <cxxabi.h>

#include <cstdlib>
#include <memory>
#include <stdexcept>
#include <string>

namespace {

std::string Readable(const char* symbol) {
  int status = 0;
  const std::unique_ptr<char, decltype(&std::free)> name(abi::__cxa_demangle(symbol, nullptr, nullptr, &status), &std::free);
  return status == 0 ? name.get() : symbol;
}

[[noreturn]] void Refuse(const char* symbol) {
  throw std::runtime_error(Readable(symbol) +
                           " is not simulated: cann-sim has no graph engine. Capture the graph instead, with the backend "
                           "'npugraph_ex' or torchair's mode 'reduce-overhead'");
}

}  // namespace

#define CANN_SIM_NO_GRAPH_ENGINE(symbol)                                                \
  extern "C" __attribute__((visibility("default"))) void symbol() { Refuse(#symbol); } \
  static_assert(true, "a semicolon follows")

CANN_SIM_NO_GRAPH_ENGINE(_ZN2ge10GEFinalizeEv);
CANN_SIM_NO_GRAPH_ENGINE(_ZN2ge10TensorDesc11SetDataTypeENS_8DataTypeE);
CANN_SIM_NO_GRAPH_ENGINE(_ZN2ge10TensorDesc12SetPlacementENS_9PlacementE);
CANN_SIM_NO_GRAPH_ENGINE(_ZN2ge10TensorDesc14SetOriginShapeERKNS_5ShapeE);
CANN_SIM_NO_GRAPH_ENGINE(_ZN2ge10TensorDesc15SetOriginFormatENS_6FormatE);
CANN_SIM_NO_GRAPH_ENGINE(_ZN2ge10TensorDesc9SetFormatENS_6FormatE);
CANN_SIM_NO_GRAPH_ENGINE(_ZN2ge10TensorDescC1Ev);
CANN_SIM_NO_GRAPH_ENGINE(_ZN2ge12AscendStringC1EPKc);
CANN_SIM_NO_GRAPH_ENGINE(_ZN2ge12GEInitializeERKSt3mapINS_12AscendStringES1_St4lessIS1_ESaISt4pairIKS1_S1_EEE);
CANN_SIM_NO_GRAPH_ENGINE(_ZN2ge13GEGetErrorMsgEv);
CANN_SIM_NO_GRAPH_ENGINE(_ZN2ge13GetFormatNameENS_6FormatE);
CANN_SIM_NO_GRAPH_ENGINE(_ZN2ge15OperatorFactory14CreateOperatorEPKcS2_);
CANN_SIM_NO_GRAPH_ENGINE(_ZN2ge15OperatorFactory9IsExistOpEPKc);
CANN_SIM_NO_GRAPH_ENGINE(_ZN2ge17GEGetWarningMsgV2Ev);
CANN_SIM_NO_GRAPH_ENGINE(_ZN2ge5Graph28LoadFromSerializedModelArrayEPKvm);
CANN_SIM_NO_GRAPH_ENGINE(_ZN2ge5Graph8CopyFromERKS0_);
CANN_SIM_NO_GRAPH_ENGINE(_ZN2ge5GraphC1EPKc);
CANN_SIM_NO_GRAPH_ENGINE(_ZN2ge5ShapeC1ERKSt6vectorIlSaIlEE);
CANN_SIM_NO_GRAPH_ENGINE(_ZN2ge6Tensor11SetDataTypeERKNS_8DataTypeE);
CANN_SIM_NO_GRAPH_ENGINE(_ZN2ge6Tensor11SetShapeDimEml);
CANN_SIM_NO_GRAPH_ENGINE(_ZN2ge6Tensor12SetPlacementERKNS_9PlacementE);
CANN_SIM_NO_GRAPH_ENGINE(_ZN2ge6Tensor13SetTensorDescERKNS_10TensorDescE);
CANN_SIM_NO_GRAPH_ENGINE(_ZN2ge6Tensor14SetShapeDimNumEm);
CANN_SIM_NO_GRAPH_ENGINE(_ZN2ge6Tensor17SetOriginShapeDimEml);
CANN_SIM_NO_GRAPH_ENGINE(_ZN2ge6Tensor20SetOriginShapeDimNumEm);
CANN_SIM_NO_GRAPH_ENGINE(_ZN2ge6Tensor7GetDataEv);
CANN_SIM_NO_GRAPH_ENGINE(_ZN2ge6Tensor7SetDataEPhmRKSt8functionIFvS1_EE);
CANN_SIM_NO_GRAPH_ENGINE(_ZN2ge6Tensor9ResetDataEPhmRKSt8functionIFvS1_EE);
CANN_SIM_NO_GRAPH_ENGINE(_ZN2ge6Tensor9ResetDataEv);
CANN_SIM_NO_GRAPH_ENGINE(_ZN2ge6Tensor9SetFormatERKNS_6FormatE);
CANN_SIM_NO_GRAPH_ENGINE(_ZN2ge6TensorC1Ev);
CANN_SIM_NO_GRAPH_ENGINE(_ZN2ge7Session11RemoveGraphEj);
CANN_SIM_NO_GRAPH_ENGINE(_ZN2ge7Session12CompileGraphEj);
CANN_SIM_NO_GRAPH_ENGINE(_ZN2ge7Session23GetCompiledGraphSummaryEj);
CANN_SIM_NO_GRAPH_ENGINE(_ZN2ge7Session23RunGraphWithStreamAsyncEjPvRKSt6vectorINS_6TensorESaIS3_EERS5_);
CANN_SIM_NO_GRAPH_ENGINE(_ZN2ge7Session23SetGraphConstMemoryBaseEjPKvm);
CANN_SIM_NO_GRAPH_ENGINE(_ZN2ge7Session28UpdateGraphFeatureMemoryBaseEjPKvm);
CANN_SIM_NO_GRAPH_ENGINE(_ZN2ge7Session30SetGraphFixedFeatureMemoryBaseEjPKvm);
CANN_SIM_NO_GRAPH_ENGINE(_ZN2ge7Session39UpdateGraphRefreshableFeatureMemoryBaseEjPKvm);
CANN_SIM_NO_GRAPH_ENGINE(_ZN2ge7Session8AddGraphEjRKNS_5GraphERKSt3mapINS_12AscendStringES5_St4lessIS5_ESaISt4pairIKS5_S5_EEE);
CANN_SIM_NO_GRAPH_ENGINE(_ZN2ge7Session8RunGraphEjRKSt6vectorINS_6TensorESaIS2_EERS4_);
CANN_SIM_NO_GRAPH_ENGINE(_ZN2ge7SessionC1ERKSt3mapINS_12AscendStringES2_St4lessIS2_ESaISt4pairIKS2_S2_EEE);
CANN_SIM_NO_GRAPH_ENGINE(_ZN2ge7SessionD1Ev);
CANN_SIM_NO_GRAPH_ENGINE(_ZN2ge8Operator15UpdateInputDescEPKcRKNS_10TensorDescE);
CANN_SIM_NO_GRAPH_ENGINE(_ZNK2ge10TensorDesc11GetDataTypeEv);
CANN_SIM_NO_GRAPH_ENGINE(_ZNK2ge10TensorDesc12GetPlacementEv);
CANN_SIM_NO_GRAPH_ENGINE(_ZNK2ge10TensorDesc8GetShapeEv);
CANN_SIM_NO_GRAPH_ENGINE(_ZNK2ge10TensorDesc9GetFormatEv);
CANN_SIM_NO_GRAPH_ENGINE(_ZNK2ge12AscendString9GetStringEv);
CANN_SIM_NO_GRAPH_ENGINE(_ZNK2ge12AscendStringeqERKS0_);
CANN_SIM_NO_GRAPH_ENGINE(_ZNK2ge12AscendStringltERKS0_);
CANN_SIM_NO_GRAPH_ENGINE(_ZNK2ge20CompiledGraphSummary15GetOutputDtypesERSt6vectorINS_8DataTypeESaIS2_EE);
CANN_SIM_NO_GRAPH_ENGINE(_ZNK2ge20CompiledGraphSummary15GetOutputShapesERSt6vectorINS_5ShapeESaIS2_EE);
CANN_SIM_NO_GRAPH_ENGINE(_ZNK2ge20CompiledGraphSummary18GetConstMemorySizeERm);
CANN_SIM_NO_GRAPH_ENGINE(_ZNK2ge20CompiledGraphSummary20GetFeatureMemorySizeERm);
CANN_SIM_NO_GRAPH_ENGINE(_ZNK2ge20CompiledGraphSummary25GetFixedFeatureMemorySizeERm);
CANN_SIM_NO_GRAPH_ENGINE(_ZNK2ge20CompiledGraphSummary31GetFeatureMemoryBaseRefreshableERb);
CANN_SIM_NO_GRAPH_ENGINE(_ZNK2ge20CompiledGraphSummary8IsStaticEv);
CANN_SIM_NO_GRAPH_ENGINE(_ZNK2ge5GNode7GetTypeERNS_12AscendStringE);
CANN_SIM_NO_GRAPH_ENGINE(_ZNK2ge5Graph10SaveToFileEPKc);
CANN_SIM_NO_GRAPH_ENGINE(_ZNK2ge5Graph11GetAllNodesEv);
CANN_SIM_NO_GRAPH_ENGINE(_ZNK2ge5Shape7GetDimsEv);
CANN_SIM_NO_GRAPH_ENGINE(_ZNK2ge6Tensor11GetDataTypeEv);
CANN_SIM_NO_GRAPH_ENGINE(_ZNK2ge6Tensor11GetShapeDimEm);
CANN_SIM_NO_GRAPH_ENGINE(_ZNK2ge6Tensor12GetPlacementEv);
CANN_SIM_NO_GRAPH_ENGINE(_ZNK2ge6Tensor13GetTensorDescEv);
CANN_SIM_NO_GRAPH_ENGINE(_ZNK2ge6Tensor14GetShapeDimNumEv);
CANN_SIM_NO_GRAPH_ENGINE(_ZNK2ge6Tensor20GetOriginShapeDimNumEv);
CANN_SIM_NO_GRAPH_ENGINE(_ZNK2ge6Tensor7GetDataEv);
CANN_SIM_NO_GRAPH_ENGINE(_ZNK2ge6Tensor9GetFormatEv);
CANN_SIM_NO_GRAPH_ENGINE(_ZNK2ge7Session25RegisterExternalAllocatorEPKvSt10shared_ptrINS_9AllocatorEE);
CANN_SIM_NO_GRAPH_ENGINE(_ZNK2ge8Operator25GetAllIrAttrNamesAndTypesERSt3mapINS_12AscendStringES2_St4lessIS2_ESaISt4pairIKS2_S2_EEE);

// What a graph prints comes through channels.
CANN_SIM_NO_GRAPH_ENGINE(acltdtCreateChannelWithCapacity);
CANN_SIM_NO_GRAPH_ENGINE(acltdtCreateDataset);
CANN_SIM_NO_GRAPH_ENGINE(acltdtDestroyChannel);
CANN_SIM_NO_GRAPH_ENGINE(acltdtDestroyDataset);
CANN_SIM_NO_GRAPH_ENGINE(acltdtGetDataAddrFromItem);
CANN_SIM_NO_GRAPH_ENGINE(acltdtGetDataItem);
CANN_SIM_NO_GRAPH_ENGINE(acltdtGetDataSizeFromItem);
CANN_SIM_NO_GRAPH_ENGINE(acltdtGetDataTypeFromItem);
CANN_SIM_NO_GRAPH_ENGINE(acltdtGetDatasetSize);
CANN_SIM_NO_GRAPH_ENGINE(acltdtGetDimNumFromItem);
CANN_SIM_NO_GRAPH_ENGINE(acltdtGetDimsFromItem);
CANN_SIM_NO_GRAPH_ENGINE(acltdtReceiveTensor);
