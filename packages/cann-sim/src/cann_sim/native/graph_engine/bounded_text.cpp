// The functions of CANN's library of bounded text (libc_sec, Annex K of C11 in its own form) that torchair's messages need.

#include <cerrno>
#include <cstdarg>
#include <cstddef>
#include <cstdio>
#include <cstring>

#define CANN_SIM_EXPORT extern "C" __attribute__((visibility("default")))

// Writes at most `limit` characters and a zero; -1 where the text is longer, which is then cut, or the place has no room for it,
// which is then empty.
CANN_SIM_EXPORT int vsnprintf_s(char* place, size_t size, size_t limit, const char* format, va_list arguments) {
  if (place == nullptr || size == 0 || format == nullptr) {
    return -1;
  }
  const size_t room = limit < size ? limit + 1 : size;
  const int length = vsnprintf(place, room, format, arguments);
  if (length >= 0 && static_cast<size_t>(length) < room) {
    return length;
  }
  if (length < 0 || limit >= size) {
    place[0] = '\0';
  }
  return -1;
}

CANN_SIM_EXPORT int snprintf_s(char* place, size_t size, size_t limit, const char* format, ...) {
  va_list arguments;
  va_start(arguments, format);
  const int length = vsnprintf_s(place, size, limit, format, arguments);
  va_end(arguments);
  return length;
}

CANN_SIM_EXPORT int strcpy_s(char* place, size_t size, const char* text) {
  if (place == nullptr || size == 0 || text == nullptr) {
    return EINVAL;
  }
  const size_t length = strlen(text);
  if (length >= size) {
    place[0] = '\0';
    return ERANGE;
  }
  memcpy(place, text, length + 1);
  return 0;
}
