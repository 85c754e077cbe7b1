// The older road to operators, which compiles them when they are called. torch_npu takes it for operators that have no aclnn
// function, and, without a word, where one is missing. What the operator library does not define (compiled_operator.h there)
// fails with the operator's name.

#include <acl/acl_op_compiler.h>

#include <string>

#include "../operators/compiled/compiled_call.h"
#include "../runtime/error_message.h"
#include "format_copy.h"
#include "operator_attribute.h"
#include "operator_library.h"
#include "tensor_description.h"

namespace {

aclError Refuse(const char* operator_type, const aclopAttr* attribute) {
  const std::string asked_by = attribute == nullptr ? "" : attribute->asked_by;
  if (auto* note = FindInOperatorLibrary<void(const char*, const char*)>("cann_sim_note_missing"); note != nullptr) {
    note(operator_type == nullptr ? "?" : operator_type, asked_by.c_str());
  }
  std::string message = std::string("operator ") + (operator_type == nullptr ? "?" : operator_type) + " is not simulated";
  if (!asked_by.empty()) {
    message += "; the torch operator " + asked_by + " needs it";
  }
  return cann_sim::Fail(ACL_ERROR_OP_NOT_FOUND,
                        message + " (torch_npu asked the operator compiler for it, because it has no aclnn operator for "
                                  "the call)");
}

std::vector<cann_sim::CompiledTensor> Described(int count, const aclTensorDesc* const descriptions[],
                                                const aclDataBuffer* const buffers[]) {
  std::vector<cann_sim::CompiledTensor> tensors;
  for (int index = 0; index < count; ++index) {
    const aclTensorDesc& description = *descriptions[index];
    tensors.push_back({description.type, description.format, description.sizes, description.view_sizes,
                       buffers[index]->address, description.on_host});
  }
  return tensors;
}

}  // namespace

extern "C" {

aclError aclopCompileAndExecute(const char* operator_type, int inputs, const aclTensorDesc* const from[],
                                const aclDataBuffer* const sources[], int outputs, const aclTensorDesc* const to[],
                                aclDataBuffer* const targets[], const aclopAttr* attribute, aclopEngineType,
                                aclopCompileType, const char*, aclrtStream stream) {
  if (const char* copy = cann_sim::FindFormatCopy(operator_type); copy != nullptr && inputs == 1 && outputs == 1) {
    return cann_sim::LaunchFormatCopy(copy, *from[0], *sources[0], *to[0], *targets[0], stream);
  }
  const std::string name = operator_type == nullptr ? "" : cann_sim::kCompiledPrefix + std::string(operator_type);
  auto* find = FindInOperatorLibrary<void*(const char*)>("cann_sim_find_compiled");
  auto* run = name.empty() || find == nullptr ? nullptr : reinterpret_cast<cann_sim::CompiledOperator*>(find(name.c_str()));
  if (run == nullptr) {
    return Refuse(operator_type, attribute);
  }
  cann_sim::CompiledCall call{Described(inputs, from, sources), Described(outputs, to, targets), {}};
  if (attribute != nullptr) {
    call.attributes = attribute->values;
  }
  return run(call, stream);
}

aclError aclopCompileAndExecuteV2(const char* operator_type, int inputs, aclTensorDesc* from[], aclDataBuffer* sources[],
                                  int outputs, aclTensorDesc* to[], aclDataBuffer* targets[], aclopAttr* attribute,
                                  aclopEngineType engine, aclopCompileType type, const char* path, aclrtStream stream) {
  return aclopCompileAndExecute(operator_type, inputs, from, sources, outputs, to, targets, attribute, engine, type, path,
                                stream);
}

aclError aclGenGraphAndDumpForOp(const char* operator_type, int, const aclTensorDesc* const[],
                                 const aclDataBuffer* const[], int, const aclTensorDesc* const[], aclDataBuffer* const[],
                                 const aclopAttr* attribute, aclopEngineType, const char*, const aclGraphDumpOption*) {
  return Refuse(operator_type, attribute);
}

}  // extern "C"
