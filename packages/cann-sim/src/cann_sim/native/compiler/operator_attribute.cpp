#include "operator_attribute.h"

#include <acl/acl_op.h>

#include <utility>
#include <vector>

#include "../runtime/error_message.h"
#include "../runtime/launch.h"
#include "operator_library.h"

namespace {

// Name of the torch operator that runs in this thread, or empty.
std::string AskingOperator() {
  auto* ask = FindInOperatorLibrary<const char*()>("cann_sim_asking_operator");
  return ask == nullptr ? "" : ask();
}

aclError Set(aclopAttr* attribute, const char* name, cann_sim::CompiledAttribute value) {
  CANN_SIM_REQUIRE_POINTER("aclopSetAttr", attribute);
  CANN_SIM_REQUIRE_POINTER("aclopSetAttr", name);
  attribute->values[name] = std::move(value);
  return ACL_SUCCESS;
}

}  // namespace

extern "C" {

aclopAttr* aclopCreateAttr() { return new aclopAttr{AskingOperator(), {}}; }

void aclopDestroyAttr(const aclopAttr* attribute) { delete attribute; }

aclError aclopSetAttrBool(aclopAttr* attribute, const char* name, uint8_t value) { return Set(attribute, name, value != 0); }

aclError aclopSetAttrInt(aclopAttr* attribute, const char* name, int64_t value) { return Set(attribute, name, value); }

aclError aclopSetAttrFloat(aclopAttr* attribute, const char* name, float value) { return Set(attribute, name, value); }

aclError aclopSetAttrString(aclopAttr* attribute, const char* name, const char* value) {
  CANN_SIM_REQUIRE_POINTER("aclopSetAttrString", value);
  return Set(attribute, name, std::string(value));
}

aclError aclopSetAttrDataType(aclopAttr* attribute, const char* name, aclDataType value) {
  return Set(attribute, name, value);
}

aclError aclopSetAttrListBool(aclopAttr* attribute, const char* name, int count, const uint8_t* values) {
  return Set(attribute, name, std::vector<bool>(values, values + count));
}

aclError aclopSetAttrListInt(aclopAttr* attribute, const char* name, int count, const int64_t* values) {
  return Set(attribute, name, std::vector<int64_t>(values, values + count));
}

aclError aclopSetAttrListFloat(aclopAttr* attribute, const char* name, int count, const float* values) {
  return Set(attribute, name, std::vector<float>(values, values + count));
}

aclError aclopSetAttrListListInt(aclopAttr* attribute, const char* name, int count, const int* lengths,
                                 const int64_t* const values[]) {
  std::vector<std::vector<int64_t>> lists;
  for (int index = 0; index < count; ++index) {
    lists.emplace_back(values[index], values[index] + lengths[index]);
  }
  return Set(attribute, name, std::move(lists));
}

}  // extern "C"
