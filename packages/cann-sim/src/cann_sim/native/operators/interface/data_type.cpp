#include "data_type.h"

#include <string>

#include "refusal.h"

namespace cann_sim::operators {

c10::ScalarType ScalarTypeOf(aclDataType type) {
  switch (type) {
    case ACL_FLOAT: return c10::ScalarType::Float;
    case ACL_FLOAT16: return c10::ScalarType::Half;
    case ACL_BF16: return c10::ScalarType::BFloat16;
    case ACL_DOUBLE: return c10::ScalarType::Double;
    case ACL_INT8: return c10::ScalarType::Char;
    case ACL_INT16: return c10::ScalarType::Short;
    case ACL_INT32: return c10::ScalarType::Int;
    case ACL_INT64: return c10::ScalarType::Long;
    case ACL_UINT8: return c10::ScalarType::Byte;
    case ACL_UINT16: return c10::ScalarType::UInt16;
    case ACL_UINT32: return c10::ScalarType::UInt32;
    case ACL_UINT64: return c10::ScalarType::UInt64;
    case ACL_BOOL: return c10::ScalarType::Bool;
    case ACL_COMPLEX32: return c10::ScalarType::ComplexHalf;
    case ACL_COMPLEX64: return c10::ScalarType::ComplexFloat;
    case ACL_COMPLEX128: return c10::ScalarType::ComplexDouble;
    case ACL_FLOAT8_E5M2: return c10::ScalarType::Float8_e5m2;
    case ACL_FLOAT8_E4M3FN: return c10::ScalarType::Float8_e4m3fn;
    case ACL_FLOAT8_E8M0: return c10::ScalarType::Float8_e8m0fnu;
    default:
      throw Refusal(std::string("data type ") + NameOf(type) + " (aclDataType " +
                    std::to_string(static_cast<int>(type)) + ") is not simulated");
  }
}

const char* NameOf(aclDataType type) {
  switch (type) {
    case ACL_DT_UNDEFINED: return "UNDEFINED";
    case ACL_FLOAT: return "FLOAT";
    case ACL_FLOAT16: return "FLOAT16";
    case ACL_BF16: return "BF16";
    case ACL_DOUBLE: return "DOUBLE";
    case ACL_INT8: return "INT8";
    case ACL_INT16: return "INT16";
    case ACL_INT32: return "INT32";
    case ACL_INT64: return "INT64";
    case ACL_UINT8: return "UINT8";
    case ACL_UINT16: return "UINT16";
    case ACL_UINT32: return "UINT32";
    case ACL_UINT64: return "UINT64";
    case ACL_BOOL: return "BOOL";
    case ACL_STRING: return "STRING";
    case ACL_COMPLEX32: return "COMPLEX32";
    case ACL_COMPLEX64: return "COMPLEX64";
    case ACL_COMPLEX128: return "COMPLEX128";
    case ACL_INT4: return "INT4";
    case ACL_UINT1: return "UINT1";
    case ACL_HIFLOAT8: return "HIFLOAT8";
    case ACL_FLOAT8_E5M2: return "FLOAT8_E5M2";
    case ACL_FLOAT8_E4M3FN: return "FLOAT8_E4M3FN";
    case ACL_FLOAT8_E8M0: return "FLOAT8_E8M0";
    case ACL_FLOAT6_E3M2: return "FLOAT6_E3M2";
    case ACL_FLOAT6_E2M3: return "FLOAT6_E2M3";
    case ACL_FLOAT4_E2M1: return "FLOAT4_E2M1";
    case ACL_FLOAT4_E1M2: return "FLOAT4_E1M2";
    default: return "unknown";
  }
}

std::string DescribeDataType(aclDataType type) {
  try {
    return NameOf(ScalarTypeOf(type));
  } catch (const Refusal&) {
    return NameOf(type);
  }
}

const char* NameOf(c10::ScalarType type) {
  switch (type) {
    case c10::ScalarType::Float: return "float32";
    case c10::ScalarType::Half: return "float16";
    case c10::ScalarType::BFloat16: return "bfloat16";
    case c10::ScalarType::Double: return "float64";
    case c10::ScalarType::Char: return "int8";
    case c10::ScalarType::Short: return "int16";
    case c10::ScalarType::Int: return "int32";
    case c10::ScalarType::Long: return "int64";
    case c10::ScalarType::Byte: return "uint8";
    case c10::ScalarType::Bool: return "bool";
    case c10::ScalarType::UInt16: return "uint16";
    case c10::ScalarType::UInt32: return "uint32";
    case c10::ScalarType::UInt64: return "uint64";
    case c10::ScalarType::ComplexHalf: return "complex32";
    case c10::ScalarType::ComplexFloat: return "complex64";
    case c10::ScalarType::ComplexDouble: return "complex128";
    default: return c10::toString(type);
  }
}

}  // namespace cann_sim::operators
