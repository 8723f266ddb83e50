#include "harness.hpp"

#if defined(__SANITIZE_ADDRESS__)  // GCC
#define OFL_FUZZ_POISON 1
#elif defined(__has_feature)  // clang
#if __has_feature(address_sanitizer)
#define OFL_FUZZ_POISON 1
#endif
#endif
#ifdef OFL_FUZZ_POISON
#include <sanitizer/asan_interface.h>
#endif

namespace fuzz {

void LandingMemory::poison(const std::byte* from, std::size_t bytes) noexcept {
#ifdef OFL_FUZZ_POISON
  __asan_poison_memory_region(from, bytes);
#else
  static_cast<void>(from);
  static_cast<void>(bytes);
#endif
}

void LandingMemory::unpoison(const std::byte* from, std::size_t bytes) noexcept {
#ifdef OFL_FUZZ_POISON
  __asan_unpoison_memory_region(from, bytes);
#else
  static_cast<void>(from);
  static_cast<void>(bytes);
#endif
}

}  // namespace fuzz
