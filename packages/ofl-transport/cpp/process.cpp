#include "process.hpp"

#include <atomic>
#include <cerrno>
#include <system_error>

#include <pthread.h>
#include <sched.h>
#include <sys/random.h>

namespace ofl {

namespace {

std::atomic<std::uint32_t> g_fork_generation{0};
std::atomic<std::uint64_t> g_nonce{0};  // 0: not drawn yet in this process

void begin_new_life() noexcept {
  g_fork_generation.fetch_add(1, std::memory_order_relaxed);
  g_nonce.store(0, std::memory_order_relaxed);
}

[[maybe_unused]] const int g_registered = ::pthread_atfork(nullptr, nullptr, begin_new_life);

}  // namespace

std::uint64_t random_nonce() {
  for (;;) {
    std::uint64_t nonce = 0;
    const ssize_t got = ::getrandom(&nonce, sizeof nonce, 0);
    if (got == static_cast<ssize_t>(sizeof nonce) && nonce != 0) return nonce;
    if (got < 0 && errno != EINTR) throw std::system_error(errno, std::generic_category(), "getrandom");
  }
}

std::uint64_t process_nonce() {
  std::uint64_t seen = g_nonce.load(std::memory_order_relaxed);
  if (seen != 0) return seen;
  const std::uint64_t drawn = random_nonce();
  return g_nonce.compare_exchange_strong(seen, drawn, std::memory_order_relaxed) ? drawn : seen;
}

unsigned usable_cpus() noexcept {
  cpu_set_t set;
  if (::sched_getaffinity(0, sizeof set, &set) != 0) return 1;
  const int count = CPU_COUNT(&set);
  return count > 0 ? static_cast<unsigned>(count) : 1U;
}

std::uint32_t fork_generation() noexcept { return g_fork_generation.load(std::memory_order_relaxed); }

}  // namespace ofl
