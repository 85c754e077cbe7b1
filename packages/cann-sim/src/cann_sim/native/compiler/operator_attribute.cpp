// Attributes of compiled operators. torch_npu makes them before it calls the operator, which then is refused by name, so
// what is in them is never read and need not be kept.

#include "operator_attribute.h"

#include <acl/acl_op.h>

#include "../runtime/launch.h"
#include "operator_library.h"

namespace {

// Name of the torch operator that runs in this thread, or empty.
std::string AskingOperator() {
  auto* ask = FindInOperatorLibrary<const char*()>("cann_sim_asking_operator");
  return ask == nullptr ? "" : ask();
}

}  // namespace

extern "C" {

aclopAttr* aclopCreateAttr() { return new aclopAttr{AskingOperator()}; }

void aclopDestroyAttr(const aclopAttr* attribute) { delete attribute; }

aclError aclopSetAttrBool(aclopAttr*, const char*, uint8_t) { return ACL_SUCCESS; }

aclError aclopSetAttrInt(aclopAttr*, const char*, int64_t) { return ACL_SUCCESS; }

aclError aclopSetAttrFloat(aclopAttr*, const char*, float) { return ACL_SUCCESS; }

aclError aclopSetAttrString(aclopAttr*, const char*, const char*) { return ACL_SUCCESS; }

aclError aclopSetAttrDataType(aclopAttr*, const char*, aclDataType) { return ACL_SUCCESS; }

aclError aclopSetAttrListBool(aclopAttr*, const char*, int, const uint8_t*) { return ACL_SUCCESS; }

aclError aclopSetAttrListInt(aclopAttr*, const char*, int, const int64_t*) { return ACL_SUCCESS; }

aclError aclopSetAttrListFloat(aclopAttr*, const char*, int, const float*) { return ACL_SUCCESS; }

aclError aclopSetAttrListListInt(aclopAttr*, const char*, int, const int*, const int64_t* const[]) { return ACL_SUCCESS; }

}  // extern "C"
