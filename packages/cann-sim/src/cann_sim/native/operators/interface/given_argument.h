// An argument of an aclnn function as it crosses the C interface, whatever its type.
#pragma once

#include <acl/acl_base.h>

#include <cstdint>

#include "object_model.h"

namespace cann_sim::operators {

struct GivenArgument {
  enum class Kind : uint8_t { kTensor, kTensorList, kScalar, kScalarList, kIntArray, kBoolArray, kText, kInteger, kReal };

  GivenArgument(const aclTensor* value) : kind(Kind::kTensor), object(value) {}            // NOLINT: conversion is the point
  GivenArgument(const aclTensorList* value) : kind(Kind::kTensorList), object(value) {}    // NOLINT
  GivenArgument(const aclScalar* value) : kind(Kind::kScalar), object(value) {}            // NOLINT
  GivenArgument(const aclScalarList* value) : kind(Kind::kScalarList), object(value) {}    // NOLINT
  GivenArgument(const aclIntArray* value) : kind(Kind::kIntArray), object(value) {}        // NOLINT
  GivenArgument(const aclBoolArray* value) : kind(Kind::kBoolArray), object(value) {}      // NOLINT
  GivenArgument(const char* value) : kind(Kind::kText), object(value) {}                   // NOLINT
  GivenArgument(int64_t value) : kind(Kind::kInteger), integer(value) {}                   // NOLINT
  GivenArgument(int32_t value) : GivenArgument(static_cast<int64_t>(value)) {}             // NOLINT
  GivenArgument(int8_t value) : GivenArgument(static_cast<int64_t>(value)) {}              // NOLINT
  GivenArgument(bool value) : GivenArgument(static_cast<int64_t>(value)) {}                // NOLINT
  GivenArgument(aclDataType value) : GivenArgument(static_cast<int64_t>(value)) {}         // NOLINT
  GivenArgument(double value) : kind(Kind::kReal), real(value) {}                          // NOLINT
  GivenArgument(float value) : GivenArgument(static_cast<double>(value)) {}                // NOLINT

  template <class T>
  const T* as() const {
    return static_cast<const T*>(object);
  }

  Kind kind;
  union {
    const void* object;
    int64_t integer;
    double real;
  };
};

}  // namespace cann_sim::operators
