#include "tensor_description.h"

#include "../runtime/error_message.h"

extern "C" {

aclTensorDesc* aclCreateTensorDesc(aclDataType type, int rank, const int64_t* sizes, aclFormat format) {
  const std::vector<int64_t> own(sizes, sizes + rank);
  return new aclTensorDesc{type, format, own, own, "", false};
}

void aclDestroyTensorDesc(const aclTensorDesc* description) { delete description; }

aclDataType aclGetTensorDescType(const aclTensorDesc* description) {
  return description == nullptr ? ACL_DT_UNDEFINED : description->type;
}

aclFormat aclGetTensorDescFormat(const aclTensorDesc* description) {
  return description == nullptr ? ACL_FORMAT_UNDEFINED : description->format;
}

size_t aclGetTensorDescNumDims(const aclTensorDesc* description) {
  return description == nullptr ? 0 : description->sizes.size();
}

aclError aclGetTensorDescDimV2(const aclTensorDesc* description, size_t index, int64_t* size) {
  CANN_SIM_REQUIRE_POINTER("aclGetTensorDescDimV2", description);
  CANN_SIM_REQUIRE_POINTER("aclGetTensorDescDimV2", size);
  if (index >= description->sizes.size()) {
    return cann_sim::Fail(ACL_ERROR_INVALID_PARAM, "aclGetTensorDescDimV2: expected a dimension below " +
                                                       std::to_string(description->sizes.size()) + ", found " +
                                                       std::to_string(index));
  }
  *size = description->sizes[index];
  return ACL_SUCCESS;
}

void aclSetTensorDescName(aclTensorDesc* description, const char* name) {
  if (description != nullptr && name != nullptr) {
    description->name = name;
  }
}

aclError aclSetTensorFormat(aclTensorDesc* description, aclFormat format) {
  CANN_SIM_REQUIRE_POINTER("aclSetTensorFormat", description);
  description->format = format;
  return ACL_SUCCESS;
}

aclError aclSetTensorShape(aclTensorDesc* description, int rank, const int64_t* sizes) {
  CANN_SIM_REQUIRE_POINTER("aclSetTensorShape", description);
  description->sizes.assign(sizes, sizes + rank);
  return ACL_SUCCESS;
}

aclError aclSetTensorPlaceMent(aclTensorDesc* description, aclMemType place) {
  CANN_SIM_REQUIRE_POINTER("aclSetTensorPlaceMent", description);
  description->on_host = place != ACL_MEMTYPE_DEVICE;
  return ACL_SUCCESS;
}

aclDataBuffer* aclCreateDataBuffer(void* address, size_t bytes) { return new aclDataBuffer{address, bytes}; }

aclError aclDestroyDataBuffer(const aclDataBuffer* buffer) {
  delete buffer;
  return ACL_SUCCESS;
}

}  // extern "C"
