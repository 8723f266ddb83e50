// The only atomics on shared memory.  Words are plain integers in the region's structs; every access of a word that two
// processes use goes through one of these, and names its partner where it is made.
#pragma once

#include <atomic>
#include <cstdint>

namespace ofl {

static_assert(std::atomic_ref<std::uint64_t>::is_always_lock_free, "a lock would live in one process only");

inline std::uint64_t load_acquire(std::uint64_t& word) noexcept {
  return std::atomic_ref(word).load(std::memory_order_acquire);
}

inline std::uint64_t load_relaxed(std::uint64_t& word) noexcept {
  return std::atomic_ref(word).load(std::memory_order_relaxed);
}

inline void store_release(std::uint64_t& word, std::uint64_t value) noexcept {
  std::atomic_ref(word).store(value, std::memory_order_release);
}

inline void store_relaxed(std::uint64_t& word, std::uint64_t value) noexcept {
  std::atomic_ref(word).store(value, std::memory_order_relaxed);
}

// Between a store and a load of another word, on both sides of "I sleep unless you wrote" and "I wrote: do you sleep?".
inline void full_fence() noexcept {
#if defined(__SANITIZE_THREAD__)
  // ThreadSanitizer knows no fences and the compiler refuses one; none of its orderings depends on this.
#if defined(__x86_64__)
  asm volatile("mfence" ::: "memory");
#elif defined(__aarch64__)
  asm volatile("dmb ish" ::: "memory");
#else
#error "which instruction is a full fence here?"
#endif
#else
  std::atomic_thread_fence(std::memory_order_seq_cst);
#endif
}

// Asks for the line of a word, to be written soon.
inline void prefetch_to_write(const std::uint64_t* word) noexcept {
#if defined(__x86_64__)
  asm volatile("prefetchw %0" : : "m"(*word));  // the builtin means a copy that others may keep
#else
  __builtin_prefetch(word, 1);
#endif
}

// For the body of a loop that looks without sleeping.
inline void relax() noexcept {
#if defined(__x86_64__)
  __builtin_ia32_pause();
#elif defined(__aarch64__)
  asm volatile("isb" ::: "memory");  // `yield` does nothing on the cores at hand
#endif
}

}  // namespace ofl
