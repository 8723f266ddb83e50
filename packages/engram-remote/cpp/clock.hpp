// Time as the whole library sees it: nanoseconds of CLOCK_MONOTONIC.  Never reads the wall clock.
#pragma once

#include <cstdint>
#include <ctime>

namespace engram {

using Nanoseconds = std::int64_t;  // a moment (CLOCK_MONOTONIC) or a span; names say which

inline constexpr Nanoseconds kMicrosecond = 1'000;
inline constexpr Nanoseconds kMillisecond = 1'000'000;
inline constexpr Nanoseconds kSecond = 1'000'000'000;

inline Nanoseconds now_ns() noexcept {
  timespec moment{};
  ::clock_gettime(CLOCK_MONOTONIC, &moment);
  return static_cast<Nanoseconds>(moment.tv_sec) * kSecond + static_cast<Nanoseconds>(moment.tv_nsec);
}

// Tells the core that this is a loop that waits for another one.
inline void relax() noexcept {
#if defined(__x86_64__)
  __builtin_ia32_pause();
#elif defined(__aarch64__)
  asm volatile("isb" ::: "memory");
#endif
}

}  // namespace engram
