#include "process.hpp"

#include <atomic>
#include <cerrno>
#include <system_error>

#include <sys/random.h>

namespace engram {

namespace {

std::atomic<std::uint32_t> generation{1};

// Registered when the library is loaded, so that no fork is missed.
const int registered = ::pthread_atfork(nullptr, nullptr, [] { generation.fetch_add(1, std::memory_order_relaxed); });

}  // namespace

std::uint64_t random_nonce() {
  std::uint64_t nonce = 0;
  while (nonce == 0) {
    if (::getrandom(&nonce, sizeof nonce, 0) == static_cast<ssize_t>(sizeof nonce)) continue;
    if (errno != EINTR) throw std::system_error(errno, std::system_category(), "getrandom");
    nonce = 0;
  }
  return nonce;
}

std::uint32_t fork_generation() noexcept {
  static_cast<void>(registered);
  return generation.load(std::memory_order_relaxed);
}

}  // namespace engram
