// Time as the whole library sees it: nanoseconds of CLOCK_MONOTONIC.  Never reads the wall clock.
#pragma once

#include <cstdint>
#include <ctime>

namespace ofl {

using Nanoseconds = std::int64_t;  // a moment (CLOCK_MONOTONIC) or a span; names say which

inline constexpr Nanoseconds kMillisecond = 1'000'000;
inline constexpr Nanoseconds kSecond = 1'000'000'000;

inline Nanoseconds now_ns() noexcept {
  timespec moment{};
  ::clock_gettime(CLOCK_MONOTONIC, &moment);
  return static_cast<Nanoseconds>(moment.tv_sec) * kSecond + static_cast<Nanoseconds>(moment.tv_nsec);
}

// The same clock as the last tick left it: up to some milliseconds behind, at a tenth of the cost.  For what is judged in
// heartbeats.
inline Nanoseconds coarse_now_ns() noexcept {
  timespec moment{};
  ::clock_gettime(CLOCK_MONOTONIC_COARSE, &moment);
  return static_cast<Nanoseconds>(moment.tv_sec) * kSecond + static_cast<Nanoseconds>(moment.tv_nsec);
}

// How far it may be behind.
inline Nanoseconds coarse_tick() noexcept {
  static const Nanoseconds tick = [] {
    timespec resolution{};
    ::clock_getres(CLOCK_MONOTONIC_COARSE, &resolution);
    return static_cast<Nanoseconds>(resolution.tv_sec) * kSecond + static_cast<Nanoseconds>(resolution.tv_nsec);
  }();
  return tick;
}

// The longest time in one system call of a caller's wait.  A signal that arrives just before the call does not end it,
// so this bounds how late its handler can run.
inline constexpr Nanoseconds kSlice = 200 * kMillisecond;

// What is left until `deadline`, never negative, at most `longest`, as the kernel wants it.
inline timespec remaining(Nanoseconds deadline, Nanoseconds longest = 60 * kSecond) noexcept {
  const Nanoseconds now = now_ns();
  const Nanoseconds left = deadline <= now ? 0 : deadline - now > longest ? longest : deadline - now;
  timespec span{};
  span.tv_sec = static_cast<std::time_t>(left / kSecond);
  span.tv_nsec = static_cast<long>(left % kSecond);
  return span;
}

// The same in whole milliseconds, rounded up, so that a wait never ends early.
inline int remaining_ms(Nanoseconds deadline) noexcept {
  const Nanoseconds now = now_ns();
  if (deadline <= now) return 0;
  constexpr Nanoseconds longest = 60 * kSecond;  // callers loop; it keeps the number in an int
  const Nanoseconds left = deadline - now > longest ? longest : deadline - now;
  return static_cast<int>((left + kMillisecond - 1) / kMillisecond);
}

}  // namespace ofl
